//! The legacy Redis: reads in bounded pieces, without `KEYS`, and writes of one script each, which may be repeated.

use std::{sync::Arc, time::Duration};

use futures::future::{join_all, try_join_all};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, IntoConnectionInfo, RedisError, Script, ScriptInvocation,
    aio::MultiplexedConnection,
};
use tidemark::{
    Settings,
    domain::{Edge, Post, UserId},
};

use crate::{
    MigrateError,
    legacy::{self, BLOG_FIELDS, BlogId, Layout, Shape},
};

/// The approximate number of keys that one `SCAN` looks at.
const KEYS_PER_SCAN: usize = 1_000;
/// The approximate number of members that one `SSCAN` or `ZSCAN` looks at.
const MEMBERS_PER_SCAN: usize = 500;

/// The timeout of connections and commands. A loaded server may be slow, and an unreachable one must not use up the
/// invocation.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time that the source systems keep `blog:info`, and read and unread sets.
const INFO_SECONDS: u64 = 7 * 24 * 3600;
const MARK_SECONDS: u64 = 30 * 24 * 3600;

/// Blogs in one call of a script, during which the legacy Redis serves no other client.
const BLOGS_PER_CALL: usize = 500;

/// The new state of a blog in a reader's legacy read state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Read,
    /// Neither read nor unread.
    Gone,
    /// Unread, unless the legacy system has it read.
    Unread,
    /// Unread after it was read.
    Unmarked,
}

impl Mark {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Gone => "gone",
            Self::Unread => "unread",
            Self::Unmarked => "unmarked",
        }
    }
}

/// A command failed on the source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("the key holds another type")]
    WrongType,
    /// The source is unreachable, or its reply cannot be parsed. `address` has no password.
    #[error("the legacy Redis at {address} is unavailable: {error}")]
    Unavailable { address: String, error: RedisError },
}

impl SourceError {
    fn of(error: RedisError, address: &str) -> Self {
        match error.code() {
            Some("WRONGTYPE") => Self::WrongType,
            _ => Self::Unavailable { address: address.to_owned(), error },
        }
    }
}

/// The URL of the source: the one in the event, if the settings allow its server, or that of the settings.
pub(crate) fn chosen(settings: &Settings, named: Option<&str>) -> Result<String, MigrateError> {
    let own = settings.legacy.redis_url.as_deref();
    let invalid = |reason: &str| MigrateError::Invalid(reason.to_owned());
    let Some(named) = named.filter(|named| Some(*named) != own) else {
        return own.map(str::to_owned).ok_or_else(|| invalid("`source` is missing and LEGACY_REDIS_URL is not set"));
    };
    let address = named.into_connection_info().map_err(|_| invalid("`source` is no URL of a Redis"))?;
    match address.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if is_allowed(&settings.legacy.sources, host, *port) =>
        {
            Ok(named.to_owned())
        }
        _ => Err(invalid("`source` is neither LEGACY_REDIS_URL nor one of MIGRATION_SOURCES")),
    }
}

/// Host and port in the URL of a Redis, without what is secret.
fn address_of(url: &str) -> String {
    url.into_connection_info().map_or_else(|_| "an address that is no URL".to_owned(), |info| info.addr().to_string())
}

/// Whether an invocation may name this server: all may be named (`*`), or these, as `host:port`.
fn is_allowed(sources: &str, host: &str, port: u16) -> bool {
    let server = format!("{host}:{port}");
    sources.trim() == "*" || sources.split(',').any(|source| source.trim().eq_ignore_ascii_case(&server))
}

/// A member, and its score if the key is a sorted set.
pub(crate) type Member = (Vec<u8>, Option<f64>);

/// The values of [`BLOG_FIELDS`] in one `blog:info`, in their order.
pub(crate) type Info = Vec<Option<Vec<u8>>>;

#[derive(Clone)]
pub(crate) struct Source {
    connection: MultiplexedConnection,
    /// For messages: host and port.
    address: Arc<str>,
}

