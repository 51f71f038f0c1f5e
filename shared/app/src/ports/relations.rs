//! Port of the views of relations.

use async_trait::async_trait;
use tidemark_domain::{Counters, Edge, Relation, Timestamp, UserId};

use crate::error::StoreError;

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
    /// The entries that the cached list has, newest first.
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
    /// a change. The result depends only on the edges, so any number of these updates may run, in any order.
    async fn apply(&self, edges: &[Edge]) -> Result<(), StoreError>;
    /// Returns the cached counters. If they are missing or damaged, takes the lease for storing them. They may be as
    /// old as the result of [`Self::slice`].
    async fn counters(&self, caller: UserId, user: UserId, token: u64) -> Result<Option<Counters>, StoreError>;
    /// Stores counters, if the caller still has the lease.
    async fn store_counters(&self, user: UserId, counters: Counters, token: u64) -> Result<(), StoreError>;
    /// Removes counters and their lease, and notes that `changed_by` made a change.
    async fn forget_counters(&self, user: UserId, changed_by: Option<UserId>) -> Result<(), StoreError>;
}
