//! One Redis node: short timeouts, one retry on a new connection, a breaker, and the epoch of each connection.

use std::{
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use futures::FutureExt;
use redis::{
    Client, Cmd, ErrorKind, RedisError, ServerErrorKind,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::sync::Mutex;
use tracing::{Instrument as _, debug_span};

use crate::{
    Result,
    breaker::{Breaker, While},
    bundle::{Reply, read},
    epoch::Epoch,
    error::{link_error, server_error},
    iam::Handshake,
    pace::{self, Pace, Turn},
};

/// The connection to one node, made at its first use. Clones share it.
#[derive(Clone)]
pub(crate) struct Node(Arc<Inner>);

struct Inner {
    client: Client,
    handshake: Handshake,
    /// Whether the node may be a replica. A reply of a replica has no epoch of its own.
    replicas: bool,
    live: ArcSwapOption<Live>,
    /// Held while a connection is made. Time and error of the last failure: callers that waited for a failed attempt
    /// return its error instead of trying one after another.
    connecting: Mutex<Option<(Instant, RedisError)>>,
    breaker: Breaker,
    /// `None` if bulk work is not paced.
    pace: Option<Pace>,
    /// The source of the function library, for `FUNCTION LOAD`.
    library: Arc<str>,
}

/// A connection. The process at its other end stays the same, so the epoch is learned once.
struct Live {
    connection: MultiplexedConnection,
    epoch: Epoch,
}

impl Node {
    pub(crate) fn new(client: Client, handshake: Handshake, replicas: bool, paced: bool, library: Arc<str>) -> Self {
        let (live, connecting, breaker) = (ArcSwapOption::empty(), Mutex::default(), Breaker::new());
        let pace = paced.then(Pace::default);
        Self(Arc::new(Inner { client, handshake, replicas, live, connecting, breaker, pace, library }))
    }

    /// Sends these commands in one round trip; bulk work in its [turn](Turn), with its [`work`](pace::ask).
    pub(crate) async fn send_paced(&self, operation: &'static str, commands: &[Cmd], work: Option<usize>) -> Result<Reply> {
        match self.0.pace.as_ref().zip(work) {
            None => self.send(operation, commands).await,
            // Boxed, because many futures contain this one.
            Some((pace, work)) => self.send_in_turn(operation, commands, pace.turn().await, pace::ask(work)).boxed().await,
        }
    }

    async fn send_in_turn(&self, operation: &'static str, commands: &[Cmd], mut turn: Turn<'_>, ask: Cmd) -> Result<Reply> {
        if !turn.wait().await {
            let mut reply = self.send(operation, slice::from_ref(&ask)).await?;
            turn.end(&mut reply, Duration::ZERO);
            turn.wait().await;
        }
        let started = Instant::now();
        let mut reply = self.send(operation, &[commands, &[ask]].concat()).await?;
        if turn.end(&mut reply, started.elapsed()) {
            // The trip is done. If this fails, the next one tries again.
            let _unpaced = self.load(pace::LIBRARY).await;
        }
        Ok(reply)
    }

    /// Sends these commands in one round trip. A function call gets the connection's epoch as its last argument.
    pub(crate) async fn send(&self, operation: &'static str, commands: &[Cmd]) -> Result<Reply> {
        let attempts = async {
            let outcome = match self.attempt(commands).await {
                // Only a broken connection causes a retry. A slow Redis does not get the same commands twice.
                Err(error) if error.is_connection_dropped() || error.is_connection_refusal() => self.attempt(commands).await,
                other => other,
            };
            outcome.map_err(|error| link_error(operation, error))
        };
        let open = if changes(commands) { While::Tried } else { While::Refused };
        let trip = debug_span!(target: "redis_link::trip", "Redis", operation, commands = commands.len());
        self.0.breaker.run(operation, open, attempts).instrument(trip).await
    }

    pub(crate) async fn load_library(&self) -> Result<()> {
        self.load(&self.0.library).await
    }

    /// Loads a library into this node. Replication brings it to the node's replicas.
    async fn load(&self, code: &str) -> Result<()> {
        const OPERATION: &str = "load_library";
        let load = redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(code).clone();
        for value in self.send(OPERATION, &[load]).await?.values {
            value.extract_error().map_err(|error| link_error(OPERATION, error))?;
        }
        Ok(())
    }

    pub(crate) async fn scan(&self, operation: &'static str, cursor: u64, options: &[&str]) -> Result<(u64, Vec<Vec<u8>>)> {
        let (found, _) = self.send(operation, &[redis::cmd("SCAN").arg(cursor).arg(options).clone()]).await?.last();
        read(operation, found.extract_error().map_err(|error| link_error(operation, error))?)
    }

    /// Drops the connection, because the node may have become master on it. The next call learns the epoch again.
    pub(crate) async fn learn_again(&self) {
        let _one = self.0.connecting.lock().await;
        self.0.live.store(None);
    }

    /// The epoch that the connection has learned; `None` without a connection and for a replica.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.0.live.load().as_ref().map(|live| live.epoch).filter(|epoch| *epoch != Epoch::NONE)
    }

    async fn attempt(&self, commands: &[Cmd]) -> Result<Reply, RedisError> {
        let live = self.live().await?;
        let outcome = ask(&live, commands).await;
        // A connection without a response may belong to a node that has disappeared. A connection that refuses writes
        // may belong to a node that was replaced under its name. The next call makes a new connection.
        let useless = |error: &RedisError| {
            error.is_io_error()
                || error.is_timeout()
                || matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading))
        };
        if outcome.as_ref().is_err_and(useless) {
            self.0.live.compare_and_swap(&Some(live), None);
        }
        outcome
    }

    /// The connection. Makes one if there is none.
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
        let mut connection = self.0.client.get_multiplexed_async_connection_with_config(&self.0.handshake.config()).await?;
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
    // These errors concern the whole node and not one command.
    let node = [ServerErrorKind::BusyLoading, ServerErrorKind::ReadOnly];
    match values.iter().find(|value| server_error(value).is_some_and(|kind| node.contains(&kind))) {
        Some(error) => Err(error.clone().extract_error().err().unwrap_or_else(|| (ErrorKind::Parse, "an empty error").into())),
        None => Ok(Reply { values, epoch: live.epoch }),
    }
}

fn name(command: &Cmd) -> Option<&[u8]> {
    match command.args_iter().next() {
        Some(redis::Arg::Simple(name)) => Some(name),
        _ => None,
    }
}

/// Whether one of these commands changes a value. A change is tried even while the breaker is open.
fn changes(commands: &[Cmd]) -> bool {
    const CHANGES: [&[u8]; 6] = [b"FCALL", b"SET", b"DEL", b"UNLINK", b"HSET", b"FUNCTION"];
    commands.iter().filter_map(name).any(|name| CHANGES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_commands_that_write_are_changes_and_those_that_read_are_not() {
        let in_transaction = |name| [redis::cmd("MULTI"), redis::cmd(name), redis::cmd("EXEC")];
        for name in ["FCALL", "SET", "DEL", "UNLINK", "HSET", "FUNCTION"] {
            assert!(changes(&[redis::cmd(name)]) && changes(&in_transaction(name)), "{name}");
        }
        for name in ["GET", "MGET", "HMGET", "HGETALL", "LRANGE", "ZRANGE", "PING", "SCAN", "EXISTS"] {
            assert!(!changes(&[redis::cmd(name)]) && !changes(&in_transaction(name)), "{name}");
        }
    }
}
