//! Repeating a write that others keep overtaking: after a random pause that grows, until a time is over. Counting attempts instead would give up early exactly when
//! many write at once.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// How long a write is repeated: well below the ten seconds that a function has for a request.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest pause before the second attempt, which doubles with each, and its end: with hundreds who write at once the attempts have to spread over seconds.
const FIRST_PAUSE_MS: u64 = 8;
const LONGEST_PAUSE_MS: u64 = 2_000;

/// The attempts of one write.
#[derive(Debug)]
pub struct Retries {
    wait: fn(Duration) -> BoxFuture<'static, ()>,
    random: fn() -> u64,
    started: Instant,
    attempts: u32,
}

impl Retries {
    /// Begins the time of one write.
    pub(crate) fn begin(wait: fn(Duration) -> BoxFuture<'static, ()>, random: fn() -> u64) -> Self {
        Self { wait, random, started: Instant::now(), attempts: 0 }
    }

    /// Waits before the next attempt; false when the time is over.
    pub async fn again(&mut self) -> bool {
        let longest = (FIRST_PAUSE_MS << self.attempts.min(16)).min(LONGEST_PAUSE_MS);
        self.attempts += 1;
        (self.wait)(Duration::from_millis((self.random)() % longest + 1)).await;
        self.started.elapsed() < PATIENCE
    }
}
