//! Emulators that `make test-elsewhere` starts and lists in `TIDEMARK_TEST_STORES`. Each world has one for itself,
//! because names of tables and queues are the same in all worlds.

use std::sync::{LazyLock, Mutex, PoisonError};

use tidemark_local::Options;

use crate::{until, variable};

/// The addresses that no world uses. `None` if tests use the stack's own stores.
static FREE: LazyLock<Option<Mutex<Vec<String>>>> =
    LazyLock::new(|| Some(Mutex::new(variable("TIDEMARK_TEST_STORES")?.split(',').map(str::to_owned).collect())));

/// The use of one emulator until the drop.
#[derive(Debug)]
pub(crate) struct Lease(String);

impl Lease {
    /// Waits for a free emulator, empties it, and makes the stack use it. `None` without emulators.
    pub(crate) async fn take(options: &mut Options) -> Option<Self> {
        let free = FREE.as_ref()?;
        let mut taken = None;
        until("an emulator is free", async || {
            taken = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            taken.is_some()
        })
        .await;
        let lease = Self(taken?);
        let emptied = reqwest::Client::new().post(format!("{}/_ministack/reset", lease.0)).send().await;
        assert!(emptied.is_ok_and(|response| response.status().is_success()), "the emulator is emptied");
        options.stores_url = Some(lease.0.clone());
        Some(lease)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(free) = FREE.as_ref() {
            free.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.0));
        }
    }
}
