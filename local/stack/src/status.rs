//! [`Status`]: what the stack has left to do.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{sqs::Counts, weather::Weather};

/// The response of `GET /_local/status`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// True if nothing is queued, in flight or unread. Queues that no function consumes do not count.
    pub idle: bool,
    /// Message counts by the queue's logical id.
    pub queues: BTreeMap<String, Counts>,
    /// Unread stream records by the table's logical id.
    pub streams: BTreeMap<String, Behind>,
    /// Functions by the name of their binary.
    pub functions: BTreeMap<String, FunctionStatus>,
    /// Process ids of the functions that run as processes.
    pub processes: BTreeMap<String, Vec<u32>>,
    pub weather: Weather,
    pub redis_url: String,
    pub dynamodb_endpoint: String,
    pub sqs_endpoint: String,
    /// The values of the template's parameters.
    pub parameters: BTreeMap<String, String>,
}

/// The backlog of the slowest reader of a stream.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Behind {
    /// Records that the reader has not handled. The count stops at 100,000.
    pub behind: u64,
}

/// The state of a function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionStatus {
    /// True if the function's sources are held back.
    pub paused: bool,
    /// True if the function has a source: a queue, a stream or a schedule.
    pub has_sources: bool,
    /// Invocations that the function's sources started and that have not ended.
    pub in_flight: usize,
}
