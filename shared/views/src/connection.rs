//! [`Views`]: function calls, commands and reads on the Redis that holds the views.

use std::time::Duration;

use futures::FutureExt;
use redis::{Cmd, FromRedisValue, RedisError, ToRedisArgs, Value};
use redis_link::{Bundle, Consistency, Epoch, Link, LinkError, RedisOptions, Reply, read};
use tidemark_domain::{Store, StoreError, feed::FeedCap};
use tracing::warn;

use crate::{
    Result,
    keys::{self, KeyType},
    library::{Function, LIBRARY},
};

/// The maximum number of arguments that serverless ElastiCache accepts in one call.
pub(crate) const MAX_ARGUMENTS: usize = 3_999;

/// The part of an error that says that a function failed while it ran: it could not read a value.
const IN_FUNCTION: &str = "@user_function";

/// The Redis that holds the views. Clones share its connections.
///
/// A command may run twice, and a write may have been done even if its call returns [`StoreError::Unavailable`]. So
/// every command may be repeated. If a repetition has an effect of its own, the script says so under `Keeps`.
#[derive(Debug, Clone)]
pub struct Views {
    pub(crate) link: Link,
    pub(crate) feed_cap: FeedCap,
}

impl Views {
    /// Prepares connections, which are made at their first use. Fails if the URL or the certificates cannot be read.
    pub fn new(options: &RedisOptions) -> Result<Self, RedisError> {
        Ok(Self { link: Link::new(options, &LIBRARY.code)?, feed_cap: FeedCap::GREATEST })
    }

    /// The same with feeds of another size.
    #[must_use]
    pub fn with_feed_cap(self, feed_cap: FeedCap) -> Self {
        Self { feed_cap, ..self }
    }

    /// Calls a function for one view. A view that the function cannot read counts as lost: its keys are deleted, and
    /// the function runs again.
    pub(crate) async fn call<T: FromRedisValue>(&self, function: Function, keys: &[String], args: impl ToRedisArgs) -> Result<T> {
        let (name, call) = (function.source_name(), fcall(function, keys, args));
        match self.query(name, call.clone()).await {
            Err(StoreError::DamagedView { detail }) if detail.contains(IN_FUNCTION) => {
                warn!(detail, "a damaged view is deleted");
                self.query::<u64>(name, Cmd::unlink(keys)).await?;
                self.query(name, call).await
            }
            outcome => outcome,
        }
    }

    /// Runs one command, or the commands of a bundle, and returns the last response.
    ///
    /// # Errors
    /// Redis is unavailable, or the response has another shape.
    pub async fn query<T: FromRedisValue>(&self, operation: &'static str, command: impl Into<Bundle>) -> Result<T> {
        self.query_in_epoch(operation, command).await.map(|(value, _)| value)
    }

    /// The same, with the epoch of the server.
    pub async fn query_in_epoch<T: FromRedisValue>(
        &self,
        operation: &'static str,
        command: impl Into<Bundle>,
    ) -> Result<(T, Epoch)> {
        let (value, epoch) = self.one(operation, command.into()).await?.last();
        Ok((read(operation, value).map_err(view_error)?, epoch))
    }