impl Source {
    pub(crate) async fn connect(url: &str) -> Result<Self, SourceError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let address: Arc<str> = address_of(url).into();
        let failed = |error| SourceError::of(error, &address);
        let client = Client::open(url).map_err(failed)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        Ok(Self { connection, address })
    }

    /// The id of the server process. A cursor is valid for one process.
    pub(crate) async fn run_id(&self) -> Result<String, SourceError> {
        let info: String = self.query(redis::cmd("INFO").arg("server")).await?;
        Ok(info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().to_owned())
    }

    /// Some keys of a layout, and the next cursor; `None` at the end. A key may be listed more than once.
    pub(crate) async fn keys(&self, layout: Layout, cursor: u64) -> Result<(Vec<Vec<u8>>, Option<u64>), SourceError> {
        self.scan(&format!("{}*", layout.prefix()), cursor).await
    }

    /// Looks at some keys, and returns whether one of them belongs to unread lists, and the next cursor.
    pub(crate) async fn some_unread(&self, cursor: u64) -> Result<(bool, Option<u64>), SourceError> {
        let (keys, next) = self.scan(legacy::UNREAD_KEYS, cursor).await?;
        Ok((!keys.is_empty(), next))
    }

    async fn scan(&self, pattern: &str, cursor: u64) -> Result<(Vec<Vec<u8>>, Option<u64>), SourceError> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS_PER_SCAN);
        let (next, keys): (u64, Vec<Vec<u8>>) = self.query(&scan).await?;
        Ok((keys, (next != 0).then_some(next)))
    }

    /// Some members of a key, and the cursor of the others; `None` at the end.
    pub(crate) async fn piece(&self, shape: Shape, key: &str, cursor: u64) -> Result<(Vec<Member>, Option<u64>), SourceError> {
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
        Ok((members, (next != 0).then_some(next)))
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

    pub(crate) async fn members(&self, shape: Shape, key: &str) -> Result<Vec<Member>, SourceError> {
        let (mut members, mut cursor) = (Vec::new(), Some(0));
        while let Some(at) = cursor {
            let (piece, next) = self.piece(shape, key, at).await?;
            members.extend(piece);
            cursor = next;
        }
        Ok(members)
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, SourceError> {
        command.query_async(&mut self.connection.clone()).await.map_err(|error| SourceError::of(error, &self.address))
    }

    async fn invoke(&self, call: &ScriptInvocation<'_>) -> Result<(), SourceError> {
        call.invoke_async(&mut self.connection.clone()).await.map_err(|error| SourceError::of(error, &self.address))
    }

    /// Makes the legacy lists agree with an edge or its tombstone.
    pub(crate) async fn put_edge(&self, edge: &Edge) -> Result<(), SourceError> {
        let (user, author) = (edge.user.get(), edge.author.get());
        let script = Script::new(include_str!("lua/follow.lua"));
        let mut call = script.prepare_invoke();
        call.key(Layout::UFollow.key(user)).key(Layout::UFans.key(author));
        call.key(Layout::Following.key(user)).key(Layout::Fans.key(author));
        call.key(legacy::fans_number_key(edge.author));
        call.key(legacy::unread_key(edge.user, edge.author)).key(legacy::unread_counts_key(edge.user));
        call.arg(user).arg(author).arg(edge.since.ms()).arg(u8::from(edge.following));
        self.invoke(&call).await
    }

    pub(crate) async fn put_marks(&self, user: UserId, author: UserId, marks: &[(Mark, BlogId)]) -> Result<(), SourceError> {
        let script = Script::new(include_str!("lua/marks.lua"));
        for marks in marks.chunks(BLOGS_PER_CALL) {
            let mut call = script.prepare_invoke();
            call.key(Layout::UserRead.key(user.get())).key(legacy::unread_key(user, author));
            call.key(legacy::unread_counts_key(user)).arg(author.get()).arg(MARK_SECONDS);
            for (mark, blog) in marks {
                call.arg(mark.name()).arg(*blog);
            }
            self.invoke(&call).await?;
        }
        Ok(())
    }

    /// Stores a live post. The legacy system has the post already unless it is `new` there.
    pub(crate) async fn put_blog(&self, blog: BlogId, post: &Post, new: bool) -> Result<(), SourceError> {
        let author = post.id.author.get();
        let script = Script::new(include_str!("lua/publish.lua"));
        let mut call = script.prepare_invoke();
        call.key(Layout::BlogInfo.key(blog)).key(Layout::AuthorBlogs.key(author));
        call.arg(blog).arg(author).arg(&post.title).arg(post.created_at.ms()).arg(INFO_SECONDS).arg(u8::from(new));
        self.invoke(&call).await
    }

    pub(crate) async fn retract_blog(&self, blog: BlogId, author: UserId) -> Result<(), SourceError> {
        let script = Script::new(include_str!("lua/retract.lua"));
        let mut call = script.prepare_invoke();
        call.key(Layout::BlogInfo.key(blog)).key(Layout::AuthorBlogs.key(author.get())).arg(blog);
        self.invoke(&call).await
    }
}

/// Parses a score. A text that is not a number becomes NaN, which is no valid time.
fn number(score: &[u8]) -> f64 {
    std::str::from_utf8(score).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_a_migration_is_allowed_by_host_and_port() {
        let allow = |host, port| is_allowed("Legacy-1.example:6379, 10.0.0.7:6380", host, port);
        assert!(allow("legacy-1.example", 6379) && allow("10.0.0.7", 6380));
        assert!(!allow("legacy-1.example", 6380) && !allow("egacy-1.example", 6379));
        assert!(!is_allowed("", "", 6379) && is_allowed("*", "any", 1));
    }
}
