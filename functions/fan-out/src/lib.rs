//! Drains follower batches into Redis and lists further pages.
//!
//! Each message stands alone: one that fails goes back by itself, one that is malformed reaches the dead-letter queue by itself.

use std::time::Duration;

use aws_lambda_events::sqs::{BatchItemFailure, SqsBatchResponse, SqsEvent, SqsMessage};
use futures::{StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{App, queue};
use tracing::{error, warn};

/// Messages of one event worked on side by side. Each calls Redis one script after another, so that readers get their turn.
const PARALLEL: usize = 2;

/// A page task hands its rest on after this time, so that it does not hold a worker that others wait for, and in any case this long before the function's deadline.
const SLICE: Duration = Duration::from_secs(3);
const RESERVE: Duration = Duration::from_secs(5);

/// Works on one event.
///
/// # Errors
/// Never: what failed is reported message by message.
pub async fn handle(app: &App, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Error> {
    let deadline = event.context.deadline.saturating_sub(RESERVE.as_millis() as u64);
    let stop_at = deadline.min(app.clock.now().ms() + SLICE.as_millis() as u64);
    let failures: Vec<Option<BatchItemFailure>> =
        stream::iter(event.payload.records).map(|message| work(app, message, stop_at)).buffered(PARALLEL).collect().await;
    let mut response = SqsBatchResponse::default();
    response.batch_item_failures = failures.into_iter().flatten().collect();
    Ok(response)
}

async fn work(app: &App, message: SqsMessage, stop_at: u64) -> Option<BatchItemFailure> {
    let id = message.message_id.unwrap_or_default();
    let task = match queue::decode(message.body.as_deref().unwrap_or_default()) {
        Ok(task) => task,
        Err(error) => {
            error!(message = id, %error, "malformed message, leaving it to the dead-letter queue");
            return Some(failure(id));
        }
    };
    let out_of_time = || app.clock.now().ms() >= stop_at;
    match app.fan_outs.run(&task, &out_of_time).await {
        Ok(()) => None,
        Err(error) => {
            warn!(message = id, error = &error as &dyn std::error::Error, "task given back");
            Some(failure(id))
        }
    }
}

fn failure(id: String) -> BatchItemFailure {
    let mut failure = BatchItemFailure::default();
    failure.item_identifier = id;
    failure
}
