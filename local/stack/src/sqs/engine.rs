//! The queues of the template. The HTTP endpoint and the pollers share them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use base64::Engine as _;
use rustack_sqs_model::{
    error::{SqsError, SqsErrorCode},
    input::SendMessageInput,
    types::MessageAttributeValue,
};
use tokio::{sync::Notify, time::Instant};

use super::{
    journal,
    queue::{Counts, Message, Messages},
};
use crate::{clock, lock::lock, store::Store, template::Queue, weather::Conditions};

/// In a storm, the probability that a message is sent twice, the probability of a delay and its length, and the
/// probability that a message overtakes others.
const STORM_DOUBLES: f64 = 0.05;
const STORM_DELAYS: f64 = 0.10;
const STORM_LATEST_MS: usize = 1_500;
const STORM_PASSES: f64 = 0.30;

/// The size as SQS counts it: the body, and the names, types and values of the attributes.
pub(super) fn bytes(input: &SendMessageInput) -> usize {
    let attribute = |(name, value): (&String, &MessageAttributeValue)| {
        name.len()
            + value.data_type.len()
            + value.string_value.as_ref().map_or(0, String::len)
            + value.binary_value.as_ref().map_or(0, Vec::len)
    };
    input.message_body.len() + input.message_attributes.iter().map(attribute).sum::<usize>()
}

type Accepted = Result<Message, SqsError>;

struct Cell {
    queue: Queue,
    messages: Mutex<Messages>,
    arrival: Notify,
}

impl Cell {
    /// Adds messages. Wakes one waiter for each, also for a delayed one: that waiter then knows the new deadline.
    fn put(&self, messages: Vec<Message>) {
        let count = messages.len();
        {
            let mut waiting = lock(&self.messages);
            messages.into_iter().for_each(|message| waiting.put(message));
        }
        (0..count).for_each(|_| self.arrival.notify_one());
    }
}

pub(crate) struct Queues {
    cells: BTreeMap<String, Cell>,
    store: Arc<Store>,
    conditions: Arc<Conditions>,
}

impl Queues {
    /// Creates the queues with the messages of the journal. Drops those of queues that the template no longer has.
    pub(crate) fn new(
        queues: impl IntoIterator<Item = Queue>,
        store: Arc<Store>,
        journalled: Vec<(String, Message)>,
        conditions: Arc<Conditions>,
    ) -> Self {
        let cell = |queue: Queue| (queue.name.clone(), Cell { queue, messages: Mutex::default(), arrival: Notify::new() });
        let this = Self { cells: queues.into_iter().map(cell).collect(), store, conditions };
        let mut orphans = Vec::new();
        for (queue, message) in journalled {
            match this.cells.get(&queue) {
                Some(cell) => lock(&cell.messages).put(message),
                None => orphans.push(message.id),
            }
        }
        if !orphans.is_empty() {
            tracing::warn!(messages = orphans.len(), "dropping messages of queues that the template no longer has");
            journal::forget(&this.store, orphans);
        }
        this
    }

    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Queue> {
        self.cells.values().map(|cell| &cell.queue)
    }

    /// Returns the definition of a queue, or the error that SQS returns for an unknown queue.
    pub(crate) fn definition(&self, name: &str) -> Result<&Queue, SqsError> {
        self.cell(name).map(|cell| &cell.queue)
    }

    fn cell(&self, name: &str) -> Result<&Cell, SqsError> {
        let missing = || format!("The specified queue does not exist: {name}. Queues are declared in template.yaml.");
        self.cells.get(name).ok_or_else(|| SqsError::non_existent_queue(missing()))
    }

    /// Sends messages to this queue, whatever their URLs. Each is accepted, and then on disk, or refused on its own.
    pub(crate) async fn send(&self, name: &str, inputs: Vec<SendMessageInput>) -> Result<Vec<Accepted>, SqsError> {
        let cell = self.cell(name)?;
        let results: Vec<Accepted> = inputs.into_iter().map(|input| accept(&cell.queue, input)).collect();
        let accepted: Vec<Message> = results.iter().filter_map(|result| result.as_ref().ok().cloned()).collect();
        let accepted = self.in_weather(accepted);
        if !accepted.is_empty() {
            journal::insert(&self.store, name, &accepted).await?;
            cell.put(accepted);
        }
        Ok(results)
    }

