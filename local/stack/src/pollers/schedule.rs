//! The passing of time to invocations.

use super::Context;
use crate::{clock, template::ScheduleSource};

/// Fires until the stop signal. What would have fired while the function was paused, fires once when it is resumed.
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
        // A failure is logged by the invocation; the next firing is the retry.
        let _ = context.core.invoke(unit, source.input.clone()).await;
        drop(pass);
    }
}
