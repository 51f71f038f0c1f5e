//! Redis: the server at `REDIS_URL`, or child processes.
//!
//! A child does not write its data to disk while it runs. A clean stop writes an RDB file. The next start loads the
//! file and then removes it: after a kill, the file of an earlier stop would be older than the facts, and a rebuild
//! is better than a stale view. A cluster is formed again at every start of the stack.
//!
//! A child that ends unasked is started again. However the stack ends, its children end too.

mod certificates;
mod cluster;
mod disturb;
mod server;
mod watch;

use std::{net::TcpListener, path::Path, str::FromStr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use certificates::Certificates;
pub(crate) use disturb::{flush, storms};
use futures::future::{join_all, try_join_all};
pub use server::RedisData;
use server::{Clustered, Guard, Missing, Server, command, command_within};
use tidemark::views::RedisOptions;
pub(crate) use watch::watch;

/// How long a node of `REDIS_URL` may take to connect, and to respond.
const PING_WITHIN: Duration = Duration::from_secs(2);

/// The Redis that a stack starts if there is no `REDIS_URL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisSetup {
    /// Use TLS, with certificates made for this stack.
    pub tls: bool,
    /// The cluster to start. `None` means one node.
    pub cluster: Option<ClusterSetup>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSetup {
    /// The number of masters, at least three.
    pub masters: usize,
    /// Replicas of each master.
    pub replicas: usize,
    /// The time that a node may be silent before the other nodes count it as lost.
    pub node_timeout: Duration,
}

impl Default for ClusterSetup {
    fn default() -> Self {
        Self { masters: 3, replicas: 0, node_timeout: Duration::from_secs(15) }
    }
}

/// Accepts `node`, `tls`, `cluster` (three masters) or `tls-cluster`.
impl FromStr for RedisSetup {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let cluster = Some(ClusterSetup::default());
        match name {
            "node" => Ok(Self::default()),
            "tls" => Ok(Self { tls: true, cluster: None }),
            "cluster" => Ok(Self { tls: false, cluster }),
            "tls-cluster" => Ok(Self { tls: true, cluster }),
            other => Err(format!("`{other}` must be node, tls, cluster or tls-cluster")),
        }
    }
}

#[derive(Debug)]
pub struct Redis {
    /// The server at `REDIS_URL`, which the stack does not own. It then owns none.
    external: Option<RedisOptions>,
    servers: Vec<Server>,
    /// A replica of the only server. It is cut off from that server.
    replica: Option<Server>,
    replica_reads: bool,
}