    /// Applies a storm to new messages: some are duplicated, some are delayed.
    fn in_weather(&self, messages: Vec<Message>) -> Vec<Message> {
        if !self.conditions.is_storm() {
            return messages;
        }
        let late = || u64::try_from(self.conditions.below(STORM_LATEST_MS)).unwrap_or(0);
        let mut all = Vec::with_capacity(messages.len());
        for mut message in messages {
            if self.conditions.storm(STORM_DOUBLES) {
                all.push(Message { id: new_id(), due_ms: message.due_ms + late(), ..message.clone() });
            }
            if self.conditions.storm(STORM_DELAYS) {
                message.due_ms += late();
            }
            all.push(message);
        }
        all
    }

    /// Receives up to `most` messages. Waits up to `wait` for the first.
    pub(crate) async fn receive(
        &self,
        name: &str,
        most: usize,
        visibility: Option<Duration>,
        wait: Duration,
    ) -> Result<Vec<Message>, SqsError> {
        let deadline = Instant::now() + wait;
        loop {
            let messages = self.receive_now(name, most, visibility)?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            if tokio::time::timeout_at(deadline, self.arrival(name)).await.is_err() {
                // This waiter may be the only one that knew the next deadline, so another one must look.
                self.cell(name)?.arrival.notify_one();
                return Ok(messages);
            }
        }
    }

    /// Receives up to `most` visible messages without waiting.
    pub(crate) fn receive_now(&self, name: &str, most: usize, visibility: Option<Duration>) -> Result<Vec<Message>, SqsError> {
        let cell = self.cell(name)?;
        let visibility = visibility.unwrap_or(Duration::from_secs(cell.queue.visibility_seconds.into()));
        let reorder = |groups: usize| if self.conditions.storm(STORM_PASSES) { self.conditions.below(groups) } else { 0 };
        let taken = lock(&cell.messages).take(&cell.queue, most, visibility, reorder);
        if !taken.messages.is_empty() {
            journal::received(&self.store, &taken.messages);
        }
        if !taken.expired.is_empty() {
            journal::forget(&self.store, taken.expired);
        }
        if let Some(redrive) = &cell.queue.redrive
            && !taken.dead.is_empty()
        {
            tracing::warn!(queue = name, messages = taken.dead.len(), to = %redrive.target, "moving messages to the dead-letter queue");
            self.transfer(taken.dead, &redrive.target, Some(cell.queue.arn.clone()))?;
        }
        if taken.more || !taken.messages.is_empty() {
            // For the rest of the messages, and so that a waiter learns when these become visible again.
            cell.arrival.notify_one();
        }
        Ok(taken.messages)
    }

    fn transfer(&self, mut messages: Vec<Message>, target: &str, source: Option<String>) -> Result<(), SqsError> {
        let cell = self.cell(target)?;
        for message in &mut messages {
            message.receives = 0;
            message.first_received_ms = None;
            message.dead_letter_source.clone_from(&source);
            message.handle.clear();
        }
        journal::moved(&self.store, &messages, target);
        cell.put(messages);
        Ok(())
    }

    pub(crate) async fn arrival(&self, name: &str) {
        let Ok(cell) = self.cell(name) else { return std::future::pending().await };
        let due = {
            let mut messages = lock(&cell.messages);
            if messages.counts().visible > 0 {
                return;
            }
            messages.next_due()
        };
        match due {
            Some(at) => drop(tokio::time::timeout_at(at, cell.arrival.notified()).await),
            None => cell.arrival.notified().await,
        }
    }

    /// Deletes by receipt handle. An outdated handle deletes nothing and is not an error, as in SQS.
    pub(crate) async fn delete(&self, name: &str, handles: &[String]) -> Result<Vec<Result<(), SqsError>>, SqsError> {
        let cell = self.cell(name)?;
        let mut deleted = Vec::new();
        let delete = |handle: &String| {
            let id = message_id(handle)?;
            if lock(&cell.messages).delete(&id, handle) {
                deleted.push(id);
            }
            Ok(())
        };
        let results = handles.iter().map(delete).collect();
        if !deleted.is_empty() {
            journal::delete(&self.store, deleted).await?;
        }
        Ok(results)
    }

