//! DynamoDB and SQS that are not the stack's: an emulator at a URL, over the services' JSON protocols.
//!
//! The stack creates the tables and queues of the template there, and its pollers read streams and queues there. The
//! functions get the URL. Weather, planted faults and the measured delivery lag exist in the stack's own stores only.

use std::{collections::VecDeque, time::Duration};

use anyhow::{Context as _, Result, ensure};
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    dynamodb::{Record, creation},
    sqs::{Counts, Message, Queues, attributes},
    template::{Queue, Table},
};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which a poller checks whether a queue has messages.
const WATCH: Duration = Duration::from_millis(100);
/// The largest batch of SQS.
const BATCH: usize = 10;

#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) url: String,
    client: reqwest::Client,
}

impl Elsewhere {
    pub(crate) fn new(url: &str) -> Result<Self> {
        let client = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build()?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), client })
    }

    /// Performs an operation, such as `DynamoDB_20120810.CreateTable`, unsigned. An error has the response's body.
    async fn call(&self, operation: &str, request: &Value) -> Result<Value> {
        let request = self.client.post(&self.url).header("x-amz-target", operation).body(request.to_string());
        let response = async {
            let response = request.header(CONTENT_TYPE, "application/x-amz-json-1.0").send().await?;
            let (status, body) = (response.status(), response.bytes().await?);
            ensure!(status.is_success(), "{status} {}", String::from_utf8_lossy(&body));
            // Some operations of SQS have no result.
            Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? })
        };
        response.await.with_context(|| format!("{operation} at {}", self.url))
    }

    /// Creates a table if it does not exist. Returns the ARN of its stream if it has one.
    pub(crate) async fn ensure_table(&self, table: &Table) -> Result<Option<String>> {
        let named = json!({ "TableName": table.name });
        match self.call("DynamoDB_20120810.CreateTable", &creation(table)).await {
            Err(error) if format!("{error:#}").contains("ResourceInUseException") => {}
            created => {
                created?;
                if let Some(attribute) = &table.ttl_attribute {
                    let mut request = named.clone();
                    request["TimeToLiveSpecification"] = json!({ "AttributeName": attribute, "Enabled": true });
                    self.call("DynamoDB_20120810.UpdateTimeToLive", &request).await?;
                }
            }
        }
        let description = self.call("DynamoDB_20120810.DescribeTable", &named).await?;
        let arn = description["Table"]["LatestStreamArn"].as_str().map(str::to_owned);
        ensure!(arn.is_some() == table.stream_view.is_some(), "`{}` must have a stream as in the template", table.logical_id);
        Ok(arn)
    }
}

/// The queues of the template, by their physical names.
impl Elsewhere {
    pub(crate) async fn ensure_queues(&self, queues: &Queues) -> Result<()> {
        // A dead-letter queue must exist before the queue that names it.
        let (sources, targets): (Vec<&Queue>, Vec<&Queue>) = queues.definitions().partition(|queue| queue.redrive.is_some());
        for queue in targets.into_iter().chain(sources) {
            // Not those that SQS computes.
            let settable = |name: &str| name != "QueueArn" && !name.starts_with("ApproximateNumber");
            let attributes = attributes(queues, &queue.name, settable)?;
            self.call("AmazonSQS.CreateQueue", &json!({ "QueueName": queue.name, "Attributes": attributes })).await?;
        }
        Ok(())
    }

    async fn of_queue(&self, operation: &str, queue: &Queue, mut request: Value) -> Result<Value> {
        request["QueueUrl"] = json!(queue.url);
        self.call(&format!("AmazonSQS.{operation}"), &request).await
    }

    pub(crate) async fn arrival(&self, queue: &Queue) {
        loop {
            match self.counts(queue).await {
                Ok(counts) if counts.visible > 0 => return,
                Ok(_) => {}
                Err(error) => tracing::error!(queue = queue.name, "cannot count: {error:#}"),
            }
            tokio::time::sleep(WATCH).await;
        }
    }

    pub(crate) async fn receive(&self, queue: &Queue, most: usize) -> Result<Vec<Message>> {
        let request = json!({ "MaxNumberOfMessages": most.min(BATCH), "WaitTimeSeconds": 0, "AttributeNames": ["All"] });
        let response = self.of_queue("ReceiveMessage", queue, request).await?;
        Ok(response["Messages"].as_array().into_iter().flatten().map(received).collect())
    }

    /// Makes a message visible again.
    pub(crate) async fn failed(&self, queue: &Queue, handle: &str) -> Result<()> {
        self.of_queue("ChangeMessageVisibility", queue, json!({ "ReceiptHandle": handle, "VisibilityTimeout": 0 }))
            .await
            .map(drop)
    }

    pub(crate) async fn delete(&self, queue: &Queue, handles: &[String]) -> Result<()> {
        for batch in handles.chunks(BATCH) {
            let entry = |(index, handle): (usize, &String)| json!({ "Id": index.to_string(), "ReceiptHandle": handle });
            let entries: Vec<Value> = batch.iter().enumerate().map(entry).collect();
            let response = self.of_queue("DeleteMessageBatch", queue, json!({ "Entries": entries })).await?;
            ensure!(response["Failed"].as_array().is_none_or(Vec::is_empty), "not deleted: {}", response["Failed"]);
        }
        Ok(())
    }

    pub(crate) async fn send(&self, queue: &Queue, body: &str) -> Result<()> {
        self.of_queue("SendMessage", queue, json!({ "MessageBody": body })).await.map(drop)
    }

    pub(crate) async fn counts(&self, queue: &Queue) -> Result<Counts> {
        let response = self.of_queue("GetQueueAttributes", queue, json!({ "AttributeNames": ["All"] })).await?;
        let count = |attribute: &str| -> Result<usize> {
            let text =
                response["Attributes"][attribute].as_str().with_context(|| format!("`{}` has no {attribute}", queue.name))?;
            Ok(text.parse()?)
        };
        Ok(Counts {
            visible: count("ApproximateNumberOfMessages")?,
            in_flight: count("ApproximateNumberOfMessagesNotVisible")?,
            delayed: count("ApproximateNumberOfMessagesDelayed")?,
        })
    }
}

/// A message in the form of the stack's own, without attributes that senders set: the functions set none.
fn received(message: &Value) -> Message {
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| message["Attributes"][name].as_str().and_then(|text| text.parse().ok());
    let sent_ms = number("SentTimestamp").unwrap_or_default();
    Message {
        id: text("MessageId"),
        body: text("Body"),
        sent_ms,
        due_ms: sent_ms,
        receives: number("ApproximateReceiveCount").and_then(|count| count.try_into().ok()).unwrap_or_default(),
        first_received_ms: number("ApproximateFirstReceiveTimestamp"),
        handle: text("ReceiptHandle"),
        ..Message::default()
    }
}

#[derive(Default)]
struct TailState {
    /// `None` before the first read.
    iterator: Option<String>,
    /// The number of records read so far.
    read: i64,
    /// The records that the function has not handled.
    records: VecDeque<Record>,
}

/// The stream of one table, read by one function. It has one shard. Sequence numbers elsewhere have up to 40 digits:
/// here [`Record::sequence`] counts the records from the oldest one, which must not have expired at a restart.
pub(crate) struct Tail {
    elsewhere: Elsewhere,
    arn: String,
    state: Mutex<TailState>,
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
    async fn pull(&self, state: &mut TailState) -> Result<()> {
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
