//! Bodies of `/v1/inbox…`.

use serde::Serialize;
use tidemark_domain::{Acts, GroupId, GroupKind, PostId, ShownGroup, Timestamp, UserId};
use utoipa::ToSchema;

use super::{NextCursor, Profiles, RequestBody};
use crate::{Problem, body::Body};

/// Acts of other users that stand: on a post, follows or acceptances of one UTC day, or all requests.
#[derive(Debug, Serialize, ToSchema)]
pub struct InboxGroup {
    pub id: GroupId,
    pub kind: GroupKind,
    /// The caller's post. Null for `follow`, `request` and `accepted`.
    #[schema(required)]
    pub post: Option<PostId>,
    /// The users of the newest acts, newest first.
    #[schema(min_items = 1, max_items = 3)]
    pub users: Vec<UserId>,
    /// The number of users whose act stands.
    #[schema(minimum = 1)]
    pub count: u64,
    /// The time of the newest act.
    pub latest_at: Timestamp,
    /// False if an act of a user whom the caller does not mute is later than the caller's last read of the group.
    pub read: bool,
}

impl InboxGroup {
    /// The group as its user sees it.
    pub fn of(user: UserId, group: ShownGroup) -> Self {
        let ShownGroup { id, acts: Acts { count, users, latest_at, .. }, unread } = group;
        Self { id, kind: id.kind(), post: id.post(user), users, count, latest_at, read: !unread }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "items": [{
        "id": "like-7", "kind": "like", "post": "2-7", "users": ["3", "1"], "count": 2,
        "latest_at": "2026-11-20T08:00:00.123Z", "read": false,
    }],
    "next_cursor": null,
    "profiles": { "3": { "name": "Ada", "handle": "ada", "picture": null } },
    "unread_total": 1,
})))]
pub struct InboxPage {
    /// The group with the newest act comes first.
    #[schema(max_items = 100)]
    pub items: Vec<InboxGroup>,
    pub next_cursor: NextCursor,
    /// The users on the page who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
    /// The number of groups with `status=unread`.
    pub unread_total: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "unread": 1 })))]
pub struct InboxUnread {
    /// The number of unread groups.
    pub unread: u64,
}

/// All acts up to a time. Later acts stay unread.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "before": "2026-11-20T08:00:00.123Z" })))]
pub struct ReadInboxRequest {
    /// RFC 3339 with any offset. Fractions of a millisecond are cut off. A time in the future means now, a time before
    /// 1970 its first moment.
    #[schema(value_type = String, format = DateTime)]
    pub before: Timestamp,
}

impl RequestBody for ReadInboxRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        let before = body.optional_time("before")?.ok_or_else(|| Problem::invalid("before", "is required"))?;
        Ok(Self { before })
    }
}
