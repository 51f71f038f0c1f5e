//! DynamoDB with streams on a loopback port: `dynoxide` in this process, served over HTTP.
//!
//! The server has threads of its own, because calls of the engine block. The real SDK connects to it.
//!
//! The endpoint is this crate's (`service`), not dynoxide's. Faults and weather act between a request and the engine.
//! A second HTTP hop would slow every request of a calm stack.

mod access;
mod engine;
mod limits;
mod service;
mod streams;
mod tables;
mod tokens;

use std::{
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use dynoxide::Database;
use rusqlite::Connection;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use streams::{Record, StreamLog};
pub(crate) use tables::creation;

use crate::{
    http_server,
    metrics::Metrics,
    template::{Table, Template},
    weather::Surroundings,
};

const BODY_LIMIT: usize = 16 << 20;
/// Threads that serve requests. A call of the engine blocks one of them.
const THREADS: usize = 2;
/// How often consumed stream records are removed, and at most how often expired items are.
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// A removal of expired items reads whole tables. The next one waits so many times as long as it took.
const RESTS: u32 = 19;
const LONGEST_REST: Duration = Duration::from_secs(3_600);

/// dynoxide has no index on `_stream_records`: every write to a table with a stream would read all earlier records.
const STREAM_INDEXES: &str = "
    CREATE INDEX IF NOT EXISTS _local_stream_by_table ON _stream_records (table_name, CAST(sequence_number AS INTEGER));
    CREATE INDEX IF NOT EXISTS _local_stream_by_shard ON _stream_records (table_name, shard_id, CAST(sequence_number AS INTEGER));";

pub(crate) struct DynamoDb {
    pub(crate) endpoint: String,
    pub(crate) log: Arc<StreamLog>,
    database: Database,
    stop: DropGuard,
    threads: Vec<JoinHandle<()>>,
}

impl DynamoDb {
    /// Opens or creates the database file and serves it. Returns when the endpoint accepts requests.
    pub(crate) fn start(path: &Path, template: &Template, surroundings: &Surroundings, metrics: &Arc<Metrics>) -> Result<Self> {
        let name = path.to_str().ok_or_else(|| anyhow!("the data directory's path must be UTF-8"))?;
        let database = Database::new(name).with_context(|| format!("cannot open {}", path.display()))?;
        // This sets `synchronous=NORMAL`: a killed process loses nothing, a power failure may lose the last writes.
        database.disable_bulk_loading().context("cannot configure the database")?;
        Connection::open(path)
            .and_then(|connection| connection.execute_batch(STREAM_INDEXES))
            .context("cannot index the stream records")?;

        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("cannot bind a loopback port for DynamoDB")?;
        listener.set_nonblocking(true)?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("local-dynamodb")
            .enable_all()
            .build()
            .context("cannot start the threads of DynamoDB")?;
        let log = Arc::new(StreamLog::open(path)?);
        let service =
            service::Service::new(database.clone(), Arc::clone(&log), template, surroundings.clone(), Arc::clone(metrics));
        let signal = stop.clone();
        let server = std::thread::Builder::new().name("local-dynamodb".to_owned()).spawn(move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => http_server::serve(listener, BODY_LIMIT, service, signal).await,
                    Err(error) => tracing::error!(%error, "the DynamoDB endpoint failed"),
                }
            });
            // A client that keeps a request open must not delay the end of the stack.
            runtime.shutdown_timeout(Duration::from_secs(2));
        })?;
        Ok(Self { endpoint, log, database, stop: stop.drop_guard(), threads: vec![server] })
    }

    /// Creates the missing parts of a table: the table, its indexes, its stream, its expiry. Returns the stream's ARN.
    pub(crate) fn ensure(&self, table: &Table) -> Result<Option<String>> {
        tables::ensure(&self.database, table).with_context(|| format!("table `{}`", table.logical_id))
    }

    /// Starts to remove expired items, and stream records that the log reports as consumed.
    pub(crate) fn keep_tidy(&mut self) -> Result<()> {
        let (database, log, stop) = (self.database.clone(), Arc::clone(&self.log), self.stop.token().clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let tidy = move || {
            let mut next_sweep = Instant::now();
            while runtime.block_on(async { tokio::time::timeout(TIDY_EVERY, stop.cancelled()).await.is_err() }) {
                let started = Instant::now();
                if started >= next_sweep {
                    let swept = database.sweep_ttl();
                    // One that fails may have removed some items.
                    if !matches!(swept, Ok(0)) {
                        log.wrote();
                    }
                    match swept {
                        Ok(0) => {}
                        Ok(items) => tracing::debug!(items, "removed expired items"),
                        Err(error) => tracing::warn!(%error, "cannot remove expired items"),
                    }
                    next_sweep = Instant::now() + rest_after(started.elapsed());
                }
                if let Err(error) = log.prune() {
                    tracing::warn!(%error, "cannot drop consumed stream records");
                }
            }
        };
        self.threads.push(std::thread::Builder::new().name("local-tidy".to_owned()).spawn(tidy)?);
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        self.stop.token().cancel();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// How long the search for expired items rests after one that took `duration`.
fn rest_after(duration: Duration) -> Duration {
    duration.saturating_mul(RESTS).min(LONGEST_REST)
}

#[cfg(test)]
mod tests;
