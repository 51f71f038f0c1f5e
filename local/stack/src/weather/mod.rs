//! The conditions of the stores: faults at selected requests, and the weather.

mod conditions;
mod faults;

use std::{collections::BTreeSet, sync::Arc};

use tokio::sync::watch;

pub(crate) use conditions::{Conditions, any_seed};
pub use conditions::{Consumption, Weather};
pub(crate) use faults::Call;
pub use faults::{Callback, Fault, FaultAction, Faults, Planted};

/// The weather, the faults and the open requests of a stack. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Surroundings {
    pub(crate) faults: Arc<Faults>,
    pub(crate) conditions: Arc<Conditions>,
    pub(crate) open: OpenRequests,
}

impl Surroundings {
    pub(crate) fn new(weather: Weather, seed: u64) -> Self {
        Self { conditions: Arc::new(Conditions::new(weather, seed)), ..Self::default() }
    }

    /// Returns true if requests go straight to the services.
    pub(crate) fn are_calm(&self) -> bool {
        self.faults.is_empty() && self.conditions.weather() == Weather::Calm
    }
}

/// Requests that are delayed or otherwise disturbed. Each may still write something, even if its caller has given up,
/// so a stack with such requests is not idle. A request in calm weather without faults is not counted.
#[derive(Clone, Debug, Default)]
pub struct OpenRequests(watch::Sender<Open>);

#[derive(Debug, Default)]
struct Open {
    begun: u64,
    numbers: BTreeSet<u64>,
}

impl OpenRequests {
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().numbers.len()
    }

    /// Waits until the requests that are open now have ended.
    pub async fn end(&self) {
        let begun = self.0.borrow().begun;
        // An error would mean that there is no sender, and `self` holds one.
        let _ = self.0.subscribe().wait_for(|open| open.numbers.first().is_none_or(|oldest| *oldest > begun)).await;
    }

    /// Counts one more request until the result is dropped.
    pub(crate) fn enter(&self) -> OpenRequest {
        let mut number = 0;
        self.0.send_modify(|open| {
            open.begun += 1;
            number = open.begun;
            open.numbers.insert(number);
        });
        OpenRequest { all: self.0.clone(), number }
    }
}

pub(crate) struct OpenRequest {
    all: watch::Sender<Open>,
    number: u64,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.all.send_modify(|open| {
            open.numbers.remove(&self.number);
        });
    }
}
