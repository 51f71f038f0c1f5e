//! Repeats a write that conflicts with concurrent writes: after a random pause that grows, until a time limit. A limit
//! of attempts would end too early when many writers compete.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// The time limit of one write: well below the ten seconds that a function has for a request.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest pause before the second attempt. It doubles with each attempt, up to `LONGEST_PAUSE_MS`: with hundreds
/// of concurrent writers the attempts have to spread over seconds.
const FIRST_PAUSE_MS: u64 = 8;
const LONGEST_PAUSE_MS: u64 = 2_000;

/// The attempts of one write.
#[derive(Debug)]
pub(crate) struct Retries {
    wait: fn(Duration) -> BoxFuture<'static, ()>,
    random: fn() -> u64,
    started: Instant,
    attempts: u32,
}

impl Retries {
    /// Starts the time limit of one write.
    pub(crate) fn begin(wait: fn(Duration) -> BoxFuture<'static, ()>, random: fn() -> u64) -> Self {
        Self { wait, random, started: Instant::now(), attempts: 0 }
    }

    /// Waits before the next attempt. Returns false when the time is over.
    pub(crate) async fn again(&mut self) -> bool {
        let longest = (FIRST_PAUSE_MS << self.attempts.min(16)).min(LONGEST_PAUSE_MS);
        self.attempts += 1;
        (self.wait)(Duration::from_millis((self.random)() % longest + 1)).await;
        self.started.elapsed() < PATIENCE
    }
}
