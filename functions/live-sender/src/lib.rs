//! Posts messages to live connections. It runs outside of the VPC and reads no store.
//!
//! A message that was not posted is never repeated here: newer counts may have been sent meanwhile. The function `live`
//! gets a task instead, and sends the counts as they are then.

mod connections;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use futures::{FutureExt, StreamExt, stream};
use lambda_runtime::LambdaEvent;
use tidemark::{
    Recorder, SenderSettings, SystemClock, aws_config,
    domain::{StoreError, Timestamp, Told, UnreadNotices, UserId},
    http::live::ServerMessage,
    metrics::Metrics,
    queue::{self, Connection, LivePost, LiveQueue, LiveTask, Posts, is_repeated, waited},
};
use tracing::warn;

use connections::{Connections, Posted};

/// Messages that are posted at a time.
const PARALLEL: usize = 50;

/// The delay of a task for connections that were not told.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest time that a message may have waited in the queue. A reader's next message waits at least twice as long
/// for the end of this one.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The longest time of one attempt at a service, and of all attempts. A slow connection must not hold the others.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

pub struct Sender {
    connections: Connections,
    queue: LiveQueue,
    recorder: Recorder,
}

impl Sender {
    pub async fn connect(settings: SenderSettings, metrics: Arc<dyn Metrics>) -> Self {
        let config = aws_config(&settings.aws, TIMEOUTS).await;
        let mut sqs = aws_sdk_sqs::config::Builder::from(&config);
        if let Some(endpoint) = &settings.aws.sqs_endpoint {
            sqs = sqs.endpoint_url(endpoint);
        }
        let sqs = aws_sdk_sqs::Client::from_conf(sqs.build());
        Self {
            connections: Connections::new(&config, settings.aws.connections_endpoint.unwrap_or(settings.live_endpoint)),
            queue: LiveQueue::new(sqs, settings.live_queue_url, settings.live_posts_queue_url),
            recorder: Recorder::new(metrics, Arc::new(SystemClock)),
        }
    }
}

/// Posts the messages of one event, and reports each failed one.
pub async fn handle(sender: &Sender, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Infallible> {
    let invocation = sender.recorder.invocation(&event.context.env_config.function_name, &event.context.request_id);
    let records = event.payload.records.len();
    let work = event.payload.records.into_iter().map(|message| work(sender, message));
    let mut response = SqsBatchResponse::default();
    response.set_failures(futures::future::join_all(work).await.into_iter().flatten());
    invocation.worked(records, response.batch_item_failures.len());
    Ok(response)
}

/// Posts what a message has. Returns the id of the message if it failed.
async fn work(sender: &Sender, message: SqsMessage) -> Option<String> {
    let (id, Posts { posts }) = match queue::received(message.message_id, message.body) {
        Ok(received) => received,
        Err(id) => return Some(id),
    };
    // An earlier attempt was interrupted, or the next messages of these readers may be on their way. Readers are told
    // what the counts are then.
    let is_late = is_repeated(&message.attributes) || waited(&message.attributes) > LONGEST_WAIT;
    let done = if is_late { give_up(sender, &posts).await } else { post(sender, &posts).await };
    let error = done.err()?;
    warn!(message_id = id, error = &error as &dyn std::error::Error, "connections not told, the queue repeats the message");
    Some(id)
}

/// What a message to a connection is about.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Counts,
    Inbox,
    Notices(&'a UnreadNotices),
}

type About<'a> = (&'a LivePost, &'a String, Subject<'a>);

/// The messages that a post has, each with its connections.
fn messages(post: &LivePost) -> impl Iterator<Item = (ServerMessage, &Vec<String>, Subject<'_>)> {
    let counts = (ServerMessage::from(post), &post.connections, Subject::Counts);
    let inbox = (ServerMessage::inbox(post), &post.inbox_to, Subject::Inbox);
    let notices = post
        .notices
        .iter()
        .map(|notices| (ServerMessage::notices(notices, post.at), &notices.connections, Subject::Notices(notices)));
    [counts, inbox].into_iter().chain(notices)
}

/// Posts messages to their connections, notes who was told, removes connections that are gone, and has readers told
/// again whose connections could not be reached.
async fn post(sender: &Sender, posts: &[LivePost]) -> Result<(), StoreError> {
    let mut work = Vec::new();
    for post in posts {
        for (message, connections, subject) in messages(post) {
            let text = message.to_json();
            for connection in connections {
                let (text, about) = (text.clone(), (post, connection, subject));
                work.push(async move { (about, sender.connections.post(connection, text).await) }.boxed());
            }
        }
    }
    let posted: Vec<(About, Posted)> = stream::iter(work).buffer_unordered(PARALLEL).collect().await;
    // Every message has ended, also one that reached no connection.
    let mut told: BTreeMap<(UserId, Timestamp), Told> = posts.iter().map(|post| ((post.user, post.at), ended(post))).collect();
    let mut gone = Vec::new();
    let mut unreached: BTreeMap<UserId, &LivePost> = BTreeMap::new();
    // A connection that one message has not reached knows neither the counts nor the inbox.
    let mut ignorant: BTreeSet<(UserId, &String)> = BTreeSet::new();
    for ((post, connection, subject), posted) in posted {
        match posted {
            Posted::Done => {
                let Some(told) = told.get_mut(&(post.user, post.at)) else { continue };
                match subject {
                    Subject::Counts | Subject::Inbox if told.connections.contains(connection) => {}
                    Subject::Counts | Subject::Inbox => told.connections.push(connection.clone()),
                    Subject::Notices(notices) => {
                        told.notices.push(UnreadNotices { connections: vec![connection.clone()], ..notices.clone() })
                    }
                }
                continue;
            }
            Posted::Gone => gone.push(Connection { user: post.user, connection: connection.clone(), at: Some(post.at) }),
            Posted::Failed => drop(unreached.insert(post.user, post)),
        }
        if !matches!(subject, Subject::Notices(_)) {
            ignorant.insert((post.user, connection));
        }
    }
    for told in told.values_mut() {
        let user = told.user;
        told.connections.retain(|connection| !ignorant.contains(&(user, connection)));
    }
    let told = (!told.is_empty()).then(|| LiveTask::Told { told: told.into_values().collect() });
    let gone = (!gone.is_empty()).then_some(LiveTask::Gone { connections: gone });
    let tasks: Vec<LiveTask> = told.into_iter().chain(gone).collect();
    sender.queue.send(&tasks, Duration::ZERO).await?;
    tell_again(sender, unreached.into_values()).await
}

/// The end of a message that no connection knows yet.
fn ended(post: &LivePost) -> Told {
    Told::nobody(post.user, post.at, post.known())
}

/// Posts none of these messages, and has their readers told again.
async fn give_up(sender: &Sender, posts: &[LivePost]) -> Result<(), StoreError> {
    if !posts.is_empty() {
        sender.queue.send(&[LiveTask::Told { told: posts.iter().map(ended).collect() }], Duration::ZERO).await?;
    }
    tell_again(sender, posts.iter()).await
}

/// Has these readers told the counts as they are then.
async fn tell_again(sender: &Sender, posts: impl Iterator<Item = &LivePost>) -> Result<(), StoreError> {
    let mut by_tries: BTreeMap<u8, BTreeSet<UserId>> = BTreeMap::new();
    for post in posts {
        by_tries.entry(post.tries.saturating_add(1)).or_default().insert(post.user);
    }
    let tasks: Vec<LiveTask> =
        by_tries.into_iter().map(|(tries, users)| LiveTask::Again { users: users.into_iter().collect(), tries }).collect();
    sender.queue.send(&tasks, AGAIN).await
}
