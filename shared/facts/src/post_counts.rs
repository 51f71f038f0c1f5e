//! Counts of a post's likes, favorites and reposts: one item, or 4 or 16 parts if many users react at once. The first
//! part stores how many ([`super::counters`]).
//!
//! The entries of likers and reposters lie in sixteen partitions, by their users. Each change of a count adds or
//! removes an entry in the same transaction. While there is one part, it has the shards that ever got an entry, and a
//! list reads only these. The post of few users costs few reads ([decision
//! 53](../../../docs/adr/0053-the-counts-of-a-post-begin-as-one-item.md)).

use std::collections::HashMap;

use tidemark_domain::{PostId, ReactionCounts, UserId, ids::SHARDS};
use tracing::warn;

use super::{
    Facts, Result,
    counters::{First, PartedCounter, StoredParts, number_of_parts, sum_of_parts},
    distinct,
    item::{Attribute, Count, Item, numbers},
    read,
    schema::{self, ReactionCountsItem},
    write::{Write, present},
};

/// The counts of a post, as they were read before a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PostCounts {
    post: PostId,
    parts: u16,
}

impl PostCounts {
    /// Counts that were not read. A change adds to their first part.
    pub(crate) fn new(post: PostId) -> Self {
        Self { post, parts: 1 }
    }

    /// Takes the first part of a post's counts out of what was read with its key.
    pub(crate) fn take(post: PostId, items: &mut Vec<Item>) -> Result<Self> {
        let key = schema::post_reactions(post, 0);
        let at = items.iter().position(|item| key.iter().all(|(name, value)| item.get(name) == Some(value)));
        let first = at.map(|at| items.swap_remove(at)).map(|item| read(item, Ok::<ReactionCountsItem, _>)).transpose()?;
        Ok(Self { post, parts: first.map_or(1, |first| first.number_of_parts()) })
    }

    pub(crate) fn first<'a>(&self, facts: &'a Facts) -> First<'a> {
        First {
            table: &facts.tables.reactions,
            key: schema::post_reactions(self.post, 0),
            attribute: ReactionCountsItem::parts,
            parts: self.parts,
        }
    }

    pub(crate) fn post(self) -> PostId {
        self.post
    }

    /// Adds to any part, for the entry of a user that is added or removed in the same transaction.
    pub(crate) fn add(&self, facts: &Facts, user: UserId, of: Attribute, change: i64) -> Write {
        let part = rand::random::<u16>() % self.parts;
        let add = Write::update(&facts.tables.reactions, schema::post_reactions(self.post, part));
        let add = add.add(of, change).add(ReactionCountsItem::changes, 1);
        if part == 0 && change > 0 { add.insert(ReactionCountsItem::listed, numbers(&[user.shard().into()])) } else { add }
    }

    /// Takes a repost from the first part; `None` if there is nothing to take it from, because the counts were removed
    /// with the author, or cannot be read.
    pub(crate) fn take_repost(facts: &Facts, post: PostId, first: Option<&Item>) -> Result<Option<Write>> {
        let Some(first) = first.map(|item| read(item.clone(), Ok::<ReactionCountsItem, _>)).transpose()? else { return Ok(None) };
        let is_counted = match first.reposts {
            Some(Count(count)) => count.is_some_and(|count| count > 0 || first.number_of_parts() > 1),
            None => first.number_of_parts() > 1,
        };
        let take = Write::update(&facts.tables.reactions, schema::post_reactions(post, 0));
        let take = take.add(ReactionCountsItem::reposts, -1).add(ReactionCountsItem::changes, 1);
        Ok(is_counted.then(|| take.when(present(ReactionCountsItem::item))))
    }
}

impl ReactionCountsItem {
    /// The number of parts, if this is the first.
    pub fn number_of_parts(&self) -> u16 {
        number_of_parts(self.parts)
    }

    /// The shards whose users the lists may have, by the first part.
    pub fn listed_shards(&self) -> Vec<u16> {
        match &self.listed {
            Some(Count(Some(listed))) if self.number_of_parts() == 1 => listed.clone(),
            _ => (0..SHARDS).collect(),
        }
    }
}

