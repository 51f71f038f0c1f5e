//! What the stores are like: faults at chosen requests, and the weather.

mod conditions;
mod faults;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

pub(crate) use conditions::Conditions;
pub use conditions::Weather;
pub(crate) use faults::Call;
pub use faults::{Callback, Fault, FaultAction, Faults, Planted};

/// What surrounds the services of a stack; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) faults: Arc<Faults>,
    pub(crate) conditions: Arc<Conditions>,
    pub(crate) open: OpenRequests,
}

impl Surroundings {
    /// Whether requests go straight to the services.
    pub(crate) fn are_calm(&self) -> bool {
        self.faults.is_empty() && self.conditions.weather() == Weather::Calm
    }
}

/// How many requests are delayed or otherwise disturbed right now. Each may still write something, even if its caller has given up, so
/// a stack with any is not idle.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests(Arc<AtomicUsize>);

impl OpenRequests {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one more until the result is dropped.
    pub(crate) fn enter(&self) -> OpenRequest {
        self.0.fetch_add(1, Ordering::SeqCst);
        OpenRequest(Arc::clone(&self.0))
    }
}

/// One of the [`OpenRequests`].
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<AtomicUsize>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