    /// Hides a message in flight for `visibility` from now. Zero makes it visible at once.
    pub(crate) fn set_visibility(&self, name: &str, handle: &str, visibility: Duration) -> Result<(), SqsError> {
        let cell = self.cell(name)?;
        let id = message_id(handle)?;
        if !lock(&cell.messages).set_visibility(&id, handle, visibility) {
            let reason = "The message referred to is not in flight.";
            return Err(SqsError::new(SqsErrorCode::MessageNotInflight, reason));
        }
        cell.arrival.notify_one();
        Ok(())
    }

    /// Notes that the receiver of a message has failed. The message returns after `delay`; with `None` it returns
    /// when its visibility timeout ends. A delay that the receiver set applies in either case.
    pub(crate) fn failed(&self, name: &str, handle: &str, delay: Option<Duration>) {
        let (Ok(cell), Ok(id)) = (self.cell(name), message_id(handle)) else { return };
        lock(&cell.messages).failed(&id, handle, delay);
        cell.arrival.notify_one();
    }

    pub(crate) fn hasten(&self, delay: Duration) {
        for cell in self.cells.values() {
            lock(&cell.messages).hasten(delay);
            cell.arrival.notify_one();
        }
    }

    pub(crate) fn counts(&self, name: &str) -> Counts {
        self.cell(name).map(|cell| lock(&cell.messages).counts()).unwrap_or_default()
    }

    pub(crate) async fn purge(&self, name: &str) -> Result<(), SqsError> {
        let ids = lock(&self.cell(name)?.messages).drain().into_iter().map(|message| message.id).collect();
        journal::delete(&self.store, ids).await
    }

    /// Sends the messages of a dead-letter queue back to their source queue, or to `target`. Returns their number.
    pub(crate) fn redrive(&self, name: &str, target: Option<&str>) -> Result<usize, SqsError> {
        let all = lock(&self.cell(name)?.messages).drain();
        let count = all.len();
        for message in all {
            let source = message.dead_letter_source.as_deref().and_then(|arn| arn.rsplit(':').next());
            let to = target.or(source).unwrap_or(name).to_owned();
            self.transfer(vec![message], &to, None)?;
        }
        Ok(count)
    }
}

/// Makes a message of a request. It keeps the message group: a standard queue with groups is a fair queue.
fn accept(queue: &Queue, input: SendMessageInput) -> Accepted {
    if input.message_body.is_empty() {
        return Err(SqsError::missing_parameter("The request must contain the parameter MessageBody."));
    }
    if bytes(&input) > queue.maximum_bytes {
        let limit = queue.maximum_bytes;
        let reason = format!("One or more parameters are invalid. Reason: Message must be shorter than {limit} bytes.");
        return Err(SqsError::invalid_parameter_value(reason));
    }
    if input.message_attributes.len() > 10 {
        return Err(SqsError::invalid_parameter_value("Number of message attributes exceeds the allowed maximum [10]."));
    }
    if input.message_group_id.as_ref().is_some_and(|group| !(1..=128).contains(&group.len())) {
        let reason = "Value for parameter MessageGroupId is invalid. Reason: MessageGroupId must be 1 to 128 characters.";
        return Err(SqsError::invalid_parameter_value(reason));
    }
    let delay = match input.delay_seconds {
        None => u64::from(queue.delay_seconds),
        Some(seconds) => u64::try_from(seconds).ok().filter(|seconds| *seconds <= 900).ok_or_else(|| {
            let reason = "Value for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.";
            SqsError::invalid_parameter_value(reason)
        })?,
    };
    let sent_ms = clock::now_ms();
    Ok(Message {
        id: new_id(),
        body: input.message_body,
        attributes: input.message_attributes,
        group: input.message_group_id,
        sent_ms,
        due_ms: sent_ms + delay * 1_000,
        ..Message::default()
    })
}

pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Returns the message id that a receipt handle contains.
fn message_id(handle: &str) -> Result<String, SqsError> {
    let decoded = base64::engine::general_purpose::STANDARD.decode(handle).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.and_then(|text| Some(text.split_once(':')?.0.to_owned())).ok_or_else(SqsError::receipt_handle_is_invalid)
}
