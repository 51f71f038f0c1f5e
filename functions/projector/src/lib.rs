//! Brings views and inboxes in line with facts that have changed, and sends events.
//!
//! It gets the records of the tables' change streams, and the tasks that follow acts a second later.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use aws_lambda_events::{
    dynamodb::{Event, EventRecord},
    sqs::{SqsBatchResponse, SqsEvent},
    streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::{Deserialize, Serialize};
use tidemark::{App, PendingEvent, domain::Timestamp, facts::StreamRecord};
use tracing::error;

/// An invocation ends this long before its deadline.
const RESERVE: Duration = Duration::from_secs(5);

/// The events of the sources of this function.
#[derive(Debug, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub enum Payload {
    Records(Event),
    Tasks(SqsEvent),
}

impl TryFrom<serde_json::Value> for Payload {
    type Error = serde_json::Error;

    fn try_from(event: serde_json::Value) -> Result<Self, Self::Error> {
        match event["Records"][0]["eventSource"].as_str() {
            Some("aws:sqs") => serde_json::from_value(event).map(Self::Tasks),
            _ => serde_json::from_value(event).map(Self::Records),
        }
    }
}

/// Names what the source has to repeat.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Response {
    Records(DynamoDbEventResponse),
    Tasks(SqsBatchResponse),
}

/// Projects the records of a stream, or runs tasks.
pub async fn handle(app: &App, event: LambdaEvent<Payload>) -> Result<Response, Infallible> {
    let LambdaEvent { payload, context, .. } = event;
    Ok(match payload {
        Payload::Records(event) => Response::Records(project(app, event.records, &context).await),
        Payload::Tasks(event) => Response::Tasks(tidemark::run_tasks(app, LambdaEvent::new(event, context)).await),
    })
}

/// Updates the views of all records of one batch, then sends the events of those records whose views are in line. It
/// reports the sequence number of the first failed record, and the stream repeats the records from there.
async fn project(app: &App, records: Vec<EventRecord>, context: &Context) -> DynamoDbEventResponse {
    let invocation = app.invocation(context);
    let (mut changes, mut failed) = (BTreeMap::new(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        match shown(record).changes(&app.settings.tables) {
            Ok(found) => found.into_iter().for_each(|change| _ = changes.entry(change).or_insert(index)),
            // No repetition makes it readable.
            Err(malformed) => {
                error!(event = record.event_id, %malformed, "a record is given up");
                if app.stores.queues.failures.give_up(&malformed.to_string()).await.is_err() {
                    failed.push(index);
                }
            }
        }
    }
    let stop_at = context.deadline.saturating_sub(RESERVE.as_millis() as u64);
    let out_of_time = || app.stores.clock.now().ms() >= stop_at;
    let since = records.iter().map(changed_at).min().unwrap_or_default();
    let left = app.projector.project(changes.keys().copied().collect::<BTreeSet<_>>(), since, &out_of_time).await;
    failed.extend(left.iter().filter_map(|change| changes.get(change)));
    // The stream repeats the other records, and their events with them.
    let in_line = failed.iter().copied().min().unwrap_or(records.len());
    failed.extend(send_events(app, &records[..in_line]).await);
    invocation.worked(records.len(), failed.len());
    let mut response = DynamoDbEventResponse::default();
    if let Some(index) = failed.into_iter().min() {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = records[index].change.sequence_number.clone();
        response.batch_item_failures.push(failure);
    }
    response
}

fn shown(record: &EventRecord) -> StreamRecord<'_> {
    let (arn, change) = (record.event_source_arn.as_deref(), &record.change);
    StreamRecord { arn, keys: &change.keys, old: &change.old_image, new: &change.new_image }
}

fn changed_at(record: &EventRecord) -> Timestamp {
    let ms = record.change.approximate_creation_date_time.timestamp_millis();
    Timestamp::from_ms(u64::try_from(ms).unwrap_or_default())
}

/// Sends the events of records. Returns the indexes of those that must be repeated.
async fn send_events(app: &App, records: &[EventRecord]) -> BTreeSet<usize> {
    let (mut pending, mut failed) = (Vec::new(), BTreeSet::new());
    for (index, record) in records.iter().enumerate().filter(|_| app.events.has_bus()) {
        match shown(record).events(&app.settings.tables) {
            Ok(events) => {
                let of_record = |event| PendingEvent { record: index, at: changed_at(record), event };
                pending.extend(events.into_iter().map(of_record));
            }
            Err(error) if app.events.cannot_be_read(&error).await => {}
            Err(_) => _ = failed.insert(index),
        }
    }
    failed.extend(app.events.send(pending).await);
    failed
}
