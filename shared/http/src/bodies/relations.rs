//! Bodies of `/v1/following…`, `/v1/relations…` and `/v1/users/…`.

use serde::Serialize;
use tidemark_domain::{self as domain, ListId, Timestamp, UserId, rank::PREFERENCES};
use utoipa::ToSchema;

use super::{NextCursor, Profiles, RequestBody, UserRelation};
use crate::{Problem, body::Body, problem::ItemProblem};

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(
    json!({ "following": true, "requested": false, "since": "2026-11-20T08:00:00.123Z", "created": true, "preference": 0 }),
    json!({ "following": false, "requested": true, "since": null, "created": false, "preference": 0 }),
))]
pub struct Following {
    /// False if the author is private and has not accepted the caller.
    pub following: bool,
    /// The caller has asked to follow the author.
    pub requested: bool,
    /// The time at which this follow began. Null for a request.
    #[schema(required)]
    pub since: Option<Timestamp>,
    /// False if the caller already followed the author, and for a request.
    pub created: bool,
    /// The points that the caller's ranked feed adds to the scores of the author's posts. A request keeps them for the
    /// follow.
    #[schema(minimum = -10, maximum = 10)]
    pub preference: i8,
}

/// The whole body may be absent.
#[derive(Debug, Default, ToSchema)]
#[schema(examples(json!({ "preference": 3 })))]
pub struct FollowRequest {
    /// The points that the caller's ranked feed adds to the scores of the author's posts. If it is absent, it stays as
    /// it is, and is 0 for a new follow.
    #[schema(minimum = -10, maximum = 10)]
    pub preference: Option<i8>,
}

impl RequestBody for FollowRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        Ok(Self { preference: body.optional_integer("preference", *PREFERENCES.start(), *PREFERENCES.end())? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "muted": true })))]
pub struct Muted {
    pub muted: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "blocked": true })))]
pub struct Blocked {
    pub blocked: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "name": "Friends" })))]
pub struct MakeListRequest {
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
}

impl RequestBody for MakeListRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        Ok(Self { name: body.text("name", 1, 100)? })
    }
}

/// A list of followed authors.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "id": "1-1", "name": "Friends" })))]
pub struct AuthorList {
    pub id: ListId,
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
}

/// A page of lists.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [{ "id": "1-1", "name": "Friends" }], "next_cursor": null })))]
pub struct AuthorLists {
    /// The caller's lists, newest first.
    pub items: Vec<AuthorList>,
    pub next_cursor: NextCursor,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "member": true })))]
pub struct Member {
    pub member: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "follower": false })))]
pub struct NotFollower {
    /// Always false in this response.
    pub follower: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "following": false })))]
pub struct NotFollowing {
    /// Always false in this response.
    pub following: bool,
}

#[derive(Debug, ToSchema)]
#[schema(examples(json!({ "authors": ["2", "3"] })))]
pub struct FollowManyRequest {
    #[schema(min_items = 1, max_items = 50)]
    pub authors: Vec<UserId>,
}

impl RequestBody for FollowManyRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        Ok(Self { authors: body.ids("authors", 50)? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct FollowResults {
    /// One for each author, in the order of the request.
    #[schema(min_items = 1, max_items = 50)]
    pub results: Vec<FollowResult>,
}

/// The result for one author: `requested`, `since` and `created` if the caller follows the author or has asked to,
/// `error` if not.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(
    json!({ "author": "2", "following": true, "requested": false, "since": "2026-11-20T08:00:00.123Z", "created": true }),
    json!({ "author": "1", "following": false, "error": {
        "type": "/problems/self-follow", "title": "Users cannot follow themselves", "status": 422,
        "detail": "an author is not their own follower",
    } }),
))]
pub struct FollowResult {
    pub author: UserId,
    pub following: bool,
    /// The caller has asked to follow the author, who is private.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub requested: Option<bool>,
    /// The time at which this follow began. Null for a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    pub since: Option<Option<Timestamp>>,
    /// False if the caller already followed the author, and for a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub created: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<ItemProblem>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RelationEntry {
    pub user: UserId,
    /// The time at which the follow, the reaction, the mute or the block began.
    pub since: Timestamp,
    /// The points that the caller's ranked feed adds to the scores of the author's posts. Only in the caller's own list
    /// of followed authors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -10, maximum = 10, nullable = false)]
    pub preference: Option<i8>,
    /// Only with `relation=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub relation: Option<UserRelation>,
}

impl From<domain::Relation> for RelationEntry {
    fn from(domain::Relation { since, user }: domain::Relation) -> Self {
        Self { user, since, preference: None, relation: None }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [{ "user": "2", "since": "2026-11-20T08:00:00.123Z" }], "next_cursor": null })))]
pub struct RelationPage {
    #[schema(max_items = 100)]
    pub items: Vec<RelationEntry>,
    pub next_cursor: NextCursor,
    /// The users on the page who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
}

/// A page of requests to follow.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [{ "user": "2", "since": "2026-11-20T08:00:00.123Z" }], "next_cursor": null, "total": 1 })))]
pub struct FollowRequestPage {
    /// The other user of each request, and the time of the request.
    #[schema(max_items = 100)]
    pub items: Vec<RelationEntry>,
    pub next_cursor: NextCursor,
    /// The number of requests on all pages.
    pub total: u64,
    /// The users on the page who have a profile. Absent with `profiles=false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub profiles: Option<Profiles>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "accepted": true })))]
pub struct Accepted {
    pub accepted: bool,
}

/// The relation between the caller and a user. With `only=following`, it has that direction only.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(
    json!({ "user": "2", "following": true, "followed_by": false, "mutual": false }),
    json!({ "user": "2", "following": true }),
))]
pub struct Relation {
    pub user: UserId,
    /// The caller follows the user.
    pub following: bool,
    /// The user follows the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub followed_by: Option<bool>,
    /// The two users follow each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mutual: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [{ "user": "2", "following": true }] })))]
pub struct Relations {
    /// One for each user, in the order of the request.
    #[schema(min_items = 1, max_items = 100)]
    pub items: Vec<Relation>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "followings": 2, "followers": 1, "posts": 3, "likes_received": 4, "favorites_received": 0 })))]
pub struct Counters {
    pub followings: u64,
    pub followers: u64,
    /// Posts that are not deleted.
    pub posts: u64,
    pub likes_received: u64,
    pub favorites_received: u64,
}

impl From<domain::Counters> for Counters {
    fn from(counters: domain::Counters) -> Self {
        Self {
            followings: counters.followings.into(),
            followers: counters.followers.into(),
            posts: counters.posts.into(),
            likes_received: counters.likes.into(),
            favorites_received: counters.favorites.into(),
        }
    }
}
