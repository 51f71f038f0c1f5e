//! Bodies of `/v1/notices…`.

use std::collections::BTreeSet;

use serde::Serialize;
use tidemark_domain::{NoticeId, Platform, Seq, Timestamp};
use utoipa::ToSchema;

use super::{
    NextCursor, RequestBody,
    values::{PlatformGiven, Through},
};
use crate::{Problem, body::Body};

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "platforms": [1, 2], "title": "Maintenance", "body": "On Sunday.", "expires_at": "2099-01-01T00:00:00Z",
})))]
pub struct PublishNoticesRequest {
    /// A platform that is named twice gets one notice.
    #[schema(value_type = Vec<PlatformGiven>, min_items = 1, max_items = 32)]
    pub platforms: Vec<Platform>,
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    /// At most 64 KiB of UTF-8.
    #[schema(max_length = 65_536)]
    pub body: Option<String>,
    /// In the future, RFC 3339 with any offset. From this time on the notice is in no list and no count.
    #[schema(value_type = Option<String>, format = DateTime, examples("2099-01-01T00:00:00Z"))]
    pub expires_at: Option<Timestamp>,
}

impl RequestBody for PublishNoticesRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        // All notices of a request are one transaction, which has at most 100 items and 4 MB.
        let (mut platforms, mut seen) = (body.platforms("platforms", 32)?, BTreeSet::new());
        platforms.retain(|&platform| seen.insert(platform));
        let (title, text) = body.title_and_text()?;
        Ok(Self { platforms, title, body: text, expires_at: body.optional_time("expires_at")? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "title": "Maintenance moved", "renotify": true })))]
pub struct EditNoticeRequest {
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    /// At most 64 KiB of UTF-8.
    #[schema(max_length = 65_536)]
    pub body: Option<String>,
    /// In the future, RFC 3339 with any offset. From this time on the notice is in no list and no count.
    #[schema(value_type = Option<String>, format = DateTime, examples("2099-01-01T00:00:00Z"))]
    pub expires_at: Option<Timestamp>,
    /// Makes the notice unread again for every reader.
    #[schema(value_type = Option<bool>, default = false)]
    pub renotify: bool,
}

impl RequestBody for EditNoticeRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        let (title, text) = body.title_and_text()?;
        Ok(Self { title, body: text, expires_at: body.optional_time("expires_at")?, renotify: body.flag("renotify")? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "1-7", "platform": 1, "seq": 7, "title": "Maintenance", "body": "On Sunday.",
    "created_at": "2026-11-20T08:00:00.123Z", "expires_at": null,
})))]
pub struct Notice {
    pub id: NoticeId,
    pub platform: Platform,
    /// The number of the notice within its platform: 1, 2, 3, … without gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    pub title: String,
    #[schema(required)]
    pub body: Option<String>,
    pub created_at: Timestamp,
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PublishedNotices {
    /// One notice for each platform, in the order of the request.
    #[schema(min_items = 1, max_items = 32)]
    pub items: Vec<Notice>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct EditedNotices {
    /// One notice for each id, in the order of the request.
    #[schema(min_items = 1, max_items = 100)]
    pub items: Vec<Notice>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "1-7", "platform": 1, "seq": 7, "title": "Maintenance", "body": "On Sunday.",
    "created_at": "2026-11-20T08:00:00.123Z", "expires_at": null, "read": true, "readers": 12,
})))]
pub struct ReadNotice {
    pub id: NoticeId,
    pub platform: Platform,
    /// The number of the notice within its platform: 1, 2, 3, … without gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    pub title: String,
    #[schema(required)]
    pub body: Option<String>,
    pub created_at: Timestamp,
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
    /// Whether the caller has read it.
    pub read: bool,
    /// The number of users who have read it since it was last notified. Only with the scope `notices:write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub readers: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct NoticeItem {
    pub id: NoticeId,
    pub title: String,
    pub created_at: Timestamp,
    pub read: bool,
    /// Only with `include=body`, as all fields below.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub platform: Option<Platform>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, nullable = false)]
    pub seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Option<Timestamp>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "items": [{ "id": "1-7", "title": "Maintenance", "created_at": "2026-11-20T08:00:00.123Z", "read": false }],
    "next_cursor": null,
})))]
pub struct NoticePage {
    #[schema(max_items = 100)]
    pub items: Vec<NoticeItem>,
    pub next_cursor: NextCursor,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "unread": 1, "read": 6, "platforms": [{ "platform": 1, "unread": 1, "read": 6 }] })))]
pub struct NoticeCounts {
    /// The sum over the platforms.
    pub unread: u64,
    /// The sum over the platforms.
    pub read: u64,
    /// One entry for each platform, in the order of the request.
    #[schema(min_items = 1, max_items = 100)]
    pub platforms: Vec<PlatformCounts>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PlatformCounts {
    pub platform: Platform,
    pub unread: u64,
    pub read: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "read": true, "unread": 0 })))]
pub struct NoticeMarked {
    pub read: bool,
    /// Unread notices of the notice's platform.
    pub unread: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "platform": 1, "through": 7 })))]
pub struct MarkNoticesReadRequest {
    #[schema(value_type = PlatformGiven)]
    pub platform: Platform,
    #[schema(value_type = Through)]
    pub through: Seq,
}

impl RequestBody for MarkNoticesReadRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        Ok(Self { platform: body.platform("platform")?, through: body.seq("through")? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "changed": 2, "unread": 0, "read": 7 })))]
pub struct NoticesMarked {
    /// Notices that became read.
    pub changed: u64,
    pub unread: u64,
    pub read: u64,
}
