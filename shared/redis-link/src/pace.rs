//! The pace of bulk work on one node: nearly as fast as the node is, with hardly a queue.
//!
//! A node runs one command at a time, so a reader waits for all the bulk work that was sent before. A process therefore
//! has at most one bulk trip to a node in flight. Several processes find a common pace without knowing of each other: each
//! compares the time of its trips with the best time of such a trip, and rests between trips in proportion to the excess.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{LinkError, node::Reply};

/// The rest after a trip, as a multiple of its excess. With `n` processes some `n / (1 + GAIN)` trips wait.
const GAIN: f64 = 4.0;

/// The excess, as a part of the best time, that trips have without any queue.
const NOISE: f64 = 1.0;

/// The shortest rest. Timers count milliseconds, so shorter rests are added up.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// The factor by which the median excess changes with each trip. A median ignores the few trips that take very long.
const STEP: f64 = 1.05;

/// The bounds of the median excess.
const EXCESS: std::ops::RangeInclusive<f64> = 0.05..=100.0;

/// A best time counts for one to two of these, because a node may become slower.
const WINDOW: Duration = Duration::from_secs(10);

/// Trips for a similar number of users are compared: the classes are powers of two.
const CLASSES: usize = 16;

/// The pace of one node.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Held by the trip in flight.
    turn: tokio::sync::Mutex<()>,
    measured: Mutex<Measured>,
}

#[derive(Debug)]
struct Measured {
    best: [Best; CLASSES],
    /// The median of how much longer than the best time a trip takes, as a part of the best time.
    excess: f64,
    /// The rest that is due, in seconds.
    due: f64,
}

/// The shortest times in the current window and in the one before, in seconds.
#[derive(Debug, Clone, Copy)]
struct Best {
    since: Option<Instant>,
    current: f64,
    before: f64,
}

impl Default for Measured {
    fn default() -> Self {
        Self { best: Default::default(), excess: NOISE, due: 0.0 }
    }
}

impl Default for Best {
    fn default() -> Self {
        Self { since: None, current: f64::INFINITY, before: f64::INFINITY }
    }
}

impl Pace {
    /// Runs a trip of bulk work for this number of users in its turn, after a rest.
    pub(crate) async fn run(
        &self,
        users: usize,
        trip: impl Future<Output = Result<Reply, LinkError>>,
    ) -> Result<Reply, LinkError> {
        let _turn = self.turn.lock().await;
        let due = Duration::from_secs_f64(self.measured().due.max(0.0));
        if due >= SHORTEST_REST {
            let began = Instant::now();
            tokio::time::sleep(due).await;
            self.measured().due -= began.elapsed().as_secs_f64();
        }
        let started = Instant::now();
        let reply = trip.await;
        if reply.is_ok() {
            self.measured().note(users, started.elapsed(), Instant::now());
        }
        reply
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured {
    /// Notes the time of a trip that has ended.
    fn note(&mut self, users: usize, took: Duration, now: Instant) {
        let took = took.as_secs_f64();
        let class = (users.max(1).ilog2() as usize).min(CLASSES - 1);
        // A process that has never found the node idle does not take the queue for the node's own time.
        let plausible = 0.001 + 0.000_03 * users as f64;
        let best = self.best[class].with(took, now).min(plausible);
        let longer = took > best * (1.0 + self.excess);
        self.excess = (if longer { self.excess * STEP } else { self.excess / STEP }).clamp(*EXCESS.start(), *EXCESS.end());
        self.due += best * GAIN * (self.excess - NOISE).max(0.0);
    }
}

impl Best {
    /// The best time, this one included.
    fn with(&mut self, took: f64, now: Instant) -> f64 {
        if self.since.is_none_or(|since| now.duration_since(since) > WINDOW) {
            *self = Self { since: Some(now), current: f64::INFINITY, before: self.current };
        }
        self.current = self.current.min(took);
        self.current.min(self.before)
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    /// Trips of several processes to a node that serves each in half a millisecond or somewhat more, and 0.15 ms between a
    /// response and the next request. Returns the share of the time that the node works, and the mean number of trips
    /// that wait when one arrives.
    fn paced(processes: usize) -> (f64, f64) {
        let (mut random, start) = (StdRng::seed_from_u64(7), Instant::now());
        let mut paces: Vec<Measured> = (0..processes).map(|_| Measured::default()).collect();
        let mut next: Vec<f64> = (0..processes).map(|process| process as f64 * 1e-4).collect();
        let (mut free, mut from, mut busy, mut waited) = (0.0_f64, 0.0, 0.0, 0.0);
        const TRIPS: usize = 60_000;
        for trip in 0..TRIPS {
            let process = (0..processes).min_by(|a, b| next[*a].total_cmp(&next[*b])).unwrap();
            let service = 5e-4 * (1.0 + 0.3 * random.random::<f64>());
            let began = next[process].max(free);
            free = began + service;
            if trip == TRIPS / 2 {
                from = free;
            } else if trip > TRIPS / 2 {
                busy += service;
                waited += began - next[process];
            }
            let took = Duration::from_secs_f64(free - next[process] + 1.5e-4);
            paces[process].note(70, took, start + Duration::from_secs_f64(free));
            next[process] = free + 1.5e-4 + rest(&mut paces[process]);
        }
        (busy / (free - from), waited / (TRIPS / 2) as f64 / 5.75e-4)
    }

    /// Takes the rest that is due.
    fn rest(pace: &mut Measured) -> f64 {
        if pace.due < SHORTEST_REST.as_secs_f64() { 0.0 } else { std::mem::take(&mut pace.due) }
    }

    #[test]
    fn processes_keep_a_node_busy_and_its_queue_short() {
        for processes in [1, 2, 4, 8, 16, 40] {
            let (busy, waiting) = paced(processes);
            let most = 1.0 + processes as f64 / 5.0;
            assert!(busy > 0.6 && waiting < most, "{processes} processes: busy {busy:.2}, {waiting:.2} trips wait");
        }
    }

    #[test]
    fn a_node_that_becomes_slower_is_learned() {
        let (mut measured, start) = (Measured::default(), Instant::now());
        let mut trips = |took: u64, from: u64| {
            (0..2_000).for_each(|n| {
                measured.due = if n < 1_500 { 0.0 } else { measured.due };
                measured.note(70, Duration::from_micros(took), start + Duration::from_secs(from) + Duration::from_millis(10 * n));
            });
            measured.due
        };
        assert_eq!(trips(700, 0), 0.0);
        assert_eq!(trips(2_000, 20), 0.0, "twenty seconds later it is the node's own time");
    }

    #[tokio::test]
    async fn one_trip_is_in_flight_and_a_failure_ends_its_turn() {
        let (pace, flights) = (Pace::default(), std::sync::atomic::AtomicUsize::new(0));
        let trip = async || {
            use std::sync::atomic::Ordering::SeqCst;
            assert_eq!(flights.fetch_add(1, SeqCst), 0);
            tokio::task::yield_now().await;
            flights.fetch_sub(1, SeqCst);
            Err(LinkError::Unexpected { detail: "refused".to_owned() })
        };
        for reply in futures::future::join_all((0..20).map(|_| pace.run(70, trip()))).await {
            assert!(reply.is_err());
        }
    }
}
