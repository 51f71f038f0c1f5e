//! The pace of bulk work on one node: fast, with a short queue.
//!
//! A node runs one command at a time, so a reader waits for all the bulk work that was sent before. At the end of a
//! trip with bulk work, `lua/turn.lua` therefore says when the next trip of the process comes. So the trips of all
//! processes follow each other at a distance, and readers come in between. A process that misses its turn asks for
//! another one.

use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::MutexGuard;

use crate::{bundle::Reply, error::unknown_function};

pub(crate) const LIBRARY: &str = include_str!("lua/turn.lua");
const FUNCTION: &str = "redis_link_turn_2";

/// The longest time until a turn. The node does not tell more.
const LONGEST: Duration = Duration::from_millis(100);

/// A trip that begins later than this after its turn has missed it. Trips that a busy processor has held up would
/// otherwise all come at once.
const LATE: Duration = Duration::from_micros(100);

/// Linux wakes a sleeping thread at least 50 µs too late, so it sleeps this much less.
const SLACK: Duration = Duration::from_micros(60);

/// The command that asks for a turn, for the trip after one with this work, or instead of a turn that a trip with this
/// work has missed. `work` is the number of users in the trip, and [`CALL`](crate::bundle::CALL) for each call.
pub(crate) fn ask(work: usize) -> Cmd {
    redis::cmd("FCALL").arg(FUNCTION).arg(0).arg(work).clone()
}

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// The time of the next trip. Held by the trip in flight.
    next: tokio::sync::Mutex<Option<Instant>>,
}

/// The right to make the next trip. A trip that fails causes no rest: the breaker keeps trips from a node that does not
/// respond.
pub(crate) struct Turn<'a>(MutexGuard<'a, Option<Instant>>);

impl Pace {
    /// Waits for the trip in flight.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn(self.next.lock().await)
    }
}

impl Turn<'_> {
    /// Waits until the turn comes, or a little less. Returns `false` if the trip has missed it.
    pub(crate) async fn wait(&mut self) -> bool {
        let Some(at) = self.0.take() else { return true };
        sleep_until(at).await;
        !is_missed(at, Instant::now())
    }

    /// Takes the response to [`ask`] from the end of the reply to a trip. Returns whether the node lacks the
    /// [`LIBRARY`]. A node that gives no turn gets a rest as long as the trip, which took this time. If nobody waits
    /// for a turn, the process gets none either: the next trip begins when it likes.
    pub(crate) fn end(&mut self, reply: &mut Reply, took: Duration) -> bool {
        let told = reply.values.pop().unwrap_or(Value::Nil).extract_error();
        let lacks_library = told.as_ref().is_err_and(unknown_function);
        let wait = told.ok().and_then(|told| u64::from_redis_value(told).ok()).map_or(took, Duration::from_micros);
        *self.0 = (!wait.is_zero()).then(|| Instant::now() + wait.min(LONGEST));
        lacks_library
    }
}

fn is_missed(turn: Instant, now: Instant) -> bool {
    now.saturating_duration_since(turn) > LATE
}

/// Waits for less than [`LONGEST`]. Timers of the runtime count milliseconds, and there are several turns in one.
async fn sleep_until(at: Instant) {
    let wait = move || at.saturating_duration_since(Instant::now() + SLACK);
    if !wait().is_zero() {
        // Fails only while the runtime ends.
        let _ended = tokio::task::spawn_blocking(move || std::thread::sleep(wait())).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn told(value: Value) -> Reply {
        Reply { values: vec![Value::Okay, value], epoch: crate::Epoch::NONE }
    }

    #[tokio::test]
    async fn a_trip_waits_for_its_turn_and_not_after_a_failure() {
        let pace = Pace::default();
        // Returns the time until the trip began, in microseconds.
        let trip = async |response: Option<i64>| {
            let began = Instant::now();
            let mut turn = pace.turn().await;
            turn.wait().await;
            let waited = began.elapsed().as_micros();
            if let Some(micros) = response {
                let mut reply = told(Value::Int(micros));
                assert!(!turn.end(&mut reply, Duration::ZERO));
                assert_eq!(reply.values, [Value::Okay]);
            }
            waited
        };
        assert!(trip(Some(300)).await < 300);
        assert!(trip(Some(10_000_000)).await >= 300 - SLACK.as_micros(), "the turn that the node gave");
        let longest = trip(None).await;
        assert!((99_000..1_000_000).contains(&longest), "{longest}");
        assert!(trip(Some(50_000)).await < 50_000, "no rest after a failure");
        std::thread::sleep(Duration::from_millis(60));
        assert!(trip(Some(0)).await < 50_000, "the turn has passed");
    }

    #[tokio::test]
    async fn a_turn_is_missed_after_a_tenth_of_a_millisecond() {
        let (turn, micros) = (Instant::now(), Duration::from_micros);
        assert!(
            !is_missed(turn, turn - micros(50)) && !is_missed(turn, turn + micros(100)) && is_missed(turn, turn + micros(101))
        );

        let pace = Pace::default();
        assert!(pace.turn().await.wait().await, "a first trip needs no turn");
        pace.turn().await.end(&mut told(Value::Int(1_000)), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(1) + 2 * LATE);
        assert!(!pace.turn().await.wait().await);
        pace.turn().await.end(&mut told(Value::Int(0)), Duration::ZERO);
        std::thread::sleep(2 * LATE);
        assert!(pace.turn().await.wait().await, "a node without a queue gives no turn to miss");
    }

    #[tokio::test]
    async fn a_node_that_gives_no_turn_gets_a_rest_as_long_as_the_trip() {
        let unknown = redis::parse_redis_value(b"-ERR Function not found\r\n").unwrap();
        for (value, lacks) in [(unknown, true), (Value::Nil, false)] {
            let pace = Pace::default();
            assert_eq!(pace.turn().await.end(&mut told(value), Duration::from_millis(30)), lacks);
            let began = Instant::now();
            pace.turn().await.wait().await;
            assert!(began.elapsed() >= Duration::from_millis(29));
        }
    }

    #[tokio::test]
    async fn one_trip_is_in_flight_and_a_failure_ends_its_turn() {
        let pace = Pace::default();
        let turn = pace.turn().await;
        assert!(pace.turn().now_or_never().is_none());
        drop(turn);
        assert!(pace.turn().now_or_never().is_some());
    }
}
