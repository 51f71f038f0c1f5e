//! [`Posts`] on DynamoDB.

use std::{
    collections::{HashMap, HashSet},
    ops::RangeInclusive,
};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};
use tidemark_app::ports::{Deleted, IdempotencyKey, Look, Posts, Published, StoreError};
use tidemark_domain::{AuthorHead, Delivery, DeliveryMode, DeliveryState, Modes, NewPost, Post, PostId, Seq, Timestamp, UserId};

use super::{
    ATTEMPTS, Cancelled, DynamoFacts, back_off, build, distinct,
    item::{Item, Reader},
    number, schema, sent_after_conflicts, string, unavailable,
    windows::{self, Layout},
};

#[async_trait]
impl Posts for DynamoFacts {
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError> {
        let keys = distinct(authors).into_iter().map(schema::head).collect();
        let found = self.batch_get("heads", vec![(self.tables.posts.clone(), keys)]).await?;
        found.iter().flatten().map(|item| Ok((Reader { table: "posts", item }.user("author")?, read_head(item)?))).collect()
    }

    async fn publish(
        &self,
        post: &NewPost,
        followers: u64,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<Published, StoreError> {
        let write_token: u64 = rand::random();
        let mut tried: Option<(Post, AuthorHead)> = None;
        let mut failed = None;
        for attempt in 0..ATTEMPTS {
            let (head, repeated) = self.head_and_record(post, idempotency, now).await?;
            // A write with an unknown outcome may have created the author's post of that number.
            if let Some((own, after)) = tried.take_if(|(own, _)| own.id.seq <= head.latest_seq)
                && self.token_of(own.id).await? == Some(write_token)
            {
                return Ok(Published::Created(own, after));
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
            if let Some(repeated) = repeated {
                return Ok(repeated);
            }
            let next = head.publish(post, followers, self.limits.pull_threshold, now);
            let Some((new, head)) = next else { return Ok(Published::Full) };
            match self.write_post(&new, write_token, &head, post.body.as_deref(), idempotency, now).await {
                Ok(Ok(())) => return Ok(Published::Created(new, head)),
                // Another publish of the author or with the same key has written first. Or this one has, and its
                // response was lost.
                Ok(Err(Cancelled::Conditions(_) | Cancelled::Conflict)) => back_off(attempt).await,
                Err(error) => failed = Some(error),
            }
            tried = Some((new, head));
        }
        Err(StoreError::Contention { operation: "publish" })
    }

    async fn delete(&self, post: PostId, followers: u64) -> Result<Deleted, StoreError> {
        let mut tried = false;
        let mut failed = None;
        for attempt in 0..ATTEMPTS {
            let wanted = vec![(self.tables.posts.clone(), vec![schema::post(post), schema::head(post.author)])];
            let found = self.batch_get("delete", wanted).await?.remove(0);
            let is_head = |item: &&Item| item.get("item").and_then(|item| item.as_s().ok()).is_some_and(|item| item == "head");
            let Some(item) = found.iter().find(|item| !is_head(item)) else { return Ok(Deleted::Unknown) };
            let mut head = found.iter().find(is_head).map(read_head).transpose()?.unwrap_or_default();
            let mut known = read_post(item)?;
            if known.deleted {
                // An earlier attempt of this call has deleted the post, or an earlier request has, and its retraction
                // is unfinished.
                let unfinished = tried || item.contains_key("unfinished");
                return Ok(if unfinished { Deleted::Deleted(known, head) } else { Deleted::Already(known) });
            }
            if let Some(error) = failed.take() {
                return Err(error);
            }
            head.delete(&mut known, followers);
            match self.write_tombstone(&known, &head, found.iter().find(is_head)).await {
                Ok(Ok(())) => return Ok(Deleted::Deleted(known, head)),
                Ok(Err(_)) => back_off(attempt).await,
                Err(error) => failed = Some(error),
            }
            tried = true;
        }
        Err(StoreError::Contention { operation: "delete" })
    }

    async fn posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, Post>, StoreError> {
        let keys = distinct(posts).into_iter().map(schema::post).collect();
        let found = self.batch_get("posts", vec![(self.tables.posts.clone(), keys)]).await?;
        found.iter().flatten().map(|item| read_post(item).map(|post| (post.id, post))).collect()
    }

    async fn body(&self, post: PostId) -> Result<Option<String>, StoreError> {
        let found = self.batch_get("body", vec![(self.tables.posts.clone(), vec![schema::body(post)])]).await?;
        let item = found.into_iter().flatten().next();
        item.map(|item| Reader { table: "posts", item: &item }.text("body").map(str::to_owned)).transpose()
    }

    async fn timeline(&self, author: UserId, after: Seq, upto: Seq, limit: usize) -> Result<Vec<Post>, StoreError> {
        if after >= upto || limit == 0 {
            return Ok(Vec::new());
        }
        let items = self.newest_items("timeline", author, after + 1..=upto, limit).await?;
        items.iter().map(read_post).collect()
    }

    async fn posts_of(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<Post>, StoreError> {
        let (Some(&newest), Some(&oldest)) = (seqs.first(), seqs.last()) else { return Ok(Vec::new()) };
        let span = usize::try_from(newest - oldest).unwrap_or(usize::MAX).saturating_add(1);
        if span > seqs.len().saturating_mul(DENSE) {
            let ids: Vec<PostId> = seqs.iter().map(|&seq| PostId::new(author, seq)).collect();
            let mut found = self.posts(&ids).await?;
            return Ok(ids.iter().filter_map(|id| found.remove(id)).collect());
        }
        let wanted: HashSet<Seq> = seqs.iter().copied().collect();
        let items = self.newest_items("posts_of", author, oldest..=newest, span).await?;
        // Posts between the wanted ones are not decoded.
        let is_wanted = |item: &&Item| {
            let sort_key = item.get("item").and_then(|item| item.as_s().ok());
            sort_key.and_then(|text| schema::post_seq(text)).is_some_and(|seq| wanted.contains(&seq))
        };
        items.iter().filter(is_wanted).map(read_post).collect()
    }

    async fn seq_at(&self, author: UserId, at: Timestamp) -> Result<Seq, StoreError> {
        let answer = self
            .client
            .query()
            .table_name(&self.tables.posts)
            .index_name(schema::BY_TIME)
            .scan_index_forward(false)
            .limit(1)
            .key_condition_expression("author = :author AND #time < :end")
            .expression_attribute_names("#time", "time")
            .expression_attribute_values(":author", number(author.get()))
            .expression_attribute_values(":end", schema::post_time_end(at))
            .send()
            .await
            .map_err(|error| unavailable("seq_at", error))?;
        let indexed = match answer.items().first() {
            Some(item) => {
                let reader = Reader { table: "posts", item };
                schema::post_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?
            }
            None => 0,
        };
        self.catch_up(author, indexed, at).await
    }

    async fn note_look(&self, post: &Post, look: Look) -> Result<(), StoreError> {
        let is_same = if post.deleted { "attribute_exists(tombstone)" } else { "attribute_not_exists(tombstone)" };
        let update = self.client.update_item().table_name(&self.tables.posts).set_key(Some(schema::post(post.id)));
        let update = update.condition_expression(format!("attribute_exists(unfinished) AND {is_same}"));
        let shard = post.id.author.get() % schema::UNFINISHED_SHARDS;
        let update = match look {
            Look::Waiting(at) => {
                update.update_expression("SET sent_at = :at").expression_attribute_values(":at", number(at.ms()))
            }
            Look::Moving(pages_done) => update
                .update_expression("SET seen_pages = :done, unfinished = :shard")
                .expression_attribute_values(":done", number(pages_done))
                .expression_attribute_values(":shard", schema::unfinished_shard(shard)),
            Look::Sent(pages_done, at) => update
                .update_expression("SET seen_pages = :done, sent_at = :at, unfinished = :shard ADD attempts :one")
                .expression_attribute_values(":done", number(pages_done))
                .expression_attribute_values(":at", number(at.ms()))
                .expression_attribute_values(":shard", schema::unfinished_shard(shard))
                .expression_attribute_values(":one", number(1)),
            Look::GivenUp => update
                .update_expression("SET unfinished = :given_up")
                .expression_attribute_values(":given_up", schema::given_up_shard(shard)),
        };
        // If the condition fails, the fan-out is finished or the post has changed in the meantime.
        sent_after_conflicts("note_look", update).await.map(|_| ())
    }

    async fn finish_delivery(&self, post: PostId, delivered: u64, now: Timestamp) -> Result<(), StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::post(post)))
            .update_expression("SET #state = :done, delivered = :delivered, finished_at = :now REMOVE unfinished")
            .condition_expression("#state = :pending AND attribute_not_exists(tombstone)")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":done", string("done"))
            .expression_attribute_values(":pending", string("pending"))
            .expression_attribute_values(":delivered", number(delivered))
            .expression_attribute_values(":now", number(now.ms()));
        // If the condition fails, the delivery is finished already, or the post is deleted.
        sent_after_conflicts("finish_delivery", update).await.map(|_| ())
    }

    async fn finish_retraction(&self, post: PostId) -> Result<(), StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::post(post)))
            .update_expression("REMOVE unfinished")
            .condition_expression("attribute_exists(tombstone)");
        sent_after_conflicts("finish_retraction", update).await.map(|_| ())
    }
}

