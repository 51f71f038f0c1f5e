//! The operations of the AWS JSON protocol on top of [`Queues`].

use std::{collections::HashMap, time::Duration};

use rustack_sqs_core::message::{md5_of_body, md5_of_message_attributes};
use rustack_sqs_model::{
    error::{SqsError, SqsErrorCode},
    input::{ReceiveMessageInput, SendMessageInput},
    operations::SqsOperation,
    types::{Message as WireMessage, MessageAttributeValue},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    engine::{Queues, bytes},
    queue::Message,
};
use crate::template::{ACCOUNT, Queue};

/// The largest total size of a batch, in bytes.
const BATCH_BYTES: usize = 1_048_576;

/// Performs an operation. Returns the body of its response.
pub(super) async fn dispatch(queues: &Queues, operation: SqsOperation, body: &[u8]) -> Result<Value, SqsError> {
    let input: Value = serde_json::from_slice(body).map_err(unreadable("request"))?;
    match operation {
        SqsOperation::SendMessage => {
            let request = SendMessageInput::deserialize(&input).map_err(unreadable("request"))?;
            let mut sent = queues.send(queue(&input)?, vec![request]).await?;
            let message = sent.pop().ok_or_else(|| SqsError::internal_error("nothing was sent"))??;
            Ok(sent_fields(&message))
        }
        SqsOperation::SendMessageBatch => send_batch(queues, queue(&input)?, &input).await,
        SqsOperation::ReceiveMessage => {
            let request = ReceiveMessageInput::deserialize(&input).map_err(unreadable("request"))?;
            receive(queues, queue(&input)?, request).await
        }
        SqsOperation::DeleteMessage => {
            let handle = text(&input, "ReceiptHandle").to_owned();
            queues.delete(queue(&input)?, &[handle]).await?.pop().transpose()?;
            Ok(json!({}))
        }
        SqsOperation::DeleteMessageBatch => {
            let entries = entries(&input)?;
            let handles: Vec<String> = entries.iter().map(|(_, entry)| text(entry, "ReceiptHandle").to_owned()).collect();
            let results = queues.delete(queue(&input)?, &handles).await?;
            Ok(batch_response(&entries, results.into_iter().map(|result| result.map(|()| json!({})))))
        }
        SqsOperation::ChangeMessageVisibility => change_visibility(queues, queue(&input)?, &input),
        SqsOperation::ChangeMessageVisibilityBatch => {
            let (name, entries) = (queue(&input)?, entries(&input)?);
            queues.definition(name)?;
            Ok(batch_response(&entries, entries.iter().map(|(_, entry)| change_visibility(queues, name, entry))))
        }
        other => manage(queues, &other, &input).await,
    }
}

async fn manage(queues: &Queues, operation: &SqsOperation, input: &Value) -> Result<Value, SqsError> {
    match operation {
        SqsOperation::GetQueueUrl => Ok(json!({ "QueueUrl": queues.definition(text(input, "QueueName"))?.url })),
        SqsOperation::ListQueues => {
            let prefix = text(input, "QueueNamePrefix");
            let urls: Vec<&str> = queues.definitions().filter(|q| q.name.starts_with(prefix)).map(|q| q.url.as_str()).collect();
            Ok(json!({ "QueueUrls": urls }))
        }
        SqsOperation::GetQueueAttributes => {
            let asked = input["AttributeNames"].as_array().map(Vec::as_slice).unwrap_or_default();
            let wanted = |name: &str| asked.iter().any(|one| one == "All" || one == name);
            Ok(json!({ "Attributes": attributes(queues, queue(input)?, wanted)? }))
        }
        SqsOperation::PurgeQueue => {
            queues.purge(queue(input)?).await?;
            Ok(json!({}))
        }
        SqsOperation::StartMessageMoveTask => {
            let last = |name: &str| input[name].as_str()?.rsplit(':').next();
            let moved = queues.redrive(last("SourceArn").unwrap_or_default(), last("DestinationArn"))?;
            Ok(json!({ "TaskHandle": format!("moved-{moved}") }))
        }
        other => {
            let reason = format!("The local stack does not support {other}. Queues are declared in template.yaml.");
            Err(SqsError::new(SqsErrorCode::UnsupportedOperation, reason))
        }
    }
}

