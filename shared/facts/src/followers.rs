//! An author's followers by time, merged from 16 shards.

use futures::FutureExt;
use tidemark_domain::{Relation, UserId};

use super::{
    Facts, Result,
    item::{Item, string},
    merge::{Part, merged},
    schema::{self, FollowerItem},
    unavailable,
    write::{below, is},
};

impl Facts {
    /// Followers below `before`, newest first. The reads are consistent, because `by-time` is a local index.
    pub(crate) async fn by_time(&self, author: UserId, before: Option<Relation>, limit: usize) -> Result<Vec<Relation>> {
        let load = |shard, before: Option<Relation>, limit| {
            let end = before.map_or("~".to_owned(), |before| schema::follower_since(before.user, before.since));
            let partition = is(FollowerItem::shard, string(schema::follower_shard(author, shard)));
            let query = self
                .query(&self.tables.followers, [partition, below(FollowerItem::since, string(end))])
                .index_name(schema::BY_TIME)
                .consistent_read(true)
                .scan_index_forward(false)
                .limit(limit);
            async {
                let response = query.send().await.map_err(|error| unavailable("followers_by_time", error))?;
                let entries = response.items().iter().map(read_follower).collect::<Result<_>>()?;
                Ok(Part { entries, is_last: response.last_evaluated_key().is_none() })
            }
            .boxed()
        };
        merged(before, limit, load).await
    }
}

/// An entry of a followee's list.
pub fn read_follower(item: &Item) -> Result<Relation> {
    FollowerItem::since.parsed(item, schema::relation_of)
}
