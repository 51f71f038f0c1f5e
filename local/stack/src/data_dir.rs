//! The data directory and its lock.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::time::Instant;

/// The time that a start waits for the lock. A killed stack needs a moment to release it. So does a stopped one whose
/// process has just forked: the child has the lock until it runs another program.
const PATIENCE: Duration = Duration::from_secs(5);

/// A locked data directory. The operating system releases the lock when the process ends.
pub(crate) struct DataDir {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Locks the directory and creates it if it does not exist.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        std::fs::create_dir_all(path).with_context(|| format!("cannot create the data directory {shown}"))?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.with_context(|| format!("cannot write to the data directory {shown}"))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Self { path: path.canonicalize()?, _lock: lock }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(TryLockError::WouldBlock) => bail!("the data directory {shown} is in use by another stack"),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock the data directory {shown}"));
                }
            }
        }
    }
}
