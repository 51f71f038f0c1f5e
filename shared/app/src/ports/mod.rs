//! The ports of the use cases: one trait for each capability of a store, the queue or the clock, with domain types.

mod erasures;
mod live;
mod metrics;
mod notices;
mod people;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use tidemark_domain::{
    AuthorHead, AuthorState, Card, Counters, Edge, FeedKey, HalfLife, Modes, NewPost, Platform, Post, PostId, PostSummary,
    PostText, PostTimes, Rank, RankedPlace, Reaction, ReactionCounts, ReactionState, ReadState, ReaderState, Relation, Score,
    Seq, SeqSet, Step, Timestamp, UserId, UserLists,
};

pub use crate::error::{Source, Store, StoreError};
use crate::limits::Budget;
pub use erasures::{ErasureViews, Erasures, Spent};
pub use live::{ClaimedUpdate, Connection, LivePost, LiveQueue, LiveTask, LiveViews, Notified};
pub use metrics::{Line, MOST_VALUES, Metric, Metrics, Property, Unit, Values};
pub use notices::{NoticeRecord, NoticeView, NoticeViews, Notices, NoticesPublished};
pub use people::{CardVersion, CardViews, Identities, IdentityViews, ProfileSet, Profiles};

/// Returns the time. `clippy.toml` forbids `SystemTime::now` elsewhere.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The outcome of a follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// This call created the edge.
    Created(Edge),
    /// The edge existed before.
    Existing(Edge),
    /// The user follows the maximum number of authors. Nothing changed.
    LimitReached,
    /// One of the two blocks the other. Nothing changed.
    Blocked,
    /// The author has left. Nothing changed.
    Erased,
}

/// Returns the next state of a stored pair; `None` if the pair stays as it is. It may run several times.
pub type ChangeOfPair<'a> = &'a (dyn Fn(Option<&Edge>) -> Option<Edge> + Sync);

