//! The facts in DynamoDB. [`schema`] describes the items.

pub mod counters;
mod draft;
pub mod edges;
mod erasures;
pub mod followers;
pub mod item;
mod lists;
pub mod notices;
mod outage;
pub mod people;
pub mod posts;
pub mod reactions;
pub mod reads;
pub mod schema;
pub mod windows;
pub mod write;

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, operation::query::builders::QueryFluentBuilder, types::KeysAndAttributes};
use futures::{FutureExt, future::try_join_all};
use tidemark_app::{
    ports::{Store, StoreError},
    retry::Attempts,
};
use tidemark_domain::{Timestamp, UserId};

use item::{Item, number, read};
pub use item::{edge_of_record, may_change_follow, post_of_record};
use schema::{EdgeItem, RecordItem};
use write::{Write, absent, at_most, below, is, queried};

#[derive(Debug, Clone)]
pub struct Tables {
    pub following: String,
    pub followers: String,
    /// Counts of edges and of readers of notices, positions of jobs, and the outage note.
    pub counters: String,
    /// Heads, posts, bodies, and windows of heads.
    pub posts: String,
    /// Read states and their windows.
    pub reads: String,
    /// Heads of platforms, and notices.
    pub notices: String,
    pub notice_reads: String,
    /// Reactions and their counts.
    pub reactions: String,
    pub idempotency: String,
    /// Mappings and records of migration.
    pub migration: String,
    pub profiles: String,
    /// The users who have handles.
    pub handles: String,
    /// The user ids of claims, and receipts of erasures.
    pub identities: String,
    /// The posts that users have reacted to, by time.
    pub reacted: String,
}

/// The fact stores, on one DynamoDB client.
#[derive(Debug, Clone)]
pub struct DynamoFacts {
    pub client: Client,
    pub tables: Tables,
    pub limits: Limits,
}

/// Limits that affect what is written.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of authors that a user may follow.
    pub following: u64,
    /// An author with this many followers or more is pulled.
    pub pull_threshold: u64,
}

/// The maximum number of keys in one BatchGetItem.
const BATCH_GET: usize = 100;

impl DynamoFacts {
    pub fn new(client: Client, tables: Tables, limits: Limits) -> Self {
        Self { client, tables, limits }
    }

