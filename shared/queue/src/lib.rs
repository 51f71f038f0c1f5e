//! The task queue on SQS, and [events](EventBus) on EventBridge.
//!
//! A message is one [`Task`] as JSON with a schema version:
//! `{"v":1,"type":"batch","fan_out":{…},"page":3,"followers":[…]}`.
//! Its message group is the author, or the user who leaves. The groups make the queue a fair queue: a group with many
//! messages does not delay the others.

mod events;
mod live;
mod task;

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use aws_sdk_sqs::{
    Client,
    types::{BatchResultErrorEntry, QueueAttributeName, SendMessageBatchRequestEntry},
};
use futures::FutureExt;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tidemark_domain::{Source, Store, StoreError};
use tracing::{error, warn};

pub use events::{Cause, EventBus, EventEntry, Refusal, SOURCE, lag, schemas};
pub use live::{Connection, LivePost, LiveQueue, LiveTask, Posts};
pub use task::{Backlog, FanOut, MovedPost, Task, TaskQueue};

/// Version of the message layout. A worker refuses other versions, and their messages go to the dead-letter queue.
const VERSION: u8 = 1;

/// The maximum number of messages and of bytes in one SendMessageBatch. The second is below the limit of SQS.
const BATCH_MESSAGES: usize = 10;
const BATCH_BYTES: usize = 250_000;

/// The pauses after the attempts to send an entry that SQS refuses. The last attempt has none.
const PAUSES: [Duration; 4] = [Duration::from_millis(50), Duration::from_millis(150), Duration::from_millis(400), Duration::ZERO];

/// Tasks in two queues: those that follow acts have their own ([`Task::follows_acts`]), so that they neither delay a
/// fan-out nor look like one.
#[derive(Debug, Clone)]
pub struct SqsTasks {
    fan_outs: Queue,
    acts: Queue,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u8,
    #[serde(flatten)]
    content: T,
}

/// A task, and how often it has failed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Tried<T> {
    #[serde(flatten)]
    pub task: T,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u8,
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// The message is not a task of this version.
#[derive(Debug, thiserror::Error)]
pub enum MalformedTask {
    /// The text is not the JSON of a task.
    #[error("not a task: {0}")]
    Json(#[from] serde_json::Error),
    /// The message has another version.
    #[error("a task of version {0}; this worker supports version {VERSION}")]
    Version(u8),
}

/// Whether a message was received before, by a worker that was interrupted or gave it back.
pub fn is_repeated(attributes: &HashMap<String, String>) -> bool {
    attributes.get("ApproximateReceiveCount").is_some_and(|count| count != "1")
}

/// How long a message has waited in its queue until it was first received, by the clock of SQS alone.
pub fn waited(attributes: &HashMap<String, String>) -> Duration {
    let at = |name: &str| attributes.get(name).and_then(|ms| ms.parse::<u64>().ok());
    let [received, sent] = [at("ApproximateFirstReceiveTimestamp"), at("SentTimestamp")];
    received.zip(sent).map_or(Duration::ZERO, |(received, sent)| Duration::from_millis(received.saturating_sub(sent)))
}

/// Encodes a task, or other content whose JSON is an object, as a message body.
pub fn encode(content: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(&Versioned { v: VERSION, content }).map_err(|error| unavailable("encode", error))
}

/// Decodes a message body.
pub fn decode<T: DeserializeOwned>(body: &str) -> Result<T, MalformedTask> {
    let Versioned { v, content } = serde_json::from_str(body)?;
    if v == VERSION { Ok(content) } else { Err(MalformedTask::Version(v)) }
}

/// Decodes a received message. Returns its id and content; the id alone if the message is malformed.
pub fn received<T: DeserializeOwned>(id: Option<String>, body: Option<String>) -> Result<(String, T), String> {
    let id = id.unwrap_or_default();
    match decode(&body.unwrap_or_default()) {
        Ok(content) => Ok((id, content)),
        Err(error) => {
            error!(message_id = id, %error, "malformed message, leaving it to the dead-letter queue");
            Err(id)
        }
    }
}

impl SqsTasks {
    pub fn new(client: Client, fan_outs_url: String, acts_url: String) -> Self {
        Self { fan_outs: Queue { client: client.clone(), url: fan_outs_url }, acts: Queue { client, url: acts_url } }
    }
}

/// The queues of a stack.
#[derive(Clone)]
pub struct Queues {
    pub tasks: Arc<dyn TaskQueue>,
    pub live: LiveQueue,
    /// Changes that the projector has given up.
    pub failures: Failures,
    /// The events that continue segments of a walk.
    pub walks: SqsEvents,
    /// The bus of the events that leave; `None` if there is none.
    pub bus: Option<EventBus>,
}

/// The queue of dead letters.
#[derive(Debug, Clone)]
pub struct Failures(Queue);

impl Failures {
    pub fn new(client: Client, url: String) -> Self {
        Self(Queue { client, url })
    }

