//! The connection: short timeouts, one retry on a fresh connection, a breaker, the library loaded when Redis does not know it.

use std::{future::Future, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
};

use super::{
    breaker::{Breaker, While},
    library::{Function, LIBRARY},
};
use crate::ports::ViewError;
use tracing::warn;

/// Arguments that serverless ElastiCache accepts in one call.
pub(super) const MAX_ARGUMENTS: usize = 3_999;

/// How Redis is reached.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://` or `rediss://`.
    pub url: String,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for an answer.
    pub response_timeout: Duration,
}

/// One Redis node. Cheap to clone; every operation on it is idempotent and so may be repeated once after a broken connection.
#[derive(Clone)]
pub struct Redis {
    client: Client,
    config: ConnectionManagerConfig,
    manager: Arc<ArcSwap<ConnectionManager>>,
    breaker: Breaker,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    /// Prepares a connection; it is made at the first use, so that a function starts without Redis.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn new(options: &RedisOptions) -> Result<Self, RedisError> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout))
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(50));
        let client = Client::open(options.url.as_str())?;
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self { client, config, manager: Arc::new(ArcSwap::from_pointee(manager)), breaker: Breaker::new() })
    }

    /// Calls one function of the library. It changes something, and so is tried also while the breaker is open, as [`change`](Self::change) is.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        function: Function,
        keys: &[String],
        args: &[Arg],
    ) -> Result<T, ViewError> {
        let command = fcall(function, keys, args);
        let name = function.source_name();
        let call = || self.run(name, While::Tried, async |mut manager| command.query_async(&mut manager).await);
        match call().await {
            Err(error) if is_unknown_function(&error) => {
                self.load_library().await?;
                call().await
            }
            other => other,
        }
    }

    /// Calls functions of the library one after another in one round trip, then other commands; answers are ignored.
    pub(super) async fn call_all(&self, calls: &[(Function, Vec<String>, Vec<Arg>)], then: &[Cmd]) -> Result<(), ViewError> {
        const OPERATION: &str = "calls";
        let mut pipeline = redis::pipe();
        for (function, keys, args) in calls {
            pipeline.add_command(fcall(*function, keys, args)).ignore();
        }
        for command in then {
            pipeline.add_command(command.clone()).ignore();
        }
        match self.change(OPERATION, &pipeline).await {
            Err(error) if is_unknown_function(&error) => {
                self.load_library().await?;
                self.change(OPERATION, &pipeline).await
            }
            other => other,
        }
    }

    /// Runs a pipeline of changes that follow from facts: it is tried also while the breaker is open, and its answers are ignored.
    pub(super) async fn change(&self, operation: &'static str, pipeline: &Pipeline) -> Result<(), ViewError> {
        self.run(operation, While::Tried, async |mut manager| pipeline.query_async(&mut manager).await).await
    }

    /// Runs one command.
    pub(super) async fn query<T: FromRedisValue>(&self, operation: &'static str, command: &Cmd) -> Result<T, ViewError> {
        self.run(operation, While::Refused, async |mut manager| command.query_async(&mut manager).await).await
    }

    /// Runs a pipeline.
    pub(super) async fn pipeline<T: FromRedisValue>(&self, operation: &'static str, pipeline: &Pipeline) -> Result<T, ViewError> {
        self.run(operation, While::Refused, async |mut manager| pipeline.query_async(&mut manager).await).await
    }

    async fn run<T, F>(&self, operation: &'static str, open: While, call: impl Fn(ConnectionManager) -> F) -> Result<T, ViewError>
    where
        F: Future<Output = Result<T, RedisError>>,
    {
        let attempts = async {
            let manager = self.manager.load_full();
            let outcome = match call((*manager).clone()).await {
                // A slow Redis is not asked twice: only a connection that broke is.
                Err(error) if error.is_connection_dropped() || error.is_connection_refusal() => call((*manager).clone()).await,
                other => other,
            };
            if outcome.as_ref().is_err_and(RedisError::is_timeout) {
                self.replace(&manager);
            }
            outcome.map_err(|error| view_error(operation, error))
        };
        self.breaker.run(operation, open, attempts).await
    }

    /// The next call makes a connection of its own: one that does not answer may belong to a node that is gone without a word.
    fn replace(&self, silent: &Arc<ConnectionManager>) {
        match ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone()) {
            Ok(fresh) => drop(self.manager.compare_and_swap(silent, Arc::new(fresh))),
            Err(error) => warn!(%error, "the silent connection is kept"),
        }
    }

    async fn load_library(&self) -> Result<(), ViewError> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LOAD").arg("REPLACE").arg(LIBRARY.code.as_str());
        self.run("load_library", While::Tried, async |mut manager| command.query_async::<String>(&mut manager).await)
            .await
            .map(|_| ())
    }
}

/// One script argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arg {
    Bytes(Vec<u8>),
    Number(u64),
}

impl From<u64> for Arg {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Vec<u8>> for Arg {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().to_vec())
    }
}

fn fcall(function: Function, keys: &[String], args: &[Arg]) -> Cmd {
    let mut command = redis::cmd("FCALL");
    command.arg(function.name()).arg(keys.len()).arg(keys);
    debug_assert!(keys.len() + args.len() <= MAX_ARGUMENTS, "{function:?}: {} arguments", keys.len() + args.len());
    for arg in args {
        match arg {
            Arg::Bytes(bytes) => command.arg(bytes.as_slice()),
            Arg::Number(number) => command.arg(*number),
        };
    }
    command
}

fn is_unknown_function(error: &ViewError) -> bool {
    matches!(error, ViewError::Damaged { detail } if detail.contains("Function not found"))
}

/// Milliseconds of a lifetime as an argument.
pub(super) fn ms(duration: Duration) -> Arg {
    Arg::Number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn view_error(operation: &'static str, error: RedisError) -> ViewError {
    match error.kind() {
        // A script error, an unknown function, an answer of another shape: repeating does not help.
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::UnexpectedReturnType | ErrorKind::Parse => {
            ViewError::Damaged { detail: format!("{operation}: {error}") }
        }
        _ => ViewError::Unavailable { operation, source: error.into() },
    }
}
