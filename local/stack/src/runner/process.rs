//! Functions as processes: the deployed binaries with the emulated Lambda Runtime API.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    io::Write as _,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
    sync::{Notify, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{InvokeError, Invoked, Runner};
use crate::{clock, lock::lock, template::Function};

/// The pause before the stack replaces a process that ended before its first request for work. It doubles each time,
/// up to a bound. A process that has requested work is replaced at once.
const RESPAWN_AFTER: Duration = Duration::from_millis(200);
const RESPAWN_AT_MOST: Duration = Duration::from_secs(5);

pub(crate) struct WorkerSettings {
    pub(crate) binary: PathBuf,
    /// The number of processes, and so of concurrent invocations.
    pub(crate) count: usize,
    pub(crate) environment: Arc<BTreeMap<String, String>>,
    pub(crate) runtime_api: String,
    pub(crate) log: PathBuf,
}

/// An invocation in the form that a worker receives.
pub(super) struct Assignment {
    pub(super) request_id: String,
    pub(super) payload: String,
    pub(super) deadline_ms: u64,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Assignment, oneshot::Sender<Invoked>)>,
    /// The request id and the waiting caller of each busy worker.
    running: HashMap<u64, (String, oneshot::Sender<Invoked>)>,
    /// Process ids of live workers. The id is 0 while the process is being started.
    live: BTreeMap<u64, u32>,
    /// Live workers that have requested work.
    ready: HashSet<u64>,
    spawned: u64,
}

pub(super) struct Pool {
    pub(super) arn: String,
    state: Mutex<State>,
    arrival: Notify,
    /// Notifies supervisors of a worker in `condemned`, which they kill.
    sentence: Notify,
    condemned: Mutex<HashSet<u64>>,
}

impl Pool {
    /// Waits for a worker's next invocation. Returns `None` if the worker has ended.
    pub(super) async fn next(&self, worker: u64) -> Option<Assignment> {
        loop {
            {
                let mut state = lock(&self.state);
                if !state.live.contains_key(&worker) {
                    return None;
                }
                state.ready.insert(worker);
                if let Some((assignment, response)) = state.waiting.pop_front() {
                    state.running.insert(worker, (assignment.request_id.clone(), response));
                    if !state.waiting.is_empty() {
                        self.arrival.notify_one();
                    }
                    return Some(assignment);
                }
            }
            self.arrival.notified().await;
        }
    }

    /// Passes a result to the caller that waits for it. Returns false if no caller waits any more.
    pub(super) fn finish(&self, worker: u64, request_id: &str, response: Invoked) -> bool {
        let mut state = lock(&self.state);
        if state.running.get(&worker).is_none_or(|(id, _)| id != request_id) {
            return false;
        }
        state.running.remove(&worker).is_some_and(|(_, waiting)| waiting.send(response).is_ok())
    }

    /// Adds a worker without its process id.
    fn started(&self) -> u64 {
        let mut state = lock(&self.state);
        state.spawned += 1;
        let worker = state.spawned;
        state.live.insert(worker, 0);
        worker
    }

    /// Fails the worker's invocation. If the worker never requested work, fails the next invocation in the queue, as
    /// Lambda does when a function cannot start. Returns true if the worker had requested work.
    fn ended(&self, worker: u64, how: &str) -> bool {
        let mut state = lock(&self.state);
        state.live.remove(&worker);
        let was_ready = state.ready.remove(&worker);
        let victim = match state.running.remove(&worker) {
            Some((_, waiting)) => Some(waiting),
            None if was_ready => None,
            None => state.waiting.pop_front().map(|(_, waiting)| waiting),
        };
        if let Some(waiting) = victim {
            // The invocation may have timed out. Then no caller waits.
            let _ = waiting.send(Err(InvokeError::Exited(how.to_owned())));
        }
        was_ready
    }

    /// Withdraws an invocation: removes it from the queue, or ends the process that handles it.
    fn withdraw(&self, request_id: &str) {
        let mut state = lock(&self.state);
        state.waiting.retain(|(assignment, _)| assignment.request_id != request_id);
        self.condemn(state.running.extract_if(|_, (id, _)| id == request_id).map(|(worker, _)| worker));
    }

    fn condemn(&self, workers: impl IntoIterator<Item = u64>) {
        lock(&self.condemned).extend(workers);
        self.sentence.notify_waiters();
    }
}

pub(crate) struct Processes {
    pub(super) pool: Arc<Pool>,
    timeout_seconds: u64,
    stop: CancellationToken,
    supervisors: tokio::sync::Mutex<JoinSet<()>>,
}

