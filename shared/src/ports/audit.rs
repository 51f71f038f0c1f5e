//! What reconcile needs to see of both sides, in the types of [`crate::domain::diff`], and to mend.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;

use super::{FactsError, ViewError};
use crate::domain::{
    AuthorHead, Counters, Edge, NoticeId, Platform, PlatformHead, PostId, PostSummary, ReactionState, Relation, SeqSet, Slot,
    Timestamp, UserId,
    diff::{
        FactDifference, Stored, View,
        facts::{ReactionShard, StoredPost, StoredRecord},
        notices::{StoredNotice, StoredSlots, StoredTitle},
        reader::StoredReader,
        views::{StoredKey, StoredList},
    },
};

/// A part of a table, and where the next one begins; `None` at the end.
#[derive(Debug, Clone)]
pub struct Part<T, C> {
    /// What is in it.
    pub items: Vec<T>,
    /// Where to go on.
    pub next: Option<C>,
}

/// The facts as they are stored, and their repair.
#[async_trait]
pub trait AuditFacts: Send + Sync {
    /// Followers that one shard of an author lists; `None` when there are more than `most`.
    async fn listed_followers(&self, author: UserId, shard: u16, most: usize) -> Result<Option<Vec<Relation>>, FactsError>;
    /// Since when these authors list the user; those that do not are left out.
    async fn listed_by(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Timestamp>, FactsError>;
    /// Reactions of the users of one shard to an author; `None` when there are more than `most` items.
    async fn reactions_in(&self, author: UserId, shard: u16, most: usize) -> Result<Option<ReactionShard>, FactsError>;
    /// These posts; unknown ones left out.
    async fn stored_posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, StoredPost>, FactsError>;
    /// An author's newest posts, tombstones included, at most `limit`.
    async fn newest_posts(&self, author: UserId, limit: usize) -> Result<Vec<StoredPost>, FactsError>;
    /// Of which of these posts there are bodies.
    async fn bodies(&self, posts: &[PostId]) -> Result<HashSet<PostId>, FactsError>;
    /// A part of all edges by follower, tombstones included: users one after the other.
    async fn some_edges(&self, after: Option<(UserId, UserId)>, limit: usize)
    -> Result<Part<Edge, (UserId, UserId)>, FactsError>;
    /// The keys of a part of all idempotency records.
    async fn some_records(&self, after: Option<String>, limit: usize) -> Result<Part<String, String>, FactsError>;
    /// One idempotency record.
    async fn record(&self, key: &str) -> Result<Option<StoredRecord>, FactsError>;
    /// The notices of a platform, expired ones too.
    async fn stored_notices(&self, platform: Platform) -> Result<Vec<StoredNotice>, FactsError>;
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
