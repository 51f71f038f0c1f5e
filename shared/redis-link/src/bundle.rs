//! [`Bundle`]: commands that go to a node together.

use redis::Cmd;

use crate::pace::CALL;

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
