//! Event source mappings and schedules: they turn messages, stream records and time into invocations.

pub(crate) mod gate;
mod schedule;
mod sqs;
mod stream;

use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    core::{Core, Unit},
    template::EventSource,
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

/// Starts a poller for every event source of every function. Each ends at the stop signal, after its current
/// invocation.
pub(crate) fn start(context: &Context, schedules: bool, stream_arn: impl Fn(&str) -> Result<String>) -> Result<JoinSet<()>> {
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
                    let arn = stream_arn(&source.table)?;
                    tasks.spawn(stream::poll(context.clone(), id.clone(), source.clone(), arn));
                }
                EventSource::Schedule(source) if schedules && source.enabled => {
                    tasks.spawn(schedule::run(context.clone(), id.clone(), source.clone()));
                }
                EventSource::Schedule(_) => {}
            }
        }
    }
    Ok(tasks)
}

/// The key under which the position of a source is stored.
pub(crate) fn position_key(function: &str, table: &str) -> String {
    format!("{function}/{table}")
}

/// The items that `batchItemFailures` of a result names, in its order. `None` means that the result has the wrong
/// shape; Lambda treats such a result as a failure of the whole batch.
fn failed_items(response: &Value) -> Option<Vec<&str>> {
    match response.get("batchItemFailures") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => {
            items.iter().map(|item| item.get("itemIdentifier").and_then(Value::as_str).filter(|id| !id.is_empty())).collect()
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
