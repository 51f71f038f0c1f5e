//! Writes follow edges in bulk, without the API.

use std::collections::HashMap;

use anyhow::{Context, bail};
use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    types::{AttributeValue, PutRequest, WriteRequest},
};
use futures::{StreamExt, TryStreamExt, stream};
use tidemark::{
    domain::{Edge, UserId, ids::SHARDS},
    facts::{Tables, schema},
};

/// The largest number of items of a BatchWriteItem.
const BATCH: usize = 25;
const BATCHES_SIDE_BY_SIDE: usize = 16;
const ATTEMPTS: u32 = 20;

type Item = HashMap<String, AttributeValue>;
type Request = HashMap<String, Vec<WriteRequest>>;

/// Writes edges in the form that a follow leaves: both directions, and the counts on both sides.
///
/// Facts are written without their transaction, and counts are replaced: only for measurements. Followers and authors
/// must not have other edges, and all edges of one author or follower must be written in one call.
#[derive(Debug, Clone)]
pub(crate) struct EdgeWriter {
    client: Client,
    tables: Tables,
}

impl EdgeWriter {
    /// A writer to the local DynamoDB at `endpoint`.
    pub(crate) fn new(endpoint: &str, tables: Tables) -> Self {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .endpoint_url(endpoint)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "local"))
            .build();
        Self { client: Client::from_conf(config), tables }
    }

    /// Writes live edges and their counts. Calls `written` with the number of written items and of all items. Returns
    /// the number of items. After a failure, some of the items may have been written.
    pub(crate) async fn write(&self, edges: &[Edge], mut written: impl FnMut(u64, u64)) -> anyhow::Result<u64> {
        let counts = counts(edges);
        let both = edges.iter().flat_map(|edge| {
            let follower = (self.tables.followers.as_str(), schema::follower_item(edge.user, edge.author, edge.since));
            [(self.tables.following.as_str(), schema::edge_item(edge)), follower]
        });
        let counters = self.tables.counters.as_str();
        let total = (edges.len() * 2 + counts.len()) as u64;
        let items = both.chain(counts.into_iter().map(|(counter, count)| (counters, counter.item(count))));
        self.put(items, |done| written(done, total)).await?;
        Ok(total)
    }

    /// Writes an author's follower counts, shard by shard, without edges.
    pub(crate) async fn write_follower_counts(&self, author: UserId, counts: &[u64; 16]) -> anyhow::Result<()> {
        let counters = self.tables.counters.as_str();
        let items = (0..SHARDS).zip(counts).map(|(shard, &count)| (counters, Counter::Followers(author, shard).item(count)));
        self.put(items, |_| ()).await
    }

    async fn put(&self, items: impl Iterator<Item = (&str, Item)>, mut done: impl FnMut(u64)) -> anyhow::Result<()> {
        let mut batches = stream::iter(items).chunks(BATCH).map(|batch| self.send(batch)).buffer_unordered(BATCHES_SIDE_BY_SIDE);
        let mut written = 0;
        while let Some(items) = batches.try_next().await? {
            written += items;
            done(written);
        }
        Ok(())
    }

    async fn send(&self, batch: Vec<(&str, Item)>) -> anyhow::Result<u64> {
        let items = batch.len() as u64;
        let mut request = Request::new();
        for (table, item) in batch {
            let put = PutRequest::builder().set_item(Some(item)).build().context("an item to put")?;
            request.entry(table.to_owned()).or_default().push(WriteRequest::builder().put_request(put).build());
        }
        for _ in 0..ATTEMPTS {
            let response = self.client.batch_write_item().set_request_items(Some(request)).send().await;
            request = response.context("cannot write the edges")?.unprocessed_items.unwrap_or_default();
            if request.is_empty() {
                return Ok(items);
            }
        }
        bail!("DynamoDB leaves items unprocessed in every attempt")
    }
}

/// The owner and kind of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Counter {
    Followings(UserId),
    Followers(UserId, u16),
}

impl Counter {
    fn item(self, count: u64) -> Item {
        let key = match self {
            Self::Followings(user) => schema::followings_counter(user),
            Self::Followers(author, shard) => schema::followers_counter(author, shard),
        };
        schema::counter_item(key, count)
    }
}

/// The counts of these edges.
fn counts(edges: &[Edge]) -> HashMap<Counter, u64> {
    let mut counts = HashMap::with_capacity(edges.len());
    for edge in edges {
        *counts.entry(Counter::Followings(edge.user)).or_default() += 1;
        *counts.entry(Counter::Followers(edge.author, edge.user.shard())).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use tidemark::domain::Timestamp;

    use super::*;

    fn edge(user: u64, author: u64) -> Edge {
        let [user, author] = [user, author].map(|id| UserId::new(id).unwrap());
        Edge { following: true, since: Timestamp::from_ms(1), rev: 1, ..Edge::never(user, author) }
    }

    #[test]
    fn counts_are_by_follower_and_by_shard_of_the_author() {
        let edges: Vec<Edge> = (10..1_010).map(|user| edge(user, 1)).chain([edge(10, 2)]).collect();
        let counts = counts(&edges);
        let [one, two, ten] = [1, 2, 10].map(|id| UserId::new(id).unwrap());
        assert_eq!((0..SHARDS).filter_map(|shard| counts.get(&Counter::Followers(one, shard))).sum::<u64>(), 1_000);
        assert_eq!(counts[&Counter::Followers(two, ten.shard())], 1);
        assert_eq!(counts[&Counter::Followings(ten)], 2);
        assert_eq!(counts.len(), 1_000 + 16 + 1);
    }
}
