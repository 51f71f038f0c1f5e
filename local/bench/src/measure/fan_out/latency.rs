//! The time of a reader's first page of the feed: without load, and beside fan-outs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use futures::future::try_join_all;
use rand::{SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde::Serialize;
use tidemark::{
    domain::{PostId, UserId},
    ports::StoreError,
};

use super::worker::Worker;

const READS: usize = 2_000;
/// Entries that a first page of twenty reads, and posts that it shows.
const ENTRIES: usize = 31;
const SHOWN: usize = 20;

/// A load beside the reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Load {
    /// Processes that deliver, each the events of one post after another.
    pub(super) processes: usize,
    /// Whether they pace themselves.
    pub(super) paced: bool,
}

const IDLE: Load = Load { processes: 0, paced: true };
const FLAT_OUT: Load = Load { processes: 1, paced: false };
const OTHERS: [Load; 3] =
    [Load { processes: 1, paced: true }, Load { processes: 8, paced: false }, Load { processes: 8, paced: true }];

/// The first page of a feed beside each load.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FirstPages {
    pub(super) idle: FirstPage,
    /// Beside one process that does not pace itself.
    pub(super) during_fan_out: FirstPage,
    pub(super) others: Vec<FirstPage>,
}

/// The first page of a feed beside a load. Times in µs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct FirstPage {
    pub(super) load: Load,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Followers delivered in a second during the measurement.
    pub(super) delivered_per_second: f64,
}

pub(super) async fn measure(worker: &Arc<Worker>, followers: &[UserId]) -> anyhow::Result<FirstPages> {
    let idle = beside(worker, followers, IDLE).await?;
    let during_fan_out = beside(worker, followers, FLAT_OUT).await?;
    let mut others = Vec::new();
    for load in OTHERS {
        others.push(beside(worker, followers, load).await?);
    }
    Ok(FirstPages { idle, during_fan_out, others })
}

async fn beside(worker: &Arc<Worker>, followers: &[UserId], load: Load) -> anyhow::Result<FirstPage> {
    let (over, delivered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut processes = Vec::new();
    for _ in 0..load.processes {
        let app = worker.another(load.paced).await?;
        let (worker, over, delivered) = (worker.clone(), over.clone(), delivered.clone());
        processes.push(tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                for event in worker.events().await? {
                    if !over.load(Ordering::Relaxed) {
                        delivered.fetch_add(worker.work(&app, vec![event]).await? as u64, Ordering::Relaxed);
                    }
                }
            }
            anyhow::Ok(())
        }));
    }
    // The pace is found during the first reads, which do not count.
    reads(worker, followers, READS / 4).await?;
    let (before, started) = (delivered.load(Ordering::Relaxed), Instant::now());
    let times = reads(worker, followers, READS).await;
    let during = delivered.load(Ordering::Relaxed) - before;
    let delivered_per_second = (during as f64 / started.elapsed().as_secs_f64()).round();
    over.store(true, Ordering::Relaxed);
    try_join_all(processes).await?.into_iter().collect::<anyhow::Result<()>>()?;
    let times = times?;
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0.0).round();
    Ok(FirstPage { load, p50_us: at(0.5), p99_us: at(0.99), delivered_per_second })
}

/// Reads first pages of random followers. Returns the times in µs, in ascending order.
async fn reads(worker: &Worker, followers: &[UserId], count: usize) -> anyhow::Result<Vec<f64>> {
    let mut random = StdRng::seed_from_u64(1);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(&user) = followers.choose(&mut random) else { break };
        let started = Instant::now();
        page(worker, user).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

async fn page(worker: &Worker, user: UserId) -> Result<(), StoreError> {
    let view = worker.reading.stores.reader_views.view(user, ENTRIES).await?;
    let shown: Vec<PostId> = view.into_iter().flat_map(|view| view.entries).take(SHOWN).map(|entry| entry.post).collect();
    worker.reading.readers.stores.post_views.summaries(&shown).await.map(|_| ())
}
