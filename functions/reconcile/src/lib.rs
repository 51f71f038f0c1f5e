//! Repairs on a schedule. The job it has: fan-outs that are not finished though they should be, and a look at what the projector gave up.

use lambda_runtime::{Error, LambdaEvent};
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::Timestamp,
    fan_out::{FanOutError, Resumed},
};
use tracing::{error, info, warn};

/// A fan-out younger than this is left to its workers.
const OVERDUE_MS: u64 = 30_000;

/// How often a fan-out is resumed before somebody has to look at it: at one run a minute, half an hour.
const MOST_ATTEMPTS: u32 = 30;

/// Posts looked at in one run; the next run goes on.
const POSTS_PER_RUN: usize = 200;

/// Runs the job that the event names. `{"job":"fan-outs","overdue_ms":0}` looks at younger ones too, `"most_attempts":1000` at those that were given up.
///
/// # Errors
/// An unknown job, or the facts do not answer.
pub async fn handle(app: &App, event: LambdaEvent<Value>) -> Result<Value, Error> {
    match event.payload.get("job").and_then(Value::as_str) {
        Some("fan-outs") => {
            let overdue = event.payload.get("overdue_ms").and_then(Value::as_u64).unwrap_or(OVERDUE_MS);
            let before = Timestamp::from_ms(app.clock.now().ms().saturating_sub(overdue));
            let most_attempts = event.payload.get("most_attempts").and_then(Value::as_u64);
            let most_attempts = most_attempts.and_then(|most| u32::try_from(most).ok()).unwrap_or(MOST_ATTEMPTS);
            Ok(fan_outs(app, before, most_attempts).await?)
        }
        job => Err(format!("unknown job {job:?}").into()),
    }
}

/// Sends the missing pages of every overdue fan-out, and tells of stream records that were given up. What fails is counted and left to the next run.
async fn fan_outs(app: &App, before: Timestamp, most_attempts: u32) -> Result<Value, FanOutError> {
    let overdue = app.fan_outs.overdue(before, POSTS_PER_RUN).await?;
    let (mut resumed, mut pages, mut moving, mut given_up, mut failed) = (0, 0, 0, 0, 0);
    for (post, head) in &overdue {
        match app.fan_outs.resume(post, head, most_attempts).await {
            Ok(Resumed::Finished) => resumed += 1,
            Ok(Resumed::Moving) => moving += 1,
            Ok(Resumed::Sent { pages: sent }) => {
                resumed += 1;
                pages += sent;
            }
            Ok(Resumed::GivenUp { attempts }) => {
                given_up += 1;
                error!(post = %post.id, attempts, "fan-out given up");
            }
            Err(error) => {
                failed += 1;
                warn!(post = %post.id, error = &error as &dyn std::error::Error, "fan-out not resumed");
            }
        }
    }
    let stuck = match app.projector_failures.waiting().await {
        Ok(0) => Some(0),
        Ok(records) => {
            warn!(records, "stream records that the projector gave up wait in its failure queue");
            Some(records)
        }
        Err(error) => {
            warn!(error = &error as &dyn std::error::Error, "the projector's failure queue cannot be read");
            None
        }
    };
    if !overdue.is_empty() {
        info!(resumed, pages, given_up, failed, "unfinished fan-outs");
    }
    Ok(json!({
        "job": "fan-outs",
        "unfinished": overdue.len(),
        "resumed": resumed,
        "pages_sent": pages,
        "moving": moving,
        "given_up": given_up,
        "failed": failed,
        "stuck_records": stuck,
    }))
}
