//! What reconcile needs to see of both sides, in the types of [`crate::domain::diff`], and to mend.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FactsError, ViewError};
use crate::domain::{
    AuthorHead, Counters, Edge, NoticeId, Platform, PlatformHead, PostId, PostSummary, ReactionState, ReadState, Relation,
    SeqSet, Slot, Timestamp, UserId,
    diff::{
        DamagedItem, FactDifference, Stored, View,
        facts::{ReactionShard, StoredCount, StoredHead, StoredPost, StoredRecord},
        notices::{StoredNotice, StoredSlots, StoredTitle},
        reader::StoredReader,
        views::{StoredKey, StoredList},
    },
};

/// What was found, item by item: those that can be read, and those that cannot. `K` says what they are about.
#[derive(Debug, Clone, Default)]
pub struct Decoded<T, K = ()> {
    /// What can be read.
    pub found: T,
    /// What cannot.
    pub damaged: Vec<(K, DamagedItem)>,
}

impl<T, K> Decoded<T, K> {
    /// All of it, where nothing can be said without what cannot be read.
    ///
    /// # Errors
    /// [`FactsError::Damaged`]: some of it cannot be read.
    pub fn whole(self) -> Result<T, FactsError> {
        match self.damaged.into_iter().next() {
            None => Ok(self.found),
            Some((_, DamagedItem { table, key })) => {
                Err(FactsError::Damaged { table, key, detail: "it cannot be read".to_owned() })
            }
        }
    }
}

/// A part of a table or index, and where the next one begins; `None` at the end.
#[derive(Debug, Clone)]
pub struct Part<T, C> {
    /// What is in it.
    pub items: Vec<T>,
    /// What in it cannot be read.
    pub damaged: Vec<DamagedItem>,
    /// Where to go on.
    pub next: Option<C>,
}

/// Counts of edges, and their change numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredCounts {
    /// Authors followed.
    pub followings: StoredCount,
    /// Followers, shard by shard.
    pub followers: [StoredCount; 16],
}

/// Shards of the unfinished fan-outs.
pub const UNFINISHED_SHARDS: u64 = 4;

/// Which of the unfinished fan-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// Those that are resumed.
    Open,
    /// Those that were given up.
    GivenUp,
}

/// A place among the unfinished fan-outs of one shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnfinishedAt {
    /// The post's place in the order of time.
    pub time: String,
    /// The post.
    pub post: PostId,
}

/// The facts as they are stored, and their repair.
#[async_trait]
pub trait AuditFacts: Send + Sync {
    /// How many authors a user follows and how many followers the user has, as counted.
    async fn counts(&self, user: UserId) -> Result<StoredCounts, FactsError>;
    /// The heads of these authors; absent ones are empty heads.
    async fn stored_heads(&self, authors: &[UserId]) -> Result<Decoded<HashMap<UserId, StoredHead>, UserId>, FactsError>;
    /// All live edges of one user.
    async fn followed_by(&self, user: UserId) -> Result<Decoded<Vec<Edge>>, FactsError>;
    /// What a user has read of anybody.
    async fn stored_reads(&self, user: UserId) -> Result<Decoded<HashMap<UserId, ReadState>>, FactsError>;
    /// Followers that one shard of an author lists; `None` when there are more than `most`.
    async fn listed_followers(
        &self,
        author: UserId,
        shard: u16,
        most: usize,
    ) -> Result<Option<Decoded<Vec<Relation>>>, FactsError>;
    /// Since when these authors list the user; those that do not are left out.
    async fn listed_by(
        &self,
        user: UserId,
        authors: &[UserId],
    ) -> Result<Decoded<HashMap<UserId, Timestamp>, UserId>, FactsError>;
    /// Which of these users follow the author.
    async fn live_followers(&self, author: UserId, users: &[UserId]) -> Result<Decoded<HashSet<UserId>, UserId>, FactsError>;
    /// Reactions of the users of one shard to an author; `None` when there are more than `most` items.
    async fn reactions_in(&self, author: UserId, shard: u16, most: usize) -> Result<Option<Decoded<ReactionShard>>, FactsError>;
    /// These posts; unknown ones left out.
    async fn stored_posts(&self, posts: &[PostId]) -> Result<Decoded<HashMap<PostId, StoredPost>, PostId>, FactsError>;
    /// An author's newest posts, tombstones included, at most `limit`.
    async fn newest_posts(&self, author: UserId, limit: usize) -> Result<Decoded<Vec<StoredPost>>, FactsError>;
    /// Posts of one shard whose fan-out or retraction is not finished, published at or before `before`, newest first, after `after`, at most `limit`.
    async fn unfinished(
        &self,
        which: Unfinished,
        shard: u64,
        before: Timestamp,
        after: Option<&UnfinishedAt>,
        limit: usize,
    ) -> Result<Part<PostId, UnfinishedAt>, FactsError>;
    /// How many fan-outs were given up.
    async fn given_up(&self) -> Result<u64, FactsError>;
    /// Of which of these posts there are bodies.
    async fn bodies(&self, posts: &[PostId]) -> Result<HashSet<PostId>, FactsError>;
    /// A part of all edges by follower, tombstones included: users one after the other.
    async fn some_edges(&self, after: Option<(String, String)>, limit: usize)
    -> Result<Part<Edge, (String, String)>, FactsError>;
    /// The keys of a part of all idempotency records.
    async fn some_records(&self, after: Option<String>, limit: usize) -> Result<Part<String, String>, FactsError>;
    /// One idempotency record.
    async fn record(&self, key: &str) -> Result<Option<StoredRecord>, FactsError>;
    /// The notices of a platform, expired ones too.
    async fn stored_notices(&self, platform: Platform) -> Result<Decoded<Vec<StoredNotice>>, FactsError>;
    /// Which of these slots of a platform anybody who is counted together with this user has read.
    async fn counted_slots(&self, user: UserId, platform: Platform, slots: &[Slot]) -> Result<SeqSet, FactsError>;
    /// Does what the difference needs, on the condition of what was seen; false when that has changed.
    async fn repair(&self, difference: &FactDifference) -> Result<bool, FactsError>;
    /// Where the walk of this name is; `None` when it is not under way.
    async fn walk(&self, name: &str) -> Result<Option<String>, FactsError>;
    /// Notes where it is, on the condition that it was at `from`; false when it was not.
    async fn note_walk(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<bool, FactsError>;
}

/// Whose key it is that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A user.
    User(UserId),
    /// A post.
    Post(PostId),
    /// A platform.
    Platform(Platform),
    /// A user as a reader of a platform.
    NoticeReads(UserId, Platform),
    /// A notice in a revision.
    Title(NoticeId, u64),
    /// Nobody: one of our keys, in another bucket than its user's.
    Astray(String),
}

