//! Runs the jobs of reconcile on a schedule. `shared/reconcile/` has them; this crate parses events and renders
//! reports.

mod event;

use aws_lambda_events::sqs::SqsEvent;
use futures::FutureExt;
use lambda_runtime::{Error, LambdaEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use tidemark::{App, Failure};
use tidemark_reconcile_lib::{Reconcile, ReconcileError, Report, Segment};
use tracing::{info, warn};

use event::{Job, Run};

/// A walk ends this long before the function's deadline. Its last step, and the note of its position, take less time.
const RESERVE_MS: u64 = 15_000;

/// Runs the job that the event, or a message of the walk queue, names: `minute`, its parts `fan-outs` and `marks`,
/// `users`, or `forget`. With `"dry_run":true` it changes nothing. `event::Run` has the other settings.
///
/// # Errors
/// The event has an unknown job or setting, or a store is unavailable.
pub async fn handle(app: &App, event: LambdaEvent<Value>) -> Result<Value, Failure> {
    let invocation = app.invocation(&event.context);
    let response = run(app, event).await;
    invocation.worked(1, usize::from(response.is_err()));
    response.map_err(failure)
}

/// Only stores, other executions and the event itself make an invocation fail.
fn failure(error: Error) -> Failure {
    match error.downcast::<ReconcileError>() {
        Ok(error) => match *error {
            ReconcileError::Store(error) => error.into(),
            error @ ReconcileError::Overtaken => Failure::new("Overtaken", error),
        },
        Err(error) => Failure::new("InvalidEvent", error),
    }
}

async fn run(app: &App, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let stop_at = event.context.deadline.saturating_sub(RESERVE_MS);
    if event.payload.get("Records").is_none() {
        return run_job(app, &event.payload, stop_at).boxed().await;
    }
    let mut reports = Vec::new();
    for message in SqsEvent::deserialize(event.payload)?.records {
        let job = serde_json::from_str(message.body.as_deref().unwrap_or_default())?;
        match run_job(app, &job, stop_at).boxed().await {
            // A repeated message: the execution that was faster continues the walk.
            Err(error) if matches!(error.downcast_ref(), Some(ReconcileError::Overtaken)) => {}
            Err(error) if error.is::<ReconcileError>() => {
                reports.push(rendered("users", &unavailable(app, "users", error.as_ref())));
            }
            report => reports.push(report?),
        }
    }
    let failed: u64 = reports.iter().filter_map(|report: &Value| report["failed"].as_u64()).sum();
    Ok(json!({ "job": "users", "segments": reports, "failed": failed }))
}

async fn run_job(app: &App, event: &Value, stop_at: u64) -> Result<Value, Error> {
    let run = Run::read(event)?;
    let reconcile = Reconcile::new(app);
    let segments = || Segment::all(app.settings.walk_segments);
    let in_segments = app.settings.walk_segments > 1 && !run.plan.dry_run && run.plan.segment == Segment::WHOLE;
    let out_of_time = || app.stores.clock.now().ms() >= stop_at;
    Ok(match run.job {
        Job::FanOuts => rendered("fan-outs", &reconcile.flow(&run.plan, &run.flow, &out_of_time).boxed().await?),
        Job::Marks => rendered("marks", &reconcile.marks(&run.plan).boxed().await?),
        Job::Forget => rendered("forget", &reconcile.forget(&run.plan, run.from.as_ref(), &out_of_time).await?),
        Job::Users if in_segments && run.from.is_none() => {
            reconcile.begin(segments(), &run.plan).await?;
            json!({ "job": "users", "segments": reconcile.in_progress(segments()).await?, "failed": 0 })
        }
        Job::Users => {
            let report = reconcile.walk(&run.plan, run.from.clone(), run.only_continues, &out_of_time).boxed().await?;
            report.map_or(Value::Null, |report| rendered("users", &report))
        }
        Job::Minute => {
            let mut response = minute(&reconcile, &run, stop_at).boxed().await?;
            if in_segments && response["users"].is_null() {
                response["users"] = send_segments(&reconcile, event, segments()).await?;
            }
            response
        }
    })
}

/// Sends an event for each segment whose walk is in progress, so that as many executions continue them. The next minute
/// replaces a message that is lost.
async fn send_segments(
    reconcile: &Reconcile,
    event: &Value,
    all: impl Iterator<Item = Segment>,
) -> Result<Value, ReconcileError> {
    let segments = reconcile.in_progress(all).await?;
    let message = |segment: &Segment| {
        let mut message = event.clone();
        (message["job"], message["segment"]) = (json!("users"), json!(segment));
        message
    };
    reconcile.app.stores.queues.walks.send(&segments.iter().map(message).collect::<Vec<_>>()).await?;
    Ok(if segments.is_empty() { Value::Null } else { json!({ "job": "users", "segments": segments, "failed": 0 }) })
}

/// Runs the parts of a minute. The most urgent part is first.
async fn minute(reconcile: &Reconcile, run: &Run, stop_at: u64) -> Result<Value, ReconcileError> {
    // Fan-outs have half of the time. The other half is for the parts after them.
    let now = || reconcile.app.stores.clock.now().ms();
    let half = now() + stop_at.saturating_sub(now()) / 2;
    let app = &reconcile.app;
    let fan_outs = reconcile.flow(&run.plan, &run.flow, &|| now() >= half).boxed().await;
    let fan_outs = fan_outs.unwrap_or_else(|error| unavailable(app, "fan-outs", &error));
    let marks = reconcile.marks(&run.plan).await.unwrap_or_else(|error| unavailable(app, "marks", &error));
    let out_of_time = || now() >= stop_at;
    let walk = match out_of_time() {
        true => None,
        false => match reconcile.walk(&run.plan, None, true, &out_of_time).await {
            Err(error @ ReconcileError::Store(_)) => Some(unavailable(app, "users", &error)),
            walk => walk?,
        },
    };
    let mut response = rendered("fan-outs", &fan_outs);
    response["job"] = json!("minute");
    response["failed"] = json!(fan_outs.failed + marks.failed + walk.as_ref().map_or(0, |walk| walk.failed));
    response["marks"] = rendered("marks", &marks);
    response["users"] = walk.map_or(Value::Null, |walk| rendered("users", &walk));
    Ok(response)
}

/// The report of a part that cannot run, because a store is unavailable. It counts one failure. The other parts run all
/// the same, and the invocation is no error of Lambda, so that the counts alone tell of it.
fn unavailable(app: &App, job: &'static str, error: &(dyn std::error::Error + 'static)) -> Report {
    warn!(job, error, "could not be looked at");
    let mut report = Report::new(false);
    report.failed = 1;
    report.emit(&app.stores.recorder, job);
    report
}

/// Renders a report. Logs it if it has differences or failures.
fn rendered(job: &'static str, report: &Report) -> Value {
    if !report.found.is_empty() || report.failed > 0 {
        let [found, repaired] = [&report.found, &report.repaired].map(|counts| json!(counts).to_string());
        info!(job, dry_run = report.dry_run, found, repaired, failed = report.failed, "differences");
    }
    let mut response = json!(report);
    response["job"] = json!(job);
    response
}
