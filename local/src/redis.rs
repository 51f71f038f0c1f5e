//! Redis: the one at `REDIS_URL`, or a `redis-server` of our own as a child process.
//!
//! The child keeps nothing while it runs. When it is stopped cleanly it writes an RDB file, which the next start loads and then
//! removes: after a kill the file of an earlier stop would be older than the facts, and views are better rebuilt than stale.
//!
//! A killed stack leaves its child behind (asking the kernel to end it would take `unsafe`). Its port is therefore noted in the data
//! directory, and the next start ends whatever server answers there *and* names this same directory as its own.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::process::{Child, Command};

const DUMP: &str = "dump.rdb";
const NOTE: &str = "redis.port";
const READY_WITHIN: Duration = Duration::from_secs(10);
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// What becomes of the data when the child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisData {
    /// It is there again after the next start.
    Keep,
    /// The next start is empty, as after a crash.
    Lose,
}

/// The Redis of a stack.
#[derive(Debug)]
pub(crate) enum Redis {
    /// Somebody else's, at this URL.
    External(String),
    /// Our own.
    Child(Box<Server>),
}

/// A child `redis-server`.
#[derive(Debug)]
pub(crate) struct Server {
    binary: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Redis {
    /// Checks the given URL, or starts a child whose files are in `folder`.
    pub(crate) async fn start(url: Option<String>, binary: &Path, folder: &Path) -> Result<Self> {
        if let Some(url) = url {
            check(&url).await.with_context(|| format!("no Redis answers at {url} (REDIS_URL)"))?;
            return Ok(Self::External(url));
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        end_leftover(&folder).await;
        let mut last = None;
        // A free port may be taken by somebody else before the child has it.
        for _ in 0..5 {
            let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            let mut server = Server { binary: binary.to_owned(), folder: folder.clone(), port, child: None };
            match server.start().await {
                Ok(()) => return Ok(Self::Child(Box::new(server))),
                Err(error) if error.downcast_ref::<Missing>().is_some() => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow!("no port for redis-server")))
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::External(url) => url.clone(),
            Self::Child(server) => server.url(),
        }
    }

    /// Ends the child; an external server is left alone.
    pub(crate) async fn stop(&mut self, data: RedisData) -> Result<()> {
        match self {
            Self::External(_) => Ok(()),
            Self::Child(server) => server.stop(data).await,
        }
    }

    /// Starts a stopped child again, on the same port.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        match self {
            Self::External(url) => bail!("the Redis at {url} is not this stack's to start"),
            Self::Child(server) => server.start().await,
        }
    }
}

/// The binary cannot be found.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not installed: run `make setup` or `apt-get install redis-server`, or set REDIS_URL")]
struct Missing(String);

impl Server {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn start(&mut self) -> Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = std::fs::File::create(self.folder.join("redis.log")).context("cannot write the log of redis-server")?;
        let arguments =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dbfilename", DUMP, "--protected-mode", "yes"];
        let mut child = Command::new(&self.binary)
            .args(["--port", &self.port.to_string(), "--dir"])
            .arg(&self.folder)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            // Ctrl-C is for the stack, which stops its child when nothing uses it any more.
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Missing(self.binary.display().to_string()).into(),
                _ => anyhow!(error).context("cannot start redis-server"),
            })?;
        let ready = async {
            while check(&self.url()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            status = child.wait() => bail!("redis-server ended at once ({}), see {}", status?, self.folder.join("redis.log").display()),
            ready = tokio::time::timeout(READY_WITHIN, ready) => ready.context("redis-server does not answer")?,
        }
        std::fs::write(self.folder.join(NOTE), self.port.to_string())?;
        let _ = std::fs::remove_file(self.folder.join(DUMP));
        self.child = Some(child);
        Ok(())
    }

    async fn stop(&mut self, data: RedisData) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if data == RedisData::Keep {
            // The server closes the connection instead of answering.
            let _ = command::<()>(&self.url(), redis::cmd("SHUTDOWN").arg("SAVE")).await;
            if tokio::time::timeout(STOP_WITHIN, child.wait()).await.is_ok() {
                let _ = std::fs::remove_file(self.folder.join(NOTE));
                return Ok(());
            }
        }
        child.kill().await.context("cannot end redis-server")?;
        let _ = std::fs::remove_file(self.folder.join(NOTE));
        Ok(())
    }
}

/// Ends the child of a stack that was killed.
async fn end_leftover(folder: &Path) {
    let note = folder.join(NOTE);
    let Some(port) = std::fs::read_to_string(&note).ok().and_then(|text| text.trim().parse::<u16>().ok()) else { return };
    let url = format!("redis://127.0.0.1:{port}");
    let answer: Result<(String, String)> = command(&url, redis::cmd("CONFIG").arg("GET").arg("dir")).await;
    if answer.is_ok_and(|(_, dir)| Path::new(&dir) == folder) {
        tracing::info!(port, "ending the redis-server of an earlier run");
        let _ = command::<()>(&url, redis::cmd("SHUTDOWN").arg("NOSAVE").arg("NOW")).await;
    }
    let _ = std::fs::remove_file(note);
}

async fn check(url: &str) -> Result<()> {
    if url.starts_with("rediss://") {
        // Needs TLS set up, which is the functions' own business.
        return Ok(());
    }
    command(url, &redis::cmd("PING")).await
}

async fn command<T: redis::FromRedisValue>(url: &str, command: &redis::Cmd) -> Result<T> {
    let client = redis::Client::open(url)?;
    let work = async {
        let mut connection = client.get_multiplexed_async_connection().await?;
        command.query_async::<T>(&mut connection).await
    };
    Ok(tokio::time::timeout(Duration::from_secs(5), work).await??)
}
