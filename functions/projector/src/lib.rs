//! Brings views in line with facts that have changed, from the change streams of the tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use aws_lambda_events::{
    dynamodb::Event,
    streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse},
};
use lambda_runtime::LambdaEvent;
use tidemark::{App, domain::Timestamp, facts::StreamRecord};
use tracing::error;

/// An invocation ends this long before its deadline.
const RESERVE: Duration = Duration::from_secs(5);

/// Updates the views of all records of one batch. It reports the sequence number of the first failed record, and the
/// stream repeats the records from there.
pub async fn handle(app: &App, event: LambdaEvent<Event>) -> Result<DynamoDbEventResponse, Infallible> {
    let invocation = app.invocation(&event.context);
    let records = event.payload.records;
    let (mut changes, mut failed) = (BTreeMap::new(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        let (arn, change) = (record.event_source_arn.as_deref(), &record.change);
        let shown = StreamRecord { arn, keys: &change.keys, old: &change.old_image, new: &change.new_image };
        match shown.change(&app.settings.tables) {
            Ok(Some(change)) => _ = changes.entry(change).or_insert(index),
            Ok(None) => {}
            // No repetition makes it readable.
            Err(malformed) => {
                error!(event = record.event_id, %malformed, "a record is given up");
                if app.stores.queues.failures.give_up(&malformed.to_string()).await.is_err() {
                    failed.push(index);
                }
            }
        }
    }
    let stop_at = event.context.deadline.saturating_sub(RESERVE.as_millis() as u64);
    let out_of_time = || app.stores.clock.now().ms() >= stop_at;
    let since = records.iter().map(|record| record.change.approximate_creation_date_time.timestamp_millis()).min();
    let since = Timestamp::from_ms(since.and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default());
    let left = app.projector.project(changes.keys().copied().collect::<BTreeSet<_>>(), since, &out_of_time).await;
    failed.extend(left.iter().filter_map(|change| changes.get(change)));
    invocation.worked(records.len(), failed.len());
    let mut response = DynamoDbEventResponse::default();
    if let Some(index) = failed.into_iter().min() {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = records[index].change.sequence_number.clone();
        response.batch_item_failures.push(failure);
    }
    Ok(response)
}
