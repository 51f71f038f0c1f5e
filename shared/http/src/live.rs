//! The messages of live connections, as JSON, and what the authorizer tells about their caller.

use serde::Serialize;
use serde_json::Value;
use tidemark_domain::{PostId, Timestamp, UserId};
use tidemark_queue::LivePost;

/// The key in the authorizer's context that has the caller's claim.
pub const CLAIM: &str = "claim";

/// The query parameter that has the token.
pub const TOKEN: &str = "token";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ServerMessage {
    /// The reader's unread counts have changed. `author`, `unread` and `post` are null if it is unknown by which post.
    Unread {
        total: u64,
        author: Option<UserId>,
        unread: Option<u64>,
        post: Option<PostId>,
        /// The time at which the counts were read. Of two messages, the one with the later time has the newer counts.
        at: Timestamp,
    },
    /// The connection is renewed.
    Pong,
    /// The client's message was refused, and changed nothing.
    Error { error: Refusal, detail: String },
}

/// The reason why a message of a client was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    InvalidMessage,
    TooManyRequests,
    Erased,
    /// A store is unavailable. The connection is not renewed; the client should send the ping again.
    Unavailable,
}

/// Reads a ping, the only message of a client. The error is a sentence that says what is wrong.
pub fn parse_ping(text: &str) -> Result<(), &'static str> {
    let message: Value = serde_json::from_str(text).map_err(|_| "a message must be a JSON object")?;
    match message.get("type") {
        Some(Value::String(kind)) if kind == "ping" => Ok(()),
        Some(Value::String(_)) => Err("the only type of a message is `ping`"),
        _ => Err("a message must be a JSON object with a `type`"),
    }
}

impl ServerMessage {
    pub fn error(error: Refusal, detail: impl Into<String>) -> Self {
        Self::Error { error, detail: detail.into() }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl From<&LivePost> for ServerMessage {
    fn from(post: &LivePost) -> Self {
        let unread = post.author.map(|_| post.unread);
        Self::Unread { total: post.total, author: post.author, unread, post: post.post(), at: post.at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::{CountsDigest, UnreadChange};

    #[test]
    fn messages_have_exactly_this_format() {
        let told = |post| {
            let change = UnreadChange { at: Timestamp::from_ms(5), total: 12, post };
            ServerMessage::from(&LivePost::new(UserId::MIN, Vec::new(), change, CountsDigest(1), 0)).to_json()
        };
        assert_eq!(
            told(Some(("42-7".parse().unwrap(), 3))),
            r#"{"type":"unread","total":12,"author":"42","unread":3,"post":"42-7","at":"1970-01-01T00:00:00.005Z"}"#
        );
        let unknown = r#"{"type":"unread","total":12,"author":null,"unread":null,"post":null,"at":"1970-01-01T00:00:00.005Z"}"#;
        assert_eq!(told(None), unknown);
        assert_eq!(ServerMessage::Pong.to_json(), r#"{"type":"pong"}"#);
        let error = ServerMessage::error(Refusal::TooManyRequests, "wait").to_json();
        assert_eq!(error, r#"{"type":"error","error":"too-many-requests","detail":"wait"}"#);
    }

    #[test]
    fn a_ping_is_the_only_message_of_a_client() {
        assert_eq!(parse_ping(r#"{"type":"ping","extra":1}"#), Ok(()));
        for other in ["", "ping", "7", "[]", "{}", r#"{"type":7}"#, r#"{"type":"pong"}"#, r#"{"type":"Ping"}"#] {
            assert!(parse_ping(other).is_err(), "{other}");
        }
    }
}