impl DynamoFacts {
    /// The author's post items with these numbers, newest first, at most `limit`.
    pub async fn newest_items(
        &self,
        operation: &'static str,
        author: UserId,
        seqs: RangeInclusive<Seq>,
        limit: usize,
    ) -> Result<Vec<Item>, StoreError> {
        let mut pages = self
            .client
            .query()
            .table_name(&self.tables.posts)
            .consistent_read(true)
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .key_condition_expression("author = :author AND #item BETWEEN :first AND :last")
            .expression_attribute_names("#item", "item")
            .expression_attribute_values(":author", number(author.get()))
            .expression_attribute_values(":first", schema::post_sort_key(*seqs.start()))
            .expression_attribute_values(":last", schema::post_sort_key(*seqs.end()))
            .into_paginator()
            .items()
            .send();
        let mut items = Vec::new();
        while items.len() < limit
            && let Some(item) = pages.next().await
        {
            items.push(item.map_err(|error| unavailable(operation, error))?);
        }
        Ok(items)
    }

    /// The author's head, and the outcome that an earlier publish with the same key implies.
    async fn head_and_record(
        &self,
        post: &NewPost,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<(AuthorHead, Option<Published>), StoreError> {
        let records = idempotency.iter().map(|record| schema::publish_record(post.author, &record.key)).collect();
        let wanted =
            vec![(self.tables.posts.clone(), vec![schema::head(post.author)]), (self.tables.idempotency.clone(), records)];
        let found = self.batch_get("publish", wanted).await?;
        let head = found[0].first().map(read_head).transpose()?.unwrap_or_default();
        let (Some(item), Some(asked)) = (found[1].first(), idempotency) else { return Ok((head, None)) };
        let record = Reader { table: "idempotency", item };
        if record.number("expires_at")? <= now.seconds() {
            return Ok((head, None));
        }
        if record.text("fingerprint")? != asked.fingerprint {
            return Ok((head, Some(Published::KeyReused)));
        }
        let id: PostId = record.text("post")?.parse().map_err(|_| record.damaged("post"))?;
        let mut earlier = self.posts(&[id]).await?.remove(&id).ok_or_else(|| record.damaged("post"))?;
        // The body is the same, so the repeated response has its title even if the post is a tombstone now.
        earlier.title.clone_from(&post.title);
        Ok((head, Some(Published::Repeated(earlier))))
    }

    /// The token of the publish that wrote a post; `None` if something else wrote it. The head counts the post, so a
    /// missing item appears in a moment.
    async fn token_of(&self, post: PostId) -> Result<Option<u64>, StoreError> {
        for attempt in 0..ATTEMPTS {
            let found = self.batch_get("publish", vec![(self.tables.posts.clone(), vec![schema::post(post)])]).await?;
            match found.iter().flatten().next() {
                Some(item) => return Reader { table: "posts", item }.optional_number("write_token"),
                None => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: "publish" })
    }

    async fn write_post(
        &self,
        post: &Post,
        write_token: u64,
        after: &AuthorHead,
        body: Option<&str>,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "publish";
        let PostId { author, seq } = post.id;
        let mut item = post_item(post, post.created_at);
        item.insert("write_token".to_owned(), number(write_token));
        let head = Update::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::head(author)))
            .update_expression("SET latest_seq = :seq, latest_at = :at, mode_changes = :changes, pulled = :pulled ADD posts :one")
            .condition_expression(if seq == 1 { "attribute_not_exists(latest_seq)" } else { "latest_seq = :previous" })
            .expression_attribute_values(":seq", number(seq))
            .expression_attribute_values(":at", number(post.created_at.ms()))
            .expression_attribute_values(":changes", number(after.modes.changes.into()))
            .expression_attribute_values(":pulled", number(after.modes.pulled))
            .expression_attribute_values(":one", number(1));
        let head = if seq == 1 { head } else { head.expression_attribute_values(":previous", number(seq - 1)) };
        let put = |table: &str, item: Item| Put::builder().table_name(table).set_item(Some(item));
        let mut puts = vec![
            put(&self.tables.posts, item)
                .condition_expression("attribute_not_exists(#item)")
                .expression_attribute_names("#item", "item"),
        ];
        if let Some(body) = body {
            let mut item = schema::body(post.id);
            item.insert("body".to_owned(), string(body));
            puts.push(put(&self.tables.posts, item));
        }
        let mut records = Vec::new();
        if let Some(record) = idempotency {
            let mut item = schema::publish_record(author, &record.key);
            item.extend([
                ("fingerprint".to_owned(), string(&record.fingerprint)),
                ("post".to_owned(), string(post.id.to_string())),
            ]);
            records.push(self.record_put(OPERATION, item, now)?);
        }
        let mut transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().update(build(OPERATION, head.build())?).build());
        let puts = puts.into_iter().map(|put| build(OPERATION, put.build())).chain(records.into_iter().map(Ok));
        for put in puts {
            transaction = transaction.transact_items(TransactWriteItem::builder().put(put?).build());
        }
        Self::transact(OPERATION, transaction).await
    }

    /// Writes a tombstone and the head `after` the deletion. `stored` is the head's item before it.
    async fn write_tombstone(
        &self,
        post: &Post,
        after: &AuthorHead,
        stored: Option<&Item>,
    ) -> Result<Result<(), Cancelled>, StoreError> {
        const OPERATION: &str = "delete";
        let mut sets = vec![("deleted", &after.deleted)];
        if post.archived {
            sets.push(("archived_seqs", &after.archive));
        }
        let layout = Layout::new(&schema::head(post.id.author), stored, &sets, true)?;
        let tombstone = Update::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::post(post.id)))
            .update_expression(
                "SET tombstone = :true, #state = :state, retract_pages = :pages, unfinished = :shard \
                 REMOVE title, attempts, seen_pages, sent_at",
            )
            .condition_expression("attribute_exists(#item) AND attribute_not_exists(tombstone)")
            .expression_attribute_names("#state", "state")
            .expression_attribute_names("#item", "item")
            .expression_attribute_values(":true", AttributeValue::Bool(true))
            .expression_attribute_values(":state", string(state_name(post.delivery.state)))
            .expression_attribute_values(":pages", number(post.delivery.retraction_pages.into()))
            .expression_attribute_values(":shard", unfinished_shard(post.id.author));
        let body = Delete::builder().table_name(&self.tables.posts).set_key(Some(schema::body(post.id)));
        let update = Update::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::head(post.id.author)))
            .expression_attribute_values(":deletions", number(after.deleted.len()))
            .expression_attribute_values(":less", AttributeValue::N("-1".to_owned()))
            .expression_attribute_values(":archived", AttributeValue::N(if post.archived { "-1" } else { "0" }.to_owned()));
        // The deletion of an archived post leaves the number of deletions unchanged, so both counts are conditions.
        let mut conditions = Vec::new();
        let update = windows::unchanged(update, stored, "deletions", &mut conditions);
        let update = windows::unchanged(update, stored, "archived", &mut conditions);
        let update = update.condition_expression(conditions.join(" AND "));
        let update = layout.sets_in(update, &sets, "deletions = :deletions", "ADD posts :less, archived :archived");
        let transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().update(build(OPERATION, tombstone.build())?).build())
            .transact_items(TransactWriteItem::builder().delete(build(OPERATION, body.build())?).build())
            .transact_items(TransactWriteItem::builder().update(build(OPERATION, update.build())?).build());
        let windows = layout.puts(OPERATION, &self.tables.posts)?;
        Self::transact(OPERATION, windows.into_iter().fold(transaction, |all, window| all.transact_items(window))).await
    }

    /// The index by time lags. Continues from its result to the last post at or before `at`, with reads of the table
    /// itself.
    async fn catch_up(&self, author: UserId, mut seq: Seq, at: Timestamp) -> Result<Seq, StoreError> {
        loop {
            let next: Vec<PostId> = (seq + 1..=seq + CATCH_UP).map(|seq| PostId::new(author, seq)).collect();
            let posts = self.posts(&next).await?;
            let known = next.iter().take_while(|id| posts.get(id).is_some_and(|post| post.created_at <= at)).count() as u64;
            seq += known;
            if known < CATCH_UP {
                return Ok(seq);
            }
        }
    }
}

