//! [`Link`]: one node or a cluster.

use std::{collections::BTreeMap, fmt, sync::Arc};

use redis::{Cmd, RedisError, Value};

use crate::{
    LinkError, Result,
    bundle::{Bundle, Reply, work_of},
    cluster::Cluster,
    error::{is_unknown_function, link_error},
    node::Node,
    options::RedisOptions,
    topology::slot,
};

/// A connection to one node, or to each node of a cluster. Clones share it. It repeats operations after a broken
/// connection, so they must be idempotent.
#[derive(Clone)]
pub struct Link(Arc<Servers>);

enum Servers {
    Node(Node),
    Cluster(Arc<Cluster>),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// Prepares connections, which are made at their first use. Fails if the URL or the certificates cannot be read.
    /// `library` is the source of a function library, which a node loads if it does not know a function.
    pub fn new(options: &RedisOptions, library: &str) -> Result<Self, RedisError> {
        let library: Arc<str> = library.into();
        let mut clients = options.clients()?;
        let handshake = options.handshake(&clients)?;
        let servers = match (options.cluster, clients.pop()) {
            (false, Some(client)) => Servers::Node(Node::new(client, handshake, false, options.paced, library)),
            (_, last) => {
                clients.extend(last);
                Servers::Cluster(Arc::new(Cluster::new(clients, handshake, options, library)?))
            }
        };
        Ok(Self(Arc::new(servers)))
    }

    /// Splits the indexes of keys into groups that one command may read: on a cluster, the keys of one slot.
    pub fn parts(&self, keys: &[String]) -> Vec<Vec<usize>> {
        match &*self.0 {
            Servers::Node(_) if keys.is_empty() => Vec::new(),
            Servers::Node(_) => vec![(0..keys.len()).collect()],
            Servers::Cluster(_) => {
                let mut parts = BTreeMap::<u16, Vec<usize>>::new();
                for (index, key) in keys.iter().enumerate() {
                    parts.entry(slot(key.as_bytes())).or_default().push(index);
                }
                parts.into_values().collect()
            }
        }
    }

    /// Whether one script call may have keys of any users.
    pub fn is_one_node(&self) -> bool {
        matches!(&*self.0, Servers::Node(_))
    }

    /// Whether a response of eventual consistency may differ from one of strong consistency.
    pub fn reads_replicas(&self) -> bool {
        matches!(&*self.0, Servers::Cluster(cluster) if cluster.replica_reads)
    }

    /// A step of a walk over all keys with `SCAN`. Returns the next cursor, and keys. The cursor 0 begins and ends it.
    pub async fn scan(&self, operation: &'static str, cursor: u64, options: &[&str]) -> Result<(u64, Vec<Vec<u8>>)> {
        match &*self.0 {
            Servers::Node(node) => node.scan(operation, cursor, options).await,
            Servers::Cluster(cluster) => cluster.scan(operation, cursor, options).await,
        }
    }

    /// Checks that the node, or every master of the cluster, responds.
    pub async fn responds(&self, operation: &'static str) -> Result<()> {
        match &*self.0 {
            Servers::Node(node) => node.send(operation, &[redis::cmd("PING")]).await.map(|_| ()),
            Servers::Cluster(cluster) => cluster.ping(operation).await,
        }
    }

    /// Runs bundles on keys of any slots: all in one round trip on one node, up to 50 commands in a trip to a node of a
    /// cluster. Returns one reply for each bundle, in order. If one fails, each of the others may have run.
    pub async fn run(&self, operation: &'static str, bundles: Vec<Bundle>) -> Vec<Result<Reply>> {
        match &*self.0 {
            _ if bundles.is_empty() => Vec::new(),
            Servers::Cluster(cluster) => cluster.run(operation, bundles).await,
            Servers::Node(node) => {
                let lengths: Vec<usize> = bundles.iter().map(|bundle| bundle.commands.len()).collect();
                match on_node(node, operation, bundles).await {
                    Ok(Reply { values, epoch }) => {
                        let mut values = values.into_iter();
                        let part = |length| {
                            let values = checked(operation, values.by_ref().take(length).collect())?;
                            Ok(Reply { values, epoch })
                        };
                        lengths.into_iter().map(part).collect()
                    }
                    Err(error) => {
                        let again = error.to_string();
                        let mut error = Some(error);
                        let unavailable = || LinkError::Unavailable { operation, source: again.as_str().into() };
                        lengths.into_iter().map(|_| Err(error.take().unwrap_or_else(unavailable))).collect()
                    }
                }
            }
        }
    }
}

async fn on_node(node: &Node, operation: &'static str, bundles: Vec<Bundle>) -> Result<Reply> {
    let work = work_of(&bundles);
    let commands: Vec<Cmd> = bundles.into_iter().flat_map(|bundle| bundle.commands).collect();
    let reply = node.send_paced(operation, &commands, work).await?;
    if !reply.values.iter().any(is_unknown_function) {
        return Ok(reply);
    }
    node.load_library().await?;
    node.send(operation, &commands).await
}

/// The values, or the first error among them.
fn checked(operation: &'static str, values: Vec<Value>) -> Result<Vec<Value>> {
    values.into_iter().map(Value::extract_error).collect::<Result<_, _>>().map_err(|error| link_error(operation, error))
}
