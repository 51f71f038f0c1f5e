//! Bodies of `/v1/posts…`.

use serde::Serialize;
use serde_json::value::RawValue;
use tidemark_app::reader::Originals;
use tidemark_domain::{DeliveryMode, DeliveryState, PostId, PostSummary, Reference, Timestamp, UserId};
use utoipa::ToSchema;

use super::{NextCursor, Profiles, RequestBody};
use crate::{Problem, body::Body};

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "title": "Hello", "body": "The first post." }), json!({ "title": "Hello" })))]
pub struct PublishPostRequest {
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    /// At most 64 KiB of UTF-8.
    #[schema(max_length = 65_536)]
    pub body: Option<String>,
    /// At most 4 KiB of JSON, for the application.
    #[schema(value_type = Option<Object>)]
    pub data: Option<String>,
    /// Moves the post in ranked feeds.
    #[schema(minimum = -100, maximum = 100, default = 0)]
    pub weight: Option<i8>,
    /// The post that this one quotes. A repost stands for its original.
    pub of: Option<PostId>,
}

impl RequestBody for PublishPostRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        let (title, text) = body.title_and_text()?;
        // 0 is the default, so it means the same as an absent field.
        let weight = body.optional_integer("weight", -100, 100)?.filter(|&weight| weight != 0);
        Ok(Self { title, body: text, data: body.optional_object("data")?, weight, of: body.optional_id("of")? })
    }
}

/// A post replaces the one before as a whole: what is absent becomes null.
#[derive(Debug, ToSchema)]
#[schema(examples(json!({ "title": "Hello again", "body": "The first post, corrected." })))]
pub struct EditPostRequest {
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    /// At most 64 KiB of UTF-8.
    #[schema(max_length = 65_536)]
    pub body: Option<String>,
    /// At most 4 KiB of JSON, for the application.
    #[schema(value_type = Option<Object>)]
    pub data: Option<String>,
}

impl RequestBody for EditPostRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        let (title, text) = body.title_and_text()?;
        Ok(Self { title, body: text, data: body.optional_object("data")? })
    }
}

/// A post after an edit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "2-1", "author": "2", "seq": 1, "title": "Hello again", "body": null, "data": null,
    "created_at": "2026-11-20T08:00:00.123Z", "revision": 2, "edited_at": "2026-11-20T08:10:00.123Z",
})))]
pub struct EditedPost {
    pub id: PostId,
    pub author: UserId,
    /// The number of the post within its author: 1, 2, 3, … without gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    pub title: String,
    #[schema(required)]
    pub body: Option<String>,
    #[schema(required, value_type = Option<Object>)]
    pub data: Option<Box<RawValue>>,
    pub created_at: Timestamp,
    /// 1 when the post was published; every edit raises it by one.
    #[schema(minimum = 1)]
    pub revision: u64,
    /// Null if the post was never edited.
    #[schema(required)]
    pub edited_at: Option<Timestamp>,
    /// The post that it quotes. Absent if it is no quote.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub of: Option<Original>,
}

/// The post that a repost or a quote names.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Original {
    Available(AvailableOriginal),
    Unavailable(UnavailableOriginal),
}

/// The original as it is now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "2-1", "author": "2", "title": "Hello", "created_at": "2026-11-20T08:00:00.123Z", "revision": 1,
})))]
pub struct AvailableOriginal {
    pub id: PostId,
    pub author: UserId,
    pub title: String,
    pub created_at: Timestamp,
    /// 1 when the post was published; every edit raises it by one.
    #[schema(minimum = 1)]
    pub revision: u64,
}

/// The original is deleted, or its author is erased, private, or in a block with the caller.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "id": "2-1", "unavailable": true })))]
pub struct UnavailableOriginal {
    pub id: PostId,
    /// Always true.
    pub unavailable: bool,
}

impl Original {
    /// The original of a post, as it is among those of its page.
    pub fn new(of: Reference, originals: &Originals) -> Self {
        match originals.get(of) {
            Some(original) => {
                let PostSummary { id, title, created_at, revision, .. } = original.post.clone();
                Self::Available(AvailableOriginal { id, author: id.author, title, created_at, revision: revision.into() })
            }
            None => Self::Unavailable(UnavailableOriginal { id: of.original(), unavailable: true }),
        }
    }

