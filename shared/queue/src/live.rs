//! The two queues of live updates.
//!
//! The live queue has [`LiveTask`]s for the function `live`: `{"v":1,"type":"changed","users":["7"]}`. The queue of
//! posts has the messages that the function `live-sender` posts to connections: `{"v":1,"posts":[{"user":"7",…}]}`.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use serde::{Deserialize, Serialize};
use tidemark_app::ports::{LivePost, LiveQueue, LiveTask, StoreError};

use crate::{encode, send_all};

/// Readers in one message of the queue of posts. A worker posts them in parallel.
const READERS_PER_MESSAGE: usize = 20;

#[derive(Debug, Clone)]
pub struct SqsLive {
    client: Client,
    tasks_url: String,
    posts_url: String,
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

impl SqsLive {
    pub fn new(client: Client, tasks_url: String, posts_url: String) -> Self {
        Self { client, tasks_url, posts_url }
    }
}

#[async_trait]
impl LiveQueue for SqsLive {
    async fn send(&self, tasks: &[LiveTask], delay: Duration) -> Result<(), StoreError> {
        let messages = tasks.iter().map(|task| Ok((encode(task)?, group(task)))).collect::<Result<Vec<_>, StoreError>>()?;
        send_all(&self.client, &self.tasks_url, &messages, delay).await
    }

    async fn post(&self, posts: &[LivePost]) -> Result<(), StoreError> {
        let message = |posts: &[LivePost]| {
            let group = posts.first().map_or_else(String::new, |post| post.user.to_string());
            Ok((encode(&Posts { posts: posts.to_vec() })?, group))
        };
        let messages = posts.chunks(READERS_PER_MESSAGE).map(message).collect::<Result<Vec<_>, StoreError>>()?;
        send_all(&self.client, &self.posts_url, &messages, Duration::ZERO).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use tidemark_app::ports::{Connection, Told};
    use tidemark_domain::{CountsDigest, Timestamp, UnreadChange, UserId};

    #[test]
    fn messages_have_exactly_this_format_and_round_trip() {
        let users = vec![UserId::MIN, UserId::new(u64::MAX).unwrap()];
        let gone = |at| Connection { user: UserId::MIN, connection: "L0abc=".to_owned(), at };
        let (user, connections) = (UserId::MIN, vec!["L0abc=".to_owned()]);
        let told = Told { user, connections, at: Timestamp::from_ms(5), counts: CountsDigest(u64::MAX) };
        let tasks = [
            (LiveTask::Changed { users: users.clone() }, r#"{"v":1,"type":"changed","users":["1","18446744073709551615"]}"#),
            (LiveTask::Again { users, tries: 2 }, r#"{"v":1,"type":"again","users":["1","18446744073709551615"],"tries":2}"#),
            (
                LiveTask::Told { told: vec![told] },
                r#"{"v":1,"type":"told","told":[{"user":"1","connections":["L0abc="],"at":"1970-01-01T00:00:00.005Z","counts":18446744073709551615}]}"#,
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
        let posts = vec![LivePost::new(UserId::MIN, vec!["a".to_owned()], change, CountsDigest(8), 1)];
        let body = r#"{"v":1,"posts":[{"user":"1","connections":["a"],"at":"1970-01-01T00:00:00.005Z","counts":8,"total":9,"author":"7","unread":2,"seq":3,"tries":1}]}"#;
        assert_eq!(encode(&Posts { posts: posts.clone() }).unwrap(), body);
        assert_eq!(decode::<Posts>(body).unwrap().posts, posts);
        assert_eq!(posts[0].post(), Some("7-3".parse().unwrap()));
    }

    #[test]
    fn malformed_messages_are_refused() {
        for body in ["", "{}", r#"{"v":1,"type":"other"}"#, r#"{"v":2,"type":"changed","users":["1"]}"#, "[1]"] {
            assert!(decode::<LiveTask>(body).is_err(), "{body}");
            assert!(decode::<Posts>(body).is_err(), "{body}");
        }
    }
}
