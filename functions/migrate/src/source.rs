//! The legacy Redis. It is read in bounded pieces, without `KEYS`. [`crate::target`] has the writes.

use std::time::Duration;

use crate::legacy::{BLOG_FIELDS, BlogId, Layout};
use futures::future::{join_all, try_join_all};
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection};

/// The approximate number of keys that one `SCAN` looks at.
const KEYS_PER_SCAN: usize = 1_000;
/// The approximate number of members that one `SSCAN` or `ZSCAN` looks at.
const MEMBERS_PER_SCAN: usize = 500;

/// The timeout of connections and commands. A loaded server may be slow, and an unreachable one must not use up the
/// invocation.
const PATIENCE: Duration = Duration::from_secs(5);

/// A command failed on the source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("the key holds another type")]
    WrongType,
    /// The source is unreachable, or its reply cannot be parsed.
    #[error("the legacy Redis is unavailable")]
    Unavailable(#[source] RedisError),
}

impl From<RedisError> for SourceError {
    fn from(error: RedisError) -> Self {
        if error.code() == Some("WRONGTYPE") { Self::WrongType } else { Self::Unavailable(error) }
    }
}

/// A member, and its score if the key is a sorted set.
pub(crate) type Member = (Vec<u8>, Option<f64>);

/// The values of [`BLOG_FIELDS`] in one `blog:info`, in their order.
pub(crate) type Info = Vec<Option<Vec<u8>>>;

/// Some members of a key, and the cursor of the others; `None` at the end.
pub(crate) struct Piece {
    pub(crate) members: Vec<Member>,
    pub(crate) next: Option<u64>,
}

/// The type of a key, which decides the command that reads its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Set,
    SortedSet,
}

#[derive(Clone)]
pub(crate) struct Source(MultiplexedConnection);

impl Source {
    pub(crate) async fn connect(url: &str) -> Result<Self, SourceError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let client = Client::open(url)?;
        Ok(Self(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    /// The id of the server process. A cursor is valid for one process.
    pub(crate) async fn run_id(&self) -> Result<String, SourceError> {
        let info: String = self.query(redis::cmd("INFO").arg("server")).await?;
        Ok(info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().to_owned())
    }

    /// Some keys of a layout, and the next cursor; `None` at the end. A key may be listed more than once.
    pub(crate) async fn keys(&self, layout: Layout, cursor: u64) -> Result<(Vec<Vec<u8>>, Option<u64>), SourceError> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{}*", layout.prefix())).arg("COUNT").arg(KEYS_PER_SCAN);
        let (next, keys): (u64, Vec<Vec<u8>>) = self.query(&scan).await?;
        Ok((keys, (next != 0).then_some(next)))
    }

    pub(crate) async fn piece(&self, shape: Shape, key: &str, cursor: u64) -> Result<Piece, SourceError> {
        let mut scan = redis::cmd(if shape == Shape::Set { "SSCAN" } else { "ZSCAN" });
        scan.arg(key).arg(cursor).arg("COUNT").arg(MEMBERS_PER_SCAN);
        let (next, found): (u64, Vec<Vec<u8>>) = self.query(&scan).await?;
        let members = match shape {
            Shape::Set => found.into_iter().map(|member| (member, None)).collect(),
            Shape::SortedSet => {
                let (pairs, _) = found.as_chunks::<2>();
                pairs.iter().map(|[member, score]| (member.clone(), Some(number(score)))).collect()
            }
        };
        Ok(Piece { members, next: (next != 0).then_some(next) })
    }

    /// At most `length` bytes of a string, from offset `at` on. There are fewer at its end.
    pub(crate) async fn bytes(&self, key: &str, at: u64, length: u64) -> Result<Vec<u8>, SourceError> {
        self.query(redis::cmd("GETRANGE").arg(key).arg(at).arg(at + length - 1)).await
    }

    /// The `blog:info` of each of these blogs, in their order.
    pub(crate) async fn infos(&self, blogs: &[BlogId]) -> Vec<Result<Info, SourceError>> {
        let mut found = Vec::with_capacity(blogs.len());
        for blogs in blogs.chunks(MEMBERS_PER_SCAN) {
            let ask = |blog: &BlogId| {
                let mut get = redis::cmd("HMGET");
                get.arg(Layout::BlogInfo.key(*blog)).arg(&BLOG_FIELDS[..]);
                async move { self.query(&get).await }
            };
            found.extend(join_all(blogs.iter().map(ask)).await);
        }
        found
    }

    /// Whether each of these keys exists, in their order.
    pub(crate) async fn exist(&self, keys: &[String]) -> Result<Vec<bool>, SourceError> {
        let ask = |key: &String| {
            let mut exists = redis::cmd("EXISTS");
            exists.arg(key);
            async move { self.query(&exists).await }
        };
        try_join_all(keys.iter().map(ask)).await
    }

    /// All members of a key.
    pub(crate) async fn members(&self, shape: Shape, key: &str) -> Result<Vec<Member>, SourceError> {
        let (mut members, mut cursor) = (Vec::new(), Some(0));
        while let Some(at) = cursor {
            let piece = self.piece(shape, key, at).await?;
            members.extend(piece.members);
            cursor = piece.next;
        }
        Ok(members)
    }

    /// A handle of the connection, which its handles share.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.0.clone()
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, SourceError> {
        Ok(command.query_async(&mut self.connection()).await?)
    }
}

/// Parses a score. A text that is not a number becomes NaN, which is no valid time.
fn number(score: &[u8]) -> f64 {
    std::str::from_utf8(score).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}