impl Facts {
    /// The stored parts of the counts of these posts, the first part of each first. Counts that are split take a second
    /// trip. Posts without counts are left out.
    pub(crate) async fn post_parts(
        &self,
        operation: &'static str,
        posts: &[PostId],
    ) -> Result<HashMap<PostId, Vec<ReactionCountsItem>>> {
        let mut found: HashMap<PostId, Vec<ReactionCountsItem>> = HashMap::new();
        let mut keys: Vec<Item> = distinct(posts).into_iter().map(|post| schema::post_reactions(post, 0)).collect();
        for _trip in 0..2 {
            for item in self.get(operation, &self.tables.reactions, keys).await? {
                let item: ReactionCountsItem = read(item, Ok)?;
                let post = schema::counted_post(&item.shard, &item.item);
                let post = post.ok_or_else(|| ReactionCountsItem::item.damaged_at(item.item.clone()))?;
                found.entry(post).or_default().push(item);
            }
            let further = |(post, items): (&PostId, &Vec<ReactionCountsItem>)| {
                let (post, parts) = (*post, items.first().map_or(1, ReactionCountsItem::number_of_parts));
                (1..parts).map(move |part| schema::post_reactions(post, part))
            };
            keys = found.iter().flat_map(further).collect();
        }
        Ok(found)
    }

    /// The partitions that may have entries of the users who have reacted to a post, or repost it.
    pub(crate) async fn listed_partitions(&self, operation: &'static str, post: PostId) -> Result<Vec<String>> {
        let first = self.get_one(operation, &self.tables.reactions, schema::post_reactions(post, 0)).await?;
        let first = first.map(|item| read(item, Ok::<ReactionCountsItem, _>)).transpose()?;
        // Counts that are lost hide no entry.
        let shards = first.map_or_else(|| (0..SHARDS).collect(), |first| first.listed_shards());
        Ok(shards.into_iter().map(|shard| schema::follower_shard(post.author, shard)).collect())
    }

    /// Notes the shard of a user whose entry a repair adds without a count.
    pub fn note_listed(&self, post: PostId, user: UserId) -> Write {
        let first = Write::update(&self.tables.reactions, schema::post_reactions(post, 0));
        first.insert(ReactionCountsItem::listed, numbers(&[user.shard().into()]))
    }

    /// Makes a count of a post right if none of its parts has changed since `changes` was their sum. Returns whether it
    /// did. Lists read all shards from then on.
    pub async fn recount_post(
        &self,
        operation: &'static str,
        post: PostId,
        count: Attribute,
        (changes, right): (Option<u64>, u64),
    ) -> Result<bool> {
        let key = |part| schema::post_reactions(post, part);
        let of = post_counter(self, count, &key);
        let stored = self.stored_parts(operation, &of).await?;
        let [_, now] = stored.sums(&of)?;
        if now != changes {
            return Ok(false);
        }
        let is_counted = now.is_some() || stored.is_single();
        self.set_post_count(operation, &of, &stored, is_counted.then_some(right)).await
    }

    pub(crate) async fn set_post_count(
        &self,
        operation: &'static str,
        of: &PartedCounter<'_>,
        stored: &StoredParts,
        right: Option<u64>,
    ) -> Result<bool> {
        let all: Vec<u64> = (0..SHARDS).map(u64::from).collect();
        self.set_count_of_parts(operation, of, stored, right, Some((ReactionCountsItem::listed, numbers(&all)))).await
    }
}

pub(crate) fn post_counter<'a>(facts: &'a Facts, count: Attribute, key: &'a (dyn Fn(u16) -> Item + Sync)) -> PartedCounter<'a> {
    let (changes, parts) = (ReactionCountsItem::changes, ReactionCountsItem::parts);
    PartedCounter { table: &facts.tables.reactions, key, count, changes, parts }
}

/// The sum of all parts, with the sum of their change numbers. A count that is negative or cannot be read is zero, so
/// that no response fails until reconcile repairs it.
pub(crate) fn summed(parts: &[ReactionCountsItem]) -> (ReactionCounts, u64) {
    let sum = |of: fn(&ReactionCountsItem) -> Option<Count<i64>>| {
        sum_of_parts(parts.iter().map(of)).unwrap_or_else(|| {
            let key = parts.first().map(|part| format!("{} {}", part.shard, part.item));
            warn!(table = "reactions", key, "a count is negative or cannot be read");
            0
        })
    };
    let counts = ReactionCounts {
        likes: sum(|part| part.likes),
        favorites: sum(|part| part.favorites),
        reposts: sum(|part| part.reposts),
        comments: 0,
    };
    let changes = parts.iter().map(|part| part.changes.and_then(|Count(changes)| changes).unwrap_or(0));
    (counts, changes.sum())
}
