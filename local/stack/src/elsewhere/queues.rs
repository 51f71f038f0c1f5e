//! The queues of the template elsewhere.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::Service;
use crate::{
    sqs::{Counts, Received},
    template::{Queue, REGION},
};

/// How often a poller asks whether a queue has messages.
const WATCH: Duration = Duration::from_millis(100);
/// The largest batch of SQS.
const BATCH: usize = 10;

#[derive(Debug)]
pub(crate) struct Queues {
    service: Service,
    /// By physical name.
    queues: BTreeMap<String, Queue>,
}

impl Queues {
    /// Creates the queues that do not exist.
    pub(crate) async fn create(url: &str, queues: impl IntoIterator<Item = Queue>) -> Result<Self> {
        let queues = queues.into_iter().map(|queue| (queue.name.clone(), queue)).collect();
        let this = Self { service: Service::new(url, "sqs")?, queues };
        // A dead-letter queue must exist before the queue that names it.
        let (sources, targets): (Vec<&Queue>, Vec<&Queue>) = this.queues.values().partition(|queue| queue.redrive.is_some());
        for queue in targets.into_iter().chain(sources) {
            let request = json!({ "QueueName": queue.name, "Attributes": attributes(queue) });
            let answer = this.service.call("AmazonSQS.CreateQueue", &request).await?;
            // Functions know the URL from the template, and their SDK sends to the endpoint, so the path must be the same.
            let path = |url: &str| url.splitn(4, '/').nth(3).map(str::to_owned);
            let url = answer["QueueUrl"].as_str().unwrap_or_default();
            ensure!(path(url) == path(&queue.url), "the URL of `{}` is {url}, not {}", queue.logical_id, queue.url);
        }
        Ok(this)
    }

    async fn call(&self, operation: &str, name: &str, mut request: Value) -> Result<Value> {
        let queue = self.queues.get(name).with_context(|| format!("the template has no queue `{name}`"))?;
        request["QueueUrl"] = json!(queue.url);
        self.service.call(&format!("AmazonSQS.{operation}"), &request).await
    }

    /// Waits until a message is visible.
    pub(crate) async fn arrival(&self, name: &str) {
        loop {
            match self.counts(name).await {
                Ok(counts) if counts.visible > 0 => return,
                Ok(_) => {}
                Err(error) => tracing::error!(queue = name, "cannot count: {error:#}"),
            }
            tokio::time::sleep(WATCH).await;
        }
    }

    /// Receives up to `most` messages without waiting.
    pub(crate) async fn receive(&self, name: &str, most: usize) -> Result<Vec<Received>> {
        let all = json!(["All"]);
        let request = json!({
            "MaxNumberOfMessages": most.min(BATCH), "WaitTimeSeconds": 0,
            "AttributeNames": all, "MessageSystemAttributeNames": all, "MessageAttributeNames": all,
        });
        let answer = self.call("ReceiveMessage", name, request).await?;
        let arn = self.queues.get(name).map(|queue| queue.arn.as_str()).unwrap_or_default();
        let messages = answer["Messages"].as_array().into_iter().flatten();
        let received: Vec<Received> = messages.map(|message| received(message, arn)).collect();
        if received.is_empty() {
            // The count was too high, or another poller was faster. A count that stays too high must not spin.
            tokio::time::sleep(WATCH).await;
        }
        Ok(received)
    }

    /// Makes a message visible again.
    pub(crate) async fn failed(&self, name: &str, handle: &str) -> Result<()> {
        self.call("ChangeMessageVisibility", name, json!({ "ReceiptHandle": handle, "VisibilityTimeout": 0 })).await.map(drop)
    }

    pub(crate) async fn delete(&self, name: &str, handles: &[String]) -> Result<()> {
        for batch in handles.chunks(BATCH) {
            let entry = |(index, handle): (usize, &String)| json!({ "Id": index.to_string(), "ReceiptHandle": handle });
            let entries: Vec<Value> = batch.iter().enumerate().map(entry).collect();
            let answer = self.call("DeleteMessageBatch", name, json!({ "Entries": entries })).await?;
            ensure!(answer["Failed"].as_array().is_none_or(Vec::is_empty), "not deleted: {}", answer["Failed"]);
        }
        Ok(())
    }

    pub(crate) async fn send(&self, name: &str, body: &str) -> Result<()> {
        self.call("SendMessage", name, json!({ "MessageBody": body })).await.map(drop)
    }

    pub(crate) async fn counts(&self, name: &str) -> Result<Counts> {
        let answer = self.call("GetQueueAttributes", name, json!({ "AttributeNames": ["All"] })).await?;
        let count = |attribute: &str| -> Result<usize> {
            let text = answer["Attributes"][attribute].as_str().with_context(|| format!("`{name}` has no {attribute}"))?;
            Ok(text.parse()?)
        };
        Ok(Counts {
            visible: count("ApproximateNumberOfMessages")?,
            in_flight: count("ApproximateNumberOfMessagesNotVisible")?,
            delayed: count("ApproximateNumberOfMessagesDelayed")?,
        })
    }
}

fn attributes(queue: &Queue) -> Value {
    let mut all = json!({
        "VisibilityTimeout": queue.visibility_seconds.to_string(),
        "MessageRetentionPeriod": queue.retention_seconds.to_string(),
        "DelaySeconds": queue.delay_seconds.to_string(),
        "MaximumMessageSize": queue.maximum_bytes.to_string(),
        "ReceiveMessageWaitTimeSeconds": queue.wait_seconds.to_string(),
    });
    if let Some(redrive) = &queue.redrive {
        let target = match queue.arn.rsplit_once(':') {
            Some((account, _)) => format!("{account}:{}", redrive.target),
            None => redrive.target.clone(),
        };
        let policy = json!({ "deadLetterTargetArn": target, "maxReceiveCount": redrive.max_receives });
        all["RedrivePolicy"] = json!(policy.to_string());
    }
    all
}

/// Turns a message of `ReceiveMessage` into the record that Lambda makes of it.
fn received(message: &Value, arn: &str) -> Received {
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    let attributes = message["MessageAttributes"].as_object().into_iter().flatten();
    let attributes: Map<String, Value> = attributes
        .map(|(name, value)| {
            let value = json!({
                "stringValue": value["StringValue"], "binaryValue": value["BinaryValue"], "dataType": value["DataType"],
                "stringListValues": [], "binaryListValues": [],
            });
            (name.clone(), value)
        })
        .collect();
    let record = json!({
        "messageId": text("MessageId"),
        "receiptHandle": text("ReceiptHandle"),
        "body": text("Body"),
        "attributes": message["Attributes"],
        "messageAttributes": attributes,
        "md5OfBody": text("MD5OfBody"),
        "md5OfMessageAttributes": message["MD5OfMessageAttributes"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": REGION,
    });
    Received { id: text("MessageId"), handle: text("ReceiptHandle"), record }
}
