//! The time of a reader's first page of the feed: without load, and beside fan-outs.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde::Serialize;
use tidemark::{
    App,
    domain::{PostId, StoreError, UserId},
};
use tokio::sync::Mutex;

use super::{
    main_thread_us,
    worker::{Event, Worker},
};
use crate::{server::Server, stats::round};

const READS: usize = 2_000;
/// Pauses between two reads.
const PAUSES: Range<Duration> = Duration::from_micros(500)..Duration::from_millis(4);
/// Entries that a first page of twenty reads, and posts that it shows.
const ENTRIES: usize = 31;
const SHOWN: usize = 20;

/// A load beside the reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Load {
    /// Processes that deliver the events of one post after another.
    pub(super) processes: usize,
    /// Whether they pace themselves.
    pub(super) paced: bool,
}

const IDLE: Load = Load { processes: 0, paced: true };
const FLAT_OUT: Load = Load { processes: 1, paced: false };
const OTHERS: [Load; 3] =
    [Load { processes: 1, paced: true }, Load { processes: 8, paced: false }, Load { processes: 8, paced: true }];

/// The first page of a feed beside each load.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FirstPages {
    pub(super) idle: FirstPage,
    /// Beside one process that does not pace itself.
    pub(super) during_fan_out: FirstPage,
    pub(super) others: Vec<FirstPage>,
}

/// The first page of a feed beside a load. Times in µs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct FirstPage {
    pub(super) load: Load,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Followers delivered in a second during the measurement.
    pub(super) delivered_per_second: f64,
    /// The share of the time for which the server's main thread was busy.
    pub(super) server_busy: Option<f64>,
}

/// Measures on processors as separate machines would have them, as far as the kernel allows it: one for the server, and
/// the others for workers and reader, of which the reader goes first.
pub(super) async fn measure(server: &Server, worker: &Arc<Worker>, followers: &[UserId]) -> anyhow::Result<FirstPages> {
    let _apart = Apart::new(server.info(&["server"]).await?.number("process_id")?);
    let followers: Arc<[UserId]> = followers.into();
    let idle = beside(server, worker, &followers, IDLE).await?;
    let during_fan_out = beside(server, worker, &followers, FLAT_OUT).await?;
    let mut others = Vec::new();
    for load in OTHERS {
        others.push(beside(server, worker, &followers, load).await?);
    }
    Ok(FirstPages { idle, during_fan_out, others })
}

async fn beside(server: &Server, worker: &Arc<Worker>, followers: &Arc<[UserId]>, load: Load) -> anyhow::Result<FirstPage> {
    let (over, delivered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // As in a queue: the events of one post for all processes, then those of the next.
    let queue: Arc<Mutex<VecDeque<Event>>> = Arc::default();
    let mut processes = Vec::new();
    for _ in 0..load.processes {
        let (worker, queue, over, delivered) = (worker.clone(), queue.clone(), over.clone(), delivered.clone());
        let work = move || process(&worker, load, &queue, &over, &delivered);
        processes.push(tokio::task::spawn_blocking(work));
    }
    let (worker, followers) = (worker.clone(), followers.clone());
    let read = move || read(&worker, &followers, &delivered);
    let (before, started) = (server.info(&["cpu"]).await?, Instant::now());
    let read = tokio::task::spawn_blocking(read).await;
    let busy_us = main_thread_us(&before, &server.info(&["cpu"]).await?);
    let server_busy = busy_us.map(|busy| round(busy / 1e6 / started.elapsed().as_secs_f64()));
    over.store(true, Ordering::Relaxed);
    try_join_all(processes).await?.into_iter().collect::<anyhow::Result<()>>()?;
    let (times, delivered_per_second) = read??;
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0.0).round();
    Ok(FirstPage { load, p50_us: at(0.5), p99_us: at(0.99), delivered_per_second, server_busy })
}

