//! One Redis node: short timeouts, one retry on a fresh connection, a breaker of its own.

use std::sync::Arc;

use arc_swap::ArcSwap;
use redis::{
    Client, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig},
};
use tracing::warn;

use super::{
    breaker::{Breaker, While},
    library::LIBRARY,
};
use crate::ports::ViewError;

/// The connection to one node, made at its first use. Clones share it.
#[derive(Clone)]
pub(super) struct Node(Arc<Inner>);

struct Inner {
    client: Client,
    config: ConnectionManagerConfig,
    manager: ArcSwap<ConnectionManager>,
    breaker: Breaker,
}

impl Node {
    pub(super) fn new(client: Client, config: ConnectionManagerConfig) -> Result<Self, RedisError> {
        let manager = ArcSwap::from_pointee(ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?);
        Ok(Self(Arc::new(Inner { client, config, manager, breaker: Breaker::new() })))
    }

    /// Sends these commands in one round trip. Each has an answer, which may be an error of its own.
    pub(super) async fn send(&self, operation: &'static str, commands: &Pipeline) -> Result<Vec<Value>, ViewError> {
        let attempts = async {
            let manager = self.0.manager.load_full();
            let outcome = match ask(&manager, commands).await {
                // A slow Redis is not asked twice: only a connection that broke is.
                Err(error) if error.is_connection_dropped() || error.is_connection_refusal() => ask(&manager, commands).await,
                other => other,
            };
            if outcome.as_ref().is_err_and(|error| error.is_timeout() || kind(error) == Some(ServerErrorKind::ReadOnly)) {
                self.replace(&manager);
            }
            outcome.map_err(|error| view_error(operation, error))
        };
        let open = if changes(commands) { While::Tried } else { While::Refused };
        self.0.breaker.run(operation, open, attempts).await
    }

    /// Makes the library known to this node, and by its replication to the replicas of it.
    pub(super) async fn load_library(&self) -> Result<(), ViewError> {
        const OPERATION: &str = "load_library";
        let mut load = redis::pipe();
        load.cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(LIBRARY.code.as_str());
        for answer in self.send(OPERATION, &load).await? {
            answer.extract_error().map_err(|error| view_error(OPERATION, error))?;
        }
        Ok(())
    }

    /// The next call makes a connection of its own: one that does not answer may belong to a node that is gone without a word, one that refuses
    /// writes to a node that has been replaced under its name.
    fn replace(&self, useless: &Arc<ConnectionManager>) {
        match ConnectionManager::new_lazy_with_config(self.0.client.clone(), self.0.config.clone()) {
            Ok(fresh) => drop(self.0.manager.compare_and_swap(useless, Arc::new(fresh))),
            Err(error) => warn!(%error, "the useless connection is kept"),
        }
    }
}

async fn ask(manager: &Arc<ConnectionManager>, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
    let answers = (**manager).clone().req_packed_commands(commands, 0, commands.len()).await?;
    // Of these the whole node is to blame, and not the command.
    let node = [ServerErrorKind::BusyLoading, ServerErrorKind::ReadOnly];
    match answers.iter().find(|answer| server_error(answer).is_some_and(|kind| node.contains(&kind))) {
        Some(error) => Err(error.clone().extract_error().err().unwrap_or_else(|| (ErrorKind::Parse, "no error").into())),
        None => Ok(answers),
    }
}

/// Commands in one pipeline.
pub(super) fn pipeline(commands: impl IntoIterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = redis::pipe();
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

/// Whether one of these commands changes something: what it says follows from facts, and is tried also while the breaker is open.
fn changes(commands: &Pipeline) -> bool {
    const CHANGES: [&[u8]; 4] = [b"FCALL", b"SET", b"DEL", b"FUNCTION"];
    let is_change =
        |command: &Cmd| matches!(command.args_iter().next(), Some(redis::Arg::Simple(name)) if CHANGES.contains(&name));
    commands.cmd_iter().any(is_change)
}

/// The kind of an answer that is an error.
pub(super) fn server_error(answer: &Value) -> Option<ServerErrorKind> {
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

/// Whether an answer says that the node does not know a function.
pub(super) fn is_unknown_function(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.details().is_some_and(|details| details.contains("Function not found")))
}

pub(super) fn view_error(operation: &'static str, error: RedisError) -> ViewError {
    match error.kind() {
        // A script error, an unknown function, an answer of another shape: repeating does not help.
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::UnexpectedReturnType | ErrorKind::Parse => {
            ViewError::Damaged { detail: format!("{operation}: {error}") }
        }
        _ => ViewError::Unavailable { operation, source: error.into() },
    }
}
