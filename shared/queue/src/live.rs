//! The two queues of live updates.
//!
//! The live queue has [`LiveTask`]s for the function `live`: `{"v":1,"type":"changed","users":["7"]}`. The queue of
//! posts has the messages that the function `live-sender` posts to connections: `{"v":1,"posts":[{"user":"7",…}]}`.

use std::time::Duration;

use aws_sdk_sqs::Client;
use serde::{Deserialize, Serialize};
use tidemark_domain::{CountsDigest, Known, PostId, Seq, StoreError, Timestamp, Told, UnreadChange, UnreadNotices, UserId};

use crate::{Queue, encode};

/// Readers in one message of the queue of posts. A worker posts them in parallel.
const READERS_PER_MESSAGE: usize = 20;

/// A live connection of a reader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Connection {
    pub user: UserId,
    /// The id that API Gateway gave to it.
    pub connection: String,
    /// The time of the message that found it gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A message of the live queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum LiveTask {
    /// Counts of these readers have changed: send them to their connections.
    Changed { users: Vec<UserId> },
    /// Some connections of these readers were not told: tell them what the counts are now.
    Again {
        users: Vec<UserId>,
        /// The number of messages that did not reach a connection.
        tries: u8,
    },
    /// These messages have ended. Their connections were told.
    Told { told: Vec<Told> },
    /// These connections do not exist any more.
    Gone { connections: Vec<Connection> },
}

/// A message to the connections of one reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivePost {
    pub user: UserId,
    /// The connections that do not know the counts.
    pub connections: Vec<String>,
    /// The time at which the message was built, by the clock of Redis. The counts were read after that.
    pub at: Timestamp,
    /// The counts that the connections know after this message.
    pub counts: CountsDigest,
    pub total: u64,
    /// The author of the change, if it is known, with the number of the author's unread posts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<UserId>,
    pub unread: u64,
    /// The number of the author's post.
    pub seq: Seq,
    /// The number of messages that did not reach a connection.
    pub tries: u8,
    /// The unread groups of the inbox, and the connections that do not know their number.
    #[serde(default)]
    pub inbox: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inbox_to: Vec<String>,
    /// The unread notices that connections do not know, one message for each platform.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<UnreadNotices>,
}

impl LivePost {
    pub fn new(user: UserId, connections: Vec<String>, change: UnreadChange, known: Known, tries: u8) -> Self {
        let Known { counts, inbox } = known;
        let UnreadChange { at, total, post } = change;
        let (author, unread, seq) = post.map_or((None, 0, 0), |(post, unread)| (Some(post.author), unread, post.seq));
        let (inbox_to, notices) = (Vec::new(), Vec::new());
        Self { user, connections, at, counts, total, author, unread, seq, tries, inbox, inbox_to, notices }
    }

    /// What the connections know after this message.
    pub fn known(&self) -> Known {
        Known { counts: self.counts, inbox: self.inbox }
    }

    /// Returns the post that changed, if it is known.
    pub fn post(&self) -> Option<PostId> {
        self.author.map(|author| PostId::new(author, self.seq))
    }
}

/// The two queues of live updates.
#[derive(Debug, Clone)]
pub struct LiveQueue {
    tasks: Queue,
    posts: Queue,
}

#[derive(Serialize, Deserialize)]
pub struct Posts {
    pub posts: Vec<LivePost>,
}

/// The message group: a reader. A reader with many messages does not delay the others.
fn group(task: &LiveTask) -> String {
    let user = match task {
        LiveTask::Changed { users } | LiveTask::Again { users, .. } => users.first().copied(),
        LiveTask::Told { told } => told.first().map(|told| told.user),
        LiveTask::Gone { connections } => connections.first().map(|gone| gone.user),
    };
    user.map_or_else(|| "none".to_owned(), |user| user.to_string())
}

impl LiveQueue {
    pub fn new(client: Client, tasks_url: String, posts_url: String) -> Self {
        Self { tasks: Queue { client: client.clone(), url: tasks_url }, posts: Queue { client, url: posts_url } }
    }

    /// Enqueues tasks, if any, with a delay in whole seconds. After an error some of them may be missing.
    pub async fn send(&self, tasks: &[LiveTask], delay: Duration) -> Result<(), StoreError> {
        let messages = tasks.iter().map(|task| Ok((encode(task)?, group(task)))).collect::<Result<Vec<_>, StoreError>>()?;
        self.tasks.send_all(&messages, delay).await
    }

