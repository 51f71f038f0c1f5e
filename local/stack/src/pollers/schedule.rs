//! Schedules: they turn time into invocations.

use super::Context;
use crate::{clock, template::ScheduleSource};

/// Fires until the stop signal. Firings that are due while the function is paused become one firing when it resumes.
pub(super) async fn run(context: Context, function: String, source: ScheduleSource) {
    let Some(unit) = context.unit(&function) else { return };
    while let Some(wait) = source.expression.next_after(clock::now_seconds()) {
        let Some(()) = context.stop.run_until_cancelled(tokio::time::sleep(wait)).await else { return };
        let Some(pass) = context.stop.run_until_cancelled(unit.gate.enter()).await else { return };
        // The invocation logs a failure. The next firing is the retry.
        let _ = context.core.invoke(unit, source.input.clone()).await;
        drop(pass);
    }
}
