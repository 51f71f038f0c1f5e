//! Event source mappings and schedules: they turn messages, stream records and time into invocations.

pub(crate) mod gate;
mod sqs;
mod stream;

pub(crate) use stream::advance;

use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    core::{Core, Unit},
    redis::storms,
    runner::Invoked,
    template::{EventSource, ScheduleSource},
};

#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) core: Arc<Core>,
    pub(crate) stop: CancellationToken,
}

impl Context {
    fn unit(&self, logical_id: &str) -> Option<&Unit> {
        self.core.units.get(logical_id)
    }
}

/// Starts a poller for every event source, and the storms of the stack's own Redis. Each ends at the stop signal, a
/// poller after its current invocation.
pub(crate) fn start(context: &Context, schedules: bool) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (id, unit) in &context.core.units {
        for event in &unit.function.events {
            match &event.source {
                EventSource::Http(_) => {}
                EventSource::Sqs(source) => {
                    for _ in 0..sqs::concurrency(source) {
                        tasks.spawn(sqs::poll(context.clone(), id.clone(), source.clone()));
                    }
                }
                EventSource::Stream(source) => {
                    tasks.spawn(stream::poll(context.clone(), id.clone(), source.clone()));
                }
                EventSource::Schedule(source) if schedules && source.enabled => {
                    tasks.spawn(run_schedule(context.clone(), id.clone(), source.clone()));
                }
                EventSource::Schedule(_) => {}
            }
        }
    }
    for node in &context.core.own_redis {
        let conditions = Arc::clone(&context.core.surroundings.conditions);
        tasks.spawn(storms(node.clone(), conditions, context.stop.clone()));
    }
    tasks
}

/// Fires until the stop signal. Firings that are due while the function is paused become one firing when it resumes.
async fn run_schedule(context: Context, function: String, source: ScheduleSource) {
    let Some(unit) = context.unit(&function) else { return };
    while let Some(wait) = source.expression.next_after(clock::now_seconds()) {
        let Some(()) = context.stop.run_until_cancelled(tokio::time::sleep(wait)).await else { return };
        let Some(_pass) = context.stop.run_until_cancelled(unit.gate.enter()).await else { return };
        // The invocation logs a failure. The next firing is the retry.
        let _ = context.core.invoke(unit, source.input.clone()).await;
    }
}

/// The name of a function's position in the stream of a table, by the table's physical name: a table that replaces
/// another has a stream of its own.
pub(crate) fn position_key(function: &str, table: &str) -> String {
    format!("{function}/{table}")
}

/// The indexes of a batch's items that failed; `None` if the whole batch failed. As in Lambda, it has also failed after
/// a result of the wrong shape, or one whose `batchItemFailures` names an item that is not in the batch.
fn failed_items(unit: &Unit, report: bool, response: &Invoked, batch: &[&str]) -> Option<Vec<usize>> {
    let failures = &response.as_ref().ok()?["batchItemFailures"];
    if !report || failures.is_null() {
        return Some(Vec::new());
    }
    let index = |item: &Value| batch.iter().position(|id| item["itemIdentifier"] == *id);
    let indexes = failures.as_array().and_then(|items| items.iter().map(index).collect());
    if indexes.is_none() {
        let function = &unit.function.binary;
        tracing::warn!(function, "the result names items that are not in the batch: the whole batch failed");
    }
    indexes
}

#[cfg(test)]
mod tests;
