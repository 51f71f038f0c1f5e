//! Redis: the one at `REDIS_URL`, or `redis-server`s of our own as child processes.
//!
//! A child keeps nothing while it runs. When it is stopped cleanly it writes an RDB file, which the next start loads and then
//! removes: after a kill the file of an earlier stop would be older than the facts, and views are better rebuilt than stale. A cluster is made anew
//! with every start of the stack.
//!
//! A killed stack leaves its children behind (asking the kernel to end them would take `unsafe`). Their ports are therefore noted in the data
//! directory, and the next start ends whatever server answers there *and* names this same directory as its own.

mod certificates;
mod cluster;
mod disturb;
mod server;

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use certificates::Certificates;
pub(crate) use disturb::storms;
use futures::future::{join_all, try_join_all};
use server::{Clustered, Missing, Server};
use tidemark::views::RedisOptions;

/// What becomes of the data when the child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisData {
    /// It is there again after the next start.
    Keep,
    /// The next start is empty, as after a crash.
    Lose,
}

/// What a stack starts when no `REDIS_URL` is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisSetup {
    /// Over TLS, with certificates made for it.
    pub tls: bool,
    /// A cluster instead of one node.
    pub cluster: Option<ClusterSetup>,
}

/// The shape of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSetup {
    /// Masters, three or more.
    pub masters: usize,
    /// Replicas of each.
    pub replicas: usize,
    /// How long nodes wait for one that does not answer before it is lost.
    pub node_timeout: Duration,
}

impl Default for ClusterSetup {
    fn default() -> Self {
        Self { masters: 3, replicas: 0, node_timeout: Duration::from_secs(15) }
    }
}

/// `node`, `tls`, `cluster` (three masters) or `tls-cluster`.
impl FromStr for RedisSetup {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let cluster = Some(ClusterSetup::default());
        match name {
            "node" => Ok(Self::default()),
            "tls" => Ok(Self { tls: true, cluster: None }),
            "cluster" => Ok(Self { tls: false, cluster }),
            "tls-cluster" => Ok(Self { tls: true, cluster }),
            other => Err(format!("`{other}` is none of node, tls, cluster, tls-cluster")),
        }
    }
}

/// The Redis of a stack.
#[derive(Debug)]
pub enum Redis {
    /// Somebody else's.
    External(RedisOptions),
    /// Our own.
    Children(Children),
}

/// Servers of our own.
#[derive(Debug)]
pub struct Children {
    servers: Vec<Server>,
    /// A replica of the only server, cut off from it.
    replica: Option<Box<Server>>,
    replica_reads: bool,
}

impl Redis {
    /// Checks the given one, or starts children whose files are in `folder`.
    pub async fn start(
        external: Option<RedisOptions>,
        setup: RedisSetup,
        replica_reads: bool,
        binary: &Path,
        folder: &Path,
    ) -> Result<Self> {
        if let Some(options) = external {
            // Without what the URL may say of users and passwords.
            let hosts: Vec<String> = options.clients()?.iter().map(|c| c.get_connection_info().addr().to_string()).collect();
            let ping: Result<()> = command(&options, &redis::cmd("PING")).await;
            ping.with_context(|| format!("no Redis answers at {} (REDIS_URL)", hosts.join(", ")))?;
            return Ok(Self::External(options));
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let known = setup.tls.then(|| Certificates::of(&folder));
        for folder in std::iter::once(folder.clone()).chain(subfolders(&folder)) {
            server::end_leftover(&folder, known.as_ref()).await;
        }
        let certificates = setup.tls.then(|| Certificates::create(&folder)).transpose()?;
        let mut last = None;
        // A free port may be taken by somebody else before the child has it.
        for _ in 0..5 {
            match Children::start(setup, replica_reads, binary, &folder, certificates.as_ref()).await {
                Ok(children) => return Ok(Self::Children(children)),
                Err(error) if error.downcast_ref::<Missing>().is_some() => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow!("no port for redis-server")))
    }

    /// How it is reached.
    pub fn options(&self) -> RedisOptions {
        match self {
            Self::External(options) => options.clone(),
            Self::Children(children) => children.options(),
        }
    }

    /// Whether the servers are this stack's own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Children(_))
    }