/// The name of the queue that a request addresses by URL.
fn queue(input: &Value) -> Result<&str, SqsError> {
    let url = input["QueueUrl"].as_str();
    let url = url.ok_or_else(|| SqsError::missing_parameter("The request must contain the parameter QueueUrl."))?;
    Ok(url.rsplit('/').next().unwrap_or(url))
}

fn unreadable(what: &str) -> impl Fn(serde_json::Error) -> SqsError {
    move |error| SqsError::invalid_parameter_value(format!("unreadable {what}: {error}"))
}

fn sent_fields(message: &Message) -> Value {
    let mut fields = json!({ "MessageId": message.id, "MD5OfMessageBody": md5_of_body(&message.body) });
    if let Some(md5) = md5_of_message_attributes(&message.attributes) {
        fields["MD5OfMessageAttributes"] = Value::String(md5);
    }
    fields
}

async fn send_batch(queues: &Queues, name: &str, input: &Value) -> Result<Value, SqsError> {
    let entries = entries(input)?;
    let request = |(_, entry): &(&str, &Value)| {
        let mut entry = (*entry).clone();
        entry["QueueUrl"] = json!(name);
        SendMessageInput::deserialize(entry).map_err(unreadable("batch entry"))
    };
    let requests: Vec<SendMessageInput> = entries.iter().map(request).collect::<Result<_, _>>()?;
    if requests.iter().map(bytes).sum::<usize>() > BATCH_BYTES {
        let reason = format!("Batch requests cannot be longer than {BATCH_BYTES} bytes.");
        return Err(SqsError::new(SqsErrorCode::BatchRequestTooLong, reason));
    }
    let results = queues.send(name, requests).await?;
    Ok(batch_response(&entries, results.into_iter().map(|result| result.map(|message| sent_fields(&message)))))
}

async fn receive(queues: &Queues, name: &str, input: ReceiveMessageInput) -> Result<Value, SqsError> {
    let seconds = |value: i32, maximum: u64, parameter: &str| {
        let valid = u64::try_from(value).ok().filter(|value| *value <= maximum).map(Duration::from_secs);
        let reason = || format!("Value {value} for parameter {parameter} is invalid. Reason: Must be between 0 and {maximum}.");
        valid.ok_or_else(|| SqsError::invalid_parameter_value(reason()))
    };
    let most = input.max_number_of_messages.unwrap_or(1);
    if !(1..=10).contains(&most) {
        let parameter = "parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.";
        return Err(SqsError::invalid_parameter_value(format!("Value {most} for {parameter}")));
    }
    let wait = match input.wait_time_seconds {
        Some(value) => seconds(value, 20, "WaitTimeSeconds")?,
        None => Duration::from_secs(queues.definition(name)?.wait_seconds.into()),
    };
    let visibility = input.visibility_timeout.map(|value| seconds(value, 43_200, "VisibilityTimeout")).transpose()?;
    let messages = queues.receive(name, usize::try_from(most).unwrap_or(1), visibility, wait).await?;
    let system: Vec<String> = input.attribute_names.into_iter().chain(input.message_system_attribute_names).collect();
    let wire: Vec<WireMessage> =
        messages.iter().map(|message| to_wire(message, &system, &input.message_attribute_names)).collect();
    let wire = serde_json::to_value(wire).map_err(|error| SqsError::internal_error(error.to_string()))?;
    Ok(json!({ "Messages": wire }))
}

