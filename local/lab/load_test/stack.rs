//! The measured stack: `tidemark-local` as a process, with every function as processes behind its Runtime API.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use tidemark_tools::{address::Address, api::Api, signal};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

const STARTS_WITHIN: Duration = Duration::from_secs(120);
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// Before the address, in what the stack prints.
const ADDRESS: &str = "page and API";

/// Where the stack's files are, and how many processes each function has.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) binaries: PathBuf,
    pub(crate) template: PathBuf,
    pub(crate) processes: u16,
    /// Requests that functions work on or wait for at once.
    pub(crate) concurrency: u16,
    /// Parameters of the template, as `Name=value`.
    pub(crate) parameters: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) api: Arc<Api>,
}

impl Running {
    /// Starts the stack on the data in `folder`. Returns when it accepts requests.
    pub(crate) async fn start(setup: &Setup, folder: &Path) -> anyhow::Result<Self> {
        let binary = setup.binaries.join("tidemark-local");
        let mut command = Command::new(&binary);
        command.args(["--addr", "127.0.0.1:0", "--process-functions", "all", "--log", "error,dynoxide=error"]);
        command.arg("--processes").arg(setup.processes.to_string());
        command.arg("--data").arg(folder).arg("--template").arg(&setup.template).arg("--bin-dir").arg(&setup.binaries);
        command.args(setup.parameters.iter().flat_map(|parameter| ["--param", parameter]));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("TIDEMARK_") || text.starts_with("REDIS_") || text == "RUST_LOG" {
                command.env_remove(&name);
            }
        }
        command.env("TIDEMARK_CONCURRENCY", setup.concurrency.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let mut child = child.with_context(|| format!("cannot start {}", binary.display()))?;
        let output = child.stdout.take().context("the stack has no output")?;
        let address = tokio::time::timeout(STARTS_WITHIN, address(BufReader::new(output)));
        let address = address.await.context("the stack does not start")??;
        Ok(Self { child, api: Arc::new(Api::new(&address)?) })
    }

    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the stack has ended")
    }

    /// Stops the stack cleanly.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        signal(self.pid()?, "TERM").await?;
        let status = tokio::time::timeout(STOPS_WITHIN, self.child.wait()).await.context("the stack does not stop")??;
        if status.success() { Ok(()) } else { bail!("the stack ended with {status}") }
    }
}

/// Reads the address that the stack prints, and all that follows.
async fn address(output: BufReader<tokio::process::ChildStdout>) -> anyhow::Result<Address> {
    let mut lines = output.lines();
    while let Some(line) = lines.next_line().await? {
        if let Some(url) = line.trim().strip_prefix(ADDRESS) {
            let address = url.parse().map_err(anyhow::Error::msg);
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return address;
        }
    }
    bail!("the stack has ended")
}
