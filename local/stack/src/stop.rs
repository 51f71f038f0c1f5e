//! A stop signal. It is given once, and any number of tasks can wait for it.

use tokio::sync::watch;

/// The signal. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    sender: watch::Sender<bool>,
}

impl Stop {
    pub(crate) fn new() -> Self {
        Self { sender: watch::Sender::new(false) }
    }

    pub(crate) fn give(&self) {
        self.sender.send_replace(true);
    }

    pub(crate) fn given(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits for the signal. Returns at once if it was given before.
    pub(crate) async fn cancelled(&self) {
        // An error would mean that there is no sender, and `self` holds one.
        let _ = self.sender.subscribe().wait_for(|given| *given).await;
    }
}

/// Gives the signal when it is dropped, so that no waiting task outlives the owner.
#[derive(Debug)]
pub(crate) struct StopOnDrop(Stop);

impl StopOnDrop {
    pub(crate) fn new() -> Self {
        Self(Stop::new())
    }
}

impl std::ops::Deref for StopOnDrop {
    type Target = Stop;

    fn deref(&self) -> &Stop {
        &self.0
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.give();
    }
}
