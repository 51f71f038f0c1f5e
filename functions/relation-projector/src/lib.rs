//! Updates live views after changes of follow edges: backfills new followees and removes posts after an unfollow.
//!
//! A stream record only shows which pair of users changed, and whether a follow may have begun or ended. The update
//! depends on the facts alone, so records may be repeated, late or out of order. Usually the follow function has
//! updated the views already. The projector updates the views that the follow function did not reach.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use aws_lambda_events::{
    dynamodb::{Event, EventRecord},
    streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse},
};
use futures::{FutureExt, StreamExt, stream};
use lambda_runtime::LambdaEvent;
use tidemark::{App, domain::UserId, facts, ports::StoreError};
use tracing::{error, warn};

/// Readers of one batch whose views are updated concurrently.
const PARALLEL: usize = 8;

/// Updates the views of all pairs in one batch of stream records, reader by reader. It
/// reports the sequence number of the first failed record, and the stream repeats the records from there.
pub async fn handle(app: &App, event: LambdaEvent<Event>) -> Result<DynamoDbEventResponse, Infallible> {
    let invocation = app.invocation(&event.context);
    let records = event.payload.records;
    // Whether a follow of the pair may have begun or ended.
    let mut pairs: BTreeMap<UserId, BTreeMap<UserId, bool>> = BTreeMap::new();
    let mut failed: BTreeSet<UserId> = BTreeSet::new();
    for record in &records {
        match facts::edge_of_record(&record.change.keys) {
            Some((user, author)) => {
                let followed = facts::may_change_follow(&record.change.old_image, &record.change.new_image);
                *pairs.entry(user).or_default().entry(author).or_default() |= followed;
            }
            None => error!(event = record.event_id, "malformed stream record: it has no edge key"),
        }
    }
    let work = pairs.into_iter().map(|(user, authors)| sync_view(app, user, authors).boxed());
    let done: Vec<(UserId, Result<(), StoreError>)> =
        stream::iter(work.collect::<Vec<_>>()).buffer_unordered(PARALLEL).collect().await;
    for (user, outcome) in done {
        if let Err(error) = outcome {
            warn!(%user, error = &error as &dyn std::error::Error, "view not updated, the stream repeats the records");
            failed.insert(user);
        }
    }
    // A malformed record has no edge.
    let has_failed =
        |record: &&EventRecord| facts::edge_of_record(&record.change.keys).is_none_or(|(user, _)| failed.contains(&user));
    invocation.worked(records.len(), records.iter().filter(has_failed).count());
    let mut response = DynamoDbEventResponse::default();
    if let Some(record) = records.iter().find(has_failed) {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = record.change.sequence_number.clone();
        response.batch_item_failures.push(failure);
    }
    Ok(response)
}

/// Updates feed, lists and counters from the current edges.
async fn sync_view(app: &App, user: UserId, authors: BTreeMap<UserId, bool>) -> (UserId, Result<(), StoreError>) {
    let (follows, choices): (Vec<_>, Vec<_>) = authors.into_iter().partition(|(_, followed)| *followed);
    let [follows, choices] = [follows, choices].map(|pairs| pairs.into_iter().map(|(author, _)| author).collect::<Vec<_>>());
    let (follows, choices) = futures::join!(app.sync.follows(user, &follows), app.sync.choices_of(user, &choices));
    (user, follows.and(choices))
}
