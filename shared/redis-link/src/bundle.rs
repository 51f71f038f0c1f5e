//! [`Bundle`]: commands that go to a node together, and [`Reply`]: what comes back.

use redis::{Cmd, FromRedisValue, Value, from_redis_value};

use crate::{Result, epoch::Epoch, error::link_error};

/// The cost of a call itself, as a number of users.
pub(crate) const CALL: usize = 5;

/// Whether a response may be stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// The response contains every change that was made before the request.
    Strong,
    /// The response may be stale by a moment, so the caller must not depend on its own recent changes.
    Eventual,
}

/// Commands on keys of one slot. They go to the slot's node together, in this order.
#[derive(Debug, Clone)]
pub struct Bundle {
    pub commands: Vec<Cmd>,
    pub consistency: Consistency,
    /// Bulk work, as a number of users who would cost as much in a delivery. It goes to a node in its turn, so that
    /// other commands wait for little of it. `None` for any other commands.
    pub bulk: Option<usize>,
}

/// The work of a trip with these bundles; `None` if none is bulk work.
pub(crate) fn work_of<'a>(bundles: impl IntoIterator<Item = &'a Bundle>) -> Option<usize> {
    bundles.into_iter().filter_map(|bundle| Some(bundle.bulk? + CALL)).reduce(|sum, work| sum + work)
}

impl From<Cmd> for Bundle {
    fn from(command: Cmd) -> Self {
        Self { commands: vec![command], consistency: Consistency::Strong, bulk: None }
    }
}

impl Bundle {
    /// The same commands, with a response of this consistency.
    pub fn with(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }
}

/// The response to a [`Bundle`], or to all of a trip.
#[derive(Debug)]
pub struct Reply {
    /// One value for each command. In the response to a trip, a value may be an error.
    pub values: Vec<Value>,
    /// The epoch of the server that returned the values.
    pub epoch: Epoch,
}

impl Reply {
    /// The last value, and the epoch.
    pub fn last(mut self) -> (Value, Epoch) {
        (self.values.pop().unwrap_or(Value::Nil), self.epoch)
    }
}

/// Decodes a value of a [`Reply`].
pub fn read<T: FromRedisValue>(operation: &'static str, response: Value) -> Result<T> {
    from_redis_value(response).map_err(|error| link_error(operation, error.into()))
}