/// A process that delivers until it is `over` and the last post has reached all followers: a gap would make each later
/// delivery to them more expensive. It has a runtime of its own, so no other one uses its thread.
fn process(
    worker: &Worker,
    Load { processes, paced }: Load,
    queue: &Mutex<VecDeque<Event>>,
    over: &AtomicBool,
    delivered: &AtomicU64,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let app = worker.another(paced).await?;
        loop {
            let mut waiting = queue.lock().await;
            if waiting.is_empty() && !over.load(Ordering::Relaxed) {
                waiting.extend(worker.events(processes).await?);
            }
            let Some(event) = waiting.pop_front() else { return Ok(()) };
            drop(waiting);
            delivered.fetch_add(worker.work(&app, Some(event)).await? as u64, Ordering::Relaxed);
        }
    })
}

/// The work of the reader's thread. Returns the times of its reads in µs, in ascending order, and the followers
/// delivered in a second meanwhile.
fn read(worker: &Worker, followers: &[UserId], delivered: &AtomicU64) -> anyhow::Result<(Vec<f64>, f64)> {
    let _first = First::new();
    // The reader's connection lives in this thread too.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let reader = worker.another(true).await?;
        // The pace is found during the first reads, which do not count.
        reads(&reader, followers, READS / 4).await?;
        let (before, started) = (delivered.load(Ordering::Relaxed), Instant::now());
        let times = reads(&reader, followers, READS).await?;
        let during = delivered.load(Ordering::Relaxed) - before;
        Ok((times, (during as f64 / started.elapsed().as_secs_f64()).round()))
    })
}

/// Reads first pages of random followers. Returns the times in µs, in ascending order.
async fn reads(reader: &App, followers: &[UserId], count: usize) -> anyhow::Result<Vec<f64>> {
    let mut random = StdRng::seed_from_u64(1);
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(&user) = followers.choose(&mut random) else { break };
        // A reader arrives at any moment, and not when the last read ends.
        tokio::time::sleep(random.random_range(PAUSES)).await;
        let started = Instant::now();
        page(reader, user).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times)
}

async fn page(reader: &App, user: UserId) -> Result<(), StoreError> {
    let view = reader.stores.views.reader_view(user, ENTRIES).await?;
    let shown: Vec<PostId> = view.into_iter().flat_map(|view| view.entries).take(SHOWN).map(|entry| entry.post).collect();
    reader.stores.views.summaries(&shown).await.map(|_| ())
}

/// The server has the first processor, and goes before everything else there, such as threads of the kernel. This
/// process has the others, until this value is dropped.
struct Apart {
    server: u32,
    processors: usize,
}

impl Apart {
    fn new(server: u32) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if processors > 1 {
            run("taskset", &["-acp", "0", &server.to_string()]);
            run("renice", &["-n", "-20", "-p", &server.to_string()]);
            run("taskset", &["-acp", &format!("1-{}", processors - 1), &std::process::id().to_string()]);
        }
        Self { server, processors }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for process in [self.server, std::process::id()] {
            run("taskset", &["-acp", &format!("0-{}", self.processors - 1), &process.to_string()]);
        }
        run("renice", &["-n", "0", "-p", &self.server.to_string()]);
    }
}

/// This thread goes before all others, until this value is dropped.
struct First(Option<String>);

impl First {
    fn new() -> Self {
        let thread = std::fs::read_link("/proc/thread-self").ok();
        let thread = thread.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        if let Some(thread) = &thread {
            run("chrt", &["--fifo", "--pid", "10", thread]);
        }
        Self(thread)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let Some(thread) = &self.0 {
            run("chrt", &["--other", "--pid", "0", thread]);
        }
    }
}

/// Without the program or the permission, times include waits for a processor.
fn run(program: &str, arguments: &[&str]) {
    let output = std::process::Command::new(program).args(arguments).output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("{program} {}: {output:?}", arguments.join(" "));
    }
}
