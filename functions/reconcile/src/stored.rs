//! What reconcile needs to see of both sides, in the types of [`crate::diff`], and to mend.

use std::collections::HashMap;
use tidemark_app::ports::StoreError;

use serde::{Deserialize, Serialize};

use crate::diff::{
    DamagedItem, Stored,
    facts::StoredCount,
    reader::StoredReader,
    views::{StoredKey, StoredList},
};
use tidemark_domain::{AuthorHead, Counters, PostId, PostSummary, ReactionState, UserId};

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
    /// [`StoreError::DamagedItem`]: some of it cannot be read.
    pub fn whole(self) -> Result<T, StoreError> {
        match self.damaged.into_iter().next() {
            None => Ok(self.found),
            Some((_, DamagedItem { table, key })) => {
                Err(StoreError::DamagedItem { table, key, detail: "it cannot be read".to_owned() })
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