    /// Enqueues messages, if any, for the function that posts them. After an error some of them may be missing.
    pub async fn post(&self, posts: &[LivePost]) -> Result<(), StoreError> {
        let message = |posts: &[LivePost]| {
            let group = posts.first().map_or_else(String::new, |post| post.user.to_string());
            Ok((encode(&Posts { posts: posts.to_vec() })?, group))
        };
        let messages = posts.chunks(READERS_PER_MESSAGE).map(message).collect::<Result<Vec<_>, StoreError>>()?;
        self.posts.send_all(&messages, Duration::ZERO).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use tidemark_domain::{CountsDigest, Known, Timestamp, Told, UnreadChange, UserId};

    #[test]
    fn messages_have_exactly_this_format_and_round_trip() {
        let users = vec![UserId::MIN, UserId::new(u64::MAX).unwrap()];
        let gone = |at| Connection { user: UserId::MIN, connection: "L0abc=".to_owned(), at };
        let (user, connections) = (UserId::MIN, vec!["L0abc=".to_owned()]);
        let known = Known { counts: CountsDigest(u64::MAX), inbox: 3 };
        let told = Told { connections, ..Told::nobody(user, Timestamp::from_ms(5), known) };
        let notices = vec![UnreadNotices { connections: vec!["L0abc=".to_owned()], platform: "7".parse().unwrap(), unread: 2 }];
        let told_notices = Told { connections: Vec::new(), counts: CountsDigest(1), notices: notices.clone(), ..told.clone() };
        let tasks = [
            (LiveTask::Changed { users: users.clone() }, r#"{"v":1,"type":"changed","users":["1","18446744073709551615"]}"#),
            (LiveTask::Again { users, tries: 2 }, r#"{"v":1,"type":"again","users":["1","18446744073709551615"],"tries":2}"#),
            (
                LiveTask::Told { told: vec![told] },
                r#"{"v":1,"type":"told","told":[{"user":"1","connections":["L0abc="],"at":"1970-01-01T00:00:00.005Z","counts":18446744073709551615,"inbox":3}]}"#,
            ),
            (
                LiveTask::Told { told: vec![told_notices] },
                r#"{"v":1,"type":"told","told":[{"user":"1","connections":[],"at":"1970-01-01T00:00:00.005Z","counts":1,"inbox":3,"notices":[{"connections":["L0abc="],"platform":7,"unread":2}]}]}"#,
            ),
            (
                LiveTask::Gone { connections: vec![gone(None)] },
                r#"{"v":1,"type":"gone","connections":[{"user":"1","connection":"L0abc="}]}"#,
            ),
            (
                LiveTask::Gone { connections: vec![gone(Some(Timestamp::from_ms(5)))] },
                r#"{"v":1,"type":"gone","connections":[{"user":"1","connection":"L0abc=","at":"1970-01-01T00:00:00.005Z"}]}"#,
            ),
        ];
        for (task, body) in tasks {
            assert_eq!(encode(&task).unwrap(), body);
            assert_eq!(decode::<LiveTask>(body).unwrap(), task);
        }
        let change = UnreadChange { at: Timestamp::from_ms(5), total: 9, post: Some(("7-3".parse().unwrap(), 2)) };
        let posts =
            vec![LivePost::new(UserId::MIN, vec!["a".to_owned()], change, Known { counts: CountsDigest(8), inbox: 3 }, 1)];
        let body = r#"{"v":1,"posts":[{"user":"1","connections":["a"],"at":"1970-01-01T00:00:00.005Z","counts":8,"total":9,"author":"7","unread":2,"seq":3,"tries":1,"inbox":3}]}"#;
        assert_eq!(encode(&Posts { posts: posts.clone() }).unwrap(), body);
        assert_eq!(decode::<Posts>(body).unwrap().posts, posts);
        assert_eq!(posts[0].post(), Some("7-3".parse().unwrap()));
        let posts = vec![LivePost { notices, inbox_to: vec!["b".to_owned()], ..posts[0].clone() }];
        let body = body.replace("}]}", r#","inbox_to":["b"],"notices":[{"connections":["L0abc="],"platform":7,"unread":2}]}]}"#);
        assert_eq!(encode(&Posts { posts: posts.clone() }).unwrap(), body);
        assert_eq!(decode::<Posts>(&body).unwrap().posts, posts);
    }

    #[test]
    fn malformed_messages_are_refused() {
        for body in ["", "{}", r#"{"v":1,"type":"other"}"#, r#"{"v":2,"type":"changed","users":["1"]}"#, "[1]"] {
            assert!(decode::<LiveTask>(body).is_err(), "{body}");
            assert!(decode::<Posts>(body).is_err(), "{body}");
        }
    }
}
