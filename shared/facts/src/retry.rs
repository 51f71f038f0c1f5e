//! The loop of an optimistic change: read, decide, write on a condition, and again if another write came first. A limit
//! of attempts would end too early when many writers compete, so the limit is a time.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tidemark_domain::{StoreError, store::Result};

/// The time limit of one change: well below the ten seconds that a function has for a request.
const PATIENCE: Duration = Duration::from_secs(6);

/// The longest pause before the second attempt. It doubles with each attempt, so that many writers spread.
const FIRST_PAUSE_MS: u64 = 8;
const LONGEST_PAUSE_MS: u64 = 2_000;

/// The attempts of one optimistic change. Each begins with [`next`](Self::next).
#[derive(Debug)]
pub struct Attempts {
    operation: &'static str,
    wait: fn(Duration) -> BoxFuture<'static, ()>,
    random: fn() -> u64,
    started: Instant,
    begun: u32,
    /// When this attempt began, and the longest time of one so far.
    began: Instant,
    longest: Duration,
    /// Why the last write is not known to be done.
    failed: Option<StoreError>,
    /// Whether a condition of a write failed, or others held its items. A repetition by the SDK is refused too if the first
    /// request has done the write and lost its response.
    was_refused: bool,
    /// Whether one of several writes is done.
    has_done: bool,
}

impl Attempts {
    pub fn begin(operation: &'static str, wait: fn(Duration) -> BoxFuture<'static, ()>, random: fn() -> u64) -> Self {
        let now = Instant::now();
        Self {
            operation,
            wait,
            random,
            started: now,
            begun: 0,
            began: now,
            longest: Duration::ZERO,
            failed: None,
            was_refused: false,
            has_done: false,
        }
    }

    /// Begins an attempt, after a random pause if it is not the first. Fails if one that takes as long as the longest
    /// before could end after the time, so that nothing is written then. There is always one more attempt after a write
    /// that is not known to be done, because only a read shows whether it is.
    pub async fn next(&mut self) -> Result<()> {
        let before = self.begun;
        self.begun += 1;
        if before > 0 && self.failed.is_none() {
            self.longest = self.longest.max(self.began.elapsed());
            let longest = (FIRST_PAUSE_MS << (before - 1).min(16)).min(LONGEST_PAUSE_MS);
            (self.wait)(Duration::from_millis((self.random)() % longest + 1)).await;
            if self.started.elapsed() + self.longest >= PATIENCE {
                if !std::mem::take(&mut self.was_refused) {
                    return Err(StoreError::Contention { operation: self.operation });
                }
                let operation = self.operation;
                self.failed =
                    Some(if self.has_done { StoreError::Contention { operation } } else { StoreError::Undone { operation } });
            }
        }
        self.began = Instant::now();
        Ok(())
    }

    /// Returns whether the attempt's write is known to be done. If not, the next attempt compares what is stored with
    /// what this one wrote, and calls [`outcome`](Self::outcome) if the write was not done.
    pub fn done<E>(&mut self, written: Result<Result<(), E>>) -> bool {
        match written {
            Ok(written) => {
                self.was_refused |= written.is_err();
                self.has_done |= written.is_ok();
                written.is_ok()
            }
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }

    /// The last write is not done. Returns its error, if it had one or the time is over.
    pub fn outcome(&mut self) -> Result<()> {
        self.was_refused = false;
        self.failed.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, executor::block_on};

    use super::*;

    #[test]
    fn a_refused_write_at_the_end_of_the_time_is_looked_for_once_more() {
        let [nothing_done, one_done] = [false, true].map(|one_is_done| {
            let mut attempts = Attempts::begin("test", |_| async {}.boxed(), || 0);
            block_on(attempts.next()).unwrap();
            assert!(!one_is_done || attempts.done::<()>(Ok(Ok(()))));
            assert!(!attempts.done(Ok(Err("held by another, or by the first request of the SDK"))));
            attempts.started -= PATIENCE;
            block_on(attempts.next()).unwrap();
            let outcome = attempts.outcome();
            assert!(matches!(block_on(attempts.next()), Err(StoreError::Contention { .. })));
            outcome
        });
        assert!(matches!(nothing_done, Err(StoreError::Undone { operation: "test" })));
        assert!(matches!(one_done, Err(StoreError::Contention { operation: "test" })));
    }

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
