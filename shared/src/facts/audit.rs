//! [`AuditFacts`] on DynamoDB: the facts as they are stored. Repairs are in [`super::repairs`].

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::try_join_all;

use super::{
    DynamoFacts, distinct,
    edges::read_edge,
    item::{Item, Reader},
    posts::read_post,
    reactions::{read_counts, read_reactions},
    schema, sent, string, unavailable,
};
use crate::{
    domain::{
        Edge, NoticeId, Platform, PostId, Relation, SeqSet, Slot, Timestamp, UserId,
        diff::{
            FactDifference,
            facts::{Answered, ReactionShard, RecordSays, StoredPost, StoredRecord},
            notices::StoredNotice,
        },
        ids::MAX_SEQ,
    },
    ports::{
        FactsError, Notices,
        audit::{AuditFacts, Part},
    },
};

#[async_trait]
impl AuditFacts for DynamoFacts {
    async fn listed_followers(&self, author: UserId, shard: u16, most: usize) -> Result<Option<Vec<Relation>>, FactsError> {
        let partition = schema::follower_shard(author, shard);
        let Some(items) = self.partition("listed_followers", &self.tables.followers, partition, most).await? else {
            return Ok(None);
        };
        let listed = items.iter().map(|item| {
            let reader = Reader { table: "followers", item };
            schema::relation_of(reader.text("since")?).ok_or_else(|| reader.damaged("since"))
        });
        listed.collect::<Result<_, _>>().map(Some)
    }

