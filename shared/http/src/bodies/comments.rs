//! Bodies of `/v1/posts/{post}/comments…`.

use serde::Serialize;
use tidemark_domain::{self as domain, CommentId, PostId, Timestamp, UserId};
use utoipa::ToSchema;

use super::{NamesUser, NextCursor, Profiles, RequestBody};
use crate::{Problem, body::Body};

/// The maximum number of characters in a comment.
const MAX_COMMENT: usize = 2_000;

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "text": "Well said." })))]
pub struct CommentRequest {
    #[schema(min_length = 1, max_length = 2_000)]
    pub text: String,
}

impl RequestBody for CommentRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        Ok(Self { text: body.text("text", 1, MAX_COMMENT)? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "2-1-1", "post": "2-1", "author": "1", "text": "Well said.", "created_at": "2026-11-20T08:00:00.123Z",
})))]
pub struct Comment {
    /// The post and the number of the comment within it: 1, 2, 3, …
    pub id: CommentId,
    pub post: PostId,
    /// The user who wrote the comment.
    pub author: UserId,
    pub text: String,
    pub created_at: Timestamp,
}

impl From<domain::Comment> for Comment {
    fn from(comment: domain::Comment) -> Self {
        let domain::Comment { id, author, text, created_at } = comment;
        Self { id, post: id.post, author, text, created_at }
    }
}

impl NamesUser for Comment {
    fn user(&self) -> UserId {
        self.author
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [], "next_cursor": null, "profiles": {}, "total": 0 })))]
pub struct CommentPage {
    #[schema(max_items = 100)]
    pub items: Vec<Comment>,
    pub next_cursor: NextCursor,
    /// The authors of the comments who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
    /// The number of comments on all pages of the caller.
    pub total: u64,
}