/// Follow edges and their counts.
#[async_trait]
pub trait Edges: Send + Sync {
    /// Returns the edges of one user to these authors, tombstones included. Pairs without an edge are left out.
    async fn edges(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Edge>, StoreError>;
    /// Returns all live edges of one user.
    async fn following(&self, user: UserId) -> Result<Vec<Edge>, StoreError>;
    /// Creates edges to distinct authors. A transaction writes one or several edges, each with both directions and
    /// counts. The authors' heads, which are read here, give base and floor. Returns one outcome for each author, in
    /// order.
    async fn follow(&self, user: UserId, authors: &[UserId], now: Timestamp) -> Result<Vec<Followed>, StoreError>;
    /// Ends a follow. Returns the tombstone, or `None` if there was no follow.
    async fn unfollow(&self, user: UserId, author: UserId, now: Timestamp) -> Result<Option<Edge>, StoreError>;
    /// Returns the edges and tombstones of the authors whom the user mutes or blocks.
    async fn hidden(&self, user: UserId) -> Result<Vec<Edge>, StoreError>;
    /// Changes one pair. Returns the pair after it; `None` if there is neither an edge nor a tombstone.
    async fn change(&self, user: UserId, author: UserId, change: ChangeOfPair<'_>) -> Result<Option<Edge>, StoreError>;
    /// Blocks or unblocks a user. A block also ends the follows in both directions, in the same transaction. Returns
    /// the pair and the reverse pair after it; `None` for one that has neither an edge nor a tombstone.
    async fn set_blocked(
        &self,
        user: UserId,
        other: UserId,
        blocked: bool,
        now: Timestamp,
    ) -> Result<[Option<Edge>; 2], StoreError>;
    /// Returns the exact number of followers in each shard.
    async fn follower_counts(&self, author: UserId) -> Result<[u64; 16], StoreError>;
    /// Returns those of these pairs (follower, followee) that follow. One round trip reads a hundred pairs.
    async fn live(&self, pairs: &[(UserId, UserId)]) -> Result<HashSet<(UserId, UserId)>, StoreError>;
    /// Returns the exact number of followed authors.
    async fn followings(&self, user: UserId) -> Result<u64, StoreError>;
    /// Returns at most `limit` followers below `before`, newest first.
    async fn followers_by_time(
        &self,
        author: UserId,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>, StoreError>;
    /// Returns all followers whose bucket lies in `buckets`, in bucket order. It does not depend on the counts.
    async fn followers_in(&self, author: UserId, buckets: Range<u16>) -> Result<Vec<UserId>, StoreError>;
}

/// The idempotency key of a request, with a hash of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The value of the `Idempotency-Key` header.
    pub key: String,
    /// SHA-256 of the body as it was parsed.
    pub fingerprint: String,
}

/// The outcome of a publish.
#[derive(Debug, Clone, PartialEq)]
pub enum Published {
    /// The new post, and its author's head after it.
    Created(Post, AuthorHead),
    /// An earlier request with the same key and body published this post.
    Repeated(Post),
    /// An earlier request with the same key published something else.
    KeyReused,
    /// The author has used all sequence numbers.
    Full,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The post is a tombstone, and its retraction has to be started. Contains the author's head after the deletion.
    Deleted(Post, AuthorHead),
    /// The post was a tombstone before, and its retraction is finished.
    Already(Post),
    /// No such post was ever published.
    Unknown,
}

/// The result of a look at an unfinished fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its pages wait in the queue, at the latest since this time.
    Waiting(Timestamp),
    /// This many pages are done, more than before.
    Moving(u64),
    /// The missing pages are about to be sent again. Before, [`Delivery::sent_at`](tidemark_domain::Delivery) was
    /// `before`. The token is the run's own: two runs may have the same time.
    Sending { before: Option<Timestamp>, at: Timestamp, token: u64 },
    /// The pages of [`Look::Sending`] with this token were sent, as attempt `attempts`. This many other pages were
    /// done.
    Sent { token: u64, attempts: u32, pages_done: u64 },
    /// Some of its pages are not in the queue, because the queue was unavailable.
    Unsent,
    /// Its pages were sent as often as allowed. It leaves the list of fan-outs that are resumed.
    GivenUp,
}

/// Posts, heads, and the state of fan-outs.
#[async_trait]
pub trait Posts: Send + Sync {
    /// Returns the heads of these authors. An author without a head gets an empty one.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError>;
    /// Publishes a post: head, post, body and idempotency record in one transaction.
    async fn publish(
        &self,
        post: &NewPost,
        followers: u64,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<Published, StoreError>;
    /// Makes a post a tombstone: post, body and head in one transaction. May be repeated. `followers` decides how many
    /// pages the retraction has.
    async fn delete(&self, post: PostId, followers: u64) -> Result<Deleted, StoreError>;
    /// Returns these posts, tombstones included. Unknown posts are left out.
    async fn posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, Post>, StoreError>;
    /// Returns these posts, tombstones included, each with the text of the same revision; `None` instead of a text that
    /// cannot be read or is of another revision. Unknown posts are left out.
    async fn with_texts(&self, posts: &[PostId]) -> Result<HashMap<PostId, (Post, Option<PostText>)>, StoreError>;
    /// Replaces title and text of a live post: post and body in one transaction. Writes nothing if they are equal.
    /// Replaces a damaged text too.
    /// Returns the post after it; `None` if there is no such live post.
    async fn edit(&self, post: PostId, title: &str, text: &PostText, now: Timestamp) -> Result<Option<Post>, StoreError>;
    /// Returns posts of one author with sequence numbers in `after+1..=upto`, newest first, at most `limit`, tombstones
    /// included.
    async fn timeline(&self, author: UserId, after: Seq, upto: Seq, limit: usize) -> Result<Vec<Post>, StoreError>;
    /// Returns these posts of one author in the order of `seqs`, which must descend. Tombstones are included, unknown
    /// posts are left out. Uses one range query if the numbers are dense, else reads by key, a hundred in a request.
    async fn posts_of(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<Post>, StoreError>;
    /// Returns the greatest sequence number that the author published at or before `at`; zero if there is none.
    async fn seq_at(&self, author: UserId, at: Timestamp) -> Result<Seq, StoreError>;
    /// Returns a post or its tombstone, and the token of the last change of its step.
    async fn ranked_by(&self, post: PostId) -> Result<Option<(Post, Option<u64>)>, StoreError>;
    /// Sets the step of a live post if it has changed `step.changes - 1` times. Otherwise it writes nothing and returns
    /// false. A repetition after a lost response returns false too; then [`Self::ranked_by`] returns this token.
    async fn set_step(&self, post: PostId, step: Step, token: u64) -> Result<bool, StoreError>;
    /// Stores the result of a look at an unfinished fan-out. Writes nothing and returns false if it is finished by now,
    /// if the post has another one, or if another run is sending its pages.
    async fn note_look(&self, kind: FanOutKind, post: PostId, look: Look) -> Result<bool, StoreError>;
    /// Sets a pending fan-out to done, with the number of followers handled. Returns whether it was pending. A
    /// repetition after a lost response returns false.
    async fn finish_delivery(&self, post: PostId, followers: u64, now: Timestamp) -> Result<bool, StoreError>;
    /// Stores that the retraction of a deleted post is complete.
    async fn finish_retraction(&self, post: PostId) -> Result<(), StoreError>;
}

/// The read states of users.
#[async_trait]
pub trait Reads: Send + Sync {
    /// Returns the user's read states of these authors. Missing ones are left out.
    async fn reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReadState>, StoreError>;
    /// Returns all read states of the user.
    async fn all_reads(&self, user: UserId) -> Result<HashMap<UserId, ReadState>, StoreError>;
    /// Marks posts read or unread. The write has no condition, so concurrent marks cannot make it fail. Returns the
    /// state before it and the state after it.
    async fn mark(&self, user: UserId, author: UserId, seqs: &[Seq], read: bool) -> Result<(ReadState, ReadState), StoreError>;
    /// Writes a state if its version is one above the stored version. Otherwise it writes nothing and returns false.
    async fn put(&self, user: UserId, author: UserId, state: &ReadState) -> Result<bool, StoreError>;
}

/// The outcome of a reaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Reacted {
    /// The user's reactions to the author's posts after the request, whether or not it changed them.
    Stands(ReactionState),
    /// The post does not exist, or only its tombstone does.
    Unknown,
    /// The user and the author of the post, one of them blocks the other. Nothing changed.
    Blocked,
}

/// Likes and favorites, and their counts.
#[async_trait]
pub trait Reactions: Send + Sync {
    /// Returns the user's reactions to these authors' posts. Missing ones are left out.
    async fn reactions(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReactionState>, StoreError>;
    /// Gives a reaction to a live post or removes it: state, the post's count and the author's count in one
    /// transaction. May be repeated.
    async fn react(
        &self,
        user: UserId,
        post: PostId,
        reaction: Reaction,
        given: bool,
        now: Timestamp,
    ) -> Result<Reacted, StoreError>;
    /// Returns whether the author blocks the user.
    async fn is_blocked(&self, user: UserId, author: UserId) -> Result<bool, StoreError>;
    /// Returns at most `limit` of the user's reactions of one kind below `before`, newest first: each post with the
    /// time of the reaction.
    async fn reacted(
        &self,
        user: UserId,
        reaction: Reaction,
        before: Option<FeedKey>,
        limit: usize,
    ) -> Result<Vec<FeedKey>, StoreError>;
    /// Returns the exact counts of one post.
    async fn counts(&self, post: PostId) -> Result<CountsVersion, StoreError>;
    /// Returns the exact counts of all posts of an author, deleted ones included.
    async fn received(&self, author: UserId) -> Result<ReactionCounts, StoreError>;
}

/// The two kinds of fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FanOutKind {
    Deliver,
    /// Removes the deleted post.
    Retract,
}

/// The post of a fan-out, with everything that a worker needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FanOut {
    pub kind: FanOutKind,
    pub post: PostId,
    /// When it was published.
    pub at: Timestamp,
    /// Number of pages of the whole fan-out.
    pub pages: u16,
    /// The author's number of deletions, for a retraction.
    #[serde(default)]
    pub deletions: u32,
    /// The author's modes after this post.
    #[serde(default, skip_serializing_if = "Modes::is_push_alone")]
    pub modes: Modes,
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

/// A message of the fan-out queue. `tries` is how often it has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Task {
    /// One page with its followers.
    Batch {
        fan_out: FanOut,
        page: u16,
        /// In bucket order.
        followers: Vec<u64>,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// Pages to list and to send as batches.
    List {
        fan_out: FanOut,
        from: u16,
        /// The page after the last.
        to: u16,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// The author's counters and head, or the summary of a deleted post, could not be updated when the fan-out began.
    Tell {
        fan_out: FanOut,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// A change of this pair did not reach its view: update the views of the pair from the facts.
    Sync {
        user: UserId,
        author: UserId,
        /// The post whose counts changed, after a reaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reacted: Option<Seq>,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// Reactions to a post: change its step if they imply another, and tell ranked feeds.
    Rank {
        post: PostId,
        /// Names this task, so that its repetition knows a change that it has made.
        token: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// Steps of an author's posts have changed: move them in the ranked feeds of all followers.
    Rescore {
        author: UserId,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
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
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// Many changes of one reader did not reach the view: rebuild it.
    Rebuild {
        user: UserId,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// A user has asked to leave: continue the erasure.
    Erase {
        user: UserId,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// A changed profile did not reach its view: replace the user's card.
    Card {
        user: UserId,
        /// Whether the task was left before the change, whose request updates the view itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_advance: bool,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// An edit did not reach its view: store the post and its text.
    Post {
        post: PostId,
        /// Whether the task was left before the change, whose request updates the view itself.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_advance: bool,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// A change of a notice or of a read state did not reach its view: replace the platform's head, or the user's read
    /// state on the platform.
    Notices {
        platform: Platform,
        /// `None` for the head.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<UserId>,
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
}

/// Up to this many read states of one reader are updated by one `sync` task each. More are updated by one rebuild.
const MOST_SYNCS: usize = 8;

fn is_zero(tries: &u8) -> bool {
    *tries == 0
}

impl Task {
    /// Creates the task that updates all views of one pair.
    pub fn sync(user: UserId, author: UserId) -> Self {
        Self::Sync { user, author, reacted: None, tries: 0 }
    }

    /// Creates the tasks that update a view after changes of read states. Many changes become one rebuild: it costs
    /// less, and a repeated request adds only one more.
    pub fn sync_reads(user: UserId, authors: &[UserId]) -> Vec<Self> {
        match authors.len() {
            0..=MOST_SYNCS => authors.iter().map(|&author| Self::sync(user, author)).collect(),
            _ => vec![Self::Rebuild { user, tries: 0 }],
        }
    }

    /// Returns the task after one more failure, with its number of failures.
    pub fn tried_once_more(&self) -> (Self, u8) {
        let mut task = self.clone();
        let (Self::Batch { tries, .. }
        | Self::List { tries, .. }
        | Self::Tell { tries, .. }
        | Self::Sync { tries, .. }
        | Self::Rank { tries, .. }
        | Self::Rescore { tries, .. }
        | Self::Move { tries, .. }
        | Self::Rebuild { tries, .. }
        | Self::Erase { tries, .. }
        | Self::Card { tries, .. }
        | Self::Post { tries, .. }
        | Self::Notices { tries, .. }) = &mut task;
        *tries = tries.saturating_add(1);
        let tries = *tries;
        (task, tries)
    }

    /// Returns whether views are stale until the task is done. Views that wait for a page of a fan-out are not: the
    /// delivery status of the post shows that it is in progress. Nor are scores: they follow reactions within seconds.
    pub(crate) fn is_missed_by_views(&self) -> bool {
        match self {
            Self::Batch { .. }
            | Self::List { .. }
            | Self::Rank { .. }
            | Self::Rescore { .. }
            | Self::Move { .. }
            | Self::Erase { .. } => false,
            Self::Tell { .. } | Self::Sync { .. } | Self::Rebuild { .. } | Self::Notices { .. } => true,
            Self::Card { in_advance, .. } | Self::Post { in_advance, .. } => !in_advance,
        }
    }

    /// Returns the message group: an author, a reader or a platform. The queue is fair between groups, so a task of one
    /// group does not wait for the backlog of another.
    pub fn group(&self) -> String {
        match self {
            Self::Batch { fan_out, .. } | Self::List { fan_out, .. } | Self::Tell { fan_out, .. } => {
                fan_out.post.author.to_string()
            }
            Self::Post { post, .. } | Self::Rank { post, .. } => post.author.to_string(),
            Self::Rescore { author, .. } | Self::Move { author, .. } => author.to_string(),
            Self::Sync { user, .. }
            | Self::Rebuild { user, .. }
            | Self::Card { user, .. }
            | Self::Erase { user, .. }
            | Self::Notices { user: Some(user), .. } => user.to_string(),
            Self::Notices { platform, user: None, .. } => format!("platform-{platform}"),
        }
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

/// The queue of tasks for the workers.
#[async_trait]
pub trait TaskQueue: Send + Sync {
    /// Returns the backlog. SQS updates these numbers within about a minute.
    async fn backlog(&self) -> Result<Backlog, StoreError>;
    /// Enqueues all tasks, with a delay in whole seconds. After an error some of them may be missing.
    async fn send_after(&self, tasks: &[Task], delay: Duration) -> Result<(), StoreError>;
    /// Enqueues all tasks without a delay.
    async fn send(&self, tasks: &[Task]) -> Result<(), StoreError> {
        self.send_after(tasks, Duration::ZERO).await
    }
    /// Checks that the queue responds.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// The outage note.
#[async_trait]
pub trait Outages: Send + Sync {
    /// Returns until when the note stands; a time long ago if there is none.
    async fn outage_until(&self) -> Result<Timestamp, StoreError>;
    /// Writes a note that stands until this time at least.
    async fn note_outage(&self, until: Timestamp) -> Result<(), StoreError>;
}

/// The lists of users.
#[async_trait]
pub trait AuthorLists: Send + Sync {
    /// Returns a user's lists.
    async fn lists(&self, user: UserId) -> Result<UserLists, StoreError>;
    /// Stores a user's lists, whose version is one greater than the stored one. Returns false, and stores nothing, if
    /// the stored version is another.
    async fn put_lists(&self, user: UserId, lists: &UserLists) -> Result<bool, StoreError>;
}

/// The queue of dead letters.
#[async_trait]
pub trait Failures: Send + Sync {
    /// Returns the approximate number of messages.
    async fn waiting(&self) -> Result<u64, StoreError>;
}

/// The result of [`ReaderViews::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The caller owns the rebuild.
    Begun,
    /// Another process owns a rebuild, and its deadline has not passed.
    Building,
    /// A view exists.
    Ready,
}

/// The result of [`ReaderViews::admit`] for one author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// The gate is open, and the facts have to be merged.
    Opening,
    /// The follow and its facts are in the view.
    Complete,
    /// The view has a later revision of the edge.
    Stale,
}

/// The result of [`ReaderViews::seed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeded {
    /// The facts are merged, except for the stale authors.
    Merged {
        /// The view has newer facts of these authors, or no field of this follow. Load their facts again.
        stale: Vec<UserId>,
    },
    /// There is no view, or the caller no longer owns the rebuild.
    Gone,
}

/// Facts that are merged into one view.
#[derive(Debug, Clone, Default)]
pub struct Seed {
    pub authors: Vec<(UserId, AuthorState)>,
    pub entries: Vec<FeedKey>,
    /// The token of the rebuild, if the seed is part of one.
    pub token: Option<u64>,
    /// From this entry on, `entries` is complete, and older posts exist. `None` if there are no older posts.
    pub low: Option<FeedKey>,
}

/// A reader's view at one moment. Counts and feed agree.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub state: ReaderState,
    /// The newest entries of the feed, newest first.
    pub entries: Vec<FeedKey>,
    /// Whether `entries` contains all entries that the view stores.
    pub whole: bool,
    /// The ranked feed, if it was asked for. `entries` is empty then.
    pub ranked: Ranked,
}

/// A part of a ranked feed.
#[derive(Debug, Clone, Default)]
pub struct Ranked {
    /// Highest first.
    pub entries: Vec<(FeedKey, Score)>,
    /// Whether `entries` contains everything below the place where it begins.
    pub whole: bool,
    /// Whether the ranked feed has every entry of the feed.
    pub filled: bool,
    /// The stamp of the last move. Stamps only grow.
    pub stamp: u64,
    /// The stamps of posts whose scores have changed, and of authors whose preferences have. Only below a place.
    pub moved: HashMap<FeedKey, u64>,
    pub moved_authors: HashMap<UserId, u64>,
}

impl Ranked {
    /// Returns whether the post's score has changed after this stamp.
    pub(crate) fn has_moved(&self, key: &FeedKey, since: u64) -> bool {
        let stamps = [self.moved.get(key), self.moved_authors.get(&key.post.author)];
        stamps.into_iter().flatten().any(|&stamp| stamp > since)
    }
}

/// The result of [`ReaderViews::deliver`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivered {
    /// The number of users whose view follows the author.
    pub reached: u64,
    /// Those of them who have a ranked feed. [`ReaderViews::rank`] puts the post there.
    pub ranked: Vec<UserId>,
    /// Those of them to whose live connections the caller must send a task: the views rely on it.
    pub notified: Notified,
}

/// The result of [`ReaderViews::retract`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retracted {
    /// The number of users who have a view.
    pub reached: u64,
    /// Those of them who follow the author and are watched.
    pub watched: Vec<UserId>,
}

/// Feeds and read states of live readers.
#[async_trait]
pub trait ReaderViews: Send + Sync {
    /// Returns the state and the `newest` entries of the feed, read atomically; `None` if there is no view.
    async fn view(&self, user: UserId, newest: usize) -> Result<Option<View>, StoreError>;
    /// Returns the state and at most `most` entries of the ranked feed below a place, or of its top, read atomically;
    /// `None` if there is no view.
    async fn ranked(
        &self,
        user: UserId,
        half_life: HalfLife,
        below: Option<RankedPlace>,
        most: usize,
    ) -> Result<Option<View>, StoreError>;
    /// Returns the entries of the feed that the ranked feed lacks.
    async fn unranked(&self, user: UserId, half_life: HalfLife) -> Result<Vec<FeedKey>, StoreError>;
    /// Puts posts into the ranked feeds of these users, or moves them there. Posts that a user's feed does not have are
    /// left out, as are steps that are older than those in the ranked feed. With `create`, a user with a feed and
    /// without a ranked feed gets one.
    async fn rank(
        &self,
        users: &[UserId],
        half_life: HalfLife,
        posts: &[(FeedKey, Rank)],
        create: bool,
    ) -> Result<(), StoreError>;
    /// Starts a rebuild. With `anew` it starts even if a view exists.
    async fn begin(&self, user: UserId, token: u64, now: Timestamp, anew: bool) -> Result<Begun, StoreError>;
    /// Opens the gate for these edges. Returns one result for each edge, in order; `None` if there is no view.
    async fn admit(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Admitted>>, StoreError>;
    /// Merges facts into the view.
    async fn seed(&self, user: UserId, seed: &Seed) -> Result<Seeded, StoreError>;
    /// Ends a rebuild. Returns false if the caller no longer owns it.
    async fn finish(&self, user: UserId, token: u64, now: Timestamp) -> Result<bool, StoreError>;
    /// Removes an unfollowed author: state, counts and entries.
    async fn drop_author(&self, tombstone: &Edge) -> Result<(), StoreError>;
    /// Takes the lease for storing the marks of an author whom the user does not follow.
    async fn lease_marks(&self, user: UserId, author: UserId, token: u64) -> Result<(), StoreError>;
    /// Stores marks that were read from the facts, if the caller still has the lease.
    async fn fill_marks(&self, user: UserId, author: UserId, marks: &Marks, token: u64) -> Result<(), StoreError>;
    /// Removes the marks of these users and authors, and the leases.
    async fn forget_marks(&self, pairs: &[(UserId, UserId)]) -> Result<(), StoreError>;
    /// Extends the lifetimes of a view after a read, and of the ranked feed if that was read. Removes entries below the
    /// cap and old tombstones.
    async fn touch(&self, user: UserId, now: Timestamp, ranked: bool) -> Result<(), StoreError>;
    /// Adds a post to the views of these users, with its author's modes after it, except to ranked feeds.
    async fn deliver(&self, users: &[UserId], post: FeedKey, modes: Modes, announce: bool) -> Result<Delivered, StoreError>;
    /// Removes a deleted post from the views of these users. `deletions` is the author's number of deletions.
    async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32, modes: Modes) -> Result<Retracted, StoreError>;
}

/// Heads of authors. Timelines of all authors, and feeds of readers who pull, are computed from them.
#[async_trait]
pub trait HeadViews: Send + Sync {
    /// Returns the known heads of these authors. They may be a moment old.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError>;
    /// Returns what is known of these authors now.
    async fn authors(&self, authors: &[UserId]) -> Result<HashMap<UserId, KnownAuthor>, StoreError>;
    /// Takes the leases for filling the heads of these authors, unless another process has them. Called before the
    /// facts are read. Returns the authors whose lease was taken.
    async fn lease_heads(&self, authors: &[UserId], token: u64) -> Result<Vec<UserId>, StoreError>;
    /// Stores heads that were read from the facts, if the caller still has their lease. A change or a loss of the head
    /// takes it away.
    async fn fill_heads(&self, heads: &[(UserId, AuthorHead)], token: u64) -> Result<(), StoreError>;
    /// Replaces a known head with a later one, and takes the lease from a process that fills it. An unknown head stays
    /// unknown. The next read fills it.
    async fn replace_head(&self, author: UserId, head: &AuthorHead) -> Result<(), StoreError>;
    /// Takes the lease for storing the times of an author's posts. Returns false if another process has it.
    async fn lease_times(&self, author: UserId, token: u64) -> Result<bool, StoreError>;
    /// Stores times that were read from the facts, if the caller still has the lease.
    async fn store_times(&self, author: UserId, times: &PostTimes, token: u64) -> Result<(), StoreError>;
}

/// The data about an author's posts that Redis has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownAuthor {
    pub head: Option<AuthorHead>,
    pub times: Option<PostTimes>,
}

/// The reactions of a reader that Redis knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownReactions {
    /// By author. Authors without an entry have to be read from the facts.
    pub of: HashMap<UserId, ReactionState>,
    /// The token of the view; `None` if there is no view.
    pub token: Option<u64>,
}

/// The parts of a page that are read only if they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageParts {
    /// The cards of the authors.
    pub cards: bool,
    /// Texts and reaction counts.
    pub texts: bool,
}

/// The data for a page that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPage {
    pub summaries: HashMap<PostId, PostSummary>,
    /// The reader's reactions to the authors' posts.
    pub reactions: KnownReactions,
    /// The cards of the authors; `None` for an author who has no profile.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Texts in the revisions of the summaries.
    pub texts: HashMap<PostId, PostText>,
    pub counts: HashMap<PostId, ReactionCounts>,
}

/// The data of one post that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPost {
    pub summary: Option<PostSummary>,
    /// The text in the revision of the summary.
    pub text: Option<PostText>,
    pub counts: Option<ReactionCounts>,
    /// Whether the counts may lack reactions of this moment.
    pub counts_in_motion: bool,
    /// The author's card, if it is known that there is one or none.
    pub card: Option<Option<Card>>,
}

/// The posts of an author that a user who does not follow the author has marked read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Marks {
    /// The version of the read state.
    pub version: u32,
    pub read: SeqSet,
    /// Whether the author blocks the user.
    pub blocked: bool,
}

impl Marks {
    pub fn new(ReadState { version, read, .. }: ReadState, blocked: bool) -> Self {
        Self { version, read, blocked }
    }
}

/// The data about one reader and one author that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownReader {
    /// The state of the author in the reader's view, if there is a view; `None` within if the view has no such author.
    pub state: Option<Option<AuthorState>>,
    /// The reader's reactions to the author's posts.
    pub reactions: KnownReactions,
    /// The reader's marks, if it is known that the reader does not follow the author.
    pub marks: Option<Marks>,
    /// Whether a change of the reader was noted within the last seconds ([`RelationViews::changed_lately`]).
    pub changed_lately: bool,
}

/// Reaction counts of a post with a version, which grows with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountsVersion {
    pub version: u64,
    pub counts: ReactionCounts,
}

/// Posts of an author whose steps have changed since the last [`Task::Rescore`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// The number of changes of each post's step.
    pub posts: HashMap<Seq, u32>,
    /// False if Redis may have lost posts.
    pub whole: bool,
}

