//! The facts as they are stored, damaged ones included, and their repairs.

mod audit;
mod comments;
mod repairs;

use std::{collections::HashMap, ops::Deref};

use serde::{Deserialize, Serialize};
use tidemark_domain::{PostId, StoreError};
use tidemark_facts::Facts;

pub(crate) use audit::listed_quote;

use crate::diff::DamagedItem;

#[derive(Debug, Clone)]
pub struct StoredFacts(pub Facts);

impl Deref for StoredFacts {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

/// Items that can be read, and items that cannot. `K` is the subject of a damaged item.
#[derive(Debug, Clone, Default)]
pub struct Decoded<T, K = ()> {
    pub found: T,
    pub damaged: Vec<(K, DamagedItem)>,
}

impl<T, K> Decoded<T, K> {
    /// Returns all items, or [`StoreError::DamagedItem`] if one cannot be read.
    pub fn whole(self) -> Result<T, StoreError> {
        let Some((_, DamagedItem { table, key })) = self.damaged.into_iter().next() else { return Ok(self.found) };
        Err(StoreError::DamagedItem { table, key, detail: "it cannot be read".to_owned() })
    }
}

/// Items by their keys. The key of a damaged item is known too.
pub(crate) type ByKey<K, T> = Decoded<HashMap<K, T>, K>;

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
