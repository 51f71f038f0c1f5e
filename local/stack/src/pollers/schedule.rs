//! Schedules: they turn time into invocations.

use super::Context;
use crate::{clock, template::ScheduleSource};

/// Fires until the stop signal. Firings that are due while the function is paused become one firing when it resumes.
pub(super) async fn run(context: Context, function: String, source: ScheduleSource) {
    let Some(unit) = context.unit(&function) else { return };
    while let Some(wait) = source.expression.next_after(clock::now_seconds()) {
        tokio::select! {
            () = context.stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let pass = tokio::select! {
            () = context.stop.cancelled() => return,
            pass = unit.gate.enter() => pass,
        };
        // The invocation logs a failure. The next firing is the retry.
        let _ = context.core.invoke(unit, source.input.clone()).await;
        drop(pass);
    }
}
