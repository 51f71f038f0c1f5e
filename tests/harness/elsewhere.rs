//! DynamoDB and SQS that are not the stack's. `make test-elsewhere` starts emulators and lists them in the environment.
//! Each world has one for itself, because names of tables and queues are the same in all worlds.

use std::sync::{LazyLock, Mutex, PoisonError};

use tidemark_local::Options;

use crate::{aws_config, until, variable};

#[derive(Debug)]
struct Emulator {
    dynamodb: String,
    /// `None` if the stack's own queues are used.
    sqs: Option<String>,
}

/// The emulators that no world uses. `None` if tests use the stack's own stores.
static FREE: LazyLock<Option<Mutex<Vec<Emulator>>>> = LazyLock::new(|| {
    let mut sqs = variable("TIDEMARK_TEST_SQS").map(urls).into_iter().flatten();
    let dynamodb = urls(variable("TIDEMARK_TEST_DYNAMODB")?);
    Some(Mutex::new(dynamodb.into_iter().map(|dynamodb| Emulator { dynamodb, sqs: sqs.next() }).collect()))
});

fn urls(list: String) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

/// The use of one emulator until the drop.
#[derive(Debug)]
pub(crate) struct Lease(Option<Emulator>);

impl Lease {
    /// Waits for a free emulator, empties it, and sets the options of a stack. `None` without emulators.
    pub(crate) async fn take(options: &mut Options) -> Option<Self> {
        let free = FREE.as_ref()?;
        let mut taken = None;
        until("an emulator is free", async || {
            taken = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            taken.is_some()
        })
        .await;
        let lease = Self(taken);
        let emulator = lease.0.as_ref()?;
        emulator.empty().await;
        options.dynamodb_url = Some(emulator.dynamodb.clone());
        options.sqs_url.clone_from(&emulator.sqs);
        Some(lease)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let (Some(free), Some(emulator)) = (FREE.as_ref(), self.0.take()) {
            free.lock().unwrap_or_else(PoisonError::into_inner).push(emulator);
        }
    }
}

impl Emulator {
    async fn empty(&self) {
        let dynamodb = aws_sdk_dynamodb::Client::new(&aws_config(&self.dynamodb).await);
        until("the emulator has no tables", async || {
            let tables = dynamodb.list_tables().send().await.expect("the emulator lists tables").table_names.unwrap_or_default();
            for table in &tables {
                // The table may be one that is being deleted.
                let _ = dynamodb.delete_table().table_name(table).send().await;
            }
            tables.is_empty()
        })
        .await;
        let Some(url) = &self.sqs else { return };
        let sqs = aws_sdk_sqs::Client::new(&aws_config(url).await);
        let queues = sqs.list_queues().send().await.expect("the emulator lists queues").queue_urls.unwrap_or_default();
        for queue in queues {
            sqs.delete_queue().queue_url(queue).send().await.expect("the emulator deletes a queue");
        }
    }
}
