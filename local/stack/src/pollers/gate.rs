//! Pauses a function's sources and counts the invocations that they start.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    paused: bool,
    active: usize,
}

/// Stands between a function and its sources. A source enters before it takes anything from a queue or stream, so the
/// sources of a paused function leave their messages and records in place.
pub(crate) struct Gate {
    state: watch::Sender<State>,
    /// The number of entries, shared by all gates.
    entries: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn new(entries: Arc<AtomicU64>) -> Self {
        Self { state: watch::Sender::new(State::default()), entries }
    }

    /// Waits while the function is paused. The invocation counts as in flight until the pass is dropped.
    pub(crate) async fn enter(self: &Arc<Self>) -> Pass {
        loop {
            // An error would mean that there is no sender, and `self` holds one.
            let _ = self.state.subscribe().wait_for(|state| !state.paused).await;
            let entered = self.state.send_if_modified(|state| {
                state.active += usize::from(!state.paused);
                !state.paused
            });
            if entered {
                return self.pass();
            }
        }
    }

    /// Enters without waiting, even if the function is paused.
    pub(crate) fn force(self: &Arc<Self>) -> Pass {
        self.state.send_modify(|state| state.active += 1);
        self.pass()
    }

    fn pass(self: &Arc<Self>) -> Pass {
        self.entries.fetch_add(1, Ordering::SeqCst);
        Pass(Arc::clone(self))
    }

    /// Closes the gate and waits until nothing is in flight.
    pub(crate) async fn pause(&self) {
        self.state.send_modify(|state| state.paused = true);
        let _ = self.state.subscribe().wait_for(|state| state.active == 0).await;
    }

    pub(crate) fn resume(&self) {
        self.state.send_modify(|state| state.paused = false);
    }

    pub(crate) fn paused(&self) -> bool {
        self.state.borrow().paused
    }

    pub(crate) fn active(&self) -> usize {
        self.state.borrow().active
    }
}

/// Permission to be inside a [`Gate`]. Dropping it leaves the gate.
pub(crate) struct Pass(Arc<Gate>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| state.active -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_pause_waits_for_invocations_in_flight_and_starts_no_other() {
        let gate = Arc::new(Gate::new(Arc::default()));
        let pass = gate.enter().await;
        let mut pause = std::pin::pin!(gate.pause());
        assert!(poll!(pause.as_mut()).is_pending(), "an invocation is in flight");
        drop(pass);
        assert!(poll!(pause.as_mut()).is_ready());
        let mut enter = std::pin::pin!(gate.enter());
        assert!(poll!(enter.as_mut()).is_pending(), "the gate is closed");
        gate.resume();
        assert!(poll!(enter.as_mut()).is_ready());
    }
}