    async fn listed_by(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Timestamp>, FactsError> {
        let keys = distinct(authors).into_iter().map(|author| schema::follower(author, user)).collect();
        let found = self.batch_get("listed_by", vec![(self.tables.followers.clone(), keys)]).await?;
        let listed = found.iter().flatten().map(|item| {
            let reader = Reader { table: "followers", item };
            let author = schema::shard_author(reader.text("shard")?).ok_or_else(|| reader.damaged("shard"))?;
            let relation = schema::relation_of(reader.text("since")?).ok_or_else(|| reader.damaged("since"))?;
            Ok((author, relation.since))
        });
        listed.collect()
    }

    async fn reactions_in(&self, author: UserId, shard: u16, most: usize) -> Result<Option<ReactionShard>, FactsError> {
        let partition = schema::reactions_shard(author, shard);
        let Some(items) = self.partition("reactions_in", &self.tables.reactions, partition, most).await? else { return Ok(None) };
        let mut found = ReactionShard::default();
        for item in &items {
            let reader = Reader { table: "reactions", item };
            let sort_key = reader.text("item")?;
            if schema::is_total(sort_key) {
                found.total = read_counts(item)?;
            } else if let Some(seq) = schema::post_seq(sort_key) {
                found.posts.insert(seq, read_counts(item)?);
            } else {
                found.users.push(read_reactions(item)?.2);
            }
        }
        Ok(Some(found))
    }

    async fn stored_posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, StoredPost>, FactsError> {
        let keys = distinct(posts).into_iter().map(schema::post).collect();
        let found = self.batch_get("stored_posts", vec![(self.tables.posts.clone(), keys)]).await?;
        found.iter().flatten().map(|item| stored_post(item).map(|stored| (stored.post.id, stored))).collect()
    }

    async fn newest_posts(&self, author: UserId, limit: usize) -> Result<Vec<StoredPost>, FactsError> {
        let items = self.newest_items("newest_posts", author, 0..=MAX_SEQ, limit).await?;
        items.iter().map(stored_post).collect()
    }

    async fn bodies(&self, posts: &[PostId]) -> Result<HashSet<PostId>, FactsError> {
        let keys = distinct(posts).into_iter().map(schema::body).collect();
        let found = self.batch_get("bodies", vec![(self.tables.posts.clone(), keys)]).await?;
        let ids = found.iter().flatten().map(|item| {
            let reader = Reader { table: "posts", item };
            let seq = schema::body_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?;
            Ok(PostId::new(reader.user("author")?, seq))
        });
        ids.collect()
    }

    async fn some_edges(
        &self,
        after: Option<(UserId, UserId)>,
        limit: usize,
    ) -> Result<Part<Edge, (UserId, UserId)>, FactsError> {
        let after = after.map(|(user, author)| schema::edge(user, author));
        let (items, last) = self.some("some_edges", &self.tables.following, after, limit).await?;
        let pair = |item: &Item| {
            let reader = Reader { table: "following", item };
            Ok::<_, FactsError>((reader.user("user")?, reader.user("author")?))
        };
        Ok(Part { items: items.iter().map(read_edge).collect::<Result<_, _>>()?, next: last.as_ref().map(pair).transpose()? })
    }

    async fn some_records(&self, after: Option<String>, limit: usize) -> Result<Part<String, String>, FactsError> {
        let after = after.as_deref().map(schema::record);
        let (items, last) = self.some("some_records", &self.tables.idempotency, after, limit).await?;
        let key = |item: &Item| Reader { table: "idempotency", item }.text("key").map(str::to_owned);
        Ok(Part { items: items.iter().map(key).collect::<Result<_, _>>()?, next: last.as_ref().map(key).transpose()? })
    }

    async fn record(&self, key: &str) -> Result<Option<StoredRecord>, FactsError> {
        let wanted = vec![(self.tables.idempotency.clone(), vec![schema::record(key)])];
        let Some(item) = self.batch_get("record", wanted).await?.into_iter().flatten().next() else { return Ok(None) };
        let says = match said(&item) {
            None => None,
            Some((answered, expires_at)) => {
                let exists = match &answered {
                    Answered::Post(post) => self.stored_posts(&[*post]).await?.contains_key(post),
                    Answered::Notices(notices) => self.were_published(notices).await?,
                };
                Some(RecordSays { answered, expires_at, exists })
            }
        };
        Ok(Some(StoredRecord { key: key.to_owned(), says }))
    }

    async fn stored_notices(&self, platform: Platform) -> Result<Vec<StoredNotice>, FactsError> {
        self.notices_of(platform).await
    }

    async fn counted_slots(&self, user: UserId, platform: Platform, slots: &[Slot]) -> Result<SeqSet, FactsError> {
        self.slots_counted(user, platform, slots).await
    }

    async fn repair(&self, difference: &FactDifference) -> Result<bool, FactsError> {
        self.repair_fact(difference).await
    }

    async fn walk(&self, name: &str) -> Result<Option<String>, FactsError> {
        let found = self.batch_get("walk", vec![(self.tables.counters.clone(), vec![schema::walk(name)])]).await?;
        let position = |item: &Item| Reader { table: "counters", item }.text("position").map(str::to_owned);
        found.iter().flatten().next().map(position).transpose()
    }

    async fn note_walk(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<bool, FactsError> {
        const OPERATION: &str = "note_walk";
        let (table, key) = (&self.tables.counters, schema::walk(name));
        let condition = if from.is_some() { "#position = :from" } else { "attribute_not_exists(#position)" };
        let from = from.map(|from| HashMap::from([(":from".to_owned(), string(from))]));
        match to {
            Some(to) => {
                let mut item = key;
                item.insert("position".to_owned(), string(to));
                let put = self.client.put_item().table_name(table).set_item(Some(item)).condition_expression(condition);
                let put = put.expression_attribute_names("#position", "position").set_expression_attribute_values(from);
                sent(OPERATION, put.send().await)
            }
            None => {
                let delete = self.client.delete_item().table_name(table).set_key(Some(key)).condition_expression(condition);
                let delete = delete.expression_attribute_names("#position", "position").set_expression_attribute_values(from);
                sent(OPERATION, delete.send().await)
            }
        }
    }
}

impl DynamoFacts {
    /// All items of a sharded partition; `None` when there are more than `most`.
    async fn partition(
        &self,
        operation: &'static str,
        table: &str,
        partition: AttributeValue,
        most: usize,
    ) -> Result<Option<Vec<Item>>, FactsError> {
        let mut pages = self
            .client
            .query()
            .table_name(table)
            .consistent_read(true)
            .limit(i32::try_from(most + 1).unwrap_or(i32::MAX))
            .key_condition_expression("#shard = :shard")
            .expression_attribute_names("#shard", "shard")
            .expression_attribute_values(":shard", partition)
            .into_paginator()
            .items()
            .send();
        let mut items = Vec::new();
        while let Some(item) = pages.next().await {
            if items.len() == most {
                return Ok(None);
            }
            items.push(item.map_err(|error| unavailable(operation, error))?);
        }
        Ok(Some(items))
    }

    /// Whether platforms have come as far as these notices. Deleted ones leave nothing else.
    async fn were_published(&self, notices: &[NoticeId]) -> Result<bool, FactsError> {
        let heads = try_join_all(notices.iter().map(|notice| self.head(notice.platform))).await?;
        Ok(notices.iter().zip(heads).all(|(notice, head)| notice.seq <= head.latest_seq))
    }

    /// A part of a whole table, and the key of its last item when there is more.
    async fn some(
        &self,
        operation: &'static str,
        table: &str,
        after: Option<Item>,
        limit: usize,
    ) -> Result<(Vec<Item>, Option<Item>), FactsError> {
        let scan = self.client.scan().table_name(table).limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = scan.set_exclusive_start_key(after).send().await.map_err(|error| unavailable(operation, error))?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}

/// What was published and the end of an idempotency record; `None` when it cannot be read.
pub(super) fn said(item: &Item) -> Option<(Answered, u64)> {
    let reader = Reader { table: "idempotency", item };
    reader.text("fingerprint").ok()?;
    let answered = if item.contains_key("notices") {
        reader.time("at").ok()?;
        Answered::Notices(reader.text("notices").ok()?.split(' ').map(|id| id.parse().ok()).collect::<Option<_>>()?)
    } else {
        Answered::Post(reader.text("post").ok()?.parse().ok()?)
    };
    Some((answered, reader.number("expires_at").ok()?))
}

fn stored_post(item: &Item) -> Result<StoredPost, FactsError> {
    Ok(StoredPost { post: read_post(item)?, unfinished: item.contains_key("unfinished") })
}
