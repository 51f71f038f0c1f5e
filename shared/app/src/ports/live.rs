//! Ports of live updates.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemark_domain::{CountsDigest, PostId, Seq, Timestamp, UnreadChange, UserId};

use crate::error::Result;

/// The watched readers for whom the caller of a change sends a task. For the others, a queued task will have the
/// change, or the reader is not watched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notified {
    /// The caller sends a task now.
    pub now: Vec<UserId>,
    /// A message was built less than a second ago. The caller sends a task that is delayed by a second.
    pub later: Vec<UserId>,
}

/// The result of [`LiveViews::claim`] for one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimedUpdate {
    /// The caller reads the counts and builds the message.
    Claimed {
        /// The post that was noted last, and when.
        noted: Option<(PostId, Timestamp)>,
        /// The time of the message, by the clock of Redis.
        at: Timestamp,
        /// The connections, each with the counts that it was told; `None` if that is unknown.
        connections: Vec<(String, Option<CountsDigest>)>,
    },
    /// The last message was posted less than a second ago, or is still on its way. The caller sends a task that is
    /// delayed by a second.
    TooEarly,
    /// The same, and a later task is queued.
    OnItsWay,
    Unwatched,
}

/// The result of [`LiveViews::watch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The counts that the connection was told; `None` if that is unknown.
    pub known: Option<CountsDigest>,
    /// The time at which the reader's last message was built, by the clock of Redis.
    pub built: Timestamp,
}

/// The end of a message to a reader, and the connections that know its counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub user: UserId,
    pub connections: Vec<String>,
    /// The time of the message that told them.
    pub at: Timestamp,
    pub counts: CountsDigest,
}

/// The live connections of readers. Redis alone has them; the pings of the clients register them again.
#[async_trait]
pub trait LiveViews: Send + Sync {
    /// Registers a connection, or renews it, and marks the reader's view as watched, if there is one.
    async fn watch(&self, user: UserId, connection: &str) -> Result<Watched>;
    /// Removes a connection, unless it was renewed since a message found it gone at `found_at`. May be repeated.
    async fn unwatch(&self, user: UserId, connection: &str, found_at: Option<Timestamp>) -> Result<()>;
    /// Notes that counts of these readers have changed. A delivery notes this itself.
    async fn notify(&self, users: &[UserId], post: Option<PostId>) -> Result<Notified>;
    /// Begins to build the messages for these readers. From then on it is unknown what their connections know. Returns
    /// one result for each reader, in order.
    async fn claim(&self, users: &[UserId]) -> Vec<Result<ClaimedUpdate>>;
    /// Stores what connections know. Readers of whom a later message was built are left out. `next` is the time after
    /// which their next messages may be built; `None` if these have not ended.
    async fn told(&self, told: &[Told], next: Option<Duration>) -> Result<()>;
}

/// A live connection of a reader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Connection {
    pub user: UserId,
    /// The id that API Gateway gave to it.
    pub connection: String,
    /// The time of the message that found it gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A message of the live queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LiveTask {
    /// Counts of these readers have changed: send them to their connections.
    Changed { users: Vec<UserId> },
    /// Some connections of these readers were not told: tell them what the counts are now.
    Again {
        users: Vec<UserId>,
        /// The number of messages that did not reach a connection.
        tries: u8,
    },
    /// These messages have ended. Their connections were told.
    Told { told: Vec<Told> },
    /// These connections do not exist any more.
    Gone { connections: Vec<Connection> },
}

/// A message to the connections of one reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivePost {
    pub user: UserId,
    pub connections: Vec<String>,
    /// The time at which the message was built, by the clock of Redis. The counts were read after that.
    pub at: Timestamp,
    /// The counts that the connections know after this message.
    pub counts: CountsDigest,
    pub total: u64,
    /// The author of the change, if it is known, with the number of the author's unread posts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<UserId>,
    #[serde(default)]
    pub unread: u64,
    /// The number of the author's post.
    #[serde(default)]
    pub seq: Seq,
    /// The number of messages that did not reach a connection.
    #[serde(default)]
    pub tries: u8,
}

impl LivePost {
    pub fn new(user: UserId, connections: Vec<String>, change: UnreadChange, counts: CountsDigest, tries: u8) -> Self {
        let UnreadChange { at, total, post } = change;
        let (author, unread, seq) = post.map_or((None, 0, 0), |(post, unread)| (Some(post.author), unread, post.seq));
        Self { user, connections, at, counts, total, author, unread, seq, tries }
    }

    /// Returns the post that changed, if it is known.
    pub fn post(&self) -> Option<PostId> {
        self.author.map(|author| PostId::new(author, self.seq))
    }
}

/// The queues of live updates.
#[async_trait]
pub trait LiveQueue: Send + Sync {
    /// Enqueues tasks, if any, with a delay in whole seconds. After an error some of them may be missing.
    async fn send(&self, tasks: &[LiveTask], delay: Duration) -> Result<()>;
    /// Enqueues messages, if any, for the function that posts them. After an error some of them may be missing.
    async fn post(&self, posts: &[LivePost]) -> Result<()>;
}
