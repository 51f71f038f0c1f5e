//! [`Edges`] on DynamoDB.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update};
use futures::future::try_join_all;
use tidemark_app::ports::{Edges, Followed, Posts, StoreError};
use tidemark_domain::{AuthorHead, Edge, NewFollow, Relation, Timestamp, UserId, ids::SHARDS};
use tracing::debug;

use super::{
    ATTEMPTS, Cancelled, DynamoFacts, back_off, build, distinct,
    item::{Item, Reader},
    number, schema, unavailable,
};

/// The origin of a follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The follower makes it now. It is later than any earlier state of the pair.
    Made,
    /// The follow began elsewhere and earlier.
    Imported,
}

impl Kind {
    /// Whether the tombstone prevails over the follow.
    fn yields_to(self, tombstone: &Edge, follow: &NewFollow) -> bool {
        self == Self::Imported && tombstone.since >= follow.since
    }
}

/// Edges in one transaction of at most 100 items. Each edge takes three items and perhaps a check of the author's head.
/// The follower's counter takes one more.
const EDGES_PER_TRANSACTION: usize = 24;

#[async_trait]
impl Edges for DynamoFacts {
    async fn edges(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Edge>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::edge(user, author)).collect();
        let found = self.batch_get("edges", vec![(self.tables.following.clone(), keys)]).await?;
        found.iter().flatten().map(|item| read_edge(item).map(|edge| (edge.author, edge))).collect()
    }

    async fn following(&self, user: UserId) -> Result<Vec<Edge>, StoreError> {
        let items = self.of_user("following", &self.tables.following, user).await?;
        let edges: Vec<Edge> = items.iter().map(read_edge).collect::<Result<_, _>>()?;
        Ok(edges.into_iter().filter(|edge| edge.following).collect())
    }

    async fn follow(
        &self,
        user: UserId,
        authors: &[UserId],
        heads: &HashMap<UserId, AuthorHead>,
        now: Timestamp,
    ) -> Result<Vec<Followed>, StoreError> {
        self.make_follows(user, follows_from_now(authors, heads, now), now, Kind::Made).await
    }

    async fn unfollow(&self, user: UserId, author: UserId, now: Timestamp) -> Result<Option<Edge>, StoreError> {
        let mut tried: Option<Edge> = None;
        let mut failed = None;
        for attempt in 0..ATTEMPTS {
            let known = self.edges(user, &[author]).await?.remove(&author);
            if tried.is_some() && known == tried {
                return Ok(tried);
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
            let Some(known) = known.filter(|edge| edge.following) else { return Ok(None) };
            let tombstone = known.ended(now);
            match self.write_unfollow(&tombstone, known.rev).await {
                Ok(Ok(())) => return Ok(Some(tombstone)),
                Ok(Err(_)) => back_off(attempt).await,
                // The write may have been done.
                Err(error) => failed = Some(error),
            }
            tried = Some(tombstone);
        }
        Err(StoreError::Contention { operation: "unfollow" })
    }

    async fn follower_counts(&self, author: UserId) -> Result<[u64; 16], StoreError> {
        let keys = (0..SHARDS).map(|shard| schema::followers_counter(author, shard)).collect();
        let found = self.batch_get("follower_counts", vec![(self.tables.counters.clone(), keys)]).await?;
        let mut counts = [0; 16];
        for item in found.iter().flatten() {
            let reader = Reader { table: "counters", item };
            let shard = schema::counter_shard(reader.text("counter")?).ok_or_else(|| reader.damaged("counter"))?;
            counts[shard] = reader.count("count");
        }
        Ok(counts)
    }

    async fn live(&self, pairs: &[(UserId, UserId)]) -> Result<HashSet<(UserId, UserId)>, StoreError> {
        let keys = distinct(pairs).into_iter().map(|(user, author)| schema::edge(user, author)).collect();
        let found = self.batch_get("live", vec![(self.tables.following.clone(), keys)]).await?;
        let edges: Vec<Edge> = found.iter().flatten().map(read_edge).collect::<Result<_, _>>()?;
        Ok(edges.into_iter().filter(|edge| edge.following).map(|edge| (edge.user, edge.author)).collect())
    }

    async fn followings(&self, user: UserId) -> Result<u64, StoreError> {
        Ok(self.edges_and_followings(user, &[]).await?.1)
    }

    async fn followers_by_time(
        &self,
        author: UserId,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>, StoreError> {
        super::followers::by_time(self, author, before, limit).await
    }

    async fn followers_in(&self, author: UserId, buckets: Range<u16>) -> Result<Vec<UserId>, StoreError> {
        let per_shard = tidemark_domain::ids::BUCKETS / SHARDS;
        let shards = buckets.start / per_shard..=buckets.end.saturating_sub(1) / per_shard;
        let listed = try_join_all(shards.map(|shard| self.followers_of_shard(author, shard, &buckets))).await?;
        Ok(listed.into_iter().flatten().collect())
    }
}

impl DynamoFacts {
    /// Makes follows of one user, several in one transaction. Returns one outcome for each follow, in order.
    pub async fn make_follows(
        &self,
        user: UserId,
        mut follows: Vec<NewFollow>,
        now: Timestamp,
        kind: Kind,
    ) -> Result<Vec<Followed>, StoreError> {
        let mut outcomes: HashMap<UserId, Followed> = HashMap::new();
        let mut attempt = 0;
        // Edges whose write had an unknown outcome. If such an edge is stored, this call has created it.
        let mut tried: Vec<Edge> = Vec::new();
        let mut failed = None;
        let mut refused = false;
        // Several edges in a transaction until one is cancelled, then one by one: a refusal concerns one edge.
        let mut together = EDGES_PER_TRANSACTION;
        loop {
            let missing: Vec<&NewFollow> = follows.iter().filter(|follow| !outcomes.contains_key(&follow.author)).collect();
            let authors: Vec<UserId> = missing.iter().map(|follow| follow.author).collect();
            let (known, followings) = self.edges_and_followings(user, &authors).await?;
            for follow in &missing {
                if let Some(edge) = known.get(&follow.author).filter(|edge| edge.following || kind.yields_to(edge, follow)) {
                    let own = tried.contains(edge);
                    let edge = edge.clone();
                    outcomes.insert(edge.author, if own { Followed::Created(edge) } else { Followed::Existing(edge) });
                }
            }
            let missing: Vec<&NewFollow> = missing.into_iter().filter(|follow| !outcomes.contains_key(&follow.author)).collect();
            if missing.is_empty() {
                break;
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
            let mut again = false;
            let room = usize::try_from(self.limits.following.saturating_sub(followings)).unwrap_or(usize::MAX);
            if room == 0 {
                outcomes.extend(missing.iter().map(|follow| (follow.author, Followed::LimitReached)));
                break;
            }
            for chunk in missing[..missing.len().min(room)].chunks(together) {
                let exact: Vec<UserId> = chunk.iter().filter(|follow| follow.exact).map(|follow| follow.author).collect();
                let edges: Vec<Edge> = chunk.iter().map(|follow| follow.edge(user, known.get(&follow.author), now)).collect();
                match self.write_follows(&edges, &known, &exact).await {
                    Ok(Ok(())) => {
                        outcomes.extend(edges.into_iter().map(|edge| (edge.author, Followed::Created(edge))));
                        continue;
                    }
                    // The counter may refuse only because the edge is counted already. A second attempt shows which is
                    // the case.
                    Ok(Err(Cancelled::Conditions(failed))) if chunk.len() == 1 && failed.contains(&0) && refused => {
                        outcomes.insert(chunk[0].author, Followed::LimitReached);
                        break;
                    }
                    Ok(Err(cancelled)) => {
                        refused = matches!(cancelled, Cancelled::Conditions(failed) if chunk.len() == 1 && failed.contains(&0));
                        debug!(%user, edges = chunk.len(), "follow transaction cancelled; it is repeated");
                        together = 1;
                    }
                    // The write may have been done.
                    Err(error) => failed = Some(error),
                }
                tried.extend(edges);
                again = true;
                break;
            }
            if again {
                back_off(attempt).await;
                if kind == Kind::Made {
                    // Posts may have been imported in the meantime.
                    let authors: Vec<UserId> = follows.iter().map(|follow| follow.author).collect();
                    follows = follows_from_now(&authors, &self.heads(&authors).await?, now);
                }
            }
            attempt += 1;
            if attempt > ATTEMPTS + follows.len() as u32 {
                return Err(StoreError::Contention { operation: "follow" });
            }
        }
        let outcome = |follow: &NewFollow| outcomes.get(&follow.author).cloned();
        follows.iter().map(|follow| outcome(follow).ok_or(StoreError::Contention { operation: "follow" })).collect()
    }

    /// Reads the edges to these authors and the number of authors that the user follows, in one request.
    async fn edges_and_followings(&self, user: UserId, authors: &[UserId]) -> Result<(HashMap<UserId, Edge>, u64), StoreError> {
        let keys = authors.iter().map(|&author| schema::edge(user, author)).collect();
        let wanted =
            vec![(self.tables.counters.clone(), vec![schema::followings_counter(user)]), (self.tables.following.clone(), keys)];
        let found = self.batch_get("follow", wanted).await?;
        let followings = match found[0].first() {
            Some(item) => Reader { table: "counters", item }.count("count"),
            None => 0,
        };
        let edges = found[1].iter().map(|item| read_edge(item).map(|edge| (edge.author, edge))).collect::<Result<_, _>>()?;
        Ok((edges, followings))
    }

    /// Writes edges on the condition that none of their pairs has changed. For `exact` authors it also requires that
    /// the base is still the latest post.
    async fn write_follows(
        &self,
        edges: &[Edge],
        known: &HashMap<UserId, Edge>,
        exact: &[UserId],
    ) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "follow";
        let Some(user) = edges.first().map(|edge| edge.user) else { return Ok(Ok(())) };
        let added = edges.len() as u64;
        let Some(most) = self.limits.following.checked_sub(added) else { return Ok(Err(Cancelled::Conditions(vec![0]))) };
        let count = self
            .add_to_counter(schema::followings_counter(user), added as i64)
            .condition_expression("attribute_not_exists(#count) OR #count <= :most")
            .expression_attribute_values(":most", number(most));
        let mut transaction = self.client.transact_write_items().transact_items(update(OPERATION, count)?);
        for edge in edges {
            let put = self.put_edge(edge, known.get(&edge.author).map(|edge| edge.rev));
            let follower = Put::builder().table_name(&self.tables.followers).set_item(Some(schema::follower_item(edge)));
            let count = self.add_to_counter(schema::followers_counter(edge.author, user.shard()), 1);
            transaction = transaction
                .transact_items(TransactWriteItem::builder().put(build(OPERATION, put.build())?).build())
                .transact_items(TransactWriteItem::builder().put(build(OPERATION, follower.build())?).build())
                .transact_items(update(OPERATION, count)?);
            if exact.contains(&edge.author) {
                let check = ConditionCheck::builder().table_name(&self.tables.posts).set_key(Some(schema::head(edge.author)));
                let check = match edge.base {
                    0 => check.condition_expression("attribute_not_exists(latest_seq)"),
                    base => check.condition_expression("latest_seq = :base").expression_attribute_values(":base", number(base)),
                };
                transaction = transaction
                    .transact_items(TransactWriteItem::builder().condition_check(build(OPERATION, check.build())?).build());
            }
        }
        Self::transact(OPERATION, transaction).await
    }

    async fn write_unfollow(&self, tombstone: &Edge, known_rev: u32) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "unfollow";
        let (user, author) = (tombstone.user, tombstone.author);
        let put = self.put_edge(tombstone, Some(known_rev));
        let follower = Delete::builder().table_name(&self.tables.followers).set_key(Some(schema::follower(author, user)));
        let transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().put(build(OPERATION, put.build())?).build())
            .transact_items(TransactWriteItem::builder().delete(build(OPERATION, follower.build())?).build())
            .transact_items(update(OPERATION, self.add_to_counter(schema::followings_counter(user), -1))?)
            .transact_items(update(OPERATION, self.add_to_counter(schema::followers_counter(author, user.shard()), -1))?);
        Self::transact(OPERATION, transaction).await
    }

    /// Puts an edge on the condition that its stored revision is still `known`. `None` requires that no item exists.
    fn put_edge(&self, edge: &Edge, known: Option<u32>) -> aws_sdk_dynamodb::types::builders::PutBuilder {
        let put = Put::builder().table_name(&self.tables.following).set_item(Some(schema::edge_item(edge)));
        match known {
            None => put.condition_expression("attribute_not_exists(rev)"),
            Some(rev) => put.condition_expression("rev = :known").expression_attribute_values(":known", number(rev.into())),
        }
    }

    fn add_to_counter(&self, key: Item, change: i64) -> aws_sdk_dynamodb::types::builders::UpdateBuilder {
        Update::builder()
            .table_name(&self.tables.counters)
            .set_key(Some(key))
            .update_expression("ADD #count :change, #changes :one")
            .expression_attribute_names("#count", "count")
            .expression_attribute_names("#changes", "changes")
            .expression_attribute_values(":change", AttributeValue::N(change.to_string()))
            .expression_attribute_values(":one", number(1))
    }

    async fn followers_of_shard(&self, author: UserId, shard: u16, buckets: &Range<u16>) -> Result<Vec<UserId>, StoreError> {
        let (first, last) = schema::follower_range(buckets);
        let mut pages = self
            .client
            .query()
            .table_name(&self.tables.followers)
            .consistent_read(true)
            .key_condition_expression("#shard = :shard AND follower BETWEEN :first AND :last")
            .expression_attribute_names("#shard", "shard")
            .expression_attribute_values(":shard", schema::follower_shard(author, shard))
            .expression_attribute_values(":first", first)
            .expression_attribute_values(":last", last)
            .projection_expression("follower")
            .into_paginator()
            .items()
            .send();
        let mut followers = Vec::new();
        while let Some(item) = pages.next().await {
            let item = item.map_err(|error| unavailable("followers", error))?;
            let reader = Reader { table: "followers", item: &item };
            followers.push(schema::follower_of(reader.text("follower")?).ok_or_else(|| reader.damaged("follower"))?);
        }
        Ok(followers)
    }
}

fn follows_from_now(authors: &[UserId], heads: &HashMap<UserId, AuthorHead>, now: Timestamp) -> Vec<NewFollow> {
    let empty = AuthorHead::default();
    authors.iter().map(|&author| NewFollow::from_now(author, heads.get(&author).unwrap_or(&empty), now)).collect()
}

fn update(
    operation: &'static str,
    update: aws_sdk_dynamodb::types::builders::UpdateBuilder,
) -> Result<TransactWriteItem, StoreError> {
    Ok(TransactWriteItem::builder().update(build(operation, update.build())?).build())
}

pub fn read_edge(item: &Item) -> Result<Edge, StoreError> {
    let reader = Reader { table: "following", item };
    Ok(Edge {
        user: reader.user("user")?,
        author: reader.user("author")?,
        following: reader.flag("following"),
        since: reader.time("since")?,
        rev: reader.small("rev")?,
        base: reader.number("base")?,
        floor: reader.number("floor")?,
    })
}
