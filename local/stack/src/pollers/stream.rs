//! Streams: records become invocations, in order. A table has one shard here. A batch must succeed or be given up
//! before the next one starts.

use std::{sync::atomic::Ordering, time::Duration};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Context, failed_items, position_key};
use crate::{
    clock,
    core::{Core, Position, Unit},
    dynamodb::Record,
    runner::InvokeError,
    sqs::new_id,
    template::StreamSource,
};

/// The time after a write in which the invocation that wrote may end. A reader waits for the end or this time, because
/// what a record asks for is then often done already.
const SETTLE: Duration = Duration::from_millis(25);
/// The interval at which a stream elsewhere is read.
const READ_ELSEWHERE: Duration = Duration::from_millis(200);

/// In a storm, the probability that a successful batch is delivered a second time.
const STORM_REPEATS: f64 = 0.05;

/// Continues after this record, also after a restart.
pub(crate) fn advance(core: &Core, key: &str, position: &Position, sequence: i64) {
    let key = key.to_owned();
    position.sequence.fetch_max(sequence, Ordering::SeqCst);
    core.log.consumed(&position.table_name, &key, sequence);
    core.store.post(move |transaction| {
        let mut statement = transaction.prepare_cached("INSERT OR REPLACE INTO positions (source, sequence) VALUES (?1, ?2)")?;
        statement.execute(rusqlite::params![key, sequence]).map(drop)
    });
}

struct Reader<'a> {
    context: &'a Context,
    unit: &'a Unit,
    source: &'a StreamSource,
    key: String,
    position: &'a Position,
}

pub(super) async fn poll(context: Context, function: String, source: StreamSource) {
    let core = &context.core;
    let Some(unit) = context.unit(&function) else { return };
    let Some(table) = core.template.tables.get(&source.table) else { return };
    let key = position_key(&function, &table.name);
    let Some(position) = core.positions.get(&key) else { return };
    let reader = Reader { context: &context, unit, source: &source, key, position };
    let mut writes = core.log.writes();
    loop {
        writes.mark_unchanged();
        match reader.read(1).await {
            Ok(first) if first.is_empty() => {
                let wait = async {
                    if position.tail.is_some() {
                        let _ = tokio::time::timeout(READ_ELSEWHERE, core.wrote.notified()).await;
                    } else if writes.changed().await.is_ok() {
                        let _ = tokio::time::timeout(SETTLE, core.wrote.notified()).await;
                    }
                };
                let Some(()) = context.stop.run_until_cancelled(wait).await else { return };
            }
            Ok(_) => {
                let Some(_pass) = context.stop.run_until_cancelled(unit.gate.enter()).await else { return };
                reader.next_batch().await;
            }
            Err(error) => {
                tracing::error!(table = source.table, "cannot read the stream: {error:#}");
                tokio::time::sleep(context.core.retry_delay).await;
            }
        }
        if context.stop.is_cancelled() {
            return;
        }
    }
}

impl Reader<'_> {
    async fn read(&self, most: usize) -> Result<Vec<Record>> {
        let Position { table_name, arn, view, sequence, tail, .. } = self.position;
        let after = sequence.load(Ordering::SeqCst);
        match tail {
            Some(tail) => tail.read(after, most).await,
            None => Ok(self.context.core.log.read(table_name, view, arn, after, most)?),
        }
    }

    async fn next_batch(&self) {
        let deadline = Instant::now() + self.source.batching_window;
        let mut records = self.read(self.source.batch_size).await.unwrap_or_default();
        while records.len() < self.source.batch_size && Instant::now() < deadline && !self.context.stop.is_cancelled() {
            tokio::time::sleep(SETTLE).await;
            records = self.read(self.source.batch_size).await.unwrap_or(records);
        }
        if records.is_empty() {
            return;
        }
        // The remaining parts with their attempts. The last element is the next to process.
        let mut work = vec![(records, 0)];
        while let Some((batch, attempts)) = work.pop() {
            if self.context.stop.is_cancelled() {
                return;
            }
            work.extend(self.attempt(batch, attempts).await);
        }
    }

    /// Passes one batch to the function. Returns the parts that remain; the last element is the next to process.
    async fn attempt(&self, batch: Vec<Record>, attempts: u32) -> Vec<(Vec<Record>, u32)> {
        let request_id = new_id();
        let records: Vec<&Value> = batch.iter().map(|record| &record.event).collect();
        let response = self.context.core.invoke_as(self.unit, &request_id, json!({ "Records": records })).await;
        let ids: Vec<&str> = batch.iter().map(Record::sequence_number).collect();
        let failed = failed_items(self.unit, self.source.report_failures, &response, &ids);
        // The lowest index, as in Lambda.
        let Some(index) = failed.map_or(Some(0), |indexes| indexes.into_iter().min()) else {
            if self.context.core.surroundings.conditions.storm(STORM_REPEATS) {
                // The result does not matter: the function has handled the batch already.
                let _ = self.context.core.invoke_as(self.unit, &new_id(), json!({ "Records": records })).await;
            }
            self.advance_to_end(&batch);
            return Vec::new();
        };
        let mut done = batch;
        let mut first = done.split_off(index);
        if index > 0 {
            // The poller made progress. The rest is a new batch with no attempts.
            self.advance_to_end(&done);
            tokio::time::sleep(self.context.core.retry_delay).await;
            return vec![(first, 0)];
        }
        if response.is_err() && self.source.bisect && first.len() > 1 {
            // A split does not count as a retry.
            let second = first.split_off(first.len() / 2);
            return vec![(second, attempts), (first, attempts)];
        }
        if self.source.maximum_retries.is_some_and(|most| attempts >= most) {
            self.give_up(&first, &request_id, attempts, response.as_ref().err()).await;
            return Vec::new();
        }
        let _ = tokio::time::timeout(self.context.core.retry_delay, self.context.stop.cancelled()).await;
        vec![(first, attempts + 1)]
    }

    fn advance_to_end(&self, batch: &[Record]) {
        if let Some(record) = batch.last() {
            advance(&self.context.core, &self.key, self.position, record.sequence);
        }
    }

    /// Sends the ids of the abandoned records to the failure destination and continues after them.
    async fn give_up(&self, batch: &[Record], request_id: &str, attempts: u32, error: Option<&InvokeError>) {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return };
        let (function, table) = (&self.unit.function.binary, &self.source.table);
        let from = first.sequence_number();
        tracing::error!(function, table, records = batch.len(), from, "stream records are abandoned");
        let message = json!({
            "requestContext": {
                "requestId": request_id,
                "functionArn": self.unit.function.arn(),
                "condition": "RetryAttemptsExhausted",
                "approximateInvokeCount": attempts + 1,
            },
            "responseContext": {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": error.map(|_| "Unhandled"),
            },
            "version": "1.0",
            "timestamp": clock::rfc3339(clock::now_seconds()),
            "DDBStreamBatchInfo": {
                "shardId": format!("shardId-00000001-{}", self.position.table_name),
                "startSequenceNumber": first.sequence_number(),
                "endSequenceNumber": last.sequence_number(),
                "approximateArrivalOfFirstRecord": clock::rfc3339(first.created_at),
                "approximateArrivalOfLastRecord": clock::rfc3339(last.created_at),
                "batchSize": batch.len(),
                "streamArn": self.position.arn,
            },
        });
        if let Some(queue) = &self.source.on_failure
            && let Err(error) = self.context.core.queues.send(queue, message.to_string()).await
        {
            tracing::error!(queue, "cannot send to the failure destination: {error:#}");
        }
        self.advance_to_end(batch);
    }
}
