//! A disturbed fan-out: a restart of the stack, every message twice, Redis emptied.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use serde_json::json;
use tidemark::domain::PostId;
use tidemark_tools::{
    progress::Progress,
    verify::disturb::{double, flush, held},
};

use super::{
    delivery::{Delivery, follow, status},
    stack::OwnStack,
};

/// The moment of each disturbance, as a share of the pages.
const RESTART: f64 = 0.2;
const DOUBLE: f64 = 0.4;
const FLUSH: f64 = 0.6;
const POLL: Duration = Duration::from_millis(20);

/// The results of the disturbances.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disturbed {
    /// The final state of the delivery.
    pub(crate) delivery: Delivery,
    /// Pages done at the restart of the stack, when the messages were sent twice, and when Redis was emptied.
    pub(crate) pages_done: [u64; 3],
    pub(crate) doubled: u64,
    /// Pages that reconcile sent again.
    pub(crate) resumed: u64,
    /// The time from the first look to the end of the delivery.
    pub(crate) took: Duration,
}

/// Disturbs a fan-out three times after its begin, and resumes it until it is done. Replaces the stack.
pub(crate) async fn disturb(
    mut own: OwnStack,
    post: PostId,
    limit: Duration,
    random: &mut StdRng,
) -> anyhow::Result<(OwnStack, Disturbed)> {
    let started = Instant::now();
    let mut disturbed = Disturbed::default();
    let mut progress = Progress::start("disturbed fan-out", "pages");

    disturbed.pages_done[0] = reach(&own, post, RESTART, limit, &mut progress).await?;
    own = own.restart().await?;

    disturbed.pages_done[1] = reach(&own, post, DOUBLE, limit, &mut progress).await?;
    disturbed.doubled = held(&own.api, double(&own.api, random)).await? as u64;

    disturbed.pages_done[2] = reach(&own, post, FLUSH, limit, &mut progress).await?;
    flush(own.stack.redis_url()).await?;

    loop {
        // Queued pages are not missing. Reconcile runs only when the queue is empty, so that it does not send them
        // again.
        while own.fan_out_messages().await? > 0 && started.elapsed() < limit {
            let now = status(&own.api, post).await?;
            progress.set(now.pages_done, now.pages, "");
            tokio::time::sleep(POLL).await;
        }
        disturbed.delivery = status(&own.api, post).await?;
        if disturbed.delivery.is_done() || started.elapsed() >= limit {
            break;
        }
        let response = own.stack.fire("reconcile", Some(json!({"job": "fan-outs", "overdue_ms": 0}))).await?;
        disturbed.resumed += response["pages_sent"].as_u64().unwrap_or_default();
        tokio::time::sleep(POLL).await;
    }
    progress.finish();
    disturbed.took = started.elapsed();
    Ok((own, disturbed))
}

async fn reach(own: &OwnStack, post: PostId, share: f64, limit: Duration, progress: &mut Progress) -> anyhow::Result<u64> {
    let seen = |now: &Delivery| progress.set(now.pages_done, now.pages, "");
    let far = |now: &Delivery| now.is_done() || now.pages_done as f64 >= now.pages as f64 * share;
    Ok(follow(&own.api, post, POLL, limit, seen, far).await?.pages_done)
}
