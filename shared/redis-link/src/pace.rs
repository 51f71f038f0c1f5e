//! The pace of bulk work on one node: fast, with a short queue.
//!
//! A node runs one command at a time, so a reader waits for all the bulk work that was sent before. A process therefore
//! has at most one bulk trip to a node in flight, and rests after it. No process knows of another. But the node tells how
//! much processor time it has used, so each process knows which share of its time the node was busy. Each works less while
//! this share is above [`BUSY`], by a part of its own, and more while it is below, by the same amount as all others. So up
//! to a few hundred processes leave readers their share, and get equal parts of the rest. A trip with little work rests for
//! a part of that.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use redis::{Cmd, FromRedisValue, Value};

use crate::{LinkError, reply::Reply};

/// The share of its time that a node is busy when bulk work keeps its pace. Half of the readers wait for less than one call
/// then.
const BUSY: f64 = 0.7;

/// The time after which the node is asked again, in seconds. A kernel may count processor time in ticks of 4 or 10 ms.
const WINDOW: f64 = 0.02;

/// How fast the share in flight grows and falls with the node's share.
const MORE: f64 = 0.1;
const LESS: f64 = 1.5;

/// The least share of its time for which a process has full trips in flight, and the first.
const LEAST: f64 = 1.0 / 300.0;
const FIRST: f64 = 0.5;

/// The longest rest, in seconds.
const LONGEST: f64 = 0.1;

/// What a call itself costs, as a number of users.
pub(crate) const CALL: usize = 5;

/// The work after which a trip rests in full: a delivery to 35 users.
const FULL: usize = 35 + CALL;

/// The shortest pause that counts as a rest, in seconds. Timers count milliseconds, so shorter rests are added up.
const SHORTEST: f64 = 1e-3;

/// The most that the rests of a process were too long and may be too short later, in seconds.
const CREDIT: f64 = 0.002;

/// The pace of one node.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Held by the trip in flight.
    turn: tokio::sync::Mutex<Last>,
}

/// The last trip.
#[derive(Debug)]
struct Last {
    ended: Option<Instant>,
    /// The rest that is due, in seconds. It is below zero after a rest that took too long.
    due: f64,
    /// The share of the time for which full trips are in flight. The process rests in between.
    in_flight: f64,
    asked: Option<Instant>,
    load: Option<Load>,
}

impl Default for Last {
    fn default() -> Self {
        Self { ended: None, due: 0.0, in_flight: FIRST, asked: None, load: None }
    }
}

/// How much a node has worked.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    /// The processor time of the thread that runs commands, since the start of the node, in seconds.
    busy: f64,
    /// The node's time, in seconds.
    at: f64,
}

/// The commands that ask for a [`Load`].
static ASK: LazyLock<[Cmd; 2]> = LazyLock::new(|| [redis::cmd("INFO").arg("cpu").clone(), redis::cmd("TIME")]);

impl Load {
    /// Reads the responses; `None` if the node does not tell.
    fn read(info: Value, time: Value) -> Option<Self> {
        let info = String::from_redis_value(info).ok()?;
        let (at, micros) = <(u64, u64)>::from_redis_value(time).ok()?;
        let seconds = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|text| text.trim().parse::<f64>().ok())
        };
        let sum = |names: [&str; 2]| Some(seconds(names[0])? + seconds(names[1])?);
        // Without the first two, the time of all threads counts.
        let busy = sum(["used_cpu_user_main_thread", "used_cpu_sys_main_thread"]).or(sum(["used_cpu_user", "used_cpu_sys"]))?;
        Some(Self { busy, at: (Duration::from_secs(at) + Duration::from_micros(micros)).as_secs_f64() })
    }
}

