//! The facts in DynamoDB. [`schema`] describes the items.

pub mod edges;
mod followers;
pub mod item;
pub mod notices;
mod outage;
mod people;
pub mod posts;
pub mod reactions;
pub mod reads;
pub mod schema;
pub mod windows;

use std::time::Duration;
use tidemark_app::ports::{Store, StoreError};

use aws_sdk_dynamodb::{
    Client,
    error::SdkError,
    operation::{
        transact_write_items::{TransactWriteItemsError, builders::TransactWriteItemsFluentBuilder},
        update_item::{UpdateItemError, UpdateItemOutput, builders::UpdateItemFluentBuilder},
    },
    types::{AttributeValue, KeysAndAttributes, Put},
};
use rand::Rng;

use item::Item;
pub use item::edge_of_record;
use tidemark_domain::{Timestamp, UserId};

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
    /// The user ids of claims.
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

/// Attempts at a transaction that conflicts with others, or at unprocessed keys.
pub const ATTEMPTS: u32 = 40;

/// The longest pause between two attempts. All attempts together take about eight seconds, so that a hundred concurrent
/// writers of one item have time to succeed.
const LONGEST_PAUSE_MS: u64 = 400;

/// Why a transaction was cancelled.
pub enum Cancelled {
    /// The conditions of these actions failed. Actions are numbered by their index in the transaction.
    Conditions(Vec<usize>),
    /// Another transaction held an item. A repetition may succeed.
    Conflict,
}

impl DynamoFacts {
    pub fn new(client: Client, tables: Tables, limits: Limits) -> Self {
        Self { client, tables, limits }
    }

    /// Checks that DynamoDB responds.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let (table, key) = (self.tables.counters.clone(), schema::followings_counter(UserId::MIN));
        self.batch_get("ping", vec![(table, vec![key])]).await.map(|_| ())
    }

    /// Reads all items of a user from `following` or `reads`, consistently and with whole sets.
    pub async fn of_user(&self, operation: &'static str, table: &str, user: UserId) -> Result<Vec<Item>, StoreError> {
        let mut pages = self
            .client
            .query()
            .table_name(table)
            .consistent_read(true)
            .key_condition_expression("#user = :user AND author < :end")
            .expression_attribute_names("#user", "user")
            .expression_attribute_values(":user", number(user.get()))
            .expression_attribute_values(":end", schema::reads_end())
            .into_paginator()
            .items()
            .send();
        let mut items = Vec::new();
        while let Some(item) = pages.next().await {
            items.push(item.map_err(|error| unavailable(operation, error))?);
        }
        self.completed(operation, table, items).await
    }

    /// Reads any number of items from several tables, consistently and with whole sets. The result has one list for
    /// each table, in the order of `wanted`; absent items are left out.
    pub async fn batch_get(
        &self,
        operation: &'static str,
        wanted: Vec<(String, Vec<Item>)>,
    ) -> Result<Vec<Vec<Item>>, StoreError> {
        let tables: Vec<String> = wanted.iter().map(|(table, _)| table.clone()).collect();
        let found = self.stored(operation, wanted).await?;
        futures::future::try_join_all(tables.iter().zip(found).map(|(table, items)| self.completed(operation, table, items)))
            .await
    }

    /// The same, with sets as they are stored: without the bits that lie in windows.
    pub async fn stored(&self, operation: &'static str, wanted: Vec<(String, Vec<Item>)>) -> Result<Vec<Vec<Item>>, StoreError> {
        let tables: Vec<String> = wanted.iter().map(|(table, _)| table.clone()).collect();
        let mut found: Vec<Vec<Item>> = vec![Vec::new(); tables.len()];
        let all: Vec<(usize, Item)> =
            wanted.into_iter().enumerate().flat_map(|(index, (_, keys))| keys.into_iter().map(move |key| (index, key))).collect();
        let answers =
            futures::future::try_join_all(all.chunks(BATCH_GET).map(|keys| self.batch_get_once(operation, &tables, keys)))
                .await?;
        for (index, item) in answers.into_iter().flatten() {
            found[index].push(item);
        }
        Ok(found)
    }

    async fn batch_get_once(
        &self,
        operation: &'static str,
        tables: &[String],
        keys: &[(usize, Item)],
    ) -> Result<Vec<(usize, Item)>, StoreError> {
        let mut request = std::collections::HashMap::new();
        for (index, table) in tables.iter().enumerate() {
            let keys: Vec<Item> = keys.iter().filter(|(of, _)| *of == index).map(|(_, key)| key.clone()).collect();
            if !keys.is_empty() {
                let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
                request.insert(table.clone(), keys.map_err(|error| unavailable(operation, error))?);
            }
        }
        let mut found = Vec::new();
        for attempt in 0..ATTEMPTS {
            let answer = self.client.batch_get_item().set_request_items(Some(request)).send().await;
            let answer = answer.map_err(|error| unavailable(operation, error))?;
            for (table, items) in answer.responses.unwrap_or_default() {
                let index = tables.iter().position(|name| *name == table).unwrap_or(0);
                found.extend(items.into_iter().map(|item| (index, item)));
            }
            request = answer.unprocessed_keys.unwrap_or_default();
            if request.is_empty() {
                return Ok(found);
            }
            back_off(attempt).await;
        }
        Err(StoreError::Contention { operation })
    }

    /// The write of an idempotency record. The record lives 24 hours and replaces only an expired one.
    pub(crate) fn record_put(&self, operation: &'static str, mut record: Item, now: Timestamp) -> Result<Put, StoreError> {
        record.insert("expires_at".to_owned(), number(now.seconds() + schema::IDEMPOTENCY_SECONDS));
        let put = Put::builder()
            .table_name(&self.tables.idempotency)
            .set_item(Some(record))
            .condition_expression("attribute_not_exists(fingerprint) OR expires_at <= :now")
            .expression_attribute_values(":now", number(now.seconds()));
        build(operation, put.build())
    }

    /// Sends a transaction. The inner error is the reason for its cancellation.
    ///
    /// The SDK repeats a request with the same `ClientRequestToken`, and DynamoDB returns the first outcome to a
    /// repetition. After the SDK's last attempt, the outcome may still be unknown: the transaction may be in progress
    /// (`TransactionInProgressException`), or done without a response. A caller that tries again with a new transaction
    /// must compare the stored items with those that it was writing.
    pub async fn transact(
        operation: &'static str,
        transaction: TransactWriteItemsFluentBuilder,
    ) -> Result<Result<(), Cancelled>, StoreError> {
        let error = match transaction.send().await {
            Ok(_) => return Ok(Ok(())),
            Err(error) => error,
        };
        let cancelled = match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => cancelled,
            Some(TransactWriteItemsError::TransactionInProgressException(_)) => return Ok(Err(Cancelled::Conflict)),
            _ => return Err(unavailable(operation, error)),
        };
        let codes: Vec<&str> = cancelled.cancellation_reasons().iter().map(|reason| reason.code().unwrap_or("None")).collect();
        let failed: Vec<usize> =
            codes.iter().enumerate().filter(|(_, code)| **code == "ConditionalCheckFailed").map(|(index, _)| index).collect();
        if !failed.is_empty() {
            Ok(Err(Cancelled::Conditions(failed)))
        } else if codes
            .iter()
            .any(|code| matches!(*code, "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded"))
        {
            Ok(Err(Cancelled::Conflict))
        } else {
            Err(unavailable(operation, error))
        }
    }
}