/// The sequence numbers are read as one range if at least one of this many posts in the range is wanted. A range costs
/// one read unit for about 20 small posts, or for 5 of the largest. A post that is read by its key costs one unit.
const DENSE: usize = 4;

/// The number of posts in one step of [`DynamoFacts::catch_up`].
const CATCH_UP: u64 = 4;

pub fn unfinished_shard(author: UserId) -> AttributeValue {
    schema::unfinished_shard(author.get() % schema::UNFINISHED_SHARDS)
}

/// The item of a new post. `order` decides its place among its author's posts. It is the post's own time unless the
/// post is archived.
pub fn post_item(post: &Post, order: Timestamp) -> Item {
    let mut item = schema::post(post.id);
    item.extend([
        ("title".to_owned(), string(&post.title)),
        ("at".to_owned(), number(post.created_at.ms())),
        ("time".to_owned(), schema::post_time(order, post.id.seq)),
        ("mode".to_owned(), string(mode_name(post.delivery.mode))),
        ("state".to_owned(), string(state_name(post.delivery.state))),
        ("followers".to_owned(), number(post.delivery.followers)),
        ("pages".to_owned(), number(post.delivery.pages.into())),
    ]);
    if post.delivery.state == DeliveryState::Pending {
        item.insert("unfinished".to_owned(), unfinished_shard(post.id.author));
    }
    if let Some(at) = post.delivery.finished_at {
        item.insert("finished_at".to_owned(), number(at.ms()));
    }
    if post.archived {
        item.insert("archived".to_owned(), AttributeValue::Bool(true));
    }
    item
}

