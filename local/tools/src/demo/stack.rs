//! A stack that the demo starts if no stack responds.

use std::{
    fs::File,
    net::TcpListener,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{address::Address, api::Api, signal};

const BINARY: &str = "tidemark-local";
const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 15;

/// A stack with its data in a temporary folder.
pub struct OwnStack {
    child: Child,
    address: Address,
    folder: TempDir,
}

impl OwnStack {
    /// Starts the `tidemark-local` next to this program on a free port, and waits until it responds.
    pub async fn start() -> anyhow::Result<Self> {
        let here = std::env::current_exe().context("cannot find the path of this program")?;
        let binary = here.with_file_name(BINARY);
        if !binary.exists() {
            bail!("{} does not exist; build it with `make build`", binary.display());
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).context("no free port")?.port();
        let address = Address::local(port);
        let folder = tempfile::Builder::new().prefix("tidemark-demo-").tempdir().context("no temporary folder")?;
        let log = File::create(folder.path().join("log")).context("cannot write the stack's log")?;
        let child = Command::new(&binary)
            .env("TIDEMARK_ADDR", address.to_string())
            .env("TIDEMARK_DATA", folder.path().join("data"))
            // The demo must not write to the user's own Redis.
            .env_remove("REDIS_URL")
            .env_remove("REDIS_CLUSTER")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot write the stack's log")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut stack = Self { child, address, folder };
        stack.wait_until_it_responds().await?;
        Ok(stack)
    }

    pub fn address(&self) -> Address {
        self.address
    }

    async fn wait_until_it_responds(&mut self) -> anyhow::Result<()> {
        let api = Api::new(&self.address)?;
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait().context("cannot watch the stack")? {
                bail!("the stack ended during its start ({status}):\n{}", self.log_tail());
            }
            if api.health().await.is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("the stack does not respond after {} s:\n{}", START_LIMIT.as_secs(), self.log_tail())
    }

    fn log_tail(&self) -> String {
        let path: PathBuf = self.folder.path().join("log");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Stops the stack and removes its data. Kills a stack that does not end in time, and returns an error.
    pub async fn stop(mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        if let Some(pid) = self.child.id() {
            signal(pid, "TERM").await?;
        }
        match tokio::time::timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(status) => match status.context("cannot watch the stack")? {
                status if status.success() => Ok(started.elapsed()),
                status => bail!("the stack ended with {status}:\n{}", self.log_tail()),
            },
            Err(_) => {
                self.child.kill().await.context("cannot kill the stack")?;
                bail!("the stack did not end within {} s of SIGTERM and was killed", STOP_LIMIT.as_secs())
            }
        }
    }
}
