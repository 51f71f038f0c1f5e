//! Turns changes of follow edges into backfills and retractions of live views.
//!
//! A record only says which pair has changed. What is done depends on the facts alone, so that records may be repeated, late or reordered; the follow
//! handler has mostly done it already, and this is what makes sure.

use std::collections::{BTreeMap, BTreeSet};
use tidemark::ports::StoreError;

use aws_lambda_events::{
    dynamodb::{Event, EventRecord},
    streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse},
};
use futures::{FutureExt, StreamExt, stream};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::{App, domain::UserId, facts};
use tracing::{error, warn};

/// Readers of one batch worked on side by side.
const PARALLEL: usize = 8;

/// Works on one batch of stream records. Pairs are brought in line reader by reader; the first record that failed is reported, and the stream goes on from there.
///
/// # Errors
/// Never: failures are reported by sequence number.
pub async fn handle(app: &App, event: LambdaEvent<Event>) -> Result<DynamoDbEventResponse, Error> {
    let records = event.payload.records;
    let mut pairs: BTreeMap<UserId, BTreeSet<UserId>> = BTreeMap::new();
    let mut failed: BTreeSet<UserId> = BTreeSet::new();
    let mut first_failure = None;
    for (index, record) in records.iter().enumerate() {
        match facts::edge_of_record(&record.change.keys) {
            Some((user, author)) => {
                pairs.entry(user).or_default().insert(author);
            }
            None => {
                error!(event = record.event_id, "a record without an edge's key");
                first_failure = first_failure.or(Some(index));
            }
        }
    }
    let work = pairs.into_iter().map(|(user, authors)| bring_in_line(app, user, authors.into_iter().collect()).boxed());
    let done: Vec<(UserId, Result<(), StoreError>)> =
        stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
    for (user, outcome) in done {
        if let Err(error) = outcome {
            warn!(%user, error = &error as &dyn std::error::Error, "view not in line, the records go back");
            failed.insert(user);
        }
    }
    let of_failed =
        |record: &EventRecord| facts::edge_of_record(&record.change.keys).is_some_and(|(user, _)| failed.contains(&user));
    let first = records.iter().position(of_failed).into_iter().chain(first_failure).min();
    let mut response = DynamoDbEventResponse::default();
    if let Some(record) = first.and_then(|index| records.get(index)) {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = record.change.sequence_number.clone();
        response.batch_item_failures.push(failure);
    }
    Ok(response)
}

/// Brings feed, lists and counters in line with the edges as they are now.
async fn bring_in_line(app: &App, user: UserId, authors: Vec<UserId>) -> (UserId, Result<(), StoreError>) {
    (user, app.sync.follows(user, &authors).await)
}
