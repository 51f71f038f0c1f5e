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
    /// Whether a condition of a write failed, or others held its items.
    was_refused: bool,
    /// Whether this attempt is there for a read, which has not shown yet whether the last write is done.
    looks: bool,
}

impl Attempts {
    pub fn begin(operation: &'static str, wait: fn(Duration) -> BoxFuture<'static, ()>, random: fn() -> u64) -> Self {
        let now = Instant::now();
        let (longest, failed) = (Duration::ZERO, None);
        Self { operation, wait, random, started: now, begun: 0, began: now, longest, failed, was_refused: false, looks: false }
    }

    /// Begins an attempt, after a random pause if it is not the first. Fails if one that takes as long as the longest
    /// before could end after the time, so that nothing is written then.
    ///
    /// After a write that is not known to be done there is one more attempt at any time, because only a read shows
    /// whether it is. A refused write is one: the SDK may have repeated a request that had done it and lost its
    /// response.
    pub async fn next(&mut self) -> Result<()> {
        let before = self.begun;
        self.begun += 1;
        if before > 0 && self.failed.is_none() {
            self.longest = self.longest.max(self.began.elapsed());
            let longest = (FIRST_PAUSE_MS << (before - 1).min(16)).min(LONGEST_PAUSE_MS);
            (self.wait)(Duration::from_millis((self.random)() % longest + 1)).await;
            if self.started.elapsed() + self.longest >= PATIENCE {
                let contention = StoreError::Contention { operation: self.operation };
                if !self.was_refused {
                    return Err(contention);
                }
                self.failed = Some(contention);
            }
        }
        if self.looks {
            self.outcome()?;
        }
        self.looks = self.failed.is_some();
        self.began = Instant::now();
        Ok(())
    }

    /// Returns whether the attempt's write is known to be done. If not, the next attempt compares what is stored with
    /// what this one wrote, and calls [`outcome`](Self::outcome) if the write was not done.
    pub fn done<E>(&mut self, written: Result<Result<(), E>>) -> bool {
        match written {
            Ok(written) => {
                self.was_refused |= written.is_err();
                written.is_ok()
            }
            Err(error) => {
                (self.failed, self.looks) = (Some(error), false);
                false
            }
        }
    }

    /// A read has shown that the last write is not done. Returns its error, or that the time is over.
    pub fn outcome(&mut self) -> Result<()> {
        (self.was_refused, self.looks) = (false, false);
        self.failed.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, executor::block_on};

    use super::*;

    fn begin() -> Attempts {
        Attempts::begin("test", |_| async {}.boxed(), || 0)
    }

    #[test]
    fn a_refused_write_at_the_end_of_the_time_is_looked_for_once_more() {
        let mut attempts = begin();
        block_on(attempts.next()).unwrap();
        assert!(!attempts.done(Ok(Err("others hold the item"))));
        attempts.started -= PATIENCE;
        block_on(attempts.next()).unwrap();
        assert!(matches!(attempts.outcome(), Err(StoreError::Contention { operation: "test" })));
        assert!(matches!(block_on(attempts.next()), Err(StoreError::Contention { operation: "test" })));
    }

    #[test]
    fn there_is_one_look_at_what_a_write_has_left() {
        for written in [Ok(Err("others hold the item")), Err(StoreError::Contention { operation: "write" })] {
            let mut attempts = begin();
            block_on(attempts.next()).unwrap();
            assert!(!attempts.done(written));
            attempts.started -= PATIENCE;
            block_on(attempts.next()).unwrap();
            assert!(matches!(block_on(attempts.next()), Err(StoreError::Contention { .. })), "outcome was not called");
        }
    }

    #[test]
    fn an_error_of_a_write_is_returned_after_one_more_read() {
        let mut attempts = begin();
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
