//! Reads the facts as they are stored. [`crate::facts::repairs`] repairs them.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use aws_sdk_dynamodb::types::{AttributeValue, Select};
use futures::future::try_join_all;
use tidemark_app::ports::{Notices, StoreError};
use tidemark_domain::{
    Edge, NoticeId, PostId, Reaction, ReadState, Relation, Timestamp, UserId,
    ids::{MAX_SEQ, SHARDS},
};
use tidemark_facts::{
    distinct,
    edges::read_edge,
    item::{Item, Reader},
    posts::{read_head, read_post},
    reactions::{count_name, read_reactions},
    reads::read_reads,
    schema, sent, string, unavailable,
};
use tracing::warn;

use super::StoredFacts;
use crate::{
    diff::{
        DamagedItem,
        facts::{Answered, ReactionShard, RecordSays, ShardCounts, StoredCount, StoredHead, StoredPost, StoredRecord},
    },
    stored::{Decoded, Part, StoredCounts, Unfinished, UnfinishedAt},
};

impl StoredFacts {
    /// The stored counts of followed authors and followers.
    pub async fn counts(&self, user: UserId) -> Result<StoredCounts, StoreError> {
        let mut keys = vec![schema::followings_counter(user)];
        keys.extend((0..SHARDS).map(|shard| schema::followers_counter(user, shard)));
        let found = self.batch_get("counts", vec![(self.tables.counters.clone(), keys)]).await?;
        let mut counts = StoredCounts { followings: StoredCount::default(), followers: [StoredCount::default(); 16] };
        for item in found.iter().flatten() {
            let reader = Reader { table: "counters", item };
            let key = reader.text("counter")?;
            let count = match schema::counter_shard(key) {
                Some(shard) if key.starts_with("f#") => &mut counts.followers[shard],
                _ => &mut counts.followings,
            };
            *count = stored_count(&reader, "count");
        }
        Ok(counts)
    }

    /// The heads of these authors. A head that does not exist is an empty one.
    pub async fn stored_heads(&self, authors: &[UserId]) -> Result<Decoded<HashMap<UserId, StoredHead>, UserId>, StoreError> {
        let authors = distinct(authors);
        let keys = authors.iter().copied().map(schema::head).collect();
        let found = self.batch_get("stored_heads", vec![(self.tables.posts.clone(), keys)]).await?;
        let mut heads = by_key(&found, |item| Reader { table: "posts", item }.user("author"), stored_head)?;
        for author in authors {
            if heads.damaged.iter().all(|(damaged, _)| *damaged != author) {
                heads.found.entry(author).or_default();
            }
        }
        Ok(heads)
    }

    /// All live edges of one user.
    pub async fn followed_by(&self, user: UserId) -> Result<Decoded<Vec<Edge>>, StoreError> {
        let mut edges = listing(&self.of_user("followed_by", &self.tables.following, user).await?, read_edge)?;
        edges.found.retain(|edge| edge.following);
        Ok(edges)
    }

    /// All read states of a user, by author.
    pub async fn stored_reads(&self, user: UserId) -> Result<Decoded<HashMap<UserId, ReadState>>, StoreError> {
        let Decoded { found, damaged } = listing(&self.of_user("stored_reads", &self.tables.reads, user).await?, read_reads)?;
        Ok(Decoded { found: found.into_iter().collect(), damaged })
    }

    /// The followers that one shard of an author lists; `None` if there are more than `most`.
    pub async fn listed_followers(
        &self,
        author: UserId,
        shard: u16,
        most: usize,
    ) -> Result<Option<Decoded<Vec<Relation>>>, StoreError> {
        let partition = schema::follower_shard(author, shard);
        let Some(items) = self.partition("listed_followers", &self.tables.followers, partition, most).await? else {
            return Ok(None);
        };
        listing(&items, read_follower).map(Some)
    }

