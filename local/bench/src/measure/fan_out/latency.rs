//! The time of a reader's first page of the feed: without load, and during a fan-out at full speed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use rand::{SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde::Serialize;
use tidemark::{
    domain::{PostId, UserId},
    ports::StoreError,
};

use super::worker::Worker;

const READS: usize = 4_000;
/// Entries that a first page of twenty reads, and posts that it shows.
const ENTRIES: usize = 31;
const SHOWN: usize = 20;

/// Times in µs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Latency {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Latencies {
    pub(super) idle: Latency,
    pub(super) during_fan_out: Latency,
    /// Followers delivered in a second during the measurement.
    pub(super) delivered_per_second: f64,
}

pub(super) async fn measure(worker: &Arc<Worker>, followers: &[UserId]) -> anyhow::Result<Latencies> {
    let idle = reads(worker, followers).await?;
    let over = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    // A task of its own, because the worker has a process of its own.
    let fan_out = tokio::spawn({
        let (worker, over) = (Arc::clone(worker), Arc::clone(&over));
        async move {
            let mut delivered = 0;
            while !over.load(Ordering::Relaxed) {
                let events = worker.events().await?;
                delivered += worker.work(events).await?;
            }
            anyhow::Ok(delivered)
        }
    });
    let during_fan_out = reads(worker, followers).await;
    over.store(true, Ordering::Relaxed);
    let delivered = fan_out.await??;
    let during_fan_out = during_fan_out?;
    Ok(Latencies { idle, during_fan_out, delivered_per_second: (delivered as f64 / started.elapsed().as_secs_f64()).round() })
}

async fn reads(worker: &Worker, followers: &[UserId]) -> anyhow::Result<Latency> {
    let mut random = StdRng::seed_from_u64(1);
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let Some(&user) = followers.choose(&mut random) else { break };
        let started = Instant::now();
        page(worker, user).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0.0).round();
    Ok(Latency { p50_us: at(0.5), p99_us: at(0.99) })
}

async fn page(worker: &Worker, user: UserId) -> Result<(), StoreError> {
    let view = worker.reading.stores.reader_views.view(user, ENTRIES).await?;
    let shown: Vec<PostId> = view.into_iter().flat_map(|view| view.entries).take(SHOWN).map(|entry| entry.post).collect();
    worker.reading.readers.stores.post_views.summaries(&shown).await.map(|_| ())
}
