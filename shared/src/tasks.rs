//! Runs the tasks of a queue's event.
//!
//! Each message is handled separately. A failed task is sent again on its own, and a malformed message reaches the
//! dead-letter queue on its own.

use std::time::Duration;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use futures::{StreamExt, stream};
use lambda_runtime::LambdaEvent;
use tidemark_queue::{self as queue, Task, Tried};

use crate::App;

/// Messages of one event that are processed concurrently. One reads facts while another has the turn at Redis.
const PARALLEL: usize = 3;

/// A page task sends its rest as a new task after this time, so that it does not hold a worker that others wait for.
const SLICE: Duration = Duration::from_secs(1);
/// It does so this long before the function's deadline at the latest.
const RESERVE: Duration = Duration::from_secs(5);

/// Runs the tasks of one event. It reports each failed message.
pub async fn run_tasks(app: &App, event: LambdaEvent<SqsEvent>) -> SqsBatchResponse {
    let invocation = app.invocation(&event.context);
    let records = event.payload.records.len();
    let deadline = event.context.deadline.saturating_sub(RESERVE.as_millis() as u64);
    let stop_at = deadline.min(app.stores.clock.now().ms() + SLICE.as_millis() as u64);
    let (mut tasks, mut failures) = (Vec::new(), Vec::new());
    for message in event.payload.records {
        match queue::received::<Tried<Task>>(message.message_id, message.body) {
            Ok(message) => tasks.push(message),
            Err(malformed) => failures.push(malformed),
        }
    }
    tasks.sort_by_key(|(_, tried)| size(&tried.task));
    // What cannot begin in time returns to the queue.
    let is_late = || app.stores.clock.now().ms() >= deadline;
    let run = async |(id, tried)| if is_late() { Some(id) } else { work(app, id, tried, stop_at).await };
    let failed = stream::iter(tasks).map(run).buffered(PARALLEL);
    failures.extend(failed.filter_map(async |failure| failure).collect::<Vec<_>>().await);
    invocation.worked(records, failures.len());
    let mut response = SqsBatchResponse::default();
    response.set_failures(failures);
    response
}

/// The sort key of a task. Small tasks run first, so that a small author's followers do not wait for a big author's
/// followers in the same event.
fn size(task: &Task) -> usize {
    match task {
        Task::Rank { .. } | Task::Rescore { .. } | Task::Group { .. } => 1,
        Task::Batch { followers, .. } => followers.len(),
        Task::List { .. } | Task::Move { .. } | Task::Erase { .. } => usize::MAX,
    }
}

/// Runs the task of a message. Returns the id of the message if it has to return to the queue.
async fn work(app: &App, id: String, Tried { task, tries }: Tried<Task>, stop_at: u64) -> Option<String> {
    let out_of_time = || app.stores.clock.now().ms() >= stop_at;
    let done = app.worker.work(&id, (&task, tries), &out_of_time).await;
    (!done).then_some(id)
}
