//! The loop of an optimistic change: read, decide, write on a condition, and again if another write came first. A limit
//! of attempts would end too early when many writers compete, so the limit is a time.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;

use crate::error::{Result, StoreError};

/// The time limit of one change: well below the ten seconds that a function has for a request.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest pause before the second attempt. It doubles with each attempt, so that many writers spread.
const FIRST_PAUSE_MS: u64 = 8;
const LONGEST_PAUSE_MS: u64 = 2_000;

/// The longest pause of [`Attempts::look_again`]: about two trips to DynamoDB.
const LOOK_PAUSE_MS: u64 = 32;

/// The attempts of one optimistic change. Each begins with [`next`](Self::next).
#[derive(Debug)]
pub struct Attempts {
    operation: &'static str,
    wait: fn(Duration) -> BoxFuture<'static, ()>,
    random: fn() -> u64,
    started: Instant,
    begun: u32,
    failed: Option<StoreError>,
}

impl Attempts {
    pub fn begin(operation: &'static str, wait: fn(Duration) -> BoxFuture<'static, ()>, random: fn() -> u64) -> Self {
        Self { operation, wait, random, started: Instant::now(), begun: 0, failed: None }
    }

    /// Begins an attempt, after a random pause if it is not the first. Fails when the time is over. There is always one
    /// more attempt after a write with an unknown outcome, because only a read shows whether the write was done.
    pub async fn next(&mut self) -> Result<()> {
        let before = self.begun;
        self.begun += 1;
        if before == 0 || self.failed.is_some() {
            return Ok(());
        }
        self.pause((FIRST_PAUSE_MS << (before - 1).min(16)).min(LONGEST_PAUSE_MS)).await
    }

    /// Waits for the write of another: a short random pause that does not grow. Fails when the time is over.
    pub async fn look_again(&mut self) -> Result<()> {
        self.pause(LOOK_PAUSE_MS).await
    }

    async fn pause(&self, longest: u64) -> Result<()> {
        (self.wait)(Duration::from_millis((self.random)() % longest + 1)).await;
        if self.started.elapsed() < PATIENCE { Ok(()) } else { Err(StoreError::Contention { operation: self.operation }) }
    }

    /// Returns whether the attempt's write was done. An error leaves its outcome unknown: the next attempt compares
    /// what is stored with what this one wrote, and calls [`outcome`](Self::outcome) if the write was not done.
    pub fn done<E>(&mut self, written: Result<Result<(), E>>) -> bool {
        match written {
            Ok(written) => written.is_ok(),
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    /// Returns the error of the last write, if it had one.
    pub fn outcome(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, executor::block_on};

    use super::*;

    #[test]
    fn an_error_of_a_write_is_returned_after_one_more_read() {
        let mut attempts = Attempts::begin("test", |_| async {}.boxed(), || 0);
        block_on(attempts.next()).unwrap();
        assert!(!attempts.done(Ok(Err("another write came first"))));
        attempts.outcome().unwrap();
        attempts.started -= PATIENCE;
        assert!(!attempts.done::<()>(Err(StoreError::DamagedView { detail: "a lost response".to_owned() })));
        block_on(attempts.next()).unwrap();
        assert!(matches!(attempts.outcome(), Err(StoreError::DamagedView { .. })));
        assert!(matches!(block_on(attempts.next()), Err(StoreError::Contention { operation: "test" })));
    }
}