fn mode_name(mode: DeliveryMode) -> &'static str {
    match mode {
        DeliveryMode::Push => "push",
        DeliveryMode::Pull => "pull",
    }
}

fn state_name(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Pending | DeliveryState::Running => "pending",
        DeliveryState::Done => "done",
        DeliveryState::Cancelled => "cancelled",
    }
}

pub fn read_head(item: &Item) -> Result<AuthorHead, StoreError> {
    let reader = Reader { table: "posts", item };
    let (deleted, archived) = (reader.seqs("deleted")?, reader.count("archived"));
    // A head from before `archived_seqs` existed: any of its deleted posts may be archived.
    let unknown = archived > 0 && !item.contains_key("archived_seqs");
    Ok(AuthorHead {
        latest_seq: reader.number("latest_seq")?,
        latest_at: reader.time("latest_at")?,
        posts: reader.count("posts"),
        archive: if unknown { deleted.clone() } else { reader.seqs("archived_seqs")? },
        deleted,
        archived,
        importing: reader.flag("importing"),
        modes: Modes {
            changes: u32::try_from(reader.optional_number("mode_changes")?.unwrap_or(0))
                .map_err(|_| reader.damaged("mode_changes"))?,
            pulled: reader.optional_number("pulled")?.unwrap_or(0),
        },
    })
}