    /// Since when these authors list the user. Authors who do not are left out.
    pub async fn listed_by(
        &self,
        user: UserId,
        authors: &[UserId],
    ) -> Result<Decoded<HashMap<UserId, Timestamp>, UserId>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::follower(author, user)).collect();
        let found = self.batch_get("listed_by", vec![(self.tables.followers.clone(), keys)]).await?;
        let author = |item: &Item| {
            let reader = Reader { table: "followers", item };
            schema::shard_author(reader.text("shard")?).ok_or_else(|| reader.damaged("shard"))
        };
        by_key(&found, author, |item| read_follower(item).map(|relation| relation.since))
    }

    /// The users among these who follow the author.
    pub async fn live_followers(&self, author: UserId, users: &[UserId]) -> Result<Decoded<HashSet<UserId>, UserId>, StoreError> {
        let keys = distinct(users).into_iter().map(|user| schema::edge(user, author)).collect();
        let found = self.batch_get("live_followers", vec![(self.tables.following.clone(), keys)]).await?;
        let Decoded { found, damaged } = by_key(&found, |item| Reader { table: "following", item }.user("user"), read_edge)?;
        let live = found.into_iter().filter(|(_, edge)| edge.following).map(|(user, _)| user);
        Ok(Decoded { found: live.collect(), damaged })
    }

    /// The reactions of the users of one shard to an author; `None` if there are more than `most` items.
    pub async fn reactions_in(
        &self,
        author: UserId,
        shard: u16,
        most: usize,
    ) -> Result<Option<Decoded<ReactionShard>>, StoreError> {
        let partition = schema::reactions_shard(author, shard);
        // In the order of the keys, counts come before users, so they are read first.
        let Some(items) = self.partition("reactions_in", &self.tables.reactions, partition, most).await? else { return Ok(None) };
        let mut shard = ReactionShard::default();
        let mut users = Vec::new();
        for item in items {
            let reader = Reader { table: "reactions", item: &item };
            let stored = |reaction| stored_count(&reader, count_name(reaction));
            let counts = ShardCounts { likes: stored(Reaction::Like), favorites: stored(Reaction::Favorite) };
            let sort_key = reader.text("item")?;
            if schema::is_total(sort_key) {
                shard.total = counts;
            } else if let Some(seq) = schema::post_seq(sort_key) {
                shard.posts.insert(seq, counts);
            } else {
                users.push(item);
            }
        }
        let Decoded { found, damaged } = listing(&users, |item| read_reactions(item).map(|(_, _, state)| state))?;
        shard.users = found;
        Ok(Some(Decoded { found: shard, damaged }))
    }

    /// The posts with these ids. Unknown posts are left out.
    pub async fn stored_posts(&self, posts: &[PostId]) -> Result<Decoded<HashMap<PostId, StoredPost>, PostId>, StoreError> {
        let keys = distinct(posts).into_iter().map(schema::post).collect();
        let found = self.batch_get("stored_posts", vec![(self.tables.posts.clone(), keys)]).await?;
        by_key(&found, post_of, stored_post)
    }

    /// An author's newest posts, tombstones included, at most `limit`.
    pub async fn newest_posts(&self, author: UserId, limit: usize) -> Result<Decoded<Vec<StoredPost>>, StoreError> {
        listing(&self.newest_items("newest_posts", author, 0..=MAX_SEQ, limit).await?, stored_post)
    }

    /// The posts of one shard whose fan-out or retraction is not finished and that were published at or before
    /// `before`: newest first, after `after`, at most `limit`.
    pub async fn unfinished(
        &self,
        which: Unfinished,
        shard: u64,
        before: Timestamp,
        after: Option<&UnfinishedAt>,
        limit: usize,
    ) -> Result<Part<PostId, UnfinishedAt>, StoreError> {
        let partition = match which {
            Unfinished::Open => schema::unfinished_shard(shard),
            Unfinished::GivenUp => schema::given_up_shard(shard),
        };
        let start = after.map(|after| {
            let mut key = schema::post(after.post);
            key.insert("unfinished".to_owned(), partition.clone());
            key.insert("time".to_owned(), string(&after.time));
            key
        });
        let answer = self
            .client
            .query()
            .table_name(&self.tables.posts)
            .index_name(schema::UNFINISHED)
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(start)
            .key_condition_expression("unfinished = :shard AND #time < :end")
            .expression_attribute_names("#time", "time")
            .expression_attribute_values(":shard", partition)
            .expression_attribute_values(":end", schema::post_time_end(before))
            .send()
            .await
            .map_err(|error| unavailable("unfinished", error))?;
        let place = |item: &Item| {
            let time = Reader { table: "posts", item }.text("time")?.to_owned();
            Ok::<_, StoreError>(UnfinishedAt { time, post: post_of(item)? })
        };
        let Decoded { found, damaged } = listing(answer.items(), post_of)?;
        // If the key of the last item is not a post's, the part has no next one. The next look begins with the newest
        // again.
        let next = answer.last_evaluated_key().and_then(|item| place(item).ok());
        Ok(Part { items: found, damaged: damaged.into_iter().map(|(_, item)| item).collect(), next })
    }

    /// The number of fan-outs that were given up.
    pub async fn given_up(&self) -> Result<u64, StoreError> {
        let counts = (0..schema::UNFINISHED_SHARDS).map(async |shard| {
            let mut pages = self
                .client
                .query()
                .table_name(&self.tables.posts)
                .index_name(schema::UNFINISHED)
                .select(Select::Count)
                .key_condition_expression("unfinished = :shard")
                .expression_attribute_values(":shard", schema::given_up_shard(shard))
                .into_paginator()
                .send();
            let mut count = 0;
            while let Some(page) = pages.next().await {
                let page = page.map_err(|error| unavailable("given_up", error))?;
                count += u64::try_from(page.count()).unwrap_or(0);
            }
            Ok::<_, StoreError>(count)
        });
        Ok(try_join_all(counts).await?.into_iter().sum())
    }

    /// The posts among these that have a body.
    pub async fn bodies(&self, posts: &[PostId]) -> Result<HashSet<PostId>, StoreError> {
        let keys = distinct(posts).into_iter().map(schema::body).collect();
        let found = self.batch_get("bodies", vec![(self.tables.posts.clone(), keys)]).await?;
        let ids = found.iter().flatten().map(|item| {
            let reader = Reader { table: "posts", item };
            let seq = schema::body_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?;
            Ok(PostId::new(reader.user("author")?, seq))
        });
        ids.collect()
    }

    /// A part of all edges by follower, tombstones included. The edges of one user are consecutive.
    pub async fn some_edges(
        &self,
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<Part<Edge, (String, String)>, StoreError> {
        let after = after.map(|(user, author)| schema::edge_key(&user, &author));
        let (items, last) = self.some("some_edges", &self.tables.following, after, limit).await?;
        // The raw keys, because they may be damaged.
        let text = |item: &Item, name| item.get(name).and_then(|value| value.as_n().ok()).cloned();
        let pair = |item: Item| Some((text(&item, "user")?, text(&item, "author")?));
        let Decoded { found, damaged } = listing(&items, read_edge)?;
        let damaged = damaged.into_iter().map(|(_, item)| item).collect();
        Ok(Part { items: found, damaged, next: last.and_then(pair) })
    }

    /// The keys of a part of all idempotency records.
    pub async fn some_records(&self, after: Option<String>, limit: usize) -> Result<Part<String, String>, StoreError> {
        let after = after.as_deref().map(schema::record);
        let (items, last) = self.some("some_records", &self.tables.idempotency, after, limit).await?;
        let key = |item: &Item| Reader { table: "idempotency", item }.text("key").map(str::to_owned);
        let items = items.iter().map(key).collect::<Result<_, _>>()?;
        Ok(Part { items, damaged: Vec::new(), next: last.as_ref().map(key).transpose()? })
    }

    pub async fn record(&self, key: &str) -> Result<Option<StoredRecord>, StoreError> {
        let wanted = vec![(self.tables.idempotency.clone(), vec![schema::record(key)])];
        let Some(item) = self.batch_get("record", wanted).await?.into_iter().flatten().next() else { return Ok(None) };
        let says = match said(&item) {
            None => None,
            Some((answered, expires_at)) => {
                let exists = match &answered {
                    Answered::Post(post) => self.is_there(*post).await?,
                    Answered::Notices(notices) => self.were_published(notices).await?,
                };
                Some(RecordSays { answered, expires_at, exists })
            }
        };
        Ok(Some(StoredRecord { key: key.to_owned(), says }))
    }

    /// The position of the walk `name`; `None` if no walk is in progress.
    pub async fn walk(&self, name: &str) -> Result<Option<String>, StoreError> {
        const OPERATION: &str = "walk";
        let key = schema::walk(name);
        let found = self.batch_get(OPERATION, vec![(self.tables.counters.clone(), vec![key.clone()])]).await?;
        let Some(item) = found.into_iter().flatten().next() else { return Ok(None) };
        if let Ok(position) = (Reader { table: "counters", item: &item }).text("position") {
            return Ok(Some(position.to_owned()));
        }
        warn!(name, "the position of a walk cannot be read, the walk begins again");
        let delete = self.client.delete_item().table_name(&self.tables.counters).set_key(Some(key));
        let delete = delete.condition_expression("NOT attribute_type(#position, :text)");
        let delete = delete.expression_attribute_names("#position", "position");
        sent(OPERATION, delete.expression_attribute_values(":text", string("S")).send().await)?;
        Ok(None)
    }

    /// Stores the position of a walk, on condition that it was at `from`; false if it was not.
    pub async fn note_walk(&self, name: &str, from: Option<&str>, to: Option<&str>) -> Result<bool, StoreError> {
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

impl StoredFacts {
    /// All items of a sharded partition; `None` if there are more than `most`.
    async fn partition(
        &self,
        operation: &'static str,
        table: &str,
        partition: AttributeValue,
        most: usize,
    ) -> Result<Option<Vec<Item>>, StoreError> {
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

    /// Whether the post exists, readable or not.
    async fn is_there(&self, post: PostId) -> Result<bool, StoreError> {
        let wanted = vec![(self.tables.posts.clone(), vec![schema::post(post)])];
        Ok(self.batch_get("record", wanted).await?.iter().flatten().next().is_some())
    }

    /// Whether the platforms have published up to these notices. A deleted notice leaves no other trace.
    async fn were_published(&self, notices: &[NoticeId]) -> Result<bool, StoreError> {
        let heads = try_join_all(notices.iter().map(|notice| self.head(notice.platform))).await?;
        Ok(notices.iter().zip(heads).all(|(notice, head)| notice.seq <= head.latest_seq))
    }

    /// A part of a table, and the key of its last item if there are more.
    async fn some(
        &self,
        operation: &'static str,
        table: &str,
        after: Option<Item>,
        limit: usize,
    ) -> Result<(Vec<Item>, Option<Item>), StoreError> {
        let scan = self.client.scan().table_name(table).limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let answer = scan.set_exclusive_start_key(after).send().await.map_err(|error| unavailable(operation, error))?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}

/// The published object and the expiry of an idempotency record; `None` if it cannot be read.
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

fn stored_post(item: &Item) -> Result<StoredPost, StoreError> {
    Ok(StoredPost { post: read_post(item)?, unfinished: item.contains_key("unfinished") })
}

fn stored_head(item: &Item) -> Result<StoredHead, StoreError> {
    let reader = Reader { table: "posts", item };
    // The right number of posts depends on these numbers.
    reader.optional_number("archived")?;
    let deletions = reader.optional_number("deletions")?;
    Ok(StoredHead { head: read_head(item)?, posts: stored_count(&reader, "posts"), deletions })
}

fn read_follower(item: &Item) -> Result<Relation, StoreError> {
    let reader = Reader { table: "followers", item };
    schema::relation_of(reader.text("since")?).ok_or_else(|| reader.damaged("since"))
}

/// The post in the key of an item.
fn post_of(item: &Item) -> Result<PostId, StoreError> {
    let reader = Reader { table: "posts", item };
    let seq = schema::post_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?;
    Ok(PostId::new(reader.user("author")?, seq))
}

/// Decodes each item separately. An item that cannot be read is damaged, and the others are found.
pub(super) fn listing<T>(items: &[Item], read: impl Fn(&Item) -> Result<T, StoreError>) -> Result<Decoded<Vec<T>>, StoreError> {
    let mut decoded: Decoded<Vec<T>> = Decoded { found: Vec::new(), damaged: Vec::new() };
    for item in items {
        match read(item) {
            Ok(found) => decoded.found.push(found),
            Err(StoreError::DamagedItem { table, key, .. }) => decoded.damaged.push(((), DamagedItem { table, key })),
            Err(error) => return Err(error),
        }
    }
    Ok(decoded)
}

/// The same for items that were read by their keys.
fn by_key<K: Eq + Hash, T>(
    items: &[Vec<Item>],
    key: impl Fn(&Item) -> Result<K, StoreError>,
    read: impl Fn(&Item) -> Result<T, StoreError>,
) -> Result<Decoded<HashMap<K, T>, K>, StoreError> {
    let mut decoded = Decoded { found: HashMap::new(), damaged: Vec::new() };
    for item in items.iter().flatten() {
        let of = key(item)?;
        match read(item) {
            Ok(found) => drop(decoded.found.insert(of, found)),
            Err(StoreError::DamagedItem { table, key, .. }) => decoded.damaged.push((of, DamagedItem { table, key })),
            Err(error) => return Err(error),
        }
    }
    Ok(decoded)
}

/// A count of an item with its change number.
fn stored_count(reader: &Reader<'_>, name: &str) -> StoredCount {
    let number = |name| reader.optional_number(name).map(|number| number.unwrap_or(0)).ok();
    StoredCount { count: number(name), changes: number("changes") }
}