    /// The author of an original that is shown.
    pub fn author(&self) -> Option<UserId> {
        if let Self::Available(original) = self { Some(original.author) } else { None }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PublishedPost {
    pub id: PostId,
    pub author: UserId,
    /// The number of the post within its author: 1, 2, 3, … without gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    pub title: String,
    #[schema(required)]
    pub body: Option<String>,
    #[schema(required, value_type = Option<Object>)]
    pub data: Option<Box<RawValue>>,
    #[schema(minimum = -100, maximum = 100)]
    pub weight: i8,
    pub created_at: Timestamp,
    /// The post that it quotes. Absent if it is no quote.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub of: Option<Original>,
    pub delivery: Delivery,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "2-1", "author": "2", "seq": 1, "title": "Hello", "body": null, "data": null, "created_at": "2026-11-20T08:00:00.123Z",
    "revision": 1, "read": false, "liked": true, "favorited": false, "likes": 4, "favorites": 0, "reposts": 2,
    "comments": 2,
})))]
pub struct Post {
    pub id: PostId,
    pub author: UserId,
    /// The number of the post within its author: 1, 2, 3, … without gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    /// Null for a repost.
    #[schema(required)]
    pub title: Option<String>,
    #[schema(required)]
    pub body: Option<String>,
    #[schema(required, value_type = Option<Object>)]
    pub data: Option<Box<RawValue>>,
    pub created_at: Timestamp,
    /// 1 when the post was published; every edit raises it by one.
    #[schema(minimum = 1)]
    pub revision: u64,
    /// The same as in lists: see `PostItem`.
    pub read: bool,
    pub liked: bool,
    pub favorited: bool,
    /// The number of users who like it. A repost has the counts of its original.
    pub likes: u64,
    /// The number of users who have it as a favorite.
    pub favorites: u64,
    /// The number of users who repost it.
    pub reposts: u64,
    /// The number of its comments, those of users in a block with the caller too.
    pub comments: u64,
    /// The post that it reposts or quotes. Absent if it is neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub of: Option<Original>,
    /// The author and the author of the original, if they have profiles. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Posts {
    /// In the order of the request. Deleted and unknown posts are left out.
    #[schema(max_items = 100)]
    pub items: Vec<Post>,
    /// The authors of the posts and of their originals who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "mode": "push", "state": "done", "followers": 23, "delivered": 23, "pages": 1, "pages_done": 1, "attempts": 0,
    "started_at": "2026-11-20T08:00:00.123Z", "finished_at": "2026-11-20T08:00:00.170Z",
})))]
pub struct Delivery {
    pub mode: DeliveryMode,
    pub state: DeliveryState,
    /// The number of followers when the post was published.
    pub followers: u64,
    /// Followers handled, also those without a live view.
    pub delivered: u64,
    /// The number of pages into which the author's followers were divided.
    pub pages: u64,
    pub pages_done: u64,
    /// The number of times that missing pages were sent again.
    pub attempts: u64,
    pub started_at: Timestamp,
    #[schema(required)]
    pub finished_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "liked": true, "likes": 4 })))]
pub struct Liked {
    pub liked: bool,
    /// The number of users who like the post after the change.
    pub likes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "favorited": true, "favorites": 1 })))]
pub struct Favorited {
    pub favorited: bool,
    /// The number of users who have the post as a favorite after the change.
    pub favorites: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "reposted": true, "post": "1-7", "reposts": 3 }), json!({ "reposted": false, "post": null, "reposts": 2 })))]
pub struct Reposted {
    pub reposted: bool,
    /// The caller's repost; null if there is none.
    #[schema(required)]
    pub post: Option<PostId>,
    /// The number of users who repost the original after the change; 0 if the caller does not see it.
    pub reposts: u64,
}

/// A user who reposts a post.
#[derive(Debug, Serialize, ToSchema)]
pub struct RepostEntry {
    pub user: UserId,
    /// The user's repost.
    pub post: PostId,
    pub since: Timestamp,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "items": [{ "user": "1", "post": "1-7", "since": "2026-11-20T08:00:00.123Z" }], "next_cursor": null, "profiles": {},
})))]
pub struct RepostPage {
    #[schema(max_items = 100)]
    pub items: Vec<RepostEntry>,
    pub next_cursor: NextCursor,
    /// The users on the page who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
}
