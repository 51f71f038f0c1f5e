//! Bodies of the feed, author timelines, unread counts and marks.

use serde::Serialize;
use serde_json::{json, value::RawValue};
use tidemark_domain::{PostId, Seq, Timestamp, UserId};
use utoipa::ToSchema;

use super::{FirstCursor, NextCursor, Original, Profiles, RequestBody, values::Through};
use crate::{Problem, body::Body};

#[derive(Debug, Serialize, ToSchema)]
pub struct PostItem {
    pub id: PostId,
    pub author: UserId,
    /// The number of the post within its author: 1, 2, 3, … without gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    /// Null for a repost.
    #[schema(required)]
    pub title: Option<String>,
    pub created_at: Timestamp,
    /// The post that it reposts or quotes. Absent if it is neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub of: Option<Original>,
    /// Of an author whom the caller follows: false exactly for a post that counts as unread, so true for all posts from
    /// before the follow. Of another author: whether the caller has marked the post read.
    pub read: bool,
    pub liked: bool,
    pub favorited: bool,
    /// Only with `order=ranked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub score: Option<f64>,
    /// Only with `include=body`, as `data` and `revision`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Option<Box<RawValue>>>,
    /// 1 when the post was published; every edit raises it by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, nullable = false)]
    pub revision: Option<u64>,
    /// The number of users who like it. Only with `include=counts` or `include=body`, as `favorites`, `reposts` and
    /// `comments`. A repost has the counts of its original, as it has the caller's reactions to it; none if that is
    /// unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub likes: Option<u64>,
    /// The number of users who have it as a favorite.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub favorites: Option<u64>,
    /// The number of users who repost it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reposts: Option<u64>,
    /// The number of its comments, those of users in a block with the caller too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub comments: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "items": [{
        "id": "2-1", "author": "2", "seq": 1, "title": "Hello", "created_at": "2026-11-20T08:00:00.123Z",
        "read": false, "liked": false, "favorited": false,
    }],
    "next_cursor": null,
    "first_cursor": "CQAAAaH3-DB7AAAAAAAAAAIAAAAAAAAAAQAAAaH37h5boSIF15WO",
    "profiles": { "2": { "name": "Ada", "handle": "ada", "picture": null } },
    "unread_total": 1,
})))]
pub struct FeedPage {
    #[schema(max_items = 100)]
    pub items: Vec<PostItem>,
    pub next_cursor: NextCursor,
    /// With `order=oldest`, the last page has one too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub first_cursor: Option<FirstCursor>,
    /// The authors of the posts and of their originals who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
    pub unread_total: u64,
    /// True while the feed is being rebuilt: repeat the request in a moment. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rebuilding: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [], "next_cursor": null, "first_cursor": "AgAAAAAAAAAH", "profiles": {}, "total": 0 })))]
pub struct TimelinePage {
    #[schema(max_items = 100)]
    pub items: Vec<PostItem>,
    pub next_cursor: NextCursor,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub first_cursor: Option<FirstCursor>,
    /// The authors of the posts and of their originals who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
    /// The number of posts with the requested status.
    pub total: u64,
}

/// Posts that the caller likes, or has as favorites.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [], "next_cursor": null, "profiles": {} })))]
pub struct ReactedPage {
    #[schema(max_items = 100)]
    pub items: Vec<PostItem>,
    pub next_cursor: NextCursor,
    /// The authors of the posts and of their originals who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "author": "2", "unread": 1 })))]
pub struct UnreadOfAuthor {
    pub author: UserId,
    pub unread: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "total": 1, "authors": [{ "author": "2", "unread": 1 }] })))]
pub struct UnreadCounts {
    pub total: u64,
    /// The authors with unread posts. The author of the most recent post comes first: read or not, but not deleted.
    pub authors: Vec<UnreadOfAuthor>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "read": true, "author": "2", "unread": 2, "total": 5 })))]
pub struct PostMarked {
    pub read: bool,
    /// The post's author.
    pub author: UserId,
    /// Unread posts of this author.
    pub unread: u64,
    /// Unread posts of all authors.
    pub total: u64,
}

/// Exactly one of three forms.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum MarkReadRequest {
    Posts(MarkPosts),
    Through(MarkThrough),
    All(MarkAll),
}

/// These posts. Posts that do not exist are ignored and not counted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "posts": ["2-1", "3-7"] })))]
pub struct MarkPosts {
    #[schema(min_items = 1, max_items = 500)]
    pub posts: Vec<PostId>,
}

/// An author's posts up to a number. It never goes back, so a lower number changes nothing.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "author": "2", "through": 7 })))]
pub struct MarkThrough {
    pub author: UserId,
    #[schema(value_type = Through)]
    pub through: Seq,
}

/// All posts that existed at `before`, or at the time of the request, and those that the caller's feed shows then, if
/// `before` is missing. Later posts stay unread.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "all": true }), json!({ "all": true, "before": "2026-11-20T08:00:00.123Z" })))]
pub struct MarkAll {
    /// Must be true. A body without it is refused.
    pub all: bool,
    /// RFC 3339 with any offset. Fractions of a millisecond are cut off. A time before 1970 means its first moment.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub before: Option<Timestamp>,
}

impl RequestBody for MarkReadRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        if body.has("before") && !body.has("all") {
            return Err(Problem::invalid("before", "is allowed only together with all"));
        }
        match [body.has("posts"), body.has("author") || body.has("through"), body.has("all")] {
            [true, false, false] => Ok(Self::Posts(MarkPosts { posts: body.ids("posts", 500)? })),
            [false, true, false] => {
                Ok(Self::Through(MarkThrough { author: body.user("author")?, through: body.seq("through")? }))
            }
            [false, false, true] if body.get("all") != Some(&json!(true)) => Err(Problem::invalid("all", "must be true")),
            [false, false, true] => Ok(Self::All(MarkAll { all: true, before: body.optional_time("before")? })),
            _ => Err(Problem::invalid("posts", "is one of three forms (posts, author with through, all): send exactly one")),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "changed": 3, "total": 0 })))]
pub struct PostsMarked {
    /// Posts that were unread and now are read.
    pub changed: u64,
    /// Unread posts of all authors.
    pub total: u64,
}