impl Pace {
    /// Runs a trip of bulk work in its turn, after the rest that is due. `work` is its number of users, and [`CALL`] for
    /// each call. The trip sends these commands after its own. A trip that fails causes no rest: the breaker keeps trips
    /// from a node that does not respond.
    pub(crate) async fn run(
        &self,
        work: usize,
        trip: impl AsyncFnOnce(&[Cmd]) -> Result<Reply, LinkError>,
    ) -> Result<Reply, LinkError> {
        let mut last = self.turn.lock().await;
        last.pause();
        if last.due >= SHORTEST {
            tokio::time::sleep(Duration::from_secs_f64(last.due)).await;
            last.pause();
        }
        let started = Instant::now();
        let asks = last.asked.is_none_or(|at| at.elapsed().as_secs_f64() >= WINDOW);
        let mut reply = trip(if asks { &*ASK } else { &[] }).await;
        if let Ok(reply) = &mut reply {
            if asks {
                last.asked = Some(started);
                let time = reply.values.pop();
                if let Some(load) = reply.values.pop().zip(time).and_then(|(info, time)| Load::read(info, time)) {
                    last.heed(load);
                }
            }
            last.due += rest(started.elapsed().as_secs_f64(), work, last.in_flight);
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
            self.due = (self.due - pause).max(-CREDIT);
            self.ended = Some(Instant::now());
        }
    }

    /// Follows the share of the time since the last response for which the node was busy.
    fn heed(&mut self, load: Load) {
        if let Some(before) = self.load.replace(load)
            && load.at > before.at
            && load.busy >= before.busy
        {
            let over = ((load.busy - before.busy) / (load.at - before.at)).min(1.0) - BUSY;
            let next = if over > 0.0 { self.in_flight * (-LESS * over).exp() } else { self.in_flight - MORE * over };
            self.in_flight = next.clamp(LEAST, 1.0);
        }
    }
}

