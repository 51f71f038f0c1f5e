//! Publish latency of a small and a larger author, interleaved in one run.

use std::{fmt, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use rand::{Rng, rngs::StdRng};
use serde_json::json;

use crate::{
    api::{Api, Call},
    progress::Progress,
    status::wait_idle,
    text::short,
};

/// Followers of the two authors.
const FOLLOWERS: [u64; 2] = [10, 1_000];
/// The smallest of the new ids.
pub(crate) const FRESH_IDS: u64 = 1_000_000_000;
const WARM_UP: u32 = 5;
const FOLLOWS_SIDE_BY_SIDE: usize = 8;

/// The times of one author's publishes.
#[derive(Debug, Clone)]
pub struct Sample {
    pub followers: u64,
    took: Vec<Duration>,
}

impl Sample {
    /// A sample in any order, of an author with this number of followers.
    pub fn of(followers: u64, mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        Self { followers, took }
    }

    /// The value below which `share` of all values lie, by the nearest rank.
    pub fn quantile(&self, share: f64) -> Duration {
        quantile(&self.took, share)
    }
}

/// The value below which `share` of these ascending values lie, by the nearest rank. Zero if there are none.
pub fn quantile(ascending: &[Duration], share: f64) -> Duration {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Two samples. The second is compared with the first.
#[derive(Debug, Clone)]
pub struct Comparison(pub [Sample; 2]);

impl Comparison {
    /// A quantile of the second sample, divided by the first one's.
    pub fn ratio(&self, share: f64) -> f64 {
        let [first, second] = self.0.each_ref().map(|sample| sample.quantile(share).as_secs_f64());
        second / first.max(1e-9)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>9} {:>9} {:>10} {:>10} {:>10} {:>10}", "followers", "publishes", "median", "p99", "least", "most")?;
        for sample in &self.0 {
            let [median, p99, least, most] = [0.5, 0.99, 0.0, 1.0].map(|share| short(sample.quantile(share)));
            writeln!(f, "{:>9} {:>9} {median:>10} {p99:>10} {least:>10} {most:>10}", sample.followers, sample.took.len())?;
        }
        write!(f, "ratio of the medians: {:.2}", self.ratio(0.5))
    }
}

/// Makes two new authors and their followers, and measures their publishes in pairs. The order within a pair is
/// random. The time is the client's: from sending the request to the last byte of the response. With `settle`,
/// it waits before each publish until the stack is idle, so that no fan-out runs at the same time. Each wait takes
/// `idle_limit` at most.
pub async fn measure(
    api: &Api,
    publishes: u32,
    settle: bool,
    idle_limit: Duration,
    random: &mut StdRng,
) -> anyhow::Result<Comparison> {
    let first = FRESH_IDS + random.random_range(0..1 << 40);
    let authors = [first, first + 1];
    let mut follows = Vec::new();
    for (author, followers) in authors.into_iter().zip(FOLLOWERS) {
        follows.extend((0..followers).map(|number| (first + 2 + number, author)));
    }
    follow_all(api, follows).await?;
    wait_idle(api, idle_limit).await?;
    let publish = async |which: usize, round: u32| {
        if settle {
            wait_idle(api, idle_limit).await?;
        }
        let author = authors[which];
        let body = json!({"title": format!("Post {round}"), "body": "As long as a short message is."});
        let call = Call::post("/v1/posts").caller(author).key(format!("latency-{author}-{round}")).json(body);
        Ok(api.timed(&call, 201).await?.1)
    };
    in_pairs(FOLLOWERS, publishes, random, publish).await
}

/// Makes follows, each from a follower to an author, several at a time.
pub(super) async fn follow_all(api: &Api, follows: Vec<(u64, u64)>) -> anyhow::Result<()> {
    let total = follows.len() as u64;
    let mut progress = Progress::start("followers", "follows");
    let mut requests = stream::iter(follows)
        .map(|(follower, author)| api.fetch(Call::put(format!("/v1/following/{author}")).caller(follower), 200))
        .buffer_unordered(FOLLOWS_SIDE_BY_SIDE);
    let mut done = 0;
    while requests.try_next().await?.is_some() {
        done += 1;
        progress.set(done, total, "");
    }
    progress.finish();
    Ok(())
}

/// Compares the publishes of two authors with these numbers of followers. `publish` gets the index of the author and
/// the round. The order within a round is random. The first rounds warm up and do not count.
pub async fn in_pairs(
    followers: [u64; 2],
    publishes: u32,
    random: &mut StdRng,
    publish: impl AsyncFn(usize, u32) -> anyhow::Result<Duration>,
) -> anyhow::Result<Comparison> {
    let mut took = [Vec::new(), Vec::new()];
    let mut progress = Progress::start("publish", "pairs");
    for round in 0..WARM_UP + publishes {
        for which in if random.random() { [0, 1] } else { [1, 0] } {
            let one = publish(which, round).await?;
            if round >= WARM_UP {
                took[which].push(one);
            }
        }
        progress.set(u64::from(round) + 1, u64::from(WARM_UP + publishes), "");
    }
    progress.finish();
    let [small, large] = took;
    Ok(Comparison([Sample::of(followers[0], small), Sample::of(followers[1], large)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank_and_the_ratio_of_medians() {
        let millis = |range: std::ops::RangeInclusive<u64>| range.map(Duration::from_millis).collect();
        let both = Comparison([Sample::of(10, millis(1..=100)), Sample::of(1_000, millis(51..=150))]);
        assert_eq!(both.0[0].quantile(0.5), Duration::from_millis(50));
        assert_eq!(both.0[0].quantile(0.99), Duration::from_millis(99));
        assert_eq!(both.0[0].quantile(1.0), Duration::from_millis(100));
        assert!((both.ratio(0.5) - 2.0).abs() < 1e-9);
    }
}
