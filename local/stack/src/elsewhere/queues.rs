//! The queues of the template elsewhere, by their physical names.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Elsewhere;
use crate::{
    sqs::{Counts, Message, Queues, attributes},
    template::Queue,
};

/// The interval at which a poller checks whether a queue has messages.
const WATCH: Duration = Duration::from_millis(100);
/// The largest batch of SQS.
const BATCH: usize = 10;
const SETTABLE: [&str; 6] = [
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "DelaySeconds",
    "MaximumMessageSize",
    "ReceiveMessageWaitTimeSeconds",
    "RedrivePolicy",
];

impl Elsewhere {
    /// Creates the queues that do not exist.
    pub(crate) async fn ensure_queues(&self, queues: &Queues) -> Result<()> {
        // A dead-letter queue must exist before the queue that names it.
        let (sources, targets): (Vec<&Queue>, Vec<&Queue>) = queues.definitions().partition(|queue| queue.redrive.is_some());
        for queue in targets.into_iter().chain(sources) {
            let attributes = attributes(queues, &queue.name, |name| SETTABLE.contains(&name))?;
            self.call("AmazonSQS.CreateQueue", &json!({ "QueueName": queue.name, "Attributes": attributes })).await?;
        }
        Ok(())
    }

    async fn of_queue(&self, operation: &str, queue: &Queue, mut request: Value) -> Result<Value> {
        request["QueueUrl"] = json!(queue.url);
        self.call(&format!("AmazonSQS.{operation}"), &request).await
    }

    /// Waits until a message is visible.
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

    /// Receives up to `most` messages without waiting.
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
