//! The facts in DynamoDB: written once, in one transaction each, and never derived from anything.
//!
//! [`schema`] is the only place that names tables' keys and attributes.

pub mod edges;
mod followers;
pub mod item;
pub mod notices;
mod outage;
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

/// Names of the tables.
#[derive(Debug, Clone)]
pub struct Tables {
    /// Edges by follower.
    pub following: String,
    /// Edges by followee.
    pub followers: String,
    /// Counts of edges.
    pub counters: String,
    /// Heads, posts, bodies.
    pub posts: String,
    /// Read states.
    pub reads: String,
    /// Heads of platforms, notices.
    pub notices: String,
    /// Read states of notices.
    pub notice_reads: String,
    /// Likes and favorites, and their counts.
    pub reactions: String,
    /// Idempotency records.
    pub idempotency: String,
    /// What migration has done.
    pub migration: String,
}

/// All fact stores on one DynamoDB client.
#[derive(Debug, Clone)]
pub struct DynamoFacts {
    /// The SDK's client.
    pub client: Client,
    /// The tables' names.
    pub tables: Tables,
    /// Numbers that decide what is written.
    pub limits: Limits,
}

/// Numbers that decide what is written.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Authors that a user may follow.
    pub following: u64,
    /// Followers from which on an author's posts are pulled.
    pub pull_threshold: u64,
}

/// Keys that one BatchGetItem takes.
const BATCH_GET: usize = 100;

/// Attempts at a transaction that others keep conflicting with, and at unprocessed keys.
pub const ATTEMPTS: u32 = 40;

/// The longest pause between two attempts: all of them take about eight seconds, so that a hundred who write one item at once have their turn.
const LONGEST_PAUSE_MS: u64 = 400;

/// Why a transaction was cancelled.
pub enum Cancelled {
    /// The conditions of these actions (by index) failed.
    Conditions(Vec<usize>),
    /// Another transaction held an item; to be repeated.
    Conflict,
}

impl DynamoFacts {
    /// Facts in these tables.
    pub fn new(client: Client, tables: Tables, limits: Limits) -> Self {
        Self { client, tables, limits }
    }

    /// Whether DynamoDB answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let (table, key) = (self.tables.counters.clone(), schema::followings_counter(UserId::MIN));
        self.batch_get("ping", vec![(table, vec![key])]).await.map(|_| ())
    }

    /// Everything a user has in a table whose partitions are users, read consistently.
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

    /// Consistent reads of up to any number of items of several tables, with their sets whole; absent ones left out. Answers in the order of the tables.
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

    /// The same of items as they are stored.
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

    /// The write of an idempotency record, which lives 24 hours and takes the place of an expired one only.
    pub fn record_put(&self, operation: &'static str, mut record: Item, now: Timestamp) -> Result<Put, StoreError> {
        record.insert("expires_at".to_owned(), number(now.seconds() + schema::IDEMPOTENCY_SECONDS));
        let put = Put::builder()
            .table_name(&self.tables.idempotency)
            .set_item(Some(record))
            .condition_expression("attribute_not_exists(fingerprint) OR expires_at <= :now")
            .expression_attribute_values(":now", number(now.seconds()));
        build(operation, put.build())
    }

    /// Sends a transaction; the inner error says why it was cancelled.
    ///
    /// The SDK repeats a request with the same `ClientRequestToken`, and DynamoDB answers a repetition with what the first one came to. What it cannot cover is its own end: after
    /// its last attempt a transaction may be under way (`TransactionInProgressException`), or done without an answer. A caller that tries again with a new transaction has
    /// to compare what is stored with what it was writing.
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

/// Each once: BatchGetItem refuses a key that is named twice.
pub fn distinct<T: Ord + Copy>(ids: &[T]) -> Vec<T> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Waits a random time that grows with the attempt, to [`LONGEST_PAUSE_MS`].
pub async fn back_off(attempt: u32) {
    let most = (2_u64 << attempt.min(8)).min(LONGEST_PAUSE_MS);
    let wait = rand::rng().random_range(1..=most);
    tokio::time::sleep(Duration::from_millis(wait)).await;
}

pub fn unavailable(operation: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable { store: Store::Facts, operation, source: Box::new(error) }
}

/// Whether a write failed on its condition.
pub fn condition_failed<E: aws_sdk_dynamodb::error::ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    code_of(error) == Some("ConditionalCheckFailedException")
}

fn code_of<E: aws_sdk_dynamodb::error::ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> Option<&str> {
    error.as_service_error().and_then(|error| error.code())
}

/// Whether a write was done; false when its condition did not hold.
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

/// Sends a conditional update, again while a transaction holds its item; whether it was done.
pub async fn sent_after_conflicts(operation: &'static str, update: UpdateItemFluentBuilder) -> Result<bool, StoreError> {
    sent(operation, outside_transactions(operation, update).await?)
}

/// Sends an update, again while a transaction holds its item.
pub async fn outside_transactions(
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

/// Builds of SDK types fail only when a required part was left out in this crate.
pub fn build<T, E: std::error::Error + Send + Sync + 'static>(
    operation: &'static str,
    built: Result<T, E>,
) -> Result<T, StoreError> {
    built.map_err(|error| unavailable(operation, error))
}

/// A number attribute.
pub fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A string attribute.
pub fn string(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}
