//! An author's followers by time, merged from 16 shards.

use std::collections::VecDeque;

use futures::{FutureExt, future::try_join_all};
use tidemark_domain::{Relation, UserId, ids::SHARDS};

use super::{
    Facts, Result,
    item::{Item, string},
    schema::{self, FollowerItem},
    unavailable,
    write::{below, is},
};

/// The maximum number of entries in one load of one shard.
const LOAD: usize = 1_000;

/// The state of one shard in the merge.
struct Lane {
    shard: u16,
    before: Option<Relation>,
    loaded: VecDeque<Relation>,
    exhausted: bool,
}

impl Facts {
    /// Followers below `before`, newest first. The reads are consistent, because `by-time` is a local index.
    pub(crate) async fn by_time(&self, author: UserId, before: Option<Relation>, limit: usize) -> Result<Vec<Relation>> {
        let mut lanes: Vec<Lane> =
            (0..SHARDS).map(|shard| Lane { shard, before, loaded: VecDeque::new(), exhausted: false }).collect();
        // Followers spread evenly over the shards: a sixteenth of the page and some more is usually enough from each.
        let load = (limit / usize::from(SHARDS) * 3 / 2 + 8).min(limit).min(LOAD);
        let mut relations = Vec::new();
        while relations.len() < limit {
            let empty = lanes.iter_mut().filter(|lane| lane.loaded.is_empty() && !lane.exhausted);
            try_join_all(empty.map(|lane| lane.load(self, author, load))).await?;
            let newest = lanes.iter_mut().max_by_key(|lane| lane.loaded.front().copied());
            let Some(newest) = newest.and_then(|lane| lane.loaded.pop_front()) else { break };
            relations.push(newest);
        }
        Ok(relations)
    }
}

impl Lane {
    async fn load(&mut self, facts: &Facts, author: UserId, limit: usize) -> Result<()> {
        let end = self.before.map_or("~".to_owned(), |before| schema::follower_since(before.user, before.since));
        let partition = is(FollowerItem::shard, string(schema::follower_shard(author, self.shard)));
        let query = facts
            .query(&facts.tables.followers, [partition, below(FollowerItem::since, string(end))])
            .index_name(schema::BY_TIME)
            .consistent_read(true)
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let response = query.send().boxed().await.map_err(|error| unavailable("followers_by_time", error))?;
        for item in response.items() {
            self.loaded.push_back(read_follower(item)?);
        }
        self.exhausted = response.last_evaluated_key().is_none();
        self.before = self.loaded.back().copied().or(self.before);
        Ok(())
    }
}

/// An entry of a followee's list.
pub fn read_follower(item: &Item) -> Result<Relation> {
    FollowerItem::since.parsed(item, schema::relation_of)
}
