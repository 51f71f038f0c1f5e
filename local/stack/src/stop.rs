//! A signal that everything should end, which can be given once and heard any number of times.

use tokio::sync::watch;

/// The signal; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    sender: watch::Sender<bool>,
}

impl Stop {
    pub(crate) fn new() -> Self {
        Self { sender: watch::Sender::new(false) }
    }

    /// Gives the signal.
    pub(crate) fn give(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it has been given.
    pub(crate) fn given(&self) -> bool {
        *self.sender.borrow()
    }

    /// Returns once it has been given.
    pub(crate) async fn cancelled(&self) {
        // An error means that no sender is left, and this one is.
        let _ = self.sender.subscribe().wait_for(|given| *given).await;
    }
}

/// Gives the signal when it is dropped, so that whatever waits for it never outlives its owner.
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
