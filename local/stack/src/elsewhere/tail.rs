//! The stream of one table elsewhere, read by one function.

use std::collections::VecDeque;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Elsewhere;
use crate::dynamodb::Record;

#[derive(Default)]
struct State {
    /// `None` before the first read.
    iterator: Option<String>,
    /// The number of records read so far.
    read: i64,
    /// The records that the function has not handled.
    records: VecDeque<Record>,
}

/// A stream of one shard. Sequence numbers elsewhere have up to 40 digits: here [`Record::sequence`] counts the records
/// from the oldest one, which must not have expired when a stack is restarted.
pub(crate) struct Tail {
    elsewhere: Elsewhere,
    arn: String,
    state: Mutex<State>,
}

impl Tail {
    pub(crate) fn new(elsewhere: Elsewhere, arn: String) -> Self {
        Self { elsewhere, arn, state: Mutex::default() }
    }

    /// Returns up to `most` records after `position`, oldest first, and forgets those up to `position`.
    pub(crate) async fn read(&self, position: i64, most: usize) -> Result<Vec<Record>> {
        let mut state = self.state.lock().await;
        while state.records.front().is_some_and(|record| record.sequence <= position) {
            state.records.pop_front();
        }
        if state.records.len() < most {
            self.pull(&mut state).await?;
        }
        Ok(state.records.iter().take(most).cloned().collect())
    }

    /// Counts the records after `position`. All records that were written before the call are among them.
    pub(crate) async fn behind(&self, position: i64) -> Result<u64> {
        let mut state = self.state.lock().await;
        self.pull(&mut state).await?;
        Ok(state.records.iter().filter(|record| record.sequence > position).count() as u64)
    }

    /// Reads up to the end of the stream.
    async fn pull(&self, state: &mut State) -> Result<()> {
        loop {
            let iterator = match &state.iterator {
                Some(iterator) => iterator.clone(),
                None => self.first_iterator().await?,
            };
            let page = self.stream("GetRecords", &json!({ "ShardIterator": iterator })).await?;
            state.iterator = Some(text(&page["NextShardIterator"])?);
            let records = page["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
            for record in records {
                state.read += 1;
                state.records.push_back(self.record(state.read, record));
            }
            if records.is_empty() {
                return Ok(());
            }
        }
    }

    async fn first_iterator(&self) -> Result<String> {
        let stream = self.stream("DescribeStream", &json!({ "StreamArn": self.arn })).await?;
        let shard = &stream["StreamDescription"]["Shards"][0]["ShardId"];
        let request = json!({ "StreamArn": self.arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON" });
        text(&self.stream("GetShardIterator", &request).await?["ShardIterator"])
    }

    async fn stream(&self, operation: &str, request: &Value) -> Result<Value> {
        self.elsewhere.call(&format!("DynamoDBStreams_20120810.{operation}"), request).await
    }

    /// Completes a record as Lambda does.
    fn record(&self, sequence: i64, record: &Value) -> Record {
        let mut event = record.clone();
        event["eventSourceARN"] = json!(self.arn);
        #[expect(clippy::cast_possible_truncation, reason = "whole seconds are enough")]
        let created_at = event["dynamodb"]["ApproximateCreationDateTime"].as_f64().unwrap_or_default() as i64;
        Record { sequence, created_at, event }
    }
}

fn text(iterator: &Value) -> Result<String> {
    iterator.as_str().map(str::to_owned).context("the stream has no open shard")
}
