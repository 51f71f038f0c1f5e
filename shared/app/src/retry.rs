//! Repeating a write that others keep overtaking: after a random pause that grows, until a time is over. Counting attempts instead would give up early exactly when
//! many write at once.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// How long a write is repeated: well below the ten seconds that a function has for a request.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest pause before the second attempt, which doubles with each, and its end: with hundreds who write at once the attempts have to spread over seconds.
const FIRST_PAUSE_MS: u64 = 8;
const LONGEST_PAUSE_MS: u64 = 2_000;

/// What a repetition needs of the outside world.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Waits.
    pub wait: fn(Duration) -> BoxFuture<'static, ()>,
    /// Random numbers.
    pub random: fn() -> u64,
}

/// The repetitions of one write.
#[derive(Debug)]
pub struct Retries {
    retry: Retry,
    started: Instant,
    attempts: u32,
}

impl Retry {
    /// Begins the time of one write.
    pub fn begin(self) -> Retries {
        Retries { retry: self, started: Instant::now(), attempts: 0 }
    }
}

impl Retries {
    /// Waits before the next attempt; false when the time is over.
    pub async fn again(&mut self) -> bool {
        let longest = (FIRST_PAUSE_MS << self.attempts.min(16)).min(LONGEST_PAUSE_MS);
        self.attempts += 1;
        (self.retry.wait)(Duration::from_millis((self.retry.random)() % longest + 1)).await;
        self.started.elapsed() < PATIENCE
    }
}