/// Posts, so that a page reads no facts.
#[async_trait]
pub trait PostViews: Send + Sync {
    /// Returns the known summaries, those of deleted posts included.
    async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>, StoreError>;
    /// Returns what Redis knows for a page, in one round trip.
    async fn page(&self, reader: UserId, posts: &[PostId], parts: PageParts) -> Result<KnownPage, StoreError>;
    /// Returns what Redis knows of a post, and of a reader and the post's author, in one round trip.
    async fn post(&self, reader: UserId, id: PostId) -> Result<(KnownPost, KnownReader), StoreError>;
    /// Returns what Redis knows of a reader and an author.
    async fn of_reader(&self, reader: UserId, author: UserId) -> Result<KnownReader, StoreError>;
    /// Returns the known head of an author, and what Redis knows of the reader and the author, in one round trip.
    async fn timeline(&self, reader: UserId, author: UserId) -> Result<(Option<AuthorHead>, KnownReader), StoreError>;
    /// Takes the leases for storing these posts. Redis must have them when the posts are stored.
    async fn lease(&self, posts: &[PostId], token: u64) -> Result<(), StoreError>;
    /// Stores posts that were read from the facts, with their texts if these were read too, unless Redis has a later
    /// revision or knows that the post is deleted. `lease` is the token with which a reader leased the posts before it
    /// read the facts; `None` if the caller has just changed the post.
    async fn remember(&self, posts: &[(PostSummary, Option<PostText>)], lease: Option<u64>) -> Result<(), StoreError>;
    /// Takes the lease for storing the counts of a post. A reaction takes it away.
    async fn lease_counts(&self, post: PostId, token: u64) -> Result<(), StoreError>;
    /// Stores counts that were read from the facts, unless Redis has a later version. Without the lease they are stored
    /// for two seconds only.
    async fn store_counts(&self, post: PostId, counts: CountsVersion, token: u64) -> Result<(), StoreError>;
    /// Notes a change of a post's counts. Usually it removes the stored counts. If many users react at once, counts
    /// less than two seconds old stay until they are two seconds old.
    ///
    /// Returns whether the caller has to enqueue a [`Task::Rank`]. If not, another one is enqueued that has not called
    /// [`Self::begin_rank`] yet, or its sender was killed. A repetition for the same user returns the same.
    async fn expire_counts(&self, post: PostId, by: UserId) -> Result<bool, StoreError>;
    /// Begins a look at a post's reactions: the next reaction enqueues another task.
    async fn begin_rank(&self, post: PostId) -> Result<(), StoreError>;
    /// Notes that the step of a post has changed. Returns the delay after which a [`Task::Rescore`] of the author may
    /// run; `None` if one was sent before ([`Self::note_rescore`]) and has not run.
    async fn note_step(&self, post: PostId, step: Step, now: Timestamp) -> Result<Option<Duration>, StoreError>;
    /// Notes that a [`Task::Rescore`] of the author was sent that runs at this time.
    async fn note_rescore(&self, author: UserId, at: Timestamp) -> Result<(), StoreError>;
    /// Returns the posts of an author whose steps have changed.
    async fn moved(&self, author: UserId) -> Result<Moved, StoreError>;
    /// Removes the posts of `moved` whose steps have not changed since, and notes that no further [`Task::Rescore`]
    /// should run before `next`. Returns how many posts remain.
    async fn settle(&self, author: UserId, moved: &Moved, next: Timestamp) -> Result<u64, StoreError>;
    /// Removes the counts of a post.
    async fn forget_counts(&self, post: PostId) -> Result<(), StoreError>;
}

