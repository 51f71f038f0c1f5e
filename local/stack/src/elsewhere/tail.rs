//! The stream of one table elsewhere, read by one function.

use std::collections::VecDeque;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Service;
use crate::dynamodb::Record;

#[derive(Debug, Default)]
struct State {
    /// The shard that is read. `None` before the first.
    shard: Option<String>,
    /// `None` if the shard has ended.
    iterator: Option<String>,
    /// The number of records read so far.
    read: i64,
    /// The records that the function has not handled.
    records: VecDeque<Record>,
}

/// A stream, read from its oldest record. A restarted stack therefore repeats the records of the last 24 hours, which
/// a stream may do at any time.
///
/// Sequence numbers elsewhere have up to 40 digits. Here [`Record::sequence`] counts the records instead.
#[derive(Debug)]
pub(crate) struct Tail {
    service: Service,
    arn: String,
    state: Mutex<State>,
}

impl Tail {
    pub(crate) fn new(service: Service, arn: String) -> Self {
        Self { service, arn, state: Mutex::default() }
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
            let Some(iterator) = &state.iterator else {
                match self.next_shard(state.shard.as_deref()).await? {
                    Some((shard, iterator)) => (state.shard, state.iterator) = (Some(shard), Some(iterator)),
                    None => return Ok(()),
                }
                continue;
            };
            let page = self.service.call("DynamoDBStreams_20120810.GetRecords", &json!({ "ShardIterator": iterator })).await?;
            state.iterator = page["NextShardIterator"].as_str().map(str::to_owned);
            let records = page["Records"].as_array().map(Vec::as_slice).unwrap_or_default();
            for record in records {
                state.read += 1;
                state.records.push_back(self.record(state.read, record));
            }
            if records.is_empty() && state.iterator.is_some() {
                return Ok(());
            }
        }
    }

    /// Returns the shard after `shard`, or the first one, with an iterator at its beginning. The list of shards is in
    /// the order of time, because the tables here have one open shard at a time.
    async fn next_shard(&self, shard: Option<&str>) -> Result<Option<(String, String)>> {
        let stream = self.service.call("DynamoDBStreams_20120810.DescribeStream", &json!({ "StreamArn": self.arn })).await?;
        let shards = stream["StreamDescription"]["Shards"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut ids = shards.iter().filter_map(|shard| shard["ShardId"].as_str());
        if let Some(shard) = shard {
            ids.find(|id| *id == shard);
        }
        let Some(next) = ids.next() else { return Ok(None) };
        let request = json!({ "StreamArn": self.arn, "ShardId": next, "ShardIteratorType": "TRIM_HORIZON" });
        let answer = self.service.call("DynamoDBStreams_20120810.GetShardIterator", &request).await?;
        let iterator = answer["ShardIterator"].as_str().context("GetShardIterator returned no iterator")?;
        Ok(Some((next.to_owned(), iterator.to_owned())))
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
