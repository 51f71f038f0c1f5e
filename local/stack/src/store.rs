//! The stack's own durable state: undelivered queue messages, the position up to which each stream was read, and the
//! events on the bus.
//!
//! It is one SQLite file. A single writer thread commits all queued writes in one transaction.
//!
//! WAL with `synchronous=NORMAL`: a killed process loses nothing acknowledged, a power failure the last writes.

use std::{
    path::Path,
    sync::{Mutex, mpsc},
    thread::JoinHandle,
};

use anyhow::{Context as _, Result};
use rusqlite::{Connection, Transaction};
use tokio::sync::oneshot;

use crate::lock::lock;

/// The largest number of writes that share one commit.
const GROUP: usize = 512;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS messages (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        queue TEXT NOT NULL,
        body TEXT NOT NULL,
        attributes TEXT NOT NULL,
        message_group TEXT,
        sent_ms INTEGER NOT NULL,
        due_ms INTEGER NOT NULL,
        receives INTEGER NOT NULL,
        first_received_ms INTEGER,
        dead_letter_source TEXT
    );
    CREATE TABLE IF NOT EXISTS positions (source TEXT PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS events (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        detail_type TEXT NOT NULL,
        detail TEXT NOT NULL
    );";

type Work = Box<dyn FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send>;
/// A write, and the sender that tells when it is committed.
type Job = (Work, Option<oneshot::Sender<()>>);

/// A handle to the writer thread. A drop (or [`Store::close`]) ends the thread after it has written everything.
pub(crate) struct Store(Mutex<Option<(mpsc::Sender<Job>, JoinHandle<()>)>>);

impl Store {
    /// Opens or creates the file. Calls `load` on its content before the writer thread starts.
    pub(crate) fn open<T>(path: &Path, load: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<(Self, T)> {
        let open = || -> rusqlite::Result<(Connection, T)> {
            let connection = Connection::open(path)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.execute_batch(SCHEMA)?;
            let loaded = load(&connection)?;
            Ok((connection, loaded))
        };
        let (connection, loaded) = open().with_context(|| format!("cannot open {}", path.display()))?;
        let (jobs, queue) = mpsc::channel();
        let writer = std::thread::Builder::new().name("local-store".to_owned()).spawn(move || write(connection, &queue))?;
        Ok((Self(Mutex::new(Some((jobs, writer)))), loaded))
    }

    /// Queues a write without waiting for it. Writes run in the order of the calls.
    pub(crate) fn post(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static) {
        self.submit(Box::new(work), None);
    }

    /// Writes, and returns when the write is committed.
    pub(crate) async fn commit(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<()> {
        let (done, committed) = oneshot::channel();
        self.submit(Box::new(work), Some(done));
        committed.await.context("the local store cannot write")
    }

    fn submit(&self, work: Work, done: Option<oneshot::Sender<()>>) {
        if let Some((jobs, _)) = &*lock(&self.0)
            && jobs.send((work, done)).is_err()
        {
            tracing::error!("the local store's writer has ended");
        }
    }

    /// Writes everything that is queued and ends the writer. Later writes are lost.
    pub(crate) fn close(&self) {
        let open = lock(&self.0).take();
        if let Some((jobs, writer)) = open {
            drop(jobs);
            let _ = writer.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

fn write(mut connection: Connection, queue: &mpsc::Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let jobs: Vec<Job> = std::iter::once(first).chain(queue.try_iter().take(GROUP)).collect();
        let mut acknowledge = Vec::new();
        let group = || -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            for (work, done) in jobs {
                work(&transaction)?;
                acknowledge.extend(done);
            }
            transaction.commit()
        };
        match group() {
            // A caller may have given up. Then no task waits.
            Ok(()) => {
                for done in acknowledge {
                    let _ = done.send(());
                }
            }
            Err(error) => tracing::error!(%error, "the local store cannot write"),
        }
    }
}
