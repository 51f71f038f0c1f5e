//! [`Redis`]: function calls, commands and reads on the Redis that holds the views.

use std::time::Duration;
use tidemark_app::ports::{Store, StoreError};

use redis::{Cmd, FromRedisValue, RedisError, Value};
use redis_link::{Bundle, Consistency, Epoch, Link, LinkError, RedisOptions};

use crate::library::{Function, LIBRARY};

/// The maximum number of arguments that serverless ElastiCache accepts in one call.
pub(crate) const MAX_ARGUMENTS: usize = 3_999;

/// The Redis that holds the views. Clones share its connections.
///
/// A command may run twice: again after a broken connection, or on the node of a cluster that took over. A write may
/// have been done even if its call returns [`StoreError::Unavailable`]. So every command may be repeated. If a
/// repetition has an effect of its own, the script says so under `Keeps`.
#[derive(Debug, Clone)]
pub struct Redis(Link);

impl Redis {
    /// Prepares connections. They are made at their first use, so a function starts without Redis.
    ///
    /// # Errors
    /// The URL or the certificate file cannot be read.
    pub fn new(options: &RedisOptions) -> Result<Self, RedisError> {
        Link::new(options, &LIBRARY.code).map(Self)
    }

    /// Calls one function of the library.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        function: Function,
        keys: &[String],
        args: &[Arg],
    ) -> Result<T, StoreError> {
        self.query(function.source_name(), fcall(function, keys, args)).await
    }

    /// Runs one command, or the commands of a bundle, and returns the last response.
    ///
    /// # Errors
    /// Redis is unavailable, or the response has another shape.
    pub async fn query<T: FromRedisValue>(&self, operation: &'static str, command: impl Into<Bundle>) -> Result<T, StoreError> {
        self.0.query(operation, command).await.map_err(view_error)
    }

    /// Runs one command and also returns the epoch of its server.
    pub async fn query_in_epoch<T: FromRedisValue>(
        &self,
        operation: &'static str,
        command: impl Into<Bundle>,
    ) -> Result<(T, Epoch), StoreError> {
        self.0.query_in_epoch(operation, command).await.map_err(view_error)
    }

    pub(crate) async fn together<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<Cmd>,
        consistency: Consistency,
    ) -> Result<(T, Epoch), StoreError> {
        self.0.together(operation, commands, consistency).await.map_err(view_error)
    }

    /// Runs commands on any keys: in one round trip on one node, with up to 50 commands in a trip to a node of a
    /// cluster. Returns the responses in order.
    ///
    /// # Errors
    /// At least one command failed. Each of the others may have run.
    pub async fn each<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Result<Vec<T>, StoreError> {
        self.0.each(operation, commands).await.map_err(view_error)
    }

    /// The same as [`Self::each`], each response with the epoch of its server.
    pub async fn each_in_epoch<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Result<Vec<(T, Epoch)>, StoreError> {
        self.0.each_in_epoch(operation, commands).await.map_err(view_error)
    }

    /// The same as [`Self::each`], with a result for each command.
    pub(crate) async fn results<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Vec<Result<T, StoreError>> {
        let results = self.0.results(operation, commands).await.into_iter();
        results.map(|result| result.map(|(value, _)| value).map_err(view_error)).collect()
    }

    pub(crate) async fn strings(
        &self,
        operation: &'static str,
        keys: &[String],
        consistency: Consistency,
    ) -> Result<Vec<Option<(Vec<u8>, Epoch)>>, StoreError> {
        self.0.strings(operation, keys, consistency).await.map_err(view_error)
    }

    pub(crate) async fn strings_and(
        &self,
        operation: &'static str,
        keys: &[String],
        consistency: Consistency,
        other: Option<Cmd>,
    ) -> Result<(Vec<Option<(Vec<u8>, Epoch)>>, Option<(Value, Epoch)>), StoreError> {
        self.0.strings_and(operation, keys, consistency, other).await.map_err(view_error)
    }

    /// One step of a walk over all keys with `SCAN`. Returns the cursor of the next step, and keys. The cursor 0 begins
    /// the walk and ends it.
    pub async fn scan(&self, operation: &'static str, cursor: u64, options: &[&str]) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        self.0.scan(operation, cursor, options).await.map_err(view_error)
    }

    pub(crate) async fn responds(&self, operation: &'static str) -> Result<(), StoreError> {
        self.0.responds(operation).await.map_err(view_error)
    }

    pub(crate) fn is_one_node(&self) -> bool {
        self.0.is_one_node()
    }

    pub(crate) fn reads_replicas(&self) -> bool {
        self.0.reads_replicas()
    }
}

fn view_error(error: LinkError) -> StoreError {
    match error {
        LinkError::Unavailable { operation, source } => StoreError::Unavailable { store: Store::Views, operation, source },
        LinkError::Unexpected { detail } => StoreError::DamagedView { detail },
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Arg {
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

pub(crate) fn fcall(function: Function, keys: &[String], args: &[Arg]) -> Cmd {
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

/// A transaction on keys of one slot: no other command runs between these. Its response is the array of theirs.
pub fn transaction(commands: impl IntoIterator<Item = Cmd>) -> Bundle {
    let commands = [redis::cmd("MULTI")].into_iter().chain(commands).chain([redis::cmd("EXEC")]).collect();
    Bundle { commands, consistency: Consistency::Strong, bulk: None }
}

/// A lifetime as an argument, in milliseconds.
pub(crate) fn ms(duration: Duration) -> Arg {
    Arg::Number(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn token_arg(token: u64) -> Arg {
    Arg::Bytes(token.to_le_bytes().to_vec())
}
