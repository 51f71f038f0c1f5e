//! The pace of bulk work on one node: fast, with a short queue.
//!
//! A node runs one command at a time, so a reader waits for all the bulk work that was sent before. The node therefore
//! gives turns to bulk work: at the end of a trip, `lua/turn.lua` says when the next trip of the process comes. So the
//! trips of all processes follow each other at a distance, and readers come in between.

use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value};

use crate::{LinkError, error::unknown_function, reply::Reply};

/// The library that gives turns, and its function.
pub(crate) const LIBRARY: &str = include_str!("lua/turn.lua");
const FUNCTION: &str = "redis_link_turn_1";

/// What a call itself costs, as a number of users.
pub(crate) const CALL: usize = 5;

/// The longest time until a turn. The node does not tell more.
const LONGEST: Duration = Duration::from_millis(100);

/// The pace of one node.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The time of the next trip. Held by the trip in flight.
    turn: tokio::sync::Mutex<Option<Instant>>,
}

impl Pace {
    /// Runs a trip of bulk work in its turn. `work` is its number of users, and [`CALL`] for each call. The trip sends this
    /// command after its own. Returns the reply, and whether the node lacks the [`LIBRARY`]. A node that gives no turn gets
    /// a rest as long as the trip. A trip that fails causes no rest: the breaker keeps trips from a node that does not
    /// respond.
    pub(crate) async fn run(
        &self,
        work: usize,
        trip: impl AsyncFnOnce(Cmd) -> Result<Reply, LinkError>,
    ) -> Result<(Reply, bool), LinkError> {
        let mut turn = self.turn.lock().await;
        if let Some(at) = turn.take() {
            sleep_until(at).await;
        }
        let started = Instant::now();
        let mut reply = trip(redis::cmd("FCALL").arg(FUNCTION).arg(0).arg(work).clone()).await?;
        let told = reply.values.pop().unwrap_or(Value::Nil).extract_error();
        let lacks_library = told.as_ref().is_err_and(unknown_function);
        let wait = told.ok().and_then(|told| u64::from_redis_value(told).ok());
        let wait = wait.map_or(started.elapsed(), Duration::from_micros);
        *turn = Some(Instant::now() + wait.min(LONGEST));
        Ok((reply, lacks_library))
    }
}

/// Waits for less than [`LONGEST`]. Timers of the runtime count milliseconds, and there are several turns in one.
async fn sleep_until(at: Instant) {
    if at > Instant::now() {
        // Fails only while the runtime ends.
        let _ended = tokio::task::spawn_blocking(move || std::thread::sleep(at.saturating_duration_since(Instant::now()))).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    fn told(value: Value) -> Result<Reply, LinkError> {
        Ok(Reply { values: vec![value], epoch: crate::Epoch::NONE })
    }

    fn refused() -> Result<Reply, LinkError> {
        Err(LinkError::Unexpected { detail: "refused".to_owned() })
    }

    #[tokio::test]
    async fn a_trip_waits_for_its_turn_and_not_after_a_failure() {
        let pace = Pace::default();
        let micros = |micros| told(Value::Int(micros));
        let started = async |trip: Result<Reply, LinkError>| {
            let began = Instant::now();
            let mut waited = None;
            let trip = async |_| {
                waited = Some(began.elapsed());
                trip
            };
            drop(pace.run(1, trip).await);
            waited.unwrap().as_micros()
        };
        assert!(started(micros(300)).await < 300);
        assert!(started(micros(10_000_000)).await >= 300, "the turn that the node gave");
        let longest = started(refused()).await;
        assert!((100_000..1_000_000).contains(&longest), "{longest}");
        assert!(started(micros(50_000)).await < 50_000, "no rest after a failure");
        std::thread::sleep(Duration::from_millis(60));
        assert!(started(micros(0)).await < 50_000, "the turn has passed");
    }

    #[tokio::test]
    async fn a_node_that_gives_no_turn_gets_a_rest_as_long_as_the_trip() {
        let unknown = redis::parse_redis_value(b"-ERR Function not found\r\n").unwrap();
        for (value, lacks) in [(unknown, true), (Value::Nil, false)] {
            let pace = Pace::default();
            let trip = async |_| {
                std::thread::sleep(Duration::from_millis(30));
                told(value)
            };
            assert_eq!(pace.run(1, trip).await.unwrap().1, lacks);
            let began = Instant::now();
            drop(pace.run(1, async |_| refused()).await);
            assert!(began.elapsed() >= Duration::from_millis(30));
        }
    }

    #[tokio::test]
    async fn one_trip_is_in_flight_and_a_failure_ends_its_turn() {
        let (pace, flights) = (Pace::default(), AtomicUsize::new(0));
        let trip = async |_| {
            assert_eq!(flights.fetch_add(1, SeqCst), 0);
            tokio::task::yield_now().await;
            flights.fetch_sub(1, SeqCst);
            refused()
        };
        for reply in futures::future::join_all((0..20).map(|_| pace.run(1, trip))).await {
            assert!(reply.is_err());
        }
    }
}