/// Readers' reactions by author, so that a page reads no facts.
#[async_trait]
pub trait ReactionViews: Send + Sync {
    /// Returns the token of the reader's view. If there is no view, it is created with `token`. Facts are read after
    /// this call and stored with the returned token.
    async fn open(&self, user: UserId, token: u64) -> Result<u64, StoreError>;
    /// Stores facts that were read after the view with this token was opened. Later versions are not replaced. Does
    /// nothing if that view is gone.
    async fn fill(&self, user: UserId, token: u64, of: &HashMap<UserId, ReactionState>) -> Result<(), StoreError>;
    /// Stores a changed state in the view, if there is a view.
    async fn change(&self, user: UserId, author: UserId, state: &ReactionState) -> Result<(), StoreError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub pages_done: u64,
    /// Followers handled in these pages.
    pub handled: u64,
}

/// Buckets and access, for [`AccessCheck`](crate::AccessCheck).
#[async_trait]
pub trait LimitViews: Send + Sync {
    /// Takes a request from a bucket that holds `per_minute` of them; 0 means that there is no bucket. Also returns
    /// whether the user may call.
    async fn spend(&self, user: UserId, budget: Budget, per_minute: u32, now: Timestamp) -> Result<Spent, StoreError>;
}

#[async_trait]
pub trait ProgressViews: Send + Sync {
    /// Stores that a page is done. A page counts once. Returns the progress after it.
    async fn page_done(&self, kind: FanOutKind, post: PostId, page: u16, handled: u64) -> Result<Progress, StoreError>;
    /// Returns the progress, and which of the first `pages` pages are not done.
    async fn progress(&self, kind: FanOutKind, post: PostId, pages: u16) -> Result<(Progress, Vec<u16>), StoreError>;
    /// Checks that Redis responds.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// A relation list of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Authors whom the user follows. The cached list has all of them.
    Following(UserId),
    /// Followers of the user. The cached list has the newest.
    Fans(UserId),
}

