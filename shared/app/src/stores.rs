//! [`Stores`]: the stores and the surroundings that the use cases share.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tidemark_facts::{Facts, retry::Attempts};
use tidemark_queue::Queues;
use tidemark_views::Views;

use crate::{Clock, Recorder};

/// Facts, views, queues, clock, metrics, random numbers and sleep. Clones share the connections.
#[derive(Clone)]
pub struct Stores {
    pub facts: Facts,
    pub views: Views,
    pub queues: Queues,
    pub clock: Arc<dyn Clock>,
    pub recorder: Arc<Recorder>,
    /// For tokens of leases and rebuilds, and for the pauses between attempts.
    pub random: fn() -> u64,
    pub wait: fn(Duration) -> BoxFuture<'static, ()>,
}

impl Stores {
    pub(crate) fn attempts(&self, operation: &'static str) -> Attempts {
        Attempts::begin(operation, self.wait, self.random)
    }
}