impl Processes {
    /// Starts the processes. A process that ends is replaced.
    pub(crate) fn start(function: &Function, settings: WorkerSettings) -> Result<Self> {
        let binary = &settings.binary;
        ensure!(binary.is_file(), "function `{}`: the binary {} does not exist", function.logical_id, binary.display());
        let pool = Arc::new(Pool {
            arn: function.arn(),
            state: Mutex::default(),
            arrival: Notify::new(),
            sentence: Notify::new(),
            condemned: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let settings = Arc::new(settings);
        let mut supervisors = JoinSet::new();
        for _ in 0..settings.count.max(1) {
            supervisors.spawn(supervise(Arc::clone(&pool), Arc::clone(&settings), function.binary.clone(), stop.clone()));
        }
        Ok(Self { pool, timeout_seconds: function.timeout_seconds, stop, supervisors: tokio::sync::Mutex::new(supervisors) })
    }
}

#[async_trait]
impl Runner for Processes {
    async fn invoke(&self, request_id: &str, payload: Value) -> Invoked {
        let timeout = Duration::from_secs(self.timeout_seconds);
        let assignment = Assignment {
            request_id: request_id.to_owned(),
            payload: payload.to_string(),
            deadline_ms: clock::now_ms() + self.timeout_seconds * 1_000,
        };
        let (response, waiting) = oneshot::channel();
        lock(&self.pool.state).waiting.push_back((assignment, response));
        self.pool.arrival.notify_one();
        match tokio::time::timeout(timeout, waiting).await {
            Ok(response) => response.unwrap_or_else(|_| Err(InvokeError::Exited("the stack is stopping".to_owned()))),
            Err(_) => {
                self.pool.withdraw(request_id);
                Err(InvokeError::TimedOut(self.timeout_seconds))
            }
        }
    }

    fn pids(&self) -> Vec<u32> {
        lock(&self.pool.state).live.values().copied().filter(|pid| *pid != 0).collect()
    }

    fn retire(&self, pid: u32) -> bool {
        let mut state = lock(&self.pool.state);
        let worker = state.live.iter().find(|(_, of)| **of == pid).map(|(worker, _)| *worker);
        let is_idle = |worker: &u64| state.ready.contains(worker) && !state.running.contains_key(worker);
        let Some(worker) = worker.filter(is_idle) else { return false };
        // From now on it gets no invocation.
        state.live.remove(&worker);
        self.pool.condemn([worker]);
        true
    }

    fn kill(&self) -> usize {
        let workers: Vec<u64> = lock(&self.pool.state).running.keys().copied().collect();
        let count = workers.len();
        self.pool.condemn(workers);
        count
    }

    async fn stop(&self) {
        self.stop.cancel();
        let mut supervisors = self.supervisors.lock().await;
        while supervisors.join_next().await.is_some() {}
    }
}

async fn supervise(pool: Arc<Pool>, settings: Arc<WorkerSettings>, function: String, stop: CancellationToken) {
    let mut pause = RESPAWN_AFTER;
    while !stop.is_cancelled() {
        let was_ready = match spawn(&pool, &settings, &function) {
            Ok((worker, child)) => {
                let how = watch(&pool, worker, child, &stop).await;
                let was_ready = pool.ended(worker, &how);
                if !stop.is_cancelled() {
                    tracing::warn!(function, how, was_ready, log = %settings.log.display(), "a function's process ended");
                }
                was_ready
            }
            Err(error) => {
                tracing::error!(function, "{error:#}");
                false
            }
        };
        if was_ready {
            pause = RESPAWN_AFTER;
        } else {
            let _ = tokio::time::timeout(pause, stop.cancelled()).await;
            pause = (pause * 2).min(RESPAWN_AT_MOST);
        }
    }
}

/// Starts one process. Its id in the pool is part of its Runtime API address, so the Runtime API can tell workers
/// apart. The pool entry must exist before the process runs, so it receives the process id afterwards.
fn spawn(pool: &Pool, settings: &WorkerSettings, function: &str) -> Result<(u64, Child)> {
    let log =
        std::fs::OpenOptions::new().create(true).append(true).open(&settings.log).context("cannot write a function's log")?;
    let same_log = log.try_clone()?;
    let worker = pool.started();
    let child = Command::new(&settings.binary)
        .env_clear()
        .envs(settings.environment.iter())
        .env("AWS_LAMBDA_RUNTIME_API", format!("http://{}/{function}/{worker}", settings.runtime_api))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0)
        .spawn();
    match child {
        Ok(mut child) => {
            if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
                tokio::spawn(relay(output, same_log, function.to_owned()));
                tokio::spawn(relay(errors, log, function.to_owned()));
            }
            lock(&pool.state).live.insert(worker, child.id().unwrap_or_default());
            Ok((worker, child))
        }
        Err(error) => {
            pool.ended(worker, "not started");
            Err(error).with_context(|| format!("cannot start {}", settings.binary.display()))
        }
    }
}

/// Writes the lines of a process to its file. Its warnings and errors, and lines that are not JSON, such as the message
/// of a panic, also become events of this process.
async fn relay(output: impl AsyncRead + Unpin, mut file: std::fs::File, function: String) {
    let (mut output, mut bytes) = (BufReader::new(output), Vec::new());
    while output.read_until(b'\n', &mut bytes).await.is_ok_and(|read| read > 0) {
        // A full disk must not stop the process.
        let _ = file.write_all(&bytes);
        let line = String::from_utf8_lossy(&bytes);
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        let fields = &event["fields"];
        let message = fields["message"].as_str().unwrap_or_default();
        match event["level"].as_str() {
            Some("ERROR") => tracing::error!(function, %fields, "{message}"),
            Some("WARN") => tracing::warn!(function, %fields, "{message}"),
            Some(_) => {}
            None => tracing::warn!(function, line = line.trim_end(), "written by a process"),
        }
        bytes.clear();
    }
}

/// Waits until a process ends, or ends it. Returns how it ended.
async fn watch(pool: &Pool, worker: u64, mut child: Child, stop: &CancellationToken) -> String {
    loop {
        let mut sentence = std::pin::pin!(pool.sentence.notified());
        sentence.as_mut().enable();
        if lock(&pool.condemned).remove(&worker) {
            let _ = child.kill().await;
            return "killed".to_owned();
        }
        tokio::select! {
            status = child.wait() => return status.map_or_else(|error| error.to_string(), |status| status.to_string()),
            () = stop.cancelled() => {
                let _ = child.kill().await;
                return "the stack is stopping".to_owned();
            }
            () = sentence => {}
        }
    }
}