/// The start of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Below this entry; at the top if `None`.
    Below(Option<Relation>),
    /// After this many entries.
    Offset(usize),
}

/// The part of a page that a cached list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSlice {
    /// Entries, newest first.
    pub items: Vec<Relation>,
    /// The place where the page continues in the facts. `None` if the slice is full or the cached list is complete.
    pub rest: Option<Start>,
}

/// Relation lists and counters.
#[async_trait]
pub trait RelationViews: Send + Sync {
    /// Returns at most `limit` entries of a cached list; `None` if it is not cached. The result may be a moment old,
    /// except for the owner of the list and for a caller who made a change within the last seconds.
    async fn slice(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<Option<ListSlice>, StoreError>;
    /// Takes the lease for filling a list. A later lease and a change of the list take it away.
    async fn lease(&self, list: List, token: u64) -> Result<(), StoreError>;
    /// Stores a list that is complete from `low` on, if the caller still has the lease.
    async fn fill(&self, list: List, token: u64, members: &[Relation], low: Timestamp) -> Result<(), StoreError>;
    /// Notes that the user made a change.
    async fn note_change(&self, user: UserId) -> Result<(), StoreError>;
    /// Returns whether a change of the user was noted within the last seconds.
    async fn changed_lately(&self, user: UserId) -> Result<bool, StoreError>;
    /// Applies edges to the cached lists of both sides, removes the counters of both, and notes that the follower made
    /// a change.
    async fn apply(&self, edges: &[Edge]) -> Result<(), StoreError>;
    /// Returns the cached counters. If they are missing or damaged, takes the lease for storing them. They may be as
    /// old as the result of [`Self::slice`].
    async fn counters(&self, caller: UserId, user: UserId, token: u64) -> Result<Option<Counters>, StoreError>;
    /// Stores counters, if the caller still has the lease.
    async fn store_counters(&self, user: UserId, counters: Counters, token: u64) -> Result<(), StoreError>;
    /// Removes counters and their lease, and notes that `changed_by` made a change.
    async fn forget_counters(&self, user: UserId, changed_by: Option<UserId>) -> Result<(), StoreError>;
}
