//! The pace of bulk work on one node: fast, with a short queue.
//!
//! A node runs one command at a time, so a reader waits for all the bulk work that was sent before. A process therefore
//! has at most one bulk trip to a node in flight, and rests after it. The rest grows with the square of the trip's time, so
//! processes that wait for each other rest most of the time. With `n` processes the queue is about twice the root of `n`
//! long, and the node is busy nevertheless. A trip with little work takes little of the node, whatever it waits for, so its
//! rest is a part of that. No process knows of another, or what time a trip takes without a queue: such a
//! time, learned from trips that wait, grows until the queue is full.

use std::time::{Duration, Instant};

use crate::{LinkError, reply::Reply};

/// The time of a trip for 70 users after which the rest is as long as the trip, in seconds. On an idle node a trip for 35
/// users takes some 0.3 ms.
const EVEN: f64 = 0.002;

/// The longest rest, as a multiple of its trip, and in seconds. A few trips take very long for other reasons.
const LONGEST: (f64, f64) = (3.0, 0.1);

/// What a call itself costs, as a number of users.
pub(crate) const CALL: usize = 5;

/// The work after which a trip rests in full: a delivery to 70 users.
const FULL: usize = 70 + CALL;

/// The shortest pause that counts as a rest, in seconds. Timers count milliseconds, so shorter rests are added up.
const SHORTEST: f64 = 1e-3;

/// The pace of one node.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Held by the trip in flight.
    turn: tokio::sync::Mutex<Last>,
}

/// The last trip.
#[derive(Debug, Default)]
struct Last {
    ended: Option<Instant>,
    /// The rest that is due, in seconds. It is below zero after a rest that took too long.
    due: f64,
}

impl Pace {
    /// Runs a trip of bulk work in its turn, after the rest that is due. `work` is its number of users, and [`CALL`] for
    /// each call. A trip that fails causes no rest: the breaker keeps trips from a node that does not respond.
    pub(crate) async fn run(
        &self,
        work: usize,
        trip: impl Future<Output = Result<Reply, LinkError>>,
    ) -> Result<Reply, LinkError> {
        let mut last = self.turn.lock().await;
        last.pause();
        if last.due >= SHORTEST {
            tokio::time::sleep(Duration::from_secs_f64(last.due)).await;
            last.pause();
        }
        let started = Instant::now();
        let reply = trip.await;
        if reply.is_ok() {
            last.due += rest(started.elapsed().as_secs_f64(), work);
        }
        last.ended = Some(Instant::now());
        reply
    }
}

impl Last {
    /// Subtracts the pause since the last trip from the rest that is due.
    fn pause(&mut self) {
        let Some(ended) = self.ended else { return };
        let pause = ended.elapsed().as_secs_f64();
        if pause >= SHORTEST {
            self.due = (self.due - pause).max(-EVEN);
            self.ended = Some(Instant::now());
        }
    }
}

/// The rest after a trip, in seconds.
fn rest(took: f64, work: usize) -> f64 {
    let of_full = (took * (took / EVEN).min(LONGEST.0)).min(LONGEST.1);
    of_full * (work as f64 / FULL as f64).min(1.0)
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    /// Trips of several processes to a node that serves a full one in half a millisecond or somewhat more, and 0.15 ms
    /// between a response and the next request. Returns the share of the time that the node works, and the mean wait of a
    /// trip, in full trips.
    fn paced(processes: usize, work: usize) -> (f64, f64) {
        const TRIPS: usize = 60_000;
        let mut random = StdRng::seed_from_u64(7);
        let mut due = vec![0.0; processes];
        let mut next: Vec<f64> = (0..processes).map(|process| process as f64 * 1e-4).collect();
        let (mut free, mut from, mut busy, mut waited) = (0.0_f64, 0.0, 0.0, 0.0);
        for trip in 0..TRIPS {
            let process = (0..processes).min_by(|a, b| next[*a].total_cmp(&next[*b])).unwrap();
            let full = 5e-4 * (1.0 + 0.3 * random.random::<f64>());
            let service = full * work as f64 / FULL as f64;
            let began = next[process].max(free);
            free = began + service;
            if trip == TRIPS / 2 {
                from = free;
            } else if trip > TRIPS / 2 {
                busy += service;
                waited += began - next[process];
            }
            due[process] += rest(free - next[process] + 1.5e-4, work);
            next[process] = free + 1.5e-4;
            if due[process] >= SHORTEST {
                next[process] += std::mem::take(&mut due[process]);
            }
        }
        (busy / (free - from), waited / (TRIPS / 2) as f64 / 5.75e-4)
    }

    #[test]
    fn processes_keep_a_node_busy_and_its_queue_short() {
        for processes in [1, 2, 4, 8, 16, 40] {
            for work in [FULL, 35 + CALL, 20 + CALL, 4 + CALL] {
                let (busy, waiting) = paced(processes, work);
                let least = if processes == 1 { 0.45 } else { 0.6 };
                let is_busy = busy > least || (work < 35 + CALL && processes < 8);
                assert!(
                    is_busy && waiting < 2.5 * (processes as f64).sqrt(),
                    "{processes} processes, {work} of {FULL}: busy {busy:.2}, {waiting:.2} wait"
                );
            }
        }
    }

    #[test]
    fn a_slow_trip_with_little_work_hardly_rests() {
        let [little, full, more] = [1 + CALL, FULL, 12 * (8 + CALL)].map(|work| rest(0.015, work));
        assert!(little < 0.004 && full == 0.045 && more == full, "{little} {full} {more}");
    }

    #[tokio::test]
    async fn idle_time_is_rest_and_a_failure_causes_none() {
        let pace = Pace::default();
        let due = async || pace.turn.lock().await.due;
        let slow = async |reply: Result<Reply, LinkError>| {
            tokio::time::sleep(Duration::from_millis(40)).await;
            reply
        };
        let refused = || Err(LinkError::Unexpected { detail: "refused".to_owned() });
        pace.run(FULL, slow(refused())).await.unwrap_err();
        assert!(due().await <= 0.0);
        pace.run(FULL, slow(Ok(Reply { values: Vec::new(), epoch: crate::Epoch::NONE }))).await.unwrap();
        assert_eq!(due().await, LONGEST.1);
        tokio::time::sleep(Duration::from_secs_f64(LONGEST.1)).await;
        let began = Instant::now();
        pace.run(FULL, async { refused() }).await.unwrap_err();
        assert!(began.elapsed().as_secs_f64() < LONGEST.1 && due().await <= 0.0, "{:?}", began.elapsed());
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
        for reply in futures::future::join_all((0..20).map(|_| pace.run(1, trip()))).await {
            assert!(reply.is_err());
        }
    }
}
