//! Fan-out: this project's worker from the SQS event to Redis, and bare `ZADD` as the yardstick of the machine.

mod latency;
mod report;
mod worker;
mod yardstick;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tidemark::domain::{UserId, feed::FEED_CAP};

pub(super) use self::report::FanOutReport;
use self::report::{Cost, Kind, Population};
use self::worker::Worker;
use self::yardstick::Yardstick;
use super::Options;
use super::server::{Info, Server, info};
use tidemark_tools::progress::Progress;

/// Followers of a page.
const PAGE: usize = 1_000;

/// Followers, all with a live feed.
struct Readers {
    /// Followers in the order of their buckets, as pages list them.
    listed: Vec<UserId>,
    /// Followers in random order. Their feeds are created in this order and so lie in memory.
    shuffled: Vec<UserId>,
    /// Entries in every feed before the first post.
    entries: usize,
}

/// Measures feeds that are not full, then a fifth of the readers with full feeds.
pub(super) async fn measure(server: &Server, options: &Options) -> anyhow::Result<FanOutReport> {
    let name = server.info(&["server"]).await?.server()?;
    let mut populations = Vec::new();
    for (followers, entries) in [(options.followers, 200), (options.followers / 5, FEED_CAP)] {
        server.flush().await?;
        populations.push(population(server, options, &Readers::new(options.seed, followers as usize, entries)).await?);
    }
    Ok(FanOutReport::new(name, options.rounds, populations))
}

/// Measures all kinds in shuffled rounds, then a reader's latency.
async fn population(server: &Server, options: &Options, readers: &Readers) -> anyhow::Result<Population> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut progress = Progress::start(format!("fan-out to feeds of {}", readers.entries), "measurements");
    let worker = Arc::new(Worker::prepare(server, readers).await?);
    let mut yardstick = Yardstick::prepare(server, readers).await?;
    let mut watch = server.connect().await?;
    let mut costs: Vec<(Kind, Vec<Cost>)> = Kind::ALL.map(|kind| (kind, Vec::new())).to_vec();
    let total = u64::from(options.rounds + 1) * costs.len() as u64;
    // The first round warms up and does not count.
    for round in 0..=options.rounds {
        costs.shuffle(&mut random);
        for (done, (kind, costs)) in costs.iter_mut().enumerate() {
            let events = if *kind == Kind::Worker { worker.events(1).await? } else { Vec::new() };
            let before = info(&mut watch, &["cpu"]).await?;
            let started = Instant::now();
            let handled = match kind {
                Kind::Worker => worker.work(&worker.app, events).await?,
                Kind::Zadd => yardstick.zadd(round).await?,
            };
            let seconds = started.elapsed().as_secs_f64();
            let cost = Cost::new(handled, seconds, main_thread_us(&before, &info(&mut watch, &["cpu"]).await?));
            if round > 0 {
                costs.push(cost);
            }
            progress.set(u64::from(round) * Kind::ALL.len() as u64 + done as u64 + 1, total, "");
        }
    }
    progress.finish();
    let latency = latency::measure(server, &worker, &readers.listed).await?;
    Arc::into_inner(worker).context("the worker has not ended")?.stop().await?;
    Ok(Population::new(readers, costs, latency))
}

fn main_thread_us(before: &Info, after: &Info) -> Option<f64> {
    Some(after.main_thread_us()? - before.main_thread_us()?)
}

impl Readers {
    fn new(seed: u64, count: usize, entries: usize) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let ids = std::iter::repeat_with(|| rand::Rng::random::<u64>(&mut random)).filter_map(UserId::new);
        let mut listed: Vec<UserId> = ids.take(count).collect();
        listed.sort_unstable_by_key(|user| (user.bucket(), *user));
        listed.dedup();
        let mut shuffled = listed.clone();
        shuffled.shuffle(&mut random);
        Self { listed, shuffled, entries }
    }
}
