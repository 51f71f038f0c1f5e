//! A `valkey-server` or `redis-server` as a child process.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use redis::AsyncConnectionConfig;
use tidemark::views::RedisOptions;
use tokio::process::{Child, Command};

use super::certificates::Certificates;

/// The fate of the data when the child stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisData {
    /// The next start loads the data.
    Keep,
    /// The next start is empty, as after a crash.
    Lose,
}

/// The file that a server loads at its start.
pub(super) const DUMP: &str = "dump.rdb";
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A command may wait for a save on a slow disk, and for a busy machine.
const COMMAND_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Additional options of a cluster node.
#[derive(Clone, Debug)]
pub(super) struct Clustered {
    /// The port for the connections of other nodes.
    pub(super) bus_port: u16,
    /// The time that the node may be silent before other nodes count it as lost.
    pub(super) node_timeout: Duration,
}

/// Kills the servers when this process ends, however it ends: at the end of its input, a shell kills its process group,
/// which has the servers. A signal of the kernel at the parent's death would need `unsafe`.
#[derive(Debug)]
pub(super) struct Guard {
    _shell: Child,
    group: i32,
}

impl Guard {
    pub(super) fn start() -> Result<Arc<Self>> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read -r _; kill -9 0"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let shell = shell.kill_on_drop(true).process_group(0).spawn().context("cannot start sh")?;
        let group = i32::try_from(shell.id().context("sh has ended")?)?;
        Ok(Arc::new(Self { _shell: shell, group }))
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) port: u16,
    pub(super) certificates: Option<Certificates>,
    pub(super) clustered: Option<Clustered>,
    pub(super) guard: Arc<Guard>,
    child: Option<Child>,
}

/// The binary of the server does not exist.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not installed: run `make setup`, or install valkey-server or redis-server, or set REDIS_URL")]
pub(super) struct Missing(String);

impl Server {
    pub(super) fn new(
        binary: &Path,
        folder: &Path,
        port: u16,
        certificates: Option<Certificates>,
        clustered: Option<Clustered>,
        guard: Arc<Guard>,
    ) -> Self {
        Self { binary: binary.to_owned(), folder: folder.to_owned(), port, certificates, clustered, guard, child: None }
    }

    pub(super) fn options(&self) -> RedisOptions {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        let ca_file = self.certificates.as_ref().map(|certificates| certificates.authority.clone());
        RedisOptions { ca_file, ..RedisOptions::new(format!("{scheme}://127.0.0.1:{}", self.port)) }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dbfilename", DUMP, "--protected-mode", "yes"]
                .map(str::to_owned)
                .into();
        let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        add("dir", self.folder.display().to_string());
        // Required for `DEBUG SLEEP`, and to start a promoted replica in its master's place.
        add("enable-debug-command", "local".to_owned());
        add("enable-protected-configs", "local".to_owned());
        add("repl-diskless-sync-delay", "0".to_owned());
        match &self.certificates {
            None => add("port", self.port.to_string()),
            Some(Certificates { authority, certificate, key }) => {
                add("port", "0".to_owned());
                add("tls-port", self.port.to_string());
                add("tls-ca-cert-file", authority.display().to_string());
                add("tls-cert-file", certificate.display().to_string());
                add("tls-key-file", key.display().to_string());
                add("tls-auth-clients", "no".to_owned());
                add("tls-replication", "yes".to_owned());
            }
        }
        if let Some(Clustered { bus_port, node_timeout }) = &self.clustered {
            add("cluster-enabled", "yes".to_owned());
            add("cluster-port", bus_port.to_string());
            add("cluster-node-timeout", node_timeout.as_millis().to_string());
            // If a master is lost, only its own slots are unavailable, as in ElastiCache.
            add("cluster-require-full-coverage", "no".to_owned());
            add("cluster-replica-validity-factor", "0".to_owned());
            add("tls-cluster", if self.certificates.is_some() { "yes" } else { "no" }.to_owned());
        }
        arguments
    }

    /// How the server has ended, if nobody has stopped it.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    pub(crate) async fn start(&mut self) -> Result<()> {
        if self.child.is_some() && self.ended().is_none() {
            return Ok(());
        }
        let log = std::fs::File::create(self.folder.join("redis.log")).context("cannot write the log of Redis")?;
        let mut child = Command::new(&self.binary)
            .args(self.arguments())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            // Ctrl-C must not reach the child. The stack stops it after all functions have ended.
            .process_group(self.guard.group)
            .spawn()
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Missing(self.binary.display().to_string()).into(),
                _ => anyhow!(error).context("cannot start Redis"),
            })?;
        let options = self.options();
        let ready = async {
            while command::<()>(&options, &redis::cmd("PING")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            status = child.wait() => bail!("Redis ended during its start ({}), see {}", status?, self.folder.join("redis.log").display()),
            ready = tokio::time::timeout(READY_WITHIN, ready) => ready.context("Redis does not respond")?,
        }
        let _ = std::fs::remove_file(self.folder.join(DUMP));
        self.child = Some(child);
        Ok(())
    }

    pub(super) async fn move_to(&mut self, port: u16, folder: &Path) -> Result<()> {
        let set = |name: &str, value: String| redis::cmd("CONFIG").arg("SET").arg(name).arg(value).clone();
        command::<()>(&self.options(), &set("dir", folder.display().to_string())).await?;
        let name = if self.certificates.is_some() { "tls-port" } else { "port" };
        command::<()>(&self.options(), &set(name, port.to_string())).await?;
        (self.port, self.folder) = (port, folder.to_owned());
        command(&self.options(), &redis::cmd("PING")).await
    }

    pub(crate) async fn stop(&mut self, data: RedisData) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let mut has_ended = false;
        if data == RedisData::Keep {
            // The server closes the connection without a response.
            let end = async {
                let _ = command::<()>(&self.options(), redis::cmd("SHUTDOWN").arg("SAVE")).await;
                child.wait().await
            };
            has_ended = tokio::time::timeout(STOP_WITHIN, end).await.is_ok();
        }
        if !has_ended {
            child.kill().await.context("cannot end Redis")?;
        }
        Ok(())
    }
}

/// Sends a command to one node. If the options name several nodes, uses the first that responds.
pub(super) async fn command<T: redis::FromRedisValue>(options: &RedisOptions, command: &redis::Cmd) -> Result<T> {
    command_within(COMMAND_WITHIN, options, command).await
}

/// Does the same, and waits only for so long for each node.
pub(super) async fn command_within<T: redis::FromRedisValue>(
    within: Duration,
    options: &RedisOptions,
    command: &redis::Cmd,
) -> Result<T> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(within)).set_response_timeout(Some(within));
    let mut last = None;
    for client in options.clients()? {
        let response = async {
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            command.query_async::<T>(&mut connection).await
        };
        match response.await {
            Ok(response) => return Ok(response),
            Err(error) => last = Some(error),
        }
    }
    // Its text includes its source, which would follow a second time.
    Err(last.map_or_else(|| anyhow!("no address"), |error| anyhow!(error.to_string())))
}
