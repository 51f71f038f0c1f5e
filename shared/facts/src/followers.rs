//! An author's followers, and requests to follow, by time, merged from the partitions that have them.

use futures::FutureExt;
use tidemark_domain::{Relation, RequestSide, UserId, ids::SHARDS};

use super::{
    Facts, Result,
    item::{Item, string},
    merge::{Part, merged},
    schema::{self, FollowerItem},
    unavailable,
    write::{below, is},
};

impl Facts {
    /// Returns at most `limit` followers below `before`, newest first. The reads are consistent, because `by-time` is a
    /// local index.
    pub async fn followers_by_time(&self, author: UserId, before: Option<Relation>, limit: usize) -> Result<Vec<Relation>> {
        let shards = (0..SHARDS).map(|shard| schema::follower_shard(author, shard)).collect();
        self.entries_by_time("followers_by_time", shards, before, limit).await
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
        self.entries_by_time("requests", partitions, before, limit).await
    }

    async fn entries_by_time(
        &self,
        operation: &'static str,
        partitions: Vec<String>,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>> {
        let load = |partition: &str, before: Option<Relation>, limit| {
            let end = before.map_or("~".to_owned(), |before| schema::follower_since(before.user, before.since));
            let query = self
                .query(
                    &self.tables.followers,
                    [is(FollowerItem::shard, string(partition)), below(FollowerItem::since, string(end))],
                )
                .index_name(schema::BY_TIME)
                .consistent_read(true)
                .scan_index_forward(false)
                .limit(limit);
            async move {
                let response = query.send().await.map_err(|error| unavailable(operation, error))?;
                let entries = response.items().iter().map(|item| read_follower(item).map(|entry| (entry, entry)));
                Ok(Part { entries: entries.collect::<Result<_>>()?, is_last: response.last_evaluated_key().is_none() })
            }
            .boxed()
        };
        merged(partitions, before, limit, load).await
    }
}

/// An entry of a list of followers or of requests.
pub fn read_follower(item: &Item) -> Result<Relation> {
    FollowerItem::since.parsed(item, schema::relation_of)
}
