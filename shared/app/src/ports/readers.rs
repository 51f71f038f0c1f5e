//! Port of the views of readers.

use std::collections::HashMap;

use async_trait::async_trait;
use tidemark_domain::{
    AuthorState, Edge, FeedKey, HalfLife, Modes, Rank, RankedPlace, ReadState, ReaderState, Score, SeqSet, Timestamp, UserId,
};

use super::live::Notified;
use crate::error::StoreError;

/// The result of [`ReaderViews::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The caller owns the rebuild.
    Begun,
    /// Another process owns a rebuild, and its deadline has not passed.
    Building,
    /// A view exists, so there is nothing to rebuild.
    Ready,
}

/// The result of [`ReaderViews::open_gate`] for one author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
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
    /// Entries with their scores, the highest score first.
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
    /// Readers among them who have a ranked feed. [`ReaderViews::rank`] puts the post there.
    pub ranked: Vec<UserId>,
    /// Readers among them to whose live connections the caller must send a task: the views rely on it.
    pub notified: Notified,
}

/// The result of [`ReaderViews::retract`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retracted {
    /// The number of users who have a view.
    pub reached: u64,
    /// Readers among them who follow the author and are watched.
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
    /// Starts a rebuild. With `anew` it starts even if a view exists, or another process rebuilds it.
    async fn begin(&self, user: UserId, token: u64, now: Timestamp, anew: bool) -> Result<Begun, StoreError>;
    /// Opens the gate for these edges. Returns one result for each edge, in order; `None` if there is no view.
    async fn open_gate(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Gate>>, StoreError>;
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
    /// Extends the lifetimes of a view after a read, and of the ranked feed if that was read. Removes the oldest
    /// entries beyond the cap, and old tombstones.
    async fn touch(&self, user: UserId, now: Timestamp, ranked: bool) -> Result<(), StoreError>;
    /// Adds a post to the views of these users, with its author's modes after it, except to ranked feeds. A view that
    /// cannot be decoded is deleted. The next read rebuilds it.
    async fn deliver(&self, users: &[UserId], post: FeedKey, modes: Modes, announce: bool) -> Result<Delivered, StoreError>;
    /// Removes a deleted post from the views of these users. A view that cannot be decoded is deleted. `deletions` is
    /// the author's number of deletions.
    async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32, modes: Modes) -> Result<Retracted, StoreError>;
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
