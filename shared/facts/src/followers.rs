//! An author's followers, and requests to follow, by time, merged from the partitions that have them.

use std::collections::VecDeque;

use futures::{FutureExt, future::try_join_all};
use tidemark_domain::{Relation, RequestSide, UserId, ids::SHARDS};

use super::{
    Facts, Result,
    item::{Item, string},
    schema::{self, FollowerItem},
    unavailable,
    write::{below, is},
};

/// The maximum number of entries in one load of one partition.
const LOAD: usize = 1_000;

/// The state of one partition in the merge.
struct Lane {
    partition: String,
    before: Option<Relation>,
    loaded: VecDeque<Relation>,
    exhausted: bool,
}

impl Facts {
    /// Followers below `before`, newest first. The reads are consistent, because `by-time` is a local index.
    pub(crate) async fn by_time(&self, author: UserId, before: Option<Relation>, limit: usize) -> Result<Vec<Relation>> {
        let shards = (0..SHARDS).map(|shard| schema::follower_shard(author, shard)).collect();
        self.merged("followers_by_time", shards, before, limit).await
    }

    /// Returns at most `limit` requests of one side of `user` below `before`, newest first: each with the other user.
    pub async fn requests(
        &self,
        user: UserId,
        side: RequestSide,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>> {
        let partitions = match side {
            RequestSide::Received => (0..SHARDS).map(|shard| schema::request_shard(user, shard)).collect(),
            RequestSide::Sent => vec![schema::sent_requests(user)],
        };
        self.merged("requests", partitions, before, limit).await
    }

    async fn merged(
        &self,
        operation: &'static str,
        partitions: Vec<String>,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>> {
        // Users spread evenly over the shards: a sixteenth of the page and some more is usually enough from each.
        let load = (limit / partitions.len() * 3 / 2 + 8).min(limit).min(LOAD);
        let lane = |partition| Lane { partition, before, loaded: VecDeque::new(), exhausted: false };
        let mut lanes: Vec<Lane> = partitions.into_iter().map(lane).collect();
        let mut relations = Vec::new();
        while relations.len() < limit {
            let empty = lanes.iter_mut().filter(|lane| lane.loaded.is_empty() && !lane.exhausted);
            try_join_all(empty.map(|lane| lane.load(self, operation, load))).await?;
            let newest = lanes.iter_mut().max_by_key(|lane| lane.loaded.front().copied());
            let Some(newest) = newest.and_then(|lane| lane.loaded.pop_front()) else { break };
            relations.push(newest);
        }
        Ok(relations)
    }
}

impl Lane {
    async fn load(&mut self, facts: &Facts, operation: &'static str, limit: usize) -> Result<()> {
        let end = self.before.map_or("~".to_owned(), |before| schema::follower_since(before.user, before.since));
        let partition = is(FollowerItem::shard, string(&self.partition));
        let query = facts
            .query(&facts.tables.followers, [partition, below(FollowerItem::since, string(end))])
            .index_name(schema::BY_TIME)
            .consistent_read(true)
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let response = query.send().boxed().await.map_err(|error| unavailable(operation, error))?;
        for item in response.items() {
            self.loaded.push_back(read_follower(item)?);
        }
        self.exhausted = response.last_evaluated_key().is_none();
        self.before = self.loaded.back().copied().or(self.before);
        Ok(())
    }
}

/// An entry of a list of followers or of requests.
pub fn read_follower(item: &Item) -> Result<Relation> {
    FollowerItem::since.parsed(item, schema::relation_of)
}