/// The rest after a trip, in seconds.
fn rest(took: f64, work: usize, in_flight: f64) -> f64 {
    (took * (1.0 / in_flight - 1.0) * (work as f64 / FULL as f64).min(1.0)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    /// Seconds between a response and the arrival of the next request.
    const BETWEEN: f64 = 1.5e-4;

    /// Seconds that a node needs for a trip.
    fn service(work: usize, random: &mut StdRng) -> f64 {
        2e-4 * work as f64 / FULL as f64 * (1.0 + 0.3 * random.random::<f64>())
    }

    /// What several processes do to a node and to each other.
    struct Paced {
        /// The share of the time for which the node works.
        busy: f64,
        /// How long a reader waits in the median and at the 99th percentile, in seconds.
        median: f64,
        p99: f64,
        /// The most trips of a process as a multiple of the least.
        spread: f64,
    }

    /// Trips of several processes, of which half begin with almost no trips. The node counts its time in ticks.
    fn paced(processes: usize, work: usize) -> Paced {
        const SECONDS: f64 = 8.0;
        const TICK: f64 = 0.004;
        let mut random = StdRng::seed_from_u64(7);
        let first = |process| if process % 2 == 0 { FIRST } else { LEAST };
        let mut lasts: Vec<Last> = (0..processes).map(|process| Last { in_flight: first(process), ..Last::default() }).collect();
        let mut trips = vec![0_u32; processes];
        let mut asked = vec![f64::MIN; processes];
        let mut next: Vec<f64> = (0..processes).map(|process| process as f64 * 1e-4).collect();
        let (mut free, mut busy, mut before, mut waits) = (0.0_f64, 0.0, 0.0, Vec::new());
        let mut reader = SECONDS / 2.0;
        loop {
            let process = (0..processes).min_by(|a, b| next[*a].total_cmp(&next[*b])).unwrap();
            let arrived = next[process];
            while reader <= arrived && reader < SECONDS {
                waits.push((free - reader).max(0.0));
                reader += 1e-3 * random.random::<f64>();
            }
            if arrived >= SECONDS {
                break;
            }
            let service = service(work, &mut random);
            free = arrived.max(free) + service;
            busy += service;
            if free < SECONDS / 2.0 {
                before = busy;
            } else {
                trips[process] += 1;
            }
            let last = &mut lasts[process];
            if arrived - asked[process] >= WINDOW {
                asked[process] = arrived;
                last.heed(Load { busy: (busy / TICK).floor() * TICK, at: free });
            }
            last.due += rest(free - arrived + BETWEEN, work, last.in_flight);
            next[process] = free + BETWEEN;
            if last.due >= SHORTEST {
                next[process] += std::mem::take(&mut last.due) + SHORTEST * random.random::<f64>() / 2.0;
            }
        }
        waits.sort_unstable_by(f64::total_cmp);
        let spread = f64::from(*trips.iter().max().unwrap()) / f64::from(*trips.iter().min().unwrap());
        let at = |percent: usize| waits[waits.len() * percent / 100];
        Paced { busy: (busy - before) / (SECONDS / 2.0), median: at(50), p99: at(99), spread }
    }

    #[test]
    fn up_to_hundreds_of_processes_leave_the_node_to_readers_and_get_equal_parts() {
        let full = service(FULL, &mut StdRng::seed_from_u64(0));
        for processes in [1, 2, 4, 8, 16, 40, 200] {
            for work in [FULL, 20 + CALL, 4 + CALL] {
                let Paced { busy, median, p99, spread } = paced(processes, work);
                let what = format!("{processes} processes, {work} of {FULL}: busy {busy:.2}, {median:.6}, {p99:.6}, {spread:.2}");
                println!("{what}");
                assert!(busy > 0.55 || work * processes < 5 * FULL, "{what}");
                assert!(busy < BUSY + 0.1, "{what}");
                // More processes than `FanOutConcurrency` has by default begin at the same time more often.
                let most = if processes > 40 { (3.0, 100.0, 5.0) } else { (1.0, 10.0, 2.0) };
                assert!(median < most.0 * full && p99 < most.1 * full && spread < most.2, "{what}");
            }
        }
    }

    #[test]
    fn a_load_is_the_time_of_the_thread_that_runs_commands() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let time = || Value::Array(vec![text("1700000000"), text("250000")]);
        let all = "# CPU\r\nused_cpu_sys:3.5\r\nused_cpu_user:4.0\r\n";
        let main = "used_cpu_sys_main_thread:1.25\r\nused_cpu_user_main_thread:2.5\r\n";
        let at = 1_700_000_000.25;
        assert_eq!(Load::read(text(&format!("{all}{main}")), time()), Some(Load { busy: 3.75, at }));
        assert_eq!(Load::read(text(all), time()), Some(Load { busy: 7.5, at }));
        assert_eq!(Load::read(Value::Nil, time()), None);
        // A node that has started again tells less than before.
        let mut last = Last::default();
        for busy in [5.0, 1.0, 1.0 + 1e-3] {
            last.heed(Load { busy, at: at + busy });
        }
        assert!(last.in_flight < FIRST, "the last share is 1: {}", last.in_flight);
    }

    #[test]
    fn a_slow_trip_with_little_work_hardly_rests() {
        let [little, full, more] = [1 + CALL, FULL, 12 * (8 + CALL)].map(|work| rest(0.015, work, 0.25));
        assert!(little < 0.008 && full == 0.045 && more == full, "{little} {full} {more}");
    }

    #[tokio::test]
    async fn idle_time_is_rest_and_a_failure_causes_none() {
        let pace = Pace::default();
        pace.turn.lock().await.in_flight = LEAST;
        let due = async || pace.turn.lock().await.due;
        let slow = async |reply: Result<Reply, LinkError>| {
            tokio::time::sleep(Duration::from_millis(40)).await;
            reply
        };
        let refused = || Err(LinkError::Unexpected { detail: "refused".to_owned() });
        pace.run(FULL, async |_| slow(refused()).await).await.unwrap_err();
        assert!(due().await <= 0.0);
        pace.run(FULL, async |_| slow(Ok(Reply { values: Vec::new(), epoch: crate::Epoch::NONE })).await).await.unwrap();
        assert_eq!(due().await, LONGEST);
        assert_eq!(pace.turn.lock().await.in_flight, LEAST, "a node that tells nothing changes nothing");
        tokio::time::sleep(Duration::from_secs_f64(LONGEST)).await;
        let began = Instant::now();
        pace.run(FULL, async |_| refused()).await.unwrap_err();
        assert!(began.elapsed().as_secs_f64() < LONGEST && due().await <= 0.0, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn one_trip_is_in_flight_and_a_failure_ends_its_turn() {
        let (pace, flights) = (Pace::default(), std::sync::atomic::AtomicUsize::new(0));
        let trip = async |_: &[Cmd]| {
            use std::sync::atomic::Ordering::SeqCst;
            assert_eq!(flights.fetch_add(1, SeqCst), 0);
            tokio::task::yield_now().await;
            flights.fetch_sub(1, SeqCst);
            Err(LinkError::Unexpected { detail: "refused".to_owned() })
        };
        for reply in futures::future::join_all((0..20).map(|_| pace.run(1, trip))).await {
            assert!(reply.is_err());
        }
    }
}
