//! Says that Redis is down and when it responds again. Starts the stack's own servers again.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Mutex,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::Redis;
use crate::REDIS;

/// The pause before the first start, and the longest. Each start doubles the pause, until Redis was well for a while.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const WELL_FOR: Duration = Duration::from_secs(60);
/// The interval at which a server that is not the stack's is asked.
const ASK_EVERY: Duration = Duration::from_secs(2);

pub(crate) async fn watch(redis: Arc<Mutex<Redis>>, stop: CancellationToken) {
    if let Some(Err(error)) = stop.run_until_cancelled(run(&redis)).await {
        tracing::error!(%error, "Redis is not watched");
    }
}

async fn run(redis: &Mutex<Redis>) -> io::Result<Infallible> {
    let mut ended = signal(SignalKind::child())?;
    let is_own = redis.lock().await.is_own();
    let (mut pause, mut well_since) = (FIRST_PAUSE, Instant::now());
    loop {
        let Some(failure) = redis.lock().await.failure().await else {
            if is_own {
                ended.recv().await;
            } else {
                sleep(ASK_EVERY).await;
            }
            continue;
        };
        let failed_at = Instant::now();
        if well_since.elapsed() > WELL_FOR {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(target: REDIS, "{failure}{}", if is_own { "; it is started again" } else { "" });
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match redis.lock().await.revive().await {
                Ok(()) => break,
                Err(error) if is_own => {
                    tracing::warn!(target: REDIS, "Redis cannot be started: {error:#}; next attempt in {pause:?}")
                }
                Err(_) => {}
            }
        }
        well_since = Instant::now();
        let seconds = failed_at.elapsed().as_secs_f64();
        tracing::info!(target: REDIS, "Redis responds again after {seconds:.1} s; views that it lost are rebuilt from the facts");
    }
}
