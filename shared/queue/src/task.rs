//! Tasks of the two queues of tasks.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemark_domain::{
    AuthorHead, FanOutKind, FeedKey, GroupId, Modes, Post, PostId, Rank, Seq, Step, Timestamp, UserId, store::Result,
};

/// The post of a fan-out, with everything that a worker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FanOut {
    pub kind: FanOutKind,
    pub post: PostId,
    /// The time at which it was published.
    pub at: Timestamp,
    /// Number of pages of the whole fan-out.
    pub pages: u16,
    /// The author's number of deletions, for a retraction.
    pub deletions: u32,
    /// The author's modes after this post.
    #[serde(default, skip_serializing_if = "Modes::is_push_alone")]
    pub modes: Modes,
}

impl FanOut {
    /// Returns the fan-out that a post needs: a delivery if it is live, a retraction if it is a tombstone.
    pub fn of(post: &Post, head: &AuthorHead) -> Self {
        Self {
            kind: FanOutKind::of(post),
            post: post.id,
            at: post.created_at,
            pages: if post.deleted { post.delivery.retraction_pages } else { post.delivery.pages },
            deletions: head.deletions(),
            modes: head.modes,
        }
    }

    /// Returns whether the fan-out still applies: a deleted post is not delivered, a live post is not retracted.
    pub fn is_wanted(&self, post: &Post) -> bool {
        self.kind == FanOutKind::of(post)
    }

    pub fn key(&self) -> FeedKey {
        FeedKey { at: self.at, post: self.post }
    }
}

/// A post of a [`Task::Move`], with what it adds to its scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedPost {
    pub seq: Seq,
    pub at: Timestamp,
    pub weight: i8,
    pub step: u8,
    /// The number of times that the step has changed.
    pub changes: u32,
}

impl MovedPost {
    pub fn new(post: &Post) -> Self {
        let Rank { weight, step } = post.rank();
        Self { seq: post.id.seq, at: post.created_at, weight, step: step.level, changes: step.changes }
    }

    /// Returns the entry of the post in feeds, and its part of the score.
    pub fn ranked(&self, author: UserId) -> (FeedKey, Rank) {
        let &Self { seq, at, weight, step: level, changes } = self;
        (FeedKey { at, post: PostId::new(author, seq) }, Rank { weight, step: Step { level, changes } })
    }
}

/// Work of a queue. A new kind also needs a place in the `Worker` of the use cases and in
/// [`Task::is_missed_by_views`]. Its message has the number of its failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Task {
    /// One page with its followers.
    Batch {
        fan_out: FanOut,
        page: u16,
        /// Ids of the followers, in the order of their buckets.
        followers: Vec<u64>,
    },
    /// Pages to list and to send as batches.
    List {
        fan_out: FanOut,
        from: u16,
        /// The page after the last.
        to: u16,
    },
    /// Reactions to a post: change its step if they imply another, and tell ranked feeds.
    Rank {
        post: PostId,
        /// Names this task, so that its repetition knows a change that it has made.
        token: u64,
    },
    /// Steps of an author's posts have changed: move them in the ranked feeds of all followers.
    Rescore {
        author: UserId,
        /// Names the notes in Redis for which the task was sent. If these are lost, the task moves all posts.
        life: u64,
    },
    /// Move these posts in the ranked feeds of these pages of followers.
    Move {
        author: UserId,
        posts: Vec<MovedPost>,
        /// Number of pages of the whole fan-out.
        pages: u16,
        from: u16,
        /// The page after the last.
        to: u16,
    },
    /// Acts of a group of a user's inbox have changed: derive it again.
    Group {
        user: UserId,
        id: GroupId,
        /// A user whose block or mute with the user has begun or ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other: Option<UserId>,
        /// The version of the group that was written after this was sent. The pause after that write is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
    },
    /// A user has asked to leave: continue the erasure.
    Erase {
        user: UserId,
        /// The chain of tasks that it belongs to. A task of an older chain than the receipt's does nothing.
        chain: u64,
        /// Whether Redis may still say that the user may call.
        closes: bool,
    },
}

impl Task {
    /// Returns whether views are stale until the task is done: Redis may say that a user who has left may call. Views
    /// that wait for a page of a fan-out are not stale: the delivery status of the post shows that it is in progress.
    /// Nor are scores: they follow reactions within seconds.
    pub fn is_missed_by_views(&self) -> bool {
        matches!(self, Self::Erase { closes: true, .. })
    }

    /// Returns whether the task follows acts of users, usually a second later, and computes one thing from all of them.
    /// Such tasks are in the queue of the projector, the others in that of fan-outs.
    pub fn follows_acts(&self) -> bool {
        matches!(self, Self::Rank { .. } | Self::Rescore { .. } | Self::Group { .. })
    }
}

/// The approximate size of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Messages that no worker has received.
    pub waiting: u64,
    /// Messages that a worker holds, or that failed and are not visible yet.
    pub in_flight: u64,
}

#[async_trait]
pub trait TaskQueue: Send + Sync {
    /// Returns the backlog of fan-outs. SQS updates these numbers within about a minute.
    async fn backlog(&self) -> Result<Backlog>;
    /// Enqueues all tasks, which have failed `tries` times, with a delay that may be up to a second longer. After an
    /// error some of them may be missing.
    async fn send_again(&self, tasks: &[Task], tries: u8, delay: Duration) -> Result<()>;
    async fn send_after(&self, tasks: &[Task], delay: Duration) -> Result<()> {
        self.send_again(tasks, 0, delay).await
    }
    async fn send(&self, tasks: &[Task]) -> Result<()> {
        self.send_after(tasks, Duration::ZERO).await
    }
    async fn ping(&self) -> Result<()>;
}