fn to_wire(message: &Message, system: &[String], custom: &[String]) -> WireMessage {
    let wanted = |name: &str| system.iter().any(|s| s == "All" || s == name);
    let chosen = |name: &str| {
        let matches = |pattern: &String| {
            pattern == "All" || pattern == name || pattern.strip_suffix(".*").is_some_and(|prefix| name.starts_with(prefix))
        };
        custom.iter().any(matches)
    };
    let attributes: HashMap<String, MessageAttributeValue> =
        message.attributes.iter().filter(|(name, _)| chosen(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
    WireMessage {
        message_id: Some(message.id.clone()),
        receipt_handle: Some(message.handle.clone()),
        body: Some(message.body.clone()),
        md5_of_body: Some(md5_of_body(&message.body)),
        md5_of_message_attributes: md5_of_message_attributes(&attributes),
        message_attributes: attributes,
        attributes: system_attributes(message).into_iter().filter(|(name, _)| wanted(name)).collect(),
    }
}

/// The attributes that SQS itself adds to a message.
pub(crate) fn system_attributes(message: &Message) -> HashMap<String, String> {
    let mut out = HashMap::from([
        ("SenderId".to_owned(), ACCOUNT.to_owned()),
        ("SentTimestamp".to_owned(), message.sent_ms.to_string()),
        ("ApproximateReceiveCount".to_owned(), message.receives.to_string()),
    ]);
    out.extend(message.first_received_ms.map(|ms| ("ApproximateFirstReceiveTimestamp".to_owned(), ms.to_string())));
    out.extend(message.group.clone().map(|group| ("MessageGroupId".to_owned(), group)));
    out.extend(message.dead_letter_source.clone().map(|arn| ("DeadLetterQueueSourceArn".to_owned(), arn)));
    out
}

fn change_visibility(queues: &Queues, name: &str, input: &Value) -> Result<Value, SqsError> {
    let seconds = input["VisibilityTimeout"].as_u64().filter(|seconds| *seconds <= 43_200);
    let reason = "Value for parameter VisibilityTimeout is invalid. Reason: Must be between 0 and 43200.";
    let seconds = seconds.ok_or_else(|| SqsError::invalid_parameter_value(reason))?;
    queues.set_visibility(name, text(input, "ReceiptHandle"), Duration::from_secs(seconds))?;
    Ok(json!({}))
}

/// The attributes of a queue whose names are `wanted`.
pub(crate) fn attributes(queues: &Queues, name: &str, wanted: impl Fn(&str) -> bool) -> Result<Value, SqsError> {
    let Queue { arn, visibility_seconds, retention_seconds, delay_seconds, maximum_bytes, wait_seconds, redrive, .. } =
        queues.definition(name)?;
    let counts = queues.counts(name);
    let mut all = vec![
        ("QueueArn", arn.clone()),
        ("ApproximateNumberOfMessages", counts.visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", counts.in_flight.to_string()),
        ("ApproximateNumberOfMessagesDelayed", counts.delayed.to_string()),
        ("VisibilityTimeout", visibility_seconds.to_string()),
        ("MessageRetentionPeriod", retention_seconds.to_string()),
        ("DelaySeconds", delay_seconds.to_string()),
        ("MaximumMessageSize", maximum_bytes.to_string()),
        ("ReceiveMessageWaitTimeSeconds", wait_seconds.to_string()),
    ];
    if let Some(redrive) = redrive {
        let target = &queues.definition(&redrive.target)?.arn;
        let policy = json!({ "deadLetterTargetArn": target, "maxReceiveCount": redrive.max_receives });
        all.push(("RedrivePolicy", policy.to_string()));
    }
    Ok(all.into_iter().filter(|(name, _)| wanted(name)).collect())
}

/// Returns a batch's entries with their ids, after the checks that SQS makes before it handles any entry.
fn entries(input: &Value) -> Result<Vec<(&str, &Value)>, SqsError> {
    let list = input["Entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return Err(SqsError::empty_batch_request());
    }
    if list.len() > 10 {
        return Err(SqsError::too_many_entries_in_batch());
    }
    let mut out: Vec<(&str, &Value)> = Vec::with_capacity(list.len());
    for entry in list {
        let id = text(entry, "Id");
        if id.is_empty() || id.len() > 80 || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            let reason = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.";
            return Err(SqsError::new(SqsErrorCode::InvalidBatchEntryId, reason));
        }
        if out.iter().any(|(other, _)| *other == id) {
            return Err(SqsError::batch_entry_ids_not_distinct());
        }
        out.push((id, entry));
    }
    Ok(out)
}

fn batch_response(entries: &[(&str, &Value)], results: impl Iterator<Item = Result<Value, SqsError>>) -> Value {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for ((id, _), result) in entries.iter().zip(results) {
        match result {
            Ok(mut fields) => {
                fields["Id"] = json!(id);
                successful.push(fields);
            }
            Err(error) => failed.push(json!({
                "Id": id, "Code": error.code.error_type(), "Message": error.message, "SenderFault": error.code.is_sender_fault(),
            })),
        }
    }
    json!({ "Successful": successful, "Failed": failed })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
