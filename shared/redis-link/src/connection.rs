//! Access to Redis for the views: function calls, commands and reads, on one node or on a cluster.

use std::{fmt, sync::Arc};

use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Value};
use tracing::warn;

use crate::{
    LinkError,
    bundle::{Bundle, Consistency, work_of},
    cluster::Cluster,
    epoch::Epoch,
    error::{is_unknown_function, link_error},
    node::Node,
    options::RedisOptions,
    reply::{Reply, read},
    topology::slot,
};

/// A connection to one node, or to each node of a cluster. Clones share it. Every operation must be idempotent, because
/// it is repeated after a broken connection.
#[derive(Clone)]
pub struct Link {
    servers: Arc<Servers>,
}

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
    /// Prepares connections. They are made at their first use. `library` is the source of a function library for
    /// `FUNCTION LOAD`. A node that does not know a function loads it.
    ///
    /// # Errors
    /// The URL or the certificate file cannot be read.
    pub fn new(options: &RedisOptions, library: &str) -> Result<Self, RedisError> {
        let library: Arc<str> = library.into();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout));
        let mut clients = options.clients()?;
        let servers = match (options.cluster, clients.pop()) {
            (false, Some(client)) => Servers::Node(Node::new(client, config, false, options.paced, library)),
            (_, last) => {
                clients.extend(last);
                let certificates = options.certificates()?;
                Servers::Cluster(Arc::new(Cluster::new(clients, certificates, config, options, library)?))
            }
        };
        Ok(Self { servers: Arc::new(servers) })
    }

    pub async fn query<T: FromRedisValue>(&self, operation: &'static str, command: impl Into<Bundle>) -> Result<T, LinkError> {
        self.query_in_epoch(operation, command).await.map(|(value, _)| value)
    }

    /// Runs one command, and also returns the epoch of the server.
    pub async fn query_in_epoch<T: FromRedisValue>(
        &self,
        operation: &'static str,
        command: impl Into<Bundle>,
    ) -> Result<(T, Epoch), LinkError> {
        let (value, epoch) = self.one(operation, command.into()).await?.last();
        Ok((read(operation, value)?, epoch))
    }

    /// Runs commands on keys of one slot in one round trip. Returns the responses in order, and the epoch of the
    /// server.
    pub async fn together<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<Cmd>,
        consistency: Consistency,
    ) -> Result<(T, Epoch), LinkError> {
        let reply = self.one(operation, Bundle { commands, consistency, bulk: None }).await?;
        Ok((read(operation, Value::Array(reply.values))?, reply.epoch))
    }

    async fn one(&self, operation: &'static str, bundle: Bundle) -> Result<Reply, LinkError> {
        let none = || Err(LinkError::Unavailable { operation, source: "no command was sent".into() });
        self.run(operation, vec![bundle]).await.pop().unwrap_or_else(none)
    }

    /// Runs commands on any keys: in one round trip on one node, with up to 50 in a trip to a node of a cluster.
    /// Returns the responses in order.
    ///
    /// # Errors
    /// At least one command failed. Each of the others may have run.
    pub async fn each<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Result<Vec<T>, LinkError> {
        Ok(self.each_in_epoch(operation, commands).await?.into_iter().map(|(value, _)| value).collect())
    }

    /// The same as [`Self::each`], each response with the epoch of its server.
    pub async fn each_in_epoch<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Result<Vec<(T, Epoch)>, LinkError> {
        self.results(operation, commands).await.into_iter().collect()
    }

    /// The same, with a result for each command: a node that is unavailable does not hide the responses of the others.
    pub async fn results<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Vec<Result<(T, Epoch), LinkError>> {
        let replies = self.run(operation, commands.into_iter().map(Into::into).collect()).await;
        let one = |reply: Result<Reply, LinkError>| {
            let (value, epoch) = reply?.last();
            Ok((read(operation, value)?, epoch))
        };
        replies.into_iter().map(one).collect()
    }

    /// The strings with these keys, each with the epoch of its server. If some nodes respond and others do not, the
    /// strings of the latter count as missing, so they come from the facts.
    pub async fn strings(
        &self,
        operation: &'static str,
        keys: &[String],
        consistency: Consistency,
    ) -> Result<Vec<Option<(Vec<u8>, Epoch)>>, LinkError> {
        let (strings, others) = self.strings_and(operation, keys, consistency, None).await?;
        debug_assert!(others.is_none());
        Ok(strings)
    }

    /// The same as [`Self::strings`]. Also runs another command in the same round trip and returns its response.
    pub async fn strings_and(
        &self,
        operation: &'static str,
        keys: &[String],
        consistency: Consistency,
        other: Option<Cmd>,
    ) -> Result<(Vec<Option<(Vec<u8>, Epoch)>>, Option<(Value, Epoch)>), LinkError> {
        let parts = self.parts(keys);
        let asks = parts.iter().map(|part| {
            let mut command = redis::cmd("MGET");
            for &index in part {
                command.arg(&keys[index]);
            }
            Bundle::from(command).with(consistency)
        });
        let has_other = other.is_some();
        let mut replies = self.run(operation, asks.chain(other.map(Bundle::from)).collect()).await;
        let other = if has_other { replies.pop().transpose()?.map(Reply::last) } else { None };
        let (mut strings, mut answered, mut lost) = (vec![None; keys.len()], false, None);
        for (part, reply) in parts.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    answered = true;
                    let (values, epoch) = reply.last();
                    let values: Vec<Option<Vec<u8>>> = read(operation, values)?;
                    part.into_iter().zip(values).for_each(|(index, value)| strings[index] = value.map(|value| (value, epoch)));
                }
                Err(error) => lost = Some(error),
            }
        }
        match lost {
            Some(error) if !answered => return Err(error),
            Some(error) => {
                warn!(operation, error = &error as &dyn std::error::Error, "a node is unavailable; its values count as missing")
            }
            None => {}
        }
        Ok((strings, other))
    }

    /// Splits keys into groups that one command may read: all keys on one node, the keys of one slot on a cluster. A
    /// group contains indexes.
    fn parts(&self, keys: &[String]) -> Vec<Vec<usize>> {
        match &*self.servers {
            Servers::Node(_) => vec![(0..keys.len()).collect()],
            Servers::Cluster(_) => {
                let mut parts = std::collections::BTreeMap::<u16, Vec<usize>>::new();
                for (index, key) in keys.iter().enumerate() {
                    parts.entry(slot(key.as_bytes())).or_default().push(index);
                }
                parts.into_values().collect()
            }
        }
    }

    /// Whether one script call may have keys of any users.
    pub fn is_one_node(&self) -> bool {
        matches!(&*self.servers, Servers::Node(_))
    }

    /// Whether a response with [`Consistency::Eventual`] may differ from one with [`Consistency::Strong`].
    pub fn reads_replicas(&self) -> bool {
        matches!(&*self.servers, Servers::Cluster(cluster) if cluster.replica_reads)
    }

    /// One step of a walk over all keys with `SCAN` and these options. Returns the cursor of the next step, and keys.
    /// The cursor 0 begins the walk and ends it.
    pub async fn scan(&self, operation: &'static str, cursor: u64, options: &[&str]) -> Result<(u64, Vec<Vec<u8>>), LinkError> {
        match &*self.servers {
            Servers::Node(node) => node.scan(operation, cursor, options).await,
            Servers::Cluster(cluster) => cluster.scan(operation, cursor, options).await,
        }
    }

    /// Checks that the node, or every master of the cluster, responds.
    pub async fn responds(&self, operation: &'static str) -> Result<(), LinkError> {
        match &*self.servers {
            Servers::Node(node) => node.send(operation, &[redis::cmd("PING")]).await.map(|_| ()),
            Servers::Cluster(cluster) => cluster.ping(operation).await,
        }
    }

    /// Runs bundles, in one round trip for each node. Returns one reply for each bundle, in order.
    pub(crate) async fn run(&self, operation: &'static str, bundles: Vec<Bundle>) -> Vec<Result<Reply, LinkError>> {
        match &*self.servers {
            Servers::Cluster(cluster) => cluster.run(operation, bundles).await,
            Servers::Node(_) if bundles.is_empty() => Vec::new(),
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

async fn on_node(node: &Node, operation: &'static str, bundles: Vec<Bundle>) -> Result<Reply, LinkError> {
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
fn checked(operation: &'static str, values: Vec<Value>) -> Result<Vec<Value>, LinkError> {
    values.into_iter().map(Value::extract_error).collect::<Result<_, _>>().map_err(|error| link_error(operation, error))
}
