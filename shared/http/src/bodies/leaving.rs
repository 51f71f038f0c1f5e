//! Bodies of `/v1/me`, `/v1/me/erasure` and `/v1/me/export`.

use serde::Serialize;
use serde_json::value::RawValue;
use tidemark_app::Exported;
use tidemark_domain::{self as domain, CommentId, ListId, PostId, Reference, Removed, RequestSide, Seq, Timestamp, UserId};
use utoipa::ToSchema;

use super::values::{NextCursor, raw};

/// The receipt of an erasure.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "state": "running", "started_at": "2026-11-20T08:00:00.123Z", "finished_at": null, "removed": null,
})))]
pub struct Erasure {
    /// `running` until nothing is left.
    #[schema(pattern = "^(running|done)$")]
    pub state: &'static str,
    pub started_at: Timestamp,
    #[schema(required)]
    pub finished_at: Option<Timestamp>,
    /// Null until the work begins.
    #[schema(required)]
    pub removed: Option<Removed>,
}

impl From<domain::Erasure> for Erasure {
    fn from(erasure: domain::Erasure) -> Self {
        let domain::Erasure { started_at, finished_at, removed, .. } = erasure;
        let state = if finished_at.is_some() { "done" } else { "running" };
        Self { state, started_at, finished_at, removed }
    }
}

/// One object of an export. `kind` says which.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(examples(json!({ "kind": "follow", "user": "42", "since": "2026-11-20T08:00:00.123Z", "preference": 0 })))]
pub enum ExportItem {
    /// `name` and `updated_at` are null if the caller is private and has no profile.
    Profile {
        #[schema(required)]
        name: Option<String>,
        #[schema(required)]
        handle: Option<String>,
        #[schema(required)]
        picture: Option<String>,
        #[schema(required)]
        bio: Option<String>,
        #[schema(required, value_type = Option<Object>)]
        data: Option<Box<RawValue>>,
        #[schema(required)]
        updated_at: Option<Timestamp>,
        /// Only accepted followers see the caller's posts.
        private: bool,
    },
    /// An author whom the caller follows.
    Follow {
        user: UserId,
        since: Timestamp,
        preference: i8,
    },
    Follower {
        user: UserId,
        since: Timestamp,
    },
    Post {
        id: PostId,
        title: String,
        #[schema(required)]
        body: Option<String>,
        #[schema(required, value_type = Option<Object>)]
        data: Option<Box<RawValue>>,
        created_at: Timestamp,
        revision: u32,
        #[schema(required)]
        edited_at: Option<Timestamp>,
        weight: i8,
        /// The post that it quotes. Absent if it is no quote.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        of: Option<PostId>,
    },
    /// A post that reposts another, `of`. It is not listed as `post`.
    Repost {
        id: PostId,
        of: PostId,
        created_at: Timestamp,
    },
    Like {
        post: PostId,
        at: Timestamp,
    },
    Favorite {
        post: PostId,
        at: Timestamp,
    },
    /// Posts of an author that the caller has marked read: those up to `through`, and ranges of sequence numbers, each
    /// with its first and last. Many ranges are spread over several objects.
    Read {
        author: UserId,
        through: Seq,
        #[schema(value_type = Vec<Vec<u64>>)]
        ranges: Vec<(Seq, Seq)>,
    },
    List {
        id: ListId,
        name: String,
        authors: Vec<UserId>,
    },
    Mute {
        user: UserId,
        since: Timestamp,
    },
    Block {
        user: UserId,
        since: Timestamp,
    },
    /// A request to follow the caller, `received`, or of the caller, `sent`.
    Request {
        user: UserId,
        #[schema(pattern = "^(received|sent)$")]
        direction: &'static str,
        since: Timestamp,
    },
    Comment {
        id: CommentId,
        post: PostId,
        text: String,
        created_at: Timestamp,
    },
}

impl ExportItem {
    /// An object of the export of `user`.
    pub fn new(user: UserId, exported: Exported) -> Self {
        match exported {
            Exported::Profile(Some(profile), private) => {
                let domain::ProfileContent { card: domain::Card { name, handle, picture }, bio, data } = profile.content;
                let (handle, updated_at) = (handle.map(|handle| handle.to_string()), Some(profile.updated_at));
                Self::Profile { name: Some(name), handle, picture, bio, data: raw(data), updated_at, private }
            }
            Exported::Profile(None, private) => {
                let (handle, picture, bio, data) = (None, None, None, None);
                Self::Profile { name: None, handle, picture, bio, data, updated_at: None, private }
            }
            Exported::Follow(of, preference) => Self::Follow { user: of.user, since: of.since, preference },
            Exported::Follower(of) => Self::Follower { user: of.user, since: of.since },
            Exported::Post(post, text) => Self::Post {
                id: post.id,
                title: post.title,
                body: text.body,
                data: raw(text.data),
                created_at: post.created_at,
                revision: post.revision,
                edited_at: post.edited_at,
                weight: post.weight,
                of: post.of.map(Reference::original),
            },
            Exported::Repost(post, of) => Self::Repost { id: post.id, of, created_at: post.created_at },
            Exported::Like(key) => Self::Like { post: key.post, at: key.at },
            Exported::Favorite(key) => Self::Favorite { post: key.post, at: key.at },
            Exported::Read { author, through, ranges } => Self::Read { author, through, ranges },
            Exported::List { number, name, authors } => Self::List { id: ListId { user, number }, name, authors },
            Exported::Comment(domain::Comment { id, text, created_at, .. }) => {
                Self::Comment { id, post: id.post, text, created_at }
            }
            Exported::Mute(of) => Self::Mute { user: of.user, since: of.since },
            Exported::Block(of) => Self::Block { user: of.user, since: of.since },
            Exported::Request(of, side) => {
                let direction = match side {
                    RequestSide::Received => "received",
                    RequestSide::Sent => "sent",
                };
                Self::Request { user: of.user, direction, since: of.since }
            }
        }
    }
}

/// A page of an export.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "items": [{ "kind": "follow", "user": "42", "since": "2026-11-20T08:00:00.123Z", "preference": 0 }],
    "next_cursor": null,
})))]
pub struct ExportPage {
    pub items: Vec<ExportItem>,
    pub next_cursor: NextCursor,
}
