//! The types in which reconcile loads both sides for [`crate::diff`].

use std::collections::HashMap;
use tidemark_app::ports::{CardVersion, CountsVersion, StoreError};

use serde::{Deserialize, Serialize};

use crate::diff::{
    DamagedItem, Stored,
    facts::StoredCount,
    reader::StoredReader,
    views::{StoredKey, StoredList},
};
use tidemark_domain::{AuthorHead, Counters, PostId, PostSummary, PostText, ReactionState, UserId};

/// Items that can be read, and items that cannot. `K` is the subject of a damaged item.
#[derive(Debug, Clone, Default)]
pub struct Decoded<T, K = ()> {
    pub found: T,
    pub damaged: Vec<(K, DamagedItem)>,
}

impl<T, K> Decoded<T, K> {
    /// Returns all items, or [`StoreError::DamagedItem`] if one cannot be read. It is for comparisons that need every
    /// item.
    pub fn whole(self) -> Result<T, StoreError> {
        match self.damaged.into_iter().next() {
            None => Ok(self.found),
            Some((_, DamagedItem { table, key })) => {
                Err(StoreError::DamagedItem { table, key, detail: "it cannot be read".to_owned() })
            }
        }
    }
}

/// A part of a table or index.
#[derive(Debug, Clone)]
pub struct Part<T, C> {
    pub items: Vec<T>,
    pub damaged: Vec<DamagedItem>,
    /// The place where the next part begins; `None` at the end.
    pub next: Option<C>,
}

/// Counts of edges with their change numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredCounts {
    pub followings: StoredCount,
    /// The stored counts of followers, by shard.
    pub followers: [StoredCount; 16],
}

/// The two lists of unfinished fan-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// Fan-outs that reconcile resumes by itself.
    Open,
    /// Fan-outs that only an operator resumes.
    GivenUp,
}

/// A position among the unfinished fan-outs of one shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnfinishedAt {
    /// The post's sort key in the index.
    pub time: String,
    pub post: PostId,
}

/// All that Redis has of one user. A view of a wrong type counts as absent.
#[derive(Debug, Clone, Default)]
pub struct StoredUser {
    /// The keys that exist.
    pub keys: Vec<StoredKey>,
    pub reader: StoredReader,
    pub following: Stored<StoredList>,
    pub fans: Stored<StoredList>,
    pub counters: Stored<Counters>,
    pub reactions: Stored<HashMap<UserId, ReactionState>>,
    pub head: Stored<AuthorHead>,
    pub card: Stored<CardVersion>,
}

/// A view of notices.
#[derive(Debug, Clone)]
pub struct StoredView<T> {
    /// The keys that exist.
    pub keys: Vec<StoredKey>,
    /// Absent if it has a wrong type.
    pub record: Stored<T>,
}

/// All that Redis has of one post.
#[derive(Debug, Clone, Default)]
pub struct StoredPostViews {
    /// The keys that exist.
    pub keys: Vec<StoredKey>,
    pub summary: Stored<PostSummary>,
    /// The text and its revision.
    pub text: Stored<(u32, PostText)>,
    pub counts: Stored<CountsVersion>,
}
