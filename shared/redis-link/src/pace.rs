//! The pace of bulk work on one node: fast, with a short queue.
//!
//! A node runs one command at a time, so a reader waits for all the bulk work that was sent before. A process therefore
//! has at most one bulk trip to a node in flight, and rests after it. No process knows of another. But the node tells how
//! much processor time it has used, so each process knows which share of its time the node was busy. Each rests longer
//! while this share is above [`BUSY`], and shorter while it is below. So any number of processes leave the same share to
//! readers. A trip with little work rests for a part of that.

use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value};

use crate::{LinkError, reply::Reply};

/// The share of its time that a node is busy when bulk work keeps its pace. A reader waits for less than one call then.
const BUSY: f64 = 0.7;

/// The time after which the node is asked again, in seconds.
const WINDOW: f64 = 0.004;

/// How fast the rest follows the share.
const GAIN: f64 = 1.1;

/// The least and the most that a process rests after a full trip, as multiples of the trip's time.
const FACTORS: (f64, f64) = (0.02, 40.0);

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
    /// The rest after a full trip, as a multiple of the trip's time.
    factor: f64,
    asked: Option<Instant>,
    load: Option<Load>,
}

impl Default for Last {
    fn default() -> Self {
        Self { ended: None, due: 0.0, factor: 1.0, asked: None, load: None }
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

impl Load {
    /// The commands that ask for it.
    fn commands() -> [Cmd; 2] {
        [redis::cmd("INFO").arg("cpu").clone(), redis::cmd("TIME")]
    }

    /// Reads the responses; `None` if the node does not tell.
    fn read(info: Value, time: Value) -> Option<Self> {
        let (info, time) = (String::from_redis_value(info).ok()?, <(u64, u64)>::from_redis_value(time).ok()?);
        let seconds = |name: &str| {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|text| text.trim().parse::<f64>().ok())
        };
        let sum = |names: [&str; 2]| Some(seconds(names[0])? + seconds(names[1])?);
        // Without the first two, the time of all threads counts.
        let busy = sum(["used_cpu_user_main_thread", "used_cpu_sys_main_thread"]).or(sum(["used_cpu_user", "used_cpu_sys"]))?;
        Some(Self { busy, at: Duration::new(time.0, 0).as_secs_f64() + time.1 as f64 / 1e6 })
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
        let mut reply = trip(if asks { &*COMMANDS } else { &[] }).await;
        if let Ok(reply) = &mut reply {
            if asks {
                last.asked = Some(started);
                let time = reply.values.pop();
                if let Some(load) = reply.values.pop().zip(time).and_then(|(info, time)| Load::read(info, time)) {
                    last.heed(load);
                }
            }
            last.due += rest(started.elapsed().as_secs_f64(), work, last.factor);
        }
        last.ended = Some(Instant::now());
        reply
    }
}

static COMMANDS: std::sync::LazyLock<[Cmd; 2]> = std::sync::LazyLock::new(Load::commands);

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

    /// Changes the rest by the share of the time since the last response that the node was busy.
    fn heed(&mut self, load: Load) {
        if let Some(before) = self.load.replace(load)
            && load.at > before.at
            && load.busy >= before.busy
        {
            let share = ((load.busy - before.busy) / (load.at - before.at)).min(1.0);
            self.factor = (self.factor * (1.0 + GAIN * (share - BUSY))).clamp(FACTORS.0, FACTORS.1);
        }
    }
}

/// The rest after a trip, in seconds.
fn rest(took: f64, work: usize, factor: f64) -> f64 {
    (took * factor * (work as f64 / FULL as f64).min(1.0)).min(LONGEST)
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

    /// Trips of several processes to a node. Returns the share of the time that the node works, and how long a reader
    /// waits in the median and at the 99th percentile, in seconds.
    fn paced(processes: usize, work: usize) -> (f64, f64, f64) {
        const SECONDS: f64 = 4.0;
        let mut random = StdRng::seed_from_u64(7);
        let mut lasts: Vec<Last> = (0..processes).map(|_| Last::default()).collect();
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
            }
            let last = &mut lasts[process];
            if arrived - asked[process] >= WINDOW {
                asked[process] = arrived;
                last.heed(Load { busy, at: free });
            }
            last.due += rest(free - arrived + BETWEEN, work, last.factor);
            next[process] = free + BETWEEN;
            if last.due >= SHORTEST {
                next[process] += std::mem::take(&mut last.due) + SHORTEST * random.random::<f64>() / 2.0;
            }
        }
        waits.sort_unstable_by(f64::total_cmp);
        ((busy - before) / (SECONDS / 2.0), waits[waits.len() / 2], waits[waits.len() * 99 / 100])
    }

    #[test]
    fn any_number_of_processes_leave_the_node_to_readers() {
        let full = service(FULL, &mut StdRng::seed_from_u64(0));
        for processes in [1, 2, 4, 8, 16, 40] {
            for work in [FULL, 20 + CALL, 4 + CALL] {
                let (busy, median, p99) = paced(processes, work);
                println!("{processes} processes, {work} of {FULL}: busy {busy:.2}, wait {median:.6} and {p99:.6}");
                let most = BUSY + if processes > 16 { 0.15 } else { 0.05 };
                let is_busy = busy > 0.55 || work * processes < 5 * FULL;
                assert!(is_busy && busy < most, "{processes} processes, {work} of {FULL}: busy {busy:.2}");
                assert!(median < full && p99 < 8.0 * full, "{processes} processes, {work} of {FULL}: {median} and {p99}");
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
        assert!(last.factor > 1.0, "the last share is 1: {}", last.factor);
    }

    #[test]
    fn a_slow_trip_with_little_work_hardly_rests() {
        let [little, full, more] = [1 + CALL, FULL, 12 * (8 + CALL)].map(|work| rest(0.015, work, 3.0));
        assert!(little < 0.008 && full == 0.045 && more == full, "{little} {full} {more}");
    }

    #[tokio::test]
    async fn idle_time_is_rest_and_a_failure_causes_none() {
        let pace = Pace::default();
        pace.turn.lock().await.factor = FACTORS.1;
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