    /// Returns the approximate number of messages.
    pub async fn waiting(&self) -> Result<u64, StoreError> {
        let names = [QueueAttributeName::ApproximateNumberOfMessages];
        Ok(self.0.numbers("waiting", &names).await?[0])
    }

    /// Sends a message about something that no attempt can do.
    pub async fn give_up(&self, what: &str) -> Result<(), StoreError> {
        self.0.send_all(&[(what.to_owned(), "given-up".to_owned())], Duration::ZERO).await
    }
}

/// The queue of the events that a function sends to itself.
#[derive(Debug, Clone)]
pub struct SqsEvents(Queue);

impl SqsEvents {
    pub fn new(client: Client, url: String) -> Self {
        Self(Queue { client, url })
    }

    pub async fn send(&self, events: &[serde_json::Value]) -> Result<(), StoreError> {
        let messages: Vec<_> = events.iter().enumerate().map(|(index, event)| (event.to_string(), index.to_string())).collect();
        self.0.send_all(&messages, Duration::ZERO).await
    }
}

/// The message group: a user.
fn group(task: &Task) -> String {
    match task {
        Task::Batch { fan_out, .. } | Task::List { fan_out, .. } => fan_out.post.author.to_string(),
        Task::Rank { post, .. } => post.author.to_string(),
        Task::Rescore { author, .. } | Task::Move { author, .. } => author.to_string(),
        Task::Group { user, .. } | Task::Erase { user, .. } => user.to_string(),
    }
}

/// One queue.
#[derive(Debug, Clone)]
struct Queue {
    client: Client,
    url: String,
}

impl Queue {
    /// Numeric attributes of the queue, in the order of `names`.
    async fn numbers(&self, operation: &'static str, names: &[QueueAttributeName]) -> Result<Vec<u64>, StoreError> {
        let request = self.client.get_queue_attributes().queue_url(&self.url);
        let response = request.set_attribute_names(Some(names.to_vec())).send().boxed().await;
        let response = response.map_err(|error| unavailable(operation, error))?;
        let number = |name| response.attributes().and_then(|attributes| attributes.get(name)).and_then(|text| text.parse().ok());
        let numbers: Option<Vec<u64>> = names.iter().map(number).collect();
        numbers.ok_or_else(|| unavailable(operation, "the response has no number of messages"))
    }

    /// Sends at most [`BATCH_MESSAGES`] messages, each with its group. SQS may refuse single entries of a batch, which
    /// the SDK does not repeat, so this does.
    async fn send_batch(&self, messages: &[(String, String)], delay: Duration) -> Result<(), StoreError> {
        let mut left: Vec<usize> = (0..messages.len()).collect();
        for pause in PAUSES {
            let refused = self.send_once(messages, &left, delay).await?;
            let Some(first) = refused.first() else { return Ok(()) };
            let (failed, all, code) = (refused.len(), messages.len(), first.code());
            if pause.is_zero() || refused.iter().any(BatchResultErrorEntry::sender_fault) {
                return Err(unavailable("send", format!("SQS refused {failed} of {all} messages, the first with code {code}")));
            }
            warn!(failed, all, code, "SQS refused messages, sending them again");
            left.retain(|index| refused.iter().any(|entry| entry.id() == index.to_string()));
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Sends these of the messages in one request. Returns the entries that SQS refused. SQS counts the delay in whole
    /// seconds.
    async fn send_once(
        &self,
        messages: &[(String, String)],
        which: &[usize],
        delay: Duration,
    ) -> Result<Vec<BatchResultErrorEntry>, StoreError> {
        let delay = i32::try_from(delay.as_millis().div_ceil(1_000)).ok().filter(|delay| *delay > 0);
        let mut request = self.client.send_message_batch().queue_url(&self.url);
        for (index, (body, group)) in which.iter().filter_map(|&index| Some((index, messages.get(index)?))) {
            let entry = SendMessageBatchRequestEntry::builder().id(index.to_string()).message_body(body);
            let entry = entry.message_group_id(group).set_delay_seconds(delay).build();
            request = request.entries(entry.map_err(|error| unavailable("build", error))?);
        }
        let response = request.send().boxed().await.map_err(|error| unavailable("send", error))?;
        Ok(response.failed)
    }

    /// Sends messages, each with its group, in as few requests as possible.
    async fn send_all(&self, messages: &[(String, String)], delay: Duration) -> Result<(), StoreError> {
        let mut rest = messages;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest.iter().take(BATCH_MESSAGES).take_while(|(body, _)| {
                bytes += body.len();
                bytes <= BATCH_BYTES
            });
            let (batch, later) = rest.split_at(fitting.count().max(1));
            self.send_batch(batch, delay).await?;
            rest = later;
        }
        Ok(())
    }
}

#[async_trait]
impl TaskQueue for SqsTasks {
    async fn backlog(&self) -> Result<Backlog, StoreError> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let numbers = self.fan_outs.numbers("backlog", &names).await?;
        Ok(Backlog { waiting: numbers[0] + numbers[1], in_flight: numbers[2] })
    }

