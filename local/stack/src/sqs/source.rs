//! The queues as pollers see them: the stack's own, or those elsewhere.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use rustack_sqs_core::message::{md5_of_body, md5_of_message_attributes};
use serde_json::{Map, Value, json};

use super::{Counts, Draft, Message, Queues, system_attributes};
use crate::{
    elsewhere,
    template::{REGION, Template},
};

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) handle: String,
    /// The message in the form that functions receive.
    pub(crate) record: Value,
}

#[derive(Debug)]
pub(crate) enum Source {
    Own(Arc<Queues>),
    Elsewhere(Box<elsewhere::Queues>),
}

impl Source {
    pub(crate) async fn elsewhere(url: &str, template: &Template) -> Result<Self> {
        let queues = elsewhere::Queues::create(url, template.queues.values().cloned()).await?;
        Ok(Self::Elsewhere(Box::new(queues)))
    }

    /// Waits until a message may have become visible.
    pub(crate) async fn arrival(&self, queue: &str) {
        match self {
            Self::Own(queues) => queues.arrival(queue).await,
            Self::Elsewhere(queues) => queues.arrival(queue).await,
        }
    }

    /// Receives up to `most` messages without waiting.
    pub(crate) async fn receive(&self, queue: &str, most: usize) -> Result<Vec<Received>> {
        match self {
            Self::Own(queues) => {
                let arn = &queues.definition(queue).map_err(|error| anyhow!("{error}"))?.arn;
                let messages = queues.receive_now(queue, most, None).map_err(|error| anyhow!("{error}"))?;
                let received =
                    |message: Message| Received { record: record(&message, arn), id: message.id, handle: message.handle };
                Ok(messages.into_iter().map(received).collect())
            }
            Self::Elsewhere(queues) => queues.receive(queue, most).await,
        }
    }

    /// Makes a message visible again after `delay`, because its receiver failed. With `None` it returns when its
    /// visibility timeout ends.
    pub(crate) async fn failed(&self, queue: &str, handle: &str, delay: Option<Duration>) -> Result<()> {
        match (self, delay) {
            (Self::Own(queues), _) => queues.failed(queue, handle, delay),
            (Self::Elsewhere(_), None) => {}
            (Self::Elsewhere(queues), Some(delay)) => {
                // A visibility timeout is a number of whole seconds.
                tokio::time::sleep(delay).await;
                queues.failed(queue, handle).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn delete(&self, queue: &str, handles: &[String]) -> Result<()> {
        match self {
            Self::Own(queues) => queues.delete(queue, handles).await.map(drop).map_err(|error| anyhow!("{error}")),
            Self::Elsewhere(queues) => queues.delete(queue, handles).await,
        }
    }

    pub(crate) async fn send(&self, queue: &str, body: String) -> Result<()> {
        match self {
            Self::Own(queues) => {
                let draft = Draft { body, ..Draft::default() };
                queues.send(queue, vec![draft]).await.map(drop).map_err(|error| anyhow!("{error}"))
            }
            Self::Elsewhere(queues) => queues.send(queue, &body).await,
        }
    }

    /// Makes the messages of failed receivers return after `delay`. Elsewhere they do so in any case.
    pub(crate) fn hasten(&self, delay: Duration) {
        if let Self::Own(queues) = self {
            queues.hasten(delay);
        }
    }

    pub(crate) async fn counts(&self, queue: &str) -> Result<Counts> {
        match self {
            Self::Own(queues) => Ok(queues.counts(queue)),
            Self::Elsewhere(queues) => queues.counts(queue).await,
        }
    }
}

fn record(message: &Message, arn: &str) -> Value {
    let attributes: Map<String, Value> = message
        .attributes
        .iter()
        .map(|(name, value)| {
            use base64::Engine as _;
            let binary = value.binary_value.as_ref().map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes));
            let value = json!({
                "stringValue": value.string_value, "binaryValue": binary, "dataType": value.data_type,
                "stringListValues": [], "binaryListValues": [],
            });
            (name.clone(), value)
        })
        .collect();
    json!({
        "messageId": message.id,
        "receiptHandle": message.handle,
        "body": message.body,
        "attributes": system_attributes(message),
        "messageAttributes": attributes,
        "md5OfBody": md5_of_body(&message.body),
        "md5OfMessageAttributes": md5_of_message_attributes(&message.attributes),
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": REGION,
    })
}
