//! Drains follower batches into Redis and lists further pages.
//!
//! Each message stands alone: one that fails goes back by itself, one that is malformed reaches the dead-letter queue by itself.

use std::time::Duration;

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use futures::{StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{App, fan_out, ports::Task, queue};
use tracing::{error, warn};

/// Messages of one event worked on side by side, all there are in one: the last would have Redis wait for it. Each calls one script after another, so that readers
/// get their turn.
const PARALLEL: usize = 3;

/// A page task hands its rest on after this time, so that it does not hold a worker that others wait for, and in any case this long before the function's deadline.
const SLICE: Duration = Duration::from_secs(1);
const RESERVE: Duration = Duration::from_secs(5);

/// Works on one event.
///
/// # Errors
/// Never: what failed is reported message by message.
pub async fn handle(app: &App, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Error> {
    let deadline = event.context.deadline.saturating_sub(RESERVE.as_millis() as u64);
    let stop_at = deadline.min(app.stores.clock.now().ms() + SLICE.as_millis() as u64);
    let (mut tasks, mut failures) = (Vec::new(), Vec::new());
    for message in event.payload.records {
        match decode(message) {
            Ok(task) => tasks.push(task),
            Err(malformed) => failures.push(malformed),
        }
    }
    tasks.sort_by_key(|(_, task)| size(task));
    let failed = stream::iter(tasks).map(|(id, task)| work(app, id, task, stop_at)).buffered(PARALLEL);
    failures.extend(failed.filter_map(async |failure| failure).collect::<Vec<_>>().await);
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = failures;
    Ok(response)
}

fn decode(message: SqsMessage) -> Result<(String, Task), BatchItemFailure> {
    let id = message.message_id.unwrap_or_default();
    match queue::decode(message.body.as_deref().unwrap_or_default()) {
        Ok(task) => Ok((id, task)),
        Err(error) => {
            error!(message = id, %error, "malformed message, leaving it to the dead-letter queue");
            Err(failure(id))
        }
    }
}

/// Small tasks come first, so that a small author's followers do not wait for a big one's in the same event.
fn size(task: &Task) -> usize {
    match task {
        Task::Sync { .. } | Task::Rebuild { .. } | Task::Notices { .. } | Task::Tell { .. } => 1,
        Task::Batch { followers, .. } => followers.len(),
        Task::List { .. } => usize::MAX,
    }
}

async fn work(app: &App, id: String, task: Task, stop_at: u64) -> Option<BatchItemFailure> {
    let out_of_time = || app.stores.clock.now().ms() >= stop_at;
    match app.fan_outs.run(&task, &out_of_time).await {
        Ok(()) => {
            app.fan_outs.later.done(&task).await;
            None
        }
        Err(error) => {
            warn!(message = id, error = &error as &dyn std::error::Error, "task failed");
            // It is tried again in a message of its own: it waits seconds instead of the queue's visibility timeout, and as often as an outage lasts.
            let again = app.fan_outs.later.again(&task, fan_out::most_tries(&error, &task)).await.is_ok();
            (!again).then(|| failure(id))
        }
    }
}

fn failure(id: String) -> BatchItemFailure {
    let mut failure = BatchItemFailure::default();
    failure.item_identifier = id;
    failure
}