    /// How each of its nodes is reached for itself.
    pub(crate) fn nodes(&self) -> Vec<RedisOptions> {
        match self {
            Self::External(options) => vec![options.clone()],
            Self::Children(children) => children.servers.iter().map(Server::options).collect(),
        }
    }

    /// Ends the children; an external server is left alone.
    pub async fn stop(&mut self, data: RedisData) -> Result<()> {
        match self {
            Self::External(_) => Ok(()),
            Self::Children(children) => {
                // Without its data: it would be older than the master's.
                children.replica = None;
                let stopped = join_all(children.servers.iter_mut().map(|server| server.stop(data))).await;
                stopped.into_iter().collect()
            }
        }
    }

    /// Starts stopped children again, on the same ports.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        let children = self.children()?;
        try_join_all(children.servers.iter_mut().map(Server::start)).await?;
        if children.is_cluster() { cluster::is_whole(&children.servers).await } else { Ok(()) }
    }

    /// Kills one node.
    pub(crate) async fn kill_node(&mut self, node: usize) -> Result<()> {
        self.node(node)?.stop(RedisData::Lose).await
    }

    /// Starts one node again.
    pub(crate) async fn start_node(&mut self, node: usize) -> Result<()> {
        self.node(node)?.start().await
    }

    fn children(&mut self) -> Result<&mut Children> {
        match self {
            Self::External(_) => bail!("the Redis at REDIS_URL is not this stack's to stop or start"),
            Self::Children(children) => Ok(children),
        }
    }

    fn node(&mut self, node: usize) -> Result<&mut Server> {
        self.children()?.servers.get_mut(node).ok_or_else(|| anyhow!("there is no node {node}"))
    }
}

impl Children {
    async fn start(
        setup: RedisSetup,
        replica_reads: bool,
        binary: &Path,
        folder: &Path,
        certificates: Option<&Certificates>,
    ) -> Result<Self> {
        let ClusterSetup { masters, replicas, node_timeout } = match setup.cluster {
            None => {
                let [port] = free_ports()?;
                let mut server = Server::new(binary, folder, port, certificates.cloned(), None);
                server.start().await?;
                return Ok(Self { servers: vec![server], replica: None, replica_reads });
            }
            Some(cluster) => cluster,
        };
        let mut servers = Vec::new();
        for index in 0..masters * (1 + replicas) {
            let folder = folder.join(index.to_string());
            // What it knew of the cluster it was part of.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
            let [port, bus_port] = free_ports()?;
            let clustered = Some(Clustered { bus_port, node_timeout });
            servers.push(Server::new(binary, &folder, port, certificates.cloned(), clustered));
        }
        try_join_all(servers.iter_mut().map(Server::start)).await?;
        cluster::form(&servers, masters).await?;
        Ok(Self { servers, replica: None, replica_reads })
    }

    fn is_cluster(&self) -> bool {
        self.servers.iter().any(|server| server.clustered.is_some())
    }

    fn options(&self) -> RedisOptions {
        let nodes: Vec<RedisOptions> = self.servers.iter().map(Server::options).collect();
        let urls: Vec<&str> = nodes.iter().map(|node| node.url.as_str()).collect();
        let mut options = RedisOptions::new(urls.join(","));
        options.cluster = self.is_cluster();
        options.ca_file = nodes.first().and_then(|node| node.ca_file.clone());
        options.replica_reads = self.replica_reads;
        options
    }
}

fn free_ports<const N: usize>() -> Result<[u16; N]> {
    // Held together, so that they differ.
    let listeners = std::array::from_fn::<_, N, _>(|_| TcpListener::bind(("127.0.0.1", 0)));
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect()
}

/// Asks one node, of several the first that answers.
async fn command<T: redis::FromRedisValue>(options: &RedisOptions, command: &redis::Cmd) -> Result<T> {
    let work = async {
        let mut last = None;
        for client in options.clients()? {
            let answer = async {
                let mut connection = client.get_multiplexed_async_connection().await?;
                command.query_async::<T>(&mut connection).await
            };
            match answer.await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| anyhow!("no address"), Into::into))
    };
    tokio::time::timeout(Duration::from_secs(5), work).await?
}