    /// Runs commands on keys of one slot in one round trip. Returns the responses in order, and the server's epoch.
    pub(crate) async fn together<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<Cmd>,
        consistency: Consistency,
    ) -> Result<(T, Epoch)> {
        let Reply { values, epoch } = self.one(operation, Bundle { commands, consistency, bulk: None }).await?;
        Ok((read(operation, Value::Array(values)).map_err(view_error)?, epoch))
    }

    async fn one(&self, operation: &'static str, bundle: Bundle) -> Result<Reply> {
        let none = || Err(LinkError::Unavailable { operation, source: "no command was sent".into() });
        self.run(operation, vec![bundle]).await.pop().unwrap_or_else(none).map_err(view_error)
    }

    /// Runs bundles as [`Link::run`] does. A key of another type than its name says counts as lost: it is deleted, and
    /// the commands run again.
    async fn run(&self, operation: &'static str, bundles: Vec<Bundle>) -> Vec<Result<Reply, LinkError>> {
        let mut replies = self.link.run(operation, bundles.clone()).boxed().await;
        for (reply, bundle) in replies.iter_mut().zip(bundles) {
            let Err(LinkError::WrongType { detail }) = &*reply else { continue };
            warn!(detail, "a key of another type is deleted");
            if self.delete_strange_keys(&bundle).boxed().await.is_ok()
                && let Some(again) = self.link.run(operation, vec![bundle]).boxed().await.pop()
            {
                *reply = again;
            }
        }
        replies
    }

    /// Deletes the keys of these commands whose type is not the one that their name says.
    async fn delete_strange_keys(&self, bundle: &Bundle) -> Result<(), LinkError> {
        const OPERATION: &str = "delete_strange_keys";
        let arguments = bundle.commands.iter().flat_map(Cmd::args_iter);
        let names = arguments.filter_map(|argument| match argument {
            redis::Arg::Simple(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        });
        let keys: Vec<(&str, KeyType)> = names.filter_map(|name| Some((name, keys::type_of(name)?))).collect();
        let types = keys.iter().map(|(key, _)| redis::cmd("TYPE").arg(key).take().into()).collect();
        let mut strange = Vec::new();
        for ((key, right), reply) in keys.into_iter().zip(self.link.run(OPERATION, types).await) {
            let found: String = read(OPERATION, reply?.last().0)?;
            if found != right.name() && found != "none" {
                strange.push(Cmd::del(key).into());
            }
        }
        self.link.run(OPERATION, strange).await.into_iter().try_for_each(|reply| reply.map(drop))
    }

    /// Runs commands on any keys: in one round trip on one node, with up to 50 commands in a trip to a node of a
    /// cluster. Returns the responses in order. If one command fails, each of the others may have run.
    pub async fn each<T: FromRedisValue>(&self, operation: &'static str, commands: Vec<impl Into<Bundle>>) -> Result<Vec<T>> {
        self.results(operation, commands).await.into_iter().map(|result| Ok(result?.0)).collect()
    }

    /// The same as [`Self::each`], each response with the epoch of its server.
    pub async fn each_in_epoch<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Result<Vec<(T, Epoch)>> {
        self.results(operation, commands).await.into_iter().collect()
    }

    /// The same, with a result for each command: a node that is unavailable does not hide the responses of the others.
    pub(crate) async fn results<T: FromRedisValue>(
        &self,
        operation: &'static str,
        commands: Vec<impl Into<Bundle>>,
    ) -> Vec<Result<(T, Epoch)>> {
        let replies = self.run(operation, commands.into_iter().map(Into::into).collect()).await.into_iter();
        let one = |reply: Result<Reply, LinkError>| {
            let (value, epoch) = reply?.last();
            Ok((read(operation, value)?, epoch))
        };
        replies.map(|reply| one(reply).map_err(view_error)).collect()
    }

    /// The strings with these keys, each with the epoch of its server. If some nodes respond and others do not, the
    /// strings of the latter count as missing, so they come from the facts.
    pub(crate) async fn strings(
        &self,
        operation: &'static str,
        keys: &[String],
        consistency: Consistency,
    ) -> Result<Vec<Option<(Vec<u8>, Epoch)>>> {
        self.strings_and(operation, keys, consistency, None).await.map(|(strings, _)| strings)
    }

    /// The same. Also runs another command in the same round trip and returns its response.
    pub(crate) async fn strings_and(
        &self,
        operation: &'static str,
        keys: &[String],
        consistency: Consistency,
        other: Option<Cmd>,
    ) -> Result<(Vec<Option<(Vec<u8>, Epoch)>>, Option<(Value, Epoch)>)> {
        let parts = self.link.parts(keys);
        let asks = parts.iter().map(|part| {
            let keys: Vec<&String> = part.iter().map(|&index| &keys[index]).collect();
            Bundle::from(Cmd::mget(keys)).with(consistency)
        });
        let has_other = other.is_some();
        let mut replies = self.run(operation, asks.chain(other.map(Bundle::from)).collect()).await;
        let other = if has_other { replies.pop().transpose().map_err(view_error)?.map(Reply::last) } else { None };
        let (mut strings, mut answered, mut lost) = (vec![None; keys.len()], false, None);
        for (part, reply) in parts.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    answered = true;
                    let (values, epoch) = reply.last();
                    let values: Vec<Option<Vec<u8>>> = read(operation, values).map_err(view_error)?;
                    part.into_iter().zip(values).for_each(|(index, value)| strings[index] = value.map(|value| (value, epoch)));
                }
                Err(error) => lost = Some(error),
            }
        }
        match lost {
            Some(error) if !answered => return Err(view_error(error)),
            Some(error) => {
                warn!(operation, error = &error as &dyn std::error::Error, "a node is unavailable; its values count as missing")
            }
            None => {}
        }
        Ok((strings, other))
    }

    /// A step of a walk over all keys with `SCAN`. Returns the next cursor, and keys. The cursor 0 begins and ends it.
    pub async fn scan(&self, operation: &'static str, cursor: u64, options: &[&str]) -> Result<(u64, Vec<Vec<u8>>)> {
        self.link.scan(operation, cursor, options).boxed().await.map_err(view_error)
    }
}

pub(crate) fn view_error(error: LinkError) -> StoreError {
    match error {
        LinkError::Unavailable { operation, source } => StoreError::Unavailable { store: Store::Views, operation, source },
        LinkError::Unexpected { detail } | LinkError::WrongType { detail } => StoreError::DamagedView { detail },
    }
}

pub(crate) fn damaged(detail: impl Into<String>) -> StoreError {
    StoreError::DamagedView { detail: detail.into() }
}

pub(crate) fn fcall(function: Function, keys: &[String], args: impl ToRedisArgs) -> Cmd {
    let call = redis::cmd("FCALL").arg(function.name()).arg(keys.len()).arg(keys).arg(args).take();
    // Without the command, the function and the number of keys.
    let arguments = call.args_iter().len() - 3;
    debug_assert!(arguments <= MAX_ARGUMENTS, "{function:?}: {arguments} arguments");
    call
}

/// A transaction on keys of one slot: no other command runs between these. Its response is the array of theirs.
pub fn transaction(commands: impl IntoIterator<Item = Cmd>) -> Bundle {
    let commands = [redis::cmd("MULTI")].into_iter().chain(commands).chain([redis::cmd("EXEC")]).collect();
    Bundle { commands, consistency: Consistency::Strong, bulk: None }
}

pub(crate) fn set(key: &str, value: impl ToRedisArgs, lifetime: Duration) -> Cmd {
    redis::cmd("SET").arg(key).arg(value).arg("PX").arg(ms(lifetime)).take()
}

/// A lifetime in milliseconds.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn token_arg(token: u64) -> Vec<u8> {
    token.to_le_bytes().to_vec()
}
