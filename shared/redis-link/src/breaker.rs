//! A circuit breaker. After some failures in a row it stops calls to Redis for a while. So a hanging Redis costs a
//! function some waits and not all of its time.

use std::{
    array,
    future::Future,
    iter::{self, Chain, Repeat},
    time::Duration,
};

use failsafe::{
    Config, Error, Instrument, StateMachine,
    failure_policy::{self, ConsecutiveFailures},
    futures::CircuitBreaker as _,
};
use tracing::{info, warn};

use crate::{LinkError, Result};

const FAILURES: u32 = 3;

/// The times that the breaker stays open. Each failed attempt leads to the next pause; after the last one every pause
/// is `LONGEST_PAUSE`.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// The time that a change waits for a response while the breaker is open.
const PATIENCE: Duration = Duration::from_millis(100);

/// The treatment of an operation while the breaker is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum While {
    /// The operation is refused. The facts serve the request.
    Refused,
    /// The operation is tried with a short timeout. Otherwise a function could keep a change from a Redis that is
    /// available again, and views that another function has rebuilt there would lack the change.
    Tried,
}

type Pauses = Chain<array::IntoIter<Duration, 3>, Repeat<Duration>>;

/// The breaker of one node. Clones share it.
#[derive(Clone)]
pub(crate) struct Breaker {
    state: StateMachine<ConsecutiveFailures<Pauses>, Log>,
}

/// Logs when the breaker opens and when it tries again.
struct Log;

impl Instrument for Log {
    fn on_call_rejected(&self) {}

    fn on_open(&self) {
        warn!("the Redis circuit breaker is open");
    }

    fn on_half_open(&self) {
        info!("the Redis circuit breaker tries Redis again");
    }

    fn on_closed(&self) {}
}

impl Breaker {
    pub(crate) fn new() -> Self {
        let pauses = PAUSES.into_iter().chain(iter::repeat(LONGEST_PAUSE));
        let policy = failure_policy::consecutive_failures(FAILURES, pauses);
        Self { state: Config::new().failure_policy(policy).instrument(Log).build() }
    }

    /// Runs an operation, or handles it as `open` says while the breaker is open. Only [`LinkError::Unavailable`]
    /// counts as a failure.
    pub(crate) async fn run<T>(&self, operation: &'static str, open: While, call: impl Future<Output = Result<T>>) -> Result<T> {
        if open == While::Tried && !self.state.is_call_permitted() {
            let late = |_| LinkError::Unavailable { operation, source: "no response while the circuit breaker is open".into() };
            return tokio::time::timeout(PATIENCE, call).await.map_err(late)?;
        }
        let is_failure = |error: &LinkError| matches!(error, LinkError::Unavailable { .. });
        match self.state.call_with(is_failure, call).await {
            Ok(value) => Ok(value),
            Err(Error::Inner(error)) => Err(error),
            Err(Error::Rejected) => Err(LinkError::Unavailable { operation, source: "the circuit breaker is open".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn unavailable() -> LinkError {
        LinkError::Unavailable { operation: "test", source: "test".into() }
    }

    #[tokio::test]
    async fn it_opens_after_failures_in_a_row_and_tries_again_after_a_pause() {
        let breaker = Breaker::new();
        let mut asked = 0;
        for _ in 0..2 {
            assert!(breaker.run("test", While::Refused, async { Err::<(), _>(unavailable()) }).await.is_err());
        }
        // A damaged value is not a failure of Redis. Its response ends the series of failures.
        let damaged = LinkError::Unexpected { detail: String::new() };
        assert!(breaker.run("test", While::Refused, async { Err::<(), _>(damaged) }).await.is_err());
        for _ in 0..10 {
            let call = async {
                asked += 1;
                Err::<(), _>(unavailable())
            };
            assert!(breaker.run("test", While::Refused, call).await.is_err());
        }
        assert_eq!(asked, 3, "three calls in a row, then none");
        let opened = Instant::now();
        assert!(breaker.run("test", While::Tried, async { Ok(()) }).await.is_ok(), "a change is tried");
        assert!(
            breaker.run("test", While::Tried, std::future::pending::<Result<(), _>>()).await.is_err(),
            "a change waits briefly"
        );
        while breaker.run("test", While::Refused, async { Ok(()) }).await.is_err() {
            assert!(opened.elapsed() < LONGEST_PAUSE, "Redis is tried again in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(opened.elapsed() >= PAUSES[0] / 2);
        assert!(breaker.run("test", While::Refused, async { Ok(()) }).await.is_ok());
    }
}