impl Redis {
    /// Checks the server at `REDIS_URL`, or starts children whose files are in `folder`.
    pub async fn start(
        external: Option<RedisOptions>,
        setup: RedisSetup,
        replica_reads: bool,
        binary: &Path,
        folder: &Path,
    ) -> Result<Self> {
        if let Some(options) = external {
            ping(&options).await?;
            return Ok(Self { external: Some(options), servers: Vec::new(), replica: None, replica_reads });
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let certificates = setup.tls.then(|| Certificates::create(&folder)).transpose()?;
        let mut last = None;
        // Another process may take a free port before the child binds it.
        for _ in 0..5 {
            match start_servers(setup, binary, &folder, certificates.as_ref()).await {
                Ok(servers) => return Ok(Self { external: None, servers, replica: None, replica_reads }),
                Err(error) if error.downcast_ref::<Missing>().is_some() => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow!("cannot find a port for Redis")))
    }

    /// The connection options of this Redis.
    pub fn options(&self) -> RedisOptions {
        if let Some(external) = &self.external {
            return external.clone();
        }
        let nodes = self.nodes();
        let urls: Vec<&str> = nodes.iter().map(|node| node.url.as_str()).collect();
        let ca_file = nodes.first().and_then(|node| node.ca_file.clone());
        let (cluster, replica_reads) = (self.is_cluster(), self.replica_reads);
        RedisOptions { cluster, ca_file, replica_reads, ..RedisOptions::new(urls.join(",")) }
    }

    pub(crate) fn nodes(&self) -> Vec<RedisOptions> {
        self.external.iter().cloned().chain(self.servers.iter().map(Server::options)).collect()
    }

    /// Stops the children. An external server is not stopped.
    pub async fn stop(&mut self, data: RedisData) -> Result<()> {
        // The replica's data is dropped, because it would be older than the master's.
        self.replica = None;
        let stopped = join_all(self.servers.iter_mut().map(|server| server.stop(data))).await;
        stopped.into_iter().collect()
    }

    pub(crate) async fn restart(&mut self) -> Result<()> {
        try_join_all(self.own()?.servers.iter_mut().map(Server::start)).await?;
        self.is_whole().await
    }

    /// What is wrong: which children have ended and how, or that the server at `REDIS_URL` does not respond.
    async fn failure(&mut self) -> Option<String> {
        if let Some(external) = &self.external {
            return ping(external).await.err().map(|error| format!("{error:#}"));
        }
        let ended = self.servers.iter_mut().filter_map(|server| {
            let how = server.ended()?;
            Some(format!("Redis at 127.0.0.1:{} ended ({how})", server.port))
        });
        Some(ended.collect::<Vec<_>>().join(", ")).filter(|failure| !failure.is_empty())
    }

    /// Starts the children that have ended. Fails if Redis does not respond then.
    async fn revive(&mut self) -> Result<()> {
        if let Some(external) = &self.external {
            return ping(external).await;
        }
        let ended: Vec<&mut Server> = self.servers.iter_mut().filter_map(|server| server.ended().map(|_| server)).collect();
        try_join_all(ended.into_iter().map(Server::start)).await?;
        self.is_whole().await
    }

    pub(crate) fn is_own(&self) -> bool {
        self.external.is_none()
    }

    fn own(&mut self) -> Result<&mut Self> {
        ensure!(self.is_own(), "the stack cannot disturb the Redis at REDIS_URL, because the stack does not own it");
        Ok(self)
    }

    pub(crate) fn node(&mut self, node: usize) -> Result<&mut Server> {
        self.own()?.servers.get_mut(node).ok_or_else(|| anyhow!("node {node} does not exist"))
    }

    /// Waits until every slot is served, if the servers are a cluster.
    async fn is_whole(&self) -> Result<()> {
        if self.is_cluster() { cluster::is_whole(&self.servers).await } else { Ok(()) }
    }

    fn is_cluster(&self) -> bool {
        self.servers.iter().any(|server| server.clustered.is_some())
    }
}

async fn start_servers(
    setup: RedisSetup,
    binary: &Path,
    folder: &Path,
    certificates: Option<&Certificates>,
) -> Result<Vec<Server>> {
    let (mut servers, guard) = (Vec::new(), Guard::start()?);
    for index in 0..setup.cluster.map_or(1, |cluster| cluster.masters * (1 + cluster.replicas)) {
        let [port, bus_port] = free_ports()?;
        let clustered = setup.cluster.map(|cluster| Clustered { bus_port, node_timeout: cluster.node_timeout });
        let mut folder = folder.to_owned();
        if clustered.is_some() {
            folder.push(index.to_string());
            // Remove what the server stored about its former cluster.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        servers.push(Server::new(binary, &folder, port, certificates.cloned(), clustered, Arc::clone(&guard)));
    }
    try_join_all(servers.iter_mut().map(Server::start)).await?;
    if let Some(cluster) = setup.cluster {
        cluster::form(&servers, cluster.masters).await?;
    }
    Ok(servers)
}

async fn ping(options: &RedisOptions) -> Result<()> {
    // Without the user and password of the URL.
    let hosts: Vec<String> = options.clients()?.iter().map(|c| c.get_connection_info().addr().to_string()).collect();
    let ping = command_within::<()>(PING_WITHIN, options, &redis::cmd("PING")).await;
    ping.with_context(|| format!("Redis does not respond at {} (REDIS_URL)", hosts.join(", ")))
}

fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // All listeners stay open until each has a port, so the ports differ.
    let listeners = std::array::from_fn::<_, N, _>(|_| TcpListener::bind(("127.0.0.1", 0)));
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}