/// Sorts and removes duplicates. BatchGetItem refuses duplicate keys.
pub fn distinct<T: Ord + Copy>(ids: &[T]) -> Vec<T> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Waits a random time. The maximum grows with the attempt, up to [`LONGEST_PAUSE_MS`].
pub async fn back_off(attempt: u32) {
    let most = (2_u64 << attempt.min(8)).min(LONGEST_PAUSE_MS);
    let wait = rand::rng().random_range(1..=most);
    tokio::time::sleep(Duration::from_millis(wait)).await;
}

pub fn unavailable(operation: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable { store: Store::Facts, operation, source: Box::new(error) }
}

/// Whether a write failed because its condition did not hold.
pub fn condition_failed<E: aws_sdk_dynamodb::error::ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    code_of(error) == Some("ConditionalCheckFailedException")
}

fn code_of<E: aws_sdk_dynamodb::error::ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> Option<&str> {
    error.as_service_error().and_then(|error| error.code())
}

/// Whether a write was done. False means that its condition did not hold.
pub fn sent<T, E, R>(operation: &'static str, outcome: Result<T, SdkError<E, R>>) -> Result<bool, StoreError>
where
    E: aws_sdk_dynamodb::error::ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    match outcome {
        Ok(_) => Ok(true),
        Err(error) if condition_failed(&error) => Ok(false),
        Err(error) => Err(unavailable(operation, error)),
    }
}

/// Sends a conditional update, and repeats it while a transaction holds its item. Returns whether the write was done.
pub async fn sent_after_conflicts(operation: &'static str, update: UpdateItemFluentBuilder) -> Result<bool, StoreError> {
    sent(operation, outside_transactions(operation, update).await?)
}

/// Sends an update, and repeats it while a transaction holds its item.
pub(crate) async fn outside_transactions(
    operation: &'static str,
    update: UpdateItemFluentBuilder,
) -> Result<Result<UpdateItemOutput, SdkError<UpdateItemError>>, StoreError> {
    for attempt in 0..ATTEMPTS {
        match update.clone().send().await {
            Err(error) if code_of(&error) == Some("TransactionConflictException") => back_off(attempt).await,
            outcome => return Ok(outcome),
        }
    }
    Err(StoreError::Contention { operation })
}

/// Maps the error of an SDK builder. A builder fails only if this crate omits a required field.
pub fn build<T, E: std::error::Error + Send + Sync + 'static>(
    operation: &'static str,
    built: Result<T, E>,
) -> Result<T, StoreError> {
    built.map_err(|error| unavailable(operation, error))
}

pub fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub fn string(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}