    async fn send_again(&self, tasks: &[Task], tries: u8, delay: Duration) -> Result<(), StoreError> {
        let (after_acts, fan_outs): (Vec<&Task>, Vec<&Task>) = tasks.iter().partition(|task| task.follows_acts());
        for (queue, tasks) in [(&self.fan_outs, fan_outs), (&self.acts, after_acts)] {
            let message = |task| Ok((encode(&Tried { task, tries })?, group(task)));
            let messages = tasks.into_iter().map(message).collect::<Result<Vec<_>, StoreError>>()?;
            queue.send_all(&messages, delay).await?;
        }
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let request = self.fan_outs.client.get_queue_attributes().queue_url(&self.fan_outs.url);
        let request = request.attribute_names(QueueAttributeName::QueueArn);
        request.send().boxed().await.map(|_| ()).map_err(|error| unavailable("ping", error))
    }
}

fn unavailable(operation: &'static str, source: impl Into<Source>) -> StoreError {
    StoreError::Unavailable { store: Store::Queue, operation, source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FanOut, MovedPost};
    use tidemark_domain::{FanOutKind, Modes, Timestamp};

    #[test]
    fn messages_have_exactly_this_format_and_round_trip() {
        let fan_out = FanOut {
            kind: FanOutKind::Deliver,
            post: "7-3".parse().unwrap(),
            at: Timestamp::from_ms(5),
            pages: 2,
            deletions: 0,
            modes: Modes::default(),
        };
        let tasks = [
            (Task::Batch { fan_out, page: 1, followers: vec![1, u64::MAX] }, 0),
            (Task::Batch { fan_out, page: 1, followers: vec![] }, 1),
            (Task::List { fan_out, from: 0, to: 2 }, 0),
            (Task::Rank { post: "7-3".parse().unwrap(), token: u64::MAX }, 0),
            (Task::Rescore { author: "7".parse().unwrap(), life: 9 }, 0),
            (
                Task::Move {
                    author: "7".parse().unwrap(),
                    posts: vec![MovedPost { seq: 3, at: Timestamp::from_ms(5), weight: -1, step: 2, changes: 4 }],
                    pages: 9,
                    from: 2,
                    to: 4,
                },
                1,
            ),
            (Task::Group { user: "7".parse().unwrap(), id: "like-3".parse().unwrap(), other: None, version: Some(5) }, 0),
            (
                Task::Group {
                    user: "7".parse().unwrap(),
                    id: "follow-20784".parse().unwrap(),
                    other: "8".parse().ok(),
                    version: None,
                },
                0,
            ),
        ];
        let fan_out = r#""fan_out":{"kind":"deliver","post":"7-3","at":"1970-01-01T00:00:00.005Z","pages":2,"deletions":0}"#;
        let moved = r#"{"seq":3,"at":"1970-01-01T00:00:00.005Z","weight":-1,"step":2,"changes":4}"#;
        let bodies = [
            format!(r#"{{"v":1,"type":"batch",{fan_out},"page":1,"followers":[1,18446744073709551615]}}"#),
            format!(r#"{{"v":1,"type":"batch",{fan_out},"page":1,"followers":[],"tries":1}}"#),
            format!(r#"{{"v":1,"type":"list",{fan_out},"from":0,"to":2}}"#),
            r#"{"v":1,"type":"rank","post":"7-3","token":18446744073709551615}"#.to_owned(),
            r#"{"v":1,"type":"rescore","author":"7","life":9}"#.to_owned(),
            format!(r#"{{"v":1,"type":"move","author":"7","posts":[{moved}],"pages":9,"from":2,"to":4,"tries":1}}"#),
            r#"{"v":1,"type":"group","user":"7","id":"like-3","version":5}"#.to_owned(),
            r#"{"v":1,"type":"group","user":"7","id":"follow-20784","other":"8"}"#.to_owned(),
        ];
        for ((task, tries), body) in tasks.into_iter().zip(bodies) {
            assert_eq!(encode(&Tried { task: &task, tries }).unwrap(), body);
            let decoded: Tried<Task> = decode(&body).unwrap();
            assert_eq!((decoded.task, decoded.tries), (task, tries));
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        for body in ["", "{}", r#"{"v":1,"type":"other"}"#, r#"{"v":2,"type":"rescore","author":"7","life":9}"#, "[1]"] {
            assert!(decode::<Task>(body).is_err(), "{body}");
        }
    }
}