    /// Checks that DynamoDB responds.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.get_one("ping", &self.tables.counters, schema::followings_counter(UserId::MIN)).await.map(|_| ())
    }

    /// Reads all items of a user from `following` or `reads`, consistently and with whole sets.
    pub async fn of_user(&self, operation: &'static str, table: &str, user: UserId) -> Result<Vec<Item>, StoreError> {
        let items = queried(operation, self.query_user(table, user), usize::MAX).await?;
        self.completed(operation, table, items).await
    }

    /// A consistent query of all items of a user in `following` or `reads`, without windows.
    pub(crate) fn query_user(&self, table: &str, user: UserId) -> QueryFluentBuilder {
        let items = [is(EdgeItem::user, number(user.get())), below(EdgeItem::author, schema::reads_end())];
        self.query(table, items).consistent_read(true)
    }

    /// Reads one item, consistently and with whole sets.
    pub async fn get_one(&self, operation: &'static str, table: &str, key: Item) -> Result<Option<Item>, StoreError> {
        Ok(self.get(operation, table, vec![key]).await?.pop())
    }

    /// Reads any number of items of a table, consistently and with whole sets. Absent items are left out.
    pub async fn get(&self, operation: &'static str, table: &str, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        let [items] = self.batch_get(operation, [(table, keys)]).await?;
        Ok(items)
    }

    /// The same for several tables. The result has one list for each table, in the order of `wanted`.
    pub async fn batch_get<const N: usize>(
        &self,
        operation: &'static str,
        wanted: [(&str, Vec<Item>); N],
    ) -> Result<[Vec<Item>; N], StoreError> {
        let tables = wanted.each_ref().map(|(table, _)| *table);
        let mut found = self.stored(operation, wanted).await?;
        let whole = found.iter_mut().zip(tables).map(|(items, table)| self.completed(operation, table, std::mem::take(items)));
        let whole = try_join_all(whole).await?;
        found.iter_mut().zip(whole).for_each(|(items, whole)| *items = whole);
        Ok(found)
    }

    /// The same, with sets as they are stored: without the bits that lie in windows.
    pub(crate) async fn stored<const N: usize>(
        &self,
        operation: &'static str,
        wanted: [(&str, Vec<Item>); N],
    ) -> Result<[Vec<Item>; N], StoreError> {
        let tables = wanted.each_ref().map(|(table, _)| *table);
        let keys = wanted.into_iter().enumerate().flat_map(|(index, (_, keys))| keys.into_iter().map(move |key| (index, key)));
        let keys: Vec<(usize, Item)> = keys.collect();
        let batches = keys.chunks(BATCH_GET).map(|keys| self.batch_get_once(operation, &tables, keys));
        let mut found = [const { Vec::new() }; N];
        for (index, item) in try_join_all(batches).await?.into_iter().flatten() {
            found[index].push(item);
        }
        Ok(found)
    }

    async fn batch_get_once(
        &self,
        operation: &'static str,
        tables: &[&str],
        keys: &[(usize, Item)],
    ) -> Result<Vec<(usize, Item)>, StoreError> {
        let mut request = HashMap::new();
        for (index, table) in tables.iter().enumerate() {
            let keys: Vec<Item> = keys.iter().filter(|(of, _)| *of == index).map(|(_, key)| key.clone()).collect();
            if !keys.is_empty() {
                let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
                request.insert((*table).to_owned(), keys.map_err(|error| unavailable(operation, error))?);
            }
        }
        let mut found = Vec::new();
        let mut attempts = attempts(operation);
        loop {
            attempts.next().await?;
            let response = self.client.batch_get_item().set_request_items(Some(request)).send().await;
            let response = response.map_err(|error| unavailable(operation, error))?;
            for (table, items) in response.responses.unwrap_or_default() {
                let index = tables.iter().position(|name| *name == table).unwrap_or(0);
                found.extend(items.into_iter().map(|item| (index, item)));
            }
            request = response.unprocessed_keys.unwrap_or_default();
            if request.is_empty() {
                return Ok(found);
            }
        }
    }

    /// The write of an idempotency record. It replaces only an expired one.
    pub(crate) fn put_record(&self, record: &RecordItem, now: Timestamp) -> Write {
        let expired = at_most(RecordItem::expires_at, number(now.seconds()));
        Write::put(&self.tables.idempotency, item::encode(record)).when(absent(RecordItem::fingerprint).or(expired))
    }
}

/// An idempotency record without what the request has published.
pub(crate) fn new_record(key: String, fingerprint: &str, now: Timestamp) -> RecordItem {
    let (fingerprint, expires_at) = (fingerprint.to_owned(), now.seconds() + schema::IDEMPOTENCY_SECONDS);
    RecordItem { key, fingerprint, expires_at, post: None, notices: None, at: None }
}

/// The idempotency record among the items with its key; `None` if it is absent or expired.
pub(crate) fn valid_record(found: Vec<Item>, now: Timestamp) -> Result<Option<RecordItem>, StoreError> {
    let record = found.into_iter().next().map(|item| read(item, Ok::<RecordItem, _>)).transpose()?;
    Ok(record.filter(|record| record.expires_at > now.seconds()))
}

/// Starts the attempts of an optimistic change.
pub fn attempts(operation: &'static str) -> Attempts {
    Attempts::begin(operation, |time| tokio::time::sleep(time).boxed(), rand::random)
}

/// Sorts and removes duplicates. BatchGetItem refuses duplicate keys.
pub fn distinct<T: Ord + Copy>(ids: &[T]) -> Vec<T> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

pub fn unavailable(operation: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable { store: Store::Facts, operation, source: Box::new(error) }
}