/// Everything that Redis keeps of one user. What is of a wrong type counts as absent.
#[derive(Debug, Clone, Default)]
pub struct StoredUser {
    /// The keys there are.
    pub keys: Vec<StoredKey>,
    /// State and feed.
    pub reader: StoredReader,
    /// Whom the user follows.
    pub following: Stored<StoredList>,
    /// Who follows the user.
    pub fans: Stored<StoredList>,
    /// Counters.
    pub counters: Stored<Counters>,
    /// Reactions.
    pub reactions: Stored<HashMap<UserId, ReactionState>>,
    /// The head.
    pub head: Stored<AuthorHead>,
}

/// What Redis keeps of a notice, or around notices.
#[derive(Debug, Clone)]
pub struct StoredView<T> {
    /// The keys there are.
    pub keys: Vec<StoredKey>,
    /// The record; of a wrong type it counts as absent.
    pub record: Stored<T>,
}

/// Everything that Redis keeps of one post.
#[derive(Debug, Clone, Default)]
pub struct StoredPostViews {
    /// The keys there are.
    pub keys: Vec<StoredKey>,
    /// The summary.
    pub summary: Stored<PostSummary>,
}

/// The views as they are stored.
#[async_trait]
pub trait AuditViews: Send + Sync {
    /// Whose are the next keys, some `count` of them; and where to go on, zero at the end. Goes over everything, bit by bit; what is there all the time is found.
    async fn owners(&self, cursor: u64, count: usize) -> Result<(Vec<Owner>, u64), ViewError>;
    /// Readers among the next keys whose view is being rebuilt since longer than it may be; and where to go on.
    async fn abandoned(&self, cursor: u64, count: usize, now: Timestamp) -> Result<(Vec<UserId>, u64), ViewError>;
    /// What there is of a user.
    async fn of_user(&self, user: UserId) -> Result<StoredUser, ViewError>;
    /// What there is of a post.
    async fn of_post(&self, post: PostId) -> Result<StoredPostViews, ViewError>;
    /// The head of a platform.
    async fn of_platform(&self, platform: Platform) -> Result<StoredView<PlatformHead>, ViewError>;
    /// What a user has read on a platform.
    async fn of_notice_reads(&self, user: UserId, platform: Platform) -> Result<StoredView<StoredSlots>, ViewError>;
    /// The title of a notice in a revision.
    async fn of_title(&self, notice: NoticeId, revision: u64) -> Result<StoredView<StoredTitle>, ViewError>;
    /// Whether a key is there.
    async fn exists(&self, key: &str) -> Result<bool, ViewError>;
    /// Throws views away: they are made again when they are needed.
    async fn forget(&self, view: &View) -> Result<(), ViewError>;
}

/// Takes numbers for whoever watches.
pub trait Metrics: Send + Sync {
    /// Counts of a run of a job, of one kind of difference or of all.
    fn count(&self, at: Timestamp, job: &str, kind: Option<&str>, counts: &[(&'static str, u64)]);
}
