//! Fan-out: this project's worker from the SQS event to Redis, beside the sequence of commands that it replaces and beside bare `ZADD`.

mod latency;
mod picture;
mod report;
mod source;
mod worker;

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tidemark::domain::UserId;

pub(super) use self::report::FanOutReport;
use self::report::{Cost, Kind};
use self::source::Source;
use self::worker::Worker;
use super::Options;
use super::info::Info;
use super::server::{Server, info};
use crate::tools::progress::Progress;

/// Followers of the author, all with a live feed.
const FOLLOWERS: usize = 10_000;
/// Entries in every feed before the first post.
const FEED: usize = 200;
/// Followers of a page.
const PAGE: usize = 1_000;

/// Measures all kinds in shuffled rounds, then a reader's latency.
pub(super) async fn measure(server: &Server, options: &Options) -> anyhow::Result<FanOutReport> {
    let followers = followers(options.seed);
    // Feeds lie in memory in the order in which they were made, which is not the order of pages.
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut shuffled = followers.clone();
    shuffled.shuffle(&mut random);
    let mut progress = Progress::start("fan-out", "measurements");
    let worker = Arc::new(Worker::prepare(server, &followers, &shuffled).await?);
    let mut source = Source::prepare(server, &followers, &shuffled).await?;
    let mut watch = server.connect().await?;
    let mut costs: Vec<(Kind, Vec<Cost>)> = Kind::ALL.map(|kind| (kind, Vec::new())).to_vec();
    let total = u64::from(options.rounds + 1) * costs.len() as u64;
    // The first round of all warms up and does not count.
    for round in 0..=options.rounds {
        costs.shuffle(&mut random);
        for (done, (kind, costs)) in costs.iter_mut().enumerate() {
            let prepared = match kind {
                Kind::Worker => Some(worker.events().await?),
                Kind::Zadd | Kind::ZaddExpiring => {
                    source.set_lifetime(*kind == Kind::ZaddExpiring).await?;
                    None
                }
                _ => None,
            };
            let before = info(&mut watch, &["cpu"]).await?;
            let started = Instant::now();
            let handled = match (*kind, prepared) {
                (Kind::Worker, Some(events)) => worker.work(events).await?,
                (Kind::Sequential, _) => source.sequential(round).await?,
                (Kind::Pipelined, _) => source.pipelined(round).await?,
                _ => source.zadd(round).await?,
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
    let latency = latency::measure(&worker, &followers).await?;
    let version = server.info(&["server"]).await?.text("redis_version")?.to_owned();
    Arc::into_inner(worker).context("the worker is still at it")?.stop().await?;
    Ok(FanOutReport::new(version, options, costs, latency))
}

fn main_thread_us(before: &Info, after: &Info) -> Option<f64> {
    Some(after.main_thread_us()? - before.main_thread_us()?)
}

/// Followers in the order of their buckets, as pages list them.
fn followers(seed: u64) -> Vec<UserId> {
    let mut random = StdRng::seed_from_u64(seed);
    let ids = std::iter::repeat_with(|| rand::Rng::random::<u64>(&mut random)).filter_map(UserId::new);
    let mut followers: Vec<UserId> = ids.take(FOLLOWERS).collect();
    followers.sort_unstable_by_key(|user| (user.bucket(), *user));
    followers.dedup();
    followers
}