pub fn read_post(item: &Item) -> Result<Post, StoreError> {
    let reader = Reader { table: "posts", item };
    let seq = schema::post_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?;
    let deleted = reader.flag("tombstone");
    let pages = |name| Ok(u16::try_from(reader.optional_number(name)?.unwrap_or(0)).unwrap_or(u16::MAX));
    let created_at = reader.time("at")?;
    Ok(Post {
        id: PostId::new(reader.user("author")?, seq),
        title: if deleted { String::new() } else { reader.text("title")?.to_owned() },
        created_at,
        deleted,
        archived: reader.flag("archived"),
        delivery: Delivery {
            mode: match reader.text("mode")? {
                "push" => DeliveryMode::Push,
                "pull" => DeliveryMode::Pull,
                _ => return Err(reader.damaged("mode")),
            },
            state: match reader.text("state")? {
                "pending" => DeliveryState::Pending,
                "done" => DeliveryState::Done,
                "cancelled" => DeliveryState::Cancelled,
                _ => return Err(reader.damaged("state")),
            },
            followers: reader.number("followers")?,
            delivered: reader.optional_number("delivered")?.unwrap_or(0),
            pages: pages("pages")?,
            retraction_pages: pages("retract_pages")?,
            attempts: u32::try_from(reader.optional_number("attempts")?.unwrap_or(0)).map_err(|_| reader.damaged("attempts"))?,
            seen_pages: reader.optional_number("seen_pages")?.unwrap_or(0),
            sent_at: reader.optional_number("sent_at")?.map(Timestamp::from_ms),
            started_at: created_at,
            finished_at: reader.optional_number("finished_at")?.map(Timestamp::from_ms),
        },
    })
}
