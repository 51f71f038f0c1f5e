//! One Redis node: short timeouts, one retry on a fresh connection, a breaker of its own, and the epoch that each connection has learned.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwapOption;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Mutex;

use crate::LinkError;
use crate::{
    breaker::{Breaker, While},
    epoch::Epoch,
};

/// The connection to one node, made at its first use. Clones share it.
#[derive(Clone)]
pub(crate) struct Node(Arc<Inner>);

struct Inner {
    client: Client,
    config: AsyncConnectionConfig,
    /// Whether a replica will do, of which only its master's epoch is asked.
    replicas: bool,
    live: ArcSwapOption<Live>,
    /// Held while a connection is made; when and why that failed the last time. Those who waited for it fail with it, instead of one after the other.
    connecting: Mutex<Option<(Instant, RedisError)>>,
    breaker: Breaker,
    /// The function library that its scripts are in, as `FUNCTION LOAD` takes it.
    library: Arc<str>,
}

/// A connection. The process at its other end stays the same as long as it lives, so its epoch is learned once.
struct Live {
    connection: MultiplexedConnection,
    epoch: Epoch,
}

/// What a node returned.
pub(crate) struct Reply {
    /// One value a command, which may be an error of its own.
    pub(crate) values: Vec<Value>,
    /// The epoch of the server that returned them.
    pub(crate) epoch: Epoch,
}

impl Node {
    pub(crate) fn new(client: Client, config: AsyncConnectionConfig, replicas: bool, library: Arc<str>) -> Self {
        let (live, connecting, breaker) = (ArcSwapOption::empty(), Mutex::default(), Breaker::new());
        Self(Arc::new(Inner { client, config, replicas, live, connecting, breaker, library }))
    }

    /// Sends these commands in one round trip. A function call gets the connection's epoch as its last argument.
    pub(crate) async fn send(&self, operation: &'static str, commands: &[Cmd]) -> Result<Reply, LinkError> {
        let attempts = async {
            let outcome = match self.attempt(commands).await {
                // A slow Redis is not asked twice: only a connection that broke is.
                Err(error) if error.is_connection_dropped() || error.is_connection_refusal() => self.attempt(commands).await,
                other => other,
            };
            outcome.map_err(|error| link_error(operation, error))
        };
        let open = if changes(commands) { While::Tried } else { While::Refused };
        self.0.breaker.run(operation, open, attempts).await
    }

    /// Makes the library known to this node, and by its replication to the replicas of it.
    pub(crate) async fn load_library(&self) -> Result<(), LinkError> {
        const OPERATION: &str = "load_library";
        let load = redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(&*self.0.library).clone();
        for value in self.send(OPERATION, &[load]).await?.values {
            value.extract_error().map_err(|error| link_error(OPERATION, error))?;
        }
        Ok(())
    }

    /// Learns the epoch again, from the server as it is now: the node has perhaps become master in another's place, on the same connection.
    pub(crate) async fn learn_again(&self) {
        let _one = self.0.connecting.lock().await;
        self.0.live.store(None);
    }

    /// The epoch that its connection has learned; `None` without a connection, and that of a replica.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.0.live.load().as_ref().map(|live| live.epoch).filter(|epoch| *epoch != Epoch::NONE)
    }

    async fn attempt(&self, commands: &[Cmd]) -> Result<Reply, RedisError> {
        let live = self.live().await?;
        let outcome = ask(&live, commands).await;
        // A connection that does not answer may belong to a node that is gone without a word, one that refuses writes to a node that was replaced under
        // its name. The next call makes another.
        let useless = |error: &RedisError| {
            error.is_io_error()
                || error.is_timeout()
                || matches!(kind(error), Some(ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading))
        };
        if outcome.as_ref().is_err_and(useless) {
            self.0.live.compare_and_swap(&Some(live), None);
        }
        outcome
    }

    /// The connection, made if there is none.
    async fn live(&self) -> Result<Arc<Live>, RedisError> {
        if let Some(live) = self.0.live.load_full() {
            return Ok(live);
        }
        let waiting_since = Instant::now();
        let mut failed = self.0.connecting.lock().await;
        if let Some(live) = self.0.live.load_full() {
            return Ok(live);
        }
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at > waiting_since) {
            return Err(error.clone());
        }
        match self.connect().await {
            Ok(live) => {
                let live = Arc::new(live);
                self.0.live.store(Some(live.clone()));
                Ok(live)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Live, RedisError> {
        let mut connection = self.0.client.get_multiplexed_async_connection_with_config(&self.0.config).await?;
        let epoch = Epoch::learn(&mut connection).await?;
        if epoch == Epoch::NONE && !self.0.replicas {
            return Err((ErrorKind::Client, "this Redis is a replica").into());
        }
        Ok(Live { connection, epoch })
    }
}

async fn ask(live: &Live, commands: &[Cmd]) -> Result<Reply, RedisError> {
    let mut pipeline = redis::pipe();
    for command in commands {
        let mut command = command.clone();
        if name(&command) == Some(b"FCALL") {
            command.arg(live.epoch.as_bytes());
        }
        pipeline.add_command(command);
    }
    let values = live.connection.clone().req_packed_commands(&pipeline, 0, commands.len()).await?;
    // Of these the whole node is to blame, and not the command.
    let node = [ServerErrorKind::BusyLoading, ServerErrorKind::ReadOnly];
    match values.iter().find(|value| server_error(value).is_some_and(|kind| node.contains(&kind))) {
        Some(error) => Err(error.clone().extract_error().err().unwrap_or_else(|| (ErrorKind::Parse, "no error").into())),
        None => Ok(Reply { values, epoch: live.epoch }),
    }
}

/// The name of a command.
fn name(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().next() {
        Some(redis::Arg::Simple(name)) => Some(name),
        _ => None,
    }
}

/// Whether one of these commands changes something: what it says follows from facts, and is tried also while the breaker is open.
fn changes(commands: &[Cmd]) -> bool {
    const CHANGES: [&[u8]; 4] = [b"FCALL", b"SET", b"DEL", b"FUNCTION"];
    commands.iter().filter_map(name).any(|name| CHANGES.contains(&name))
}

/// The kind of an answer that is an error.
pub(crate) fn server_error(answer: &Value) -> Option<ServerErrorKind> {
    match answer {
        Value::ServerError(error) => error.kind(),
        _ => None,
    }
}

fn kind(error: &RedisError) -> Option<ServerErrorKind> {
    match error.kind() {
        ErrorKind::Server(kind) => Some(kind),
        _ => None,
    }
}

const UNKNOWN_FUNCTION: &str = "Function not found";

/// Whether an answer says that the node does not know a function.
pub(crate) fn is_unknown_function(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.details().is_some_and(|details| details.contains(UNKNOWN_FUNCTION)))
}

/// Whether an error says so.
pub(crate) fn unknown_function(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(UNKNOWN_FUNCTION))
}

pub(crate) fn link_error(operation: &'static str, error: RedisError) -> LinkError {
    match error.kind() {
        // A script error, an unknown function, an answer of another shape: repeating does not help.
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::UnexpectedReturnType | ErrorKind::Parse => {
            LinkError::Unexpected { detail: format!("{operation}: {error}") }
        }
        _ => LinkError::Unavailable { operation, source: error.into() },
    }
}
