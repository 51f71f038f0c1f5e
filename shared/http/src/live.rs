//! The messages of live connections, as JSON, and what the authorizer tells about their caller.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};
use tidemark_domain::{Platform, PostId, Timestamp, UnreadNotices, UserId};
use tidemark_queue::LivePost;

use crate::{body::parse_platform, request::platforms_in};

/// The key in the authorizer's context that has the caller's claim.
pub const CLAIM: &str = "claim";

/// The key in the authorizer's context that has the platforms that the claims of the token list, as JSON.
pub const PLATFORMS: &str = "platforms";

/// The most platforms that one connection names.
pub const MOST_PLATFORMS: usize = 10;

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
    /// The number of the reader's unread notices on a platform has changed.
    Notices { platform: Platform, unread: u64, at: Timestamp },
    /// The number of unread groups of the reader's inbox has changed.
    Inbox { unread: u32, at: Timestamp },
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
    /// The token does not list a platform.
    Forbidden,
    /// A store is unavailable. The connection is not renewed; the client should send the ping again.
    Unavailable,
}

/// Returns the platforms that each of these claims lists, as JSON. The authorizer does not know which claim counts: the
/// description of its version, which AWS limits, has no room for the name.
pub fn listed_platforms(claims: &Map<String, Value>) -> String {
    let listed = |value: &Value| platforms_in(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let mut of_claims: BTreeMap<&String, Vec<Platform>> = claims.iter().map(|(name, value)| (name, listed(value))).collect();
    of_claims.retain(|_, platforms| !platforms.is_empty());
    serde_json::to_string(&of_claims).unwrap_or_default()
}

/// Returns the platforms that this claim lists; none if the authorizer has told none.
pub fn platforms_of(listed: &str, claim: &str) -> Vec<Platform> {
    let mut listed: BTreeMap<String, Vec<Platform>> = serde_json::from_str(listed).unwrap_or_default();
    listed.remove(claim).unwrap_or_default()
}

/// The only message of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// The platforms of whose unread notices the connection is told, each once; `None` for those that it named before.
    pub platforms: Option<Vec<Platform>>,
}

/// Reads a ping. The error is a sentence that says what is wrong.
pub fn parse_ping(text: &str) -> Result<Ping, &'static str> {
    let message: Value = serde_json::from_str(text).map_err(|_| "a message must be a JSON object")?;
    match message.get("type") {
        Some(Value::String(kind)) if kind == "ping" => Ok(Ping { platforms: platforms(&message)? }),
        Some(Value::String(_)) => Err("the only type of a message is `ping`"),
        _ => Err("a message must be a JSON object with a `type`"),
    }
}

fn platforms(message: &Value) -> Result<Option<Vec<Platform>>, &'static str> {
    let named = match message.get("platforms") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) if items.len() <= MOST_PLATFORMS => items,
        Some(_) => return Err("`platforms` must be a list of at most 10 platforms"),
    };
    let parsed: Result<BTreeSet<Platform>, _> = named.iter().map(|item| parse_platform("platforms", item)).collect();
    let parsed = parsed.map_err(|_| "`platforms` must be a list of numbers from 1 to 65535")?;
    Ok(Some(parsed.into_iter().collect()))
}

impl ServerMessage {
    pub fn error(error: Refusal, detail: impl Into<String>) -> Self {
        Self::Error { error, detail: detail.into() }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn notices(&UnreadNotices { platform, unread, .. }: &UnreadNotices, at: Timestamp) -> Self {
        Self::Notices { platform, unread, at }
    }

    pub fn inbox(post: &LivePost) -> Self {
        Self::Inbox { unread: post.inbox, at: post.at }
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
    use tidemark_domain::{CountsDigest, Known, UnreadChange};

    #[test]
    fn messages_have_exactly_this_format() {
        let told = |post| {
            let change = UnreadChange { at: Timestamp::from_ms(5), total: 12, post };
            LivePost::new(UserId::MIN, Vec::new(), change, Known { counts: CountsDigest(1), inbox: 3 }, 0)
        };
        let inbox = ServerMessage::inbox(&told(None)).to_json();
        assert_eq!(inbox, r#"{"type":"inbox","unread":3,"at":"1970-01-01T00:00:00.005Z"}"#);
        let told = |post| ServerMessage::from(&told(post)).to_json();
        assert_eq!(
            told(Some(("42-7".parse().unwrap(), 3))),
            r#"{"type":"unread","total":12,"author":"42","unread":3,"post":"42-7","at":"1970-01-01T00:00:00.005Z"}"#
        );
        let unknown = r#"{"type":"unread","total":12,"author":null,"unread":null,"post":null,"at":"1970-01-01T00:00:00.005Z"}"#;
        assert_eq!(told(None), unknown);
        let notices = UnreadNotices { connections: Vec::new(), platform: "7".parse().unwrap(), unread: 2 };
        let notices = ServerMessage::notices(&notices, Timestamp::from_ms(5)).to_json();
        assert_eq!(notices, r#"{"type":"notices","platform":7,"unread":2,"at":"1970-01-01T00:00:00.005Z"}"#);
        assert_eq!(ServerMessage::Pong.to_json(), r#"{"type":"pong"}"#);
        let error = ServerMessage::error(Refusal::TooManyRequests, "wait").to_json();
        assert_eq!(error, r#"{"type":"error","error":"too-many-requests","detail":"wait"}"#);
    }

    #[test]
    fn platforms_are_those_of_one_claim() {
        let claims = serde_json::json!({
            "sub": "70000", "exp": 1_800_000_600, "platforms": [7, "8"], "other": "9 x 10", "api": "[11 12]", "none": null,
        });
        let listed = listed_platforms(claims.as_object().unwrap());
        assert_eq!(listed, r#"{"api":[11,12],"other":[9,10],"platforms":[7,8]}"#);
        let numbers = |claim| platforms_of(&listed, claim).into_iter().map(Platform::get).collect::<Vec<u16>>();
        assert_eq!([numbers("platforms"), numbers("other"), numbers("sub")], [vec![7, 8], vec![9, 10], vec![]]);
        assert_eq!(platforms_of("", "platforms"), []);
    }

    #[test]
    fn a_ping_is_the_only_message_of_a_client() {
        let parsed = |platforms: &str| parse_ping(&format!(r#"{{"type":"ping","platforms":{platforms}}}"#));
        let ping = |platforms: &[u16]| {
            let platforms = platforms.iter().map(|&number| Platform::new(number).unwrap()).collect();
            Ok(Ping { platforms: Some(platforms) })
        };
        let without = Ok(Ping { platforms: None });
        assert_eq!([parse_ping(r#"{"type":"ping","extra":1}"#), parsed("null")], [without.clone(), without]);
        assert_eq!([parsed("[]"), parsed(r#"[7, "65535", 7.0]"#)], [ping(&[]), ping(&[7, 65_535])]);
        let ten: Vec<u16> = (1..=10).collect();
        assert_eq!(parsed(&format!("{ten:?}")), ping(&ten));
        for wrong in ["7", "{}", "[0]", "[65536]", "[1, null]", r#"["x"]"#, "[-1]", "[1,1,1,1,1,1,1,1,1,1,1]"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        for other in ["", "ping", "7", "[]", "{}", r#"{"type":7}"#, r#"{"type":"pong"}"#, r#"{"type":"Ping"}"#] {
            assert!(parse_ping(other).is_err(), "{other}");
        }
    }
}
