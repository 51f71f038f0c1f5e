//! Queues: they turn messages into invocations.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustack_sqs_core::message::{md5_of_body, md5_of_message_attributes};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Context, failed_items};
use crate::{
    core::Unit,
    sqs::{Message, system_attributes},
    template::{REGION, SqsSource},
    weather::Weather,
};

/// Concurrent invocations of one source. The limit is the number of cores: more invocations would only wait for each
/// other and slow down all other requests.
pub(super) fn concurrency(source: &SqsSource) -> usize {
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    source.maximum_concurrency.map_or(cores, |most| most.clamp(1, cores))
}

/// Receives, invokes and deletes until the stop signal. In calm weather, a failed message becomes visible again after
/// the retry delay instead of the queue's visibility timeout, which may be minutes. Its receives still count. In
/// other weather the visibility timeout applies. A delay that the function itself sets always applies.
pub(super) async fn poll(context: Context, function: String, source: SqsSource) {
    let Some(unit) = context.unit(&function) else { return };
    let queues = &context.core.queues;
    loop {
        let Some(()) = context.stop.run_until_cancelled(queues.arrival(&source.queue)).await else { return };
        let Some(_pass) = context.stop.run_until_cancelled(unit.gate.enter()).await else { return };
        let batch = gather(&context, &source).await;
        if !batch.is_empty() {
            handle(&context, unit, &source, &batch).await;
        }
    }
}

async fn gather(context: &Context, source: &SqsSource) -> Vec<Message> {
    let queues = &context.core.queues;
    let deadline = Instant::now() + source.batching_window;
    let mut batch: Vec<Message> = Vec::new();
    loop {
        match queues.receive(&source.queue, source.batch_size - batch.len()).await {
            Ok(messages) => batch.extend(messages),
            Err(error) => tracing::error!(queue = source.queue, "cannot receive: {error:#}"),
        }
        let full = batch.is_empty() || batch.len() >= source.batch_size || Instant::now() >= deadline;
        let more = tokio::time::timeout_at(deadline, queues.arrival(&source.queue));
        if full || context.stop.is_cancelled() || more.await.is_err() {
            return batch;
        }
    }
}

async fn handle(context: &Context, unit: &Unit, source: &SqsSource, batch: &[Message]) {
    let queues = &context.core.queues;
    let Ok(definition) = queues.own.definition(&source.queue) else { return };
    let records: Vec<Value> = batch.iter().map(|message| record(message, &definition.arn)).collect();
    let response = context.core.invoke(unit, json!({ "Records": records })).await;
    let ids: Vec<&str> = batch.iter().map(|message| message.id.as_str()).collect();
    let failed = failed_items(unit, source.report_failures, &response, &ids);
    let has_failed = |index: &usize| failed.as_ref().is_none_or(|failed| failed.contains(index));
    let (failed, done): (Vec<_>, Vec<_>) = batch.iter().enumerate().partition(|(index, _)| has_failed(index));
    if !failed.is_empty() {
        let (function, queue) = (&unit.function.binary, &source.queue);
        tracing::warn!(function, queue, failed = failed.len(), of = batch.len(), "messages failed and will be received again");
    }
    for (_, message) in failed {
        // This has no effect if the message is already visible again.
        let calm = context.core.surroundings.conditions.weather() == Weather::Calm;
        let delay = calm.then_some(context.core.retry_delay.max(Duration::from_millis(1)));
        if let Err(error) = queues.failed(&source.queue, &message.handle, delay).await {
            tracing::error!(queue = source.queue, "cannot return a failed message: {error:#}");
        }
    }
    let handles: Vec<String> = done.iter().map(|(_, message)| message.handle.clone()).collect();
    if !handles.is_empty()
        && let Err(error) = queues.delete(&source.queue, &handles).await
    {
        tracing::error!(queue = source.queue, "cannot delete handled messages: {error:#}");
    }
}

fn record(message: &Message, arn: &str) -> Value {
    let attributes: Map<String, Value> = message
        .attributes
        .iter()
        .map(|(name, value)| {
            let binary = value.binary_value.as_ref().map(|bytes| STANDARD.encode(bytes));
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
