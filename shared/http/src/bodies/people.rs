//! Bodies of `/v1/me…`, `/v1/users…` and `/v1/handles/…`.

use std::collections::{BTreeMap, HashMap};

use fluent_uri::Uri;
use serde::Serialize;
use serde_json::value::RawValue;
use tidemark_app::relations::{RelationTo, Status};
use tidemark_domain::{self as domain, Handle, ListId, Relation, Timestamp, UserId};
use utoipa::ToSchema;

use super::{Counters, Post, PostItem, RelationEntry, RepostEntry, RequestBody, values::raw};
use crate::{Problem, body::Body};

/// The part of a profile that pages show.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "name": "Ada", "handle": "ada", "picture": "https://example.org/ada.png" })))]
pub struct Card {
    pub name: String,
    #[schema(required, pattern = "^[a-z0-9_]{3,30}$")]
    pub handle: Option<String>,
    #[schema(required, format = "uri")]
    pub picture: Option<String>,
}

impl From<domain::Card> for Card {
    fn from(card: domain::Card) -> Self {
        Self { name: card.name, handle: card.handle.map(|handle| handle.to_string()), picture: card.picture }
    }
}

/// The users on a page who have a profile, by user id.
#[derive(Debug, Serialize, ToSchema)]
pub struct Profiles(BTreeMap<String, Card>);

impl From<HashMap<UserId, domain::Card>> for Profiles {
    fn from(cards: HashMap<UserId, domain::Card>) -> Self {
        Self(cards.into_iter().map(|(user, card)| (user.to_string(), card.into())).collect())
    }
}

/// An item of a page, which names a user, and perhaps the author of the original.
pub trait NamesUser {
    fn user(&self) -> UserId;

    fn original_author(&self) -> Option<UserId> {
        None
    }
}

impl NamesUser for UserId {
    fn user(&self) -> UserId {
        *self
    }
}

impl NamesUser for PostItem {
    fn user(&self) -> UserId {
        self.author
    }

    fn original_author(&self) -> Option<UserId> {
        self.of.as_ref()?.author()
    }
}

impl NamesUser for Post {
    fn user(&self) -> UserId {
        self.author
    }

    fn original_author(&self) -> Option<UserId> {
        self.of.as_ref()?.author()
    }
}

impl NamesUser for RepostEntry {
    fn user(&self) -> UserId {
        self.user
    }
}

impl NamesUser for RelationEntry {
    fn user(&self) -> UserId {
        self.user
    }
}

/// A profile replaces the one before as a whole: what is absent becomes null.
#[derive(Debug, ToSchema)]
#[schema(examples(
    json!({ "name": "Ada", "handle": "ada", "picture": "https://example.org/ada.png", "bio": "Notes.", "data": { "theme": 2 } }),
    json!({ "name": "Ada" }),
))]
pub struct ProfileRequest {
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// Unique, with at least one letter. A handle that was given up is free for others after 30 days.
    #[schema(value_type = Option<String>, min_length = 3, max_length = 30, pattern = "^[0-9_]*[a-z][a-z0-9_]*$")]
    pub handle: Option<Handle>,
    /// An `https` URL.
    #[schema(max_length = 2_048, format = "uri", pattern = "^https://")]
    pub picture: Option<String>,
    #[schema(max_length = 500)]
    pub bio: Option<String>,
    /// At most 4 KiB of JSON, for the application.
    #[schema(value_type = Option<Object>)]
    pub data: Option<String>,
}

impl RequestBody for ProfileRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        let picture = body.optional_text("picture", 1, 2_048)?;
        if picture.as_ref().is_some_and(|url| !is_https(url)) {
            return Err(Problem::invalid("picture", "must be an https URL"));
        }
        Ok(Self {
            name: body.text("name", 1, 100)?,
            handle: body.optional_id("handle")?,
            picture,
            bio: body.optional_text("bio", 0, 500)?,
            data: body.optional_object("data")?,
        })
    }
}

fn is_https(text: &str) -> bool {
    let host = |url: Uri<&str>| url.authority().is_some_and(|authority| !authority.host().is_empty());
    text.starts_with("https://") && Uri::parse(text).is_ok_and(host)
}

impl From<ProfileRequest> for domain::ProfileContent {
    fn from(request: ProfileRequest) -> Self {
        let ProfileRequest { name, handle, picture, bio, data } = request;
        Self { card: domain::Card { name, handle, picture }, bio, data }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "user": "2", "name": "Ada", "handle": "ada", "picture": null, "bio": null, "data": null,
    "updated_at": "2026-11-20T08:00:00.123Z",
})))]
pub struct Profile {
    pub user: UserId,
    pub name: String,
    #[schema(required, pattern = "^[a-z0-9_]{3,30}$")]
    pub handle: Option<String>,
    #[schema(required, format = "uri")]
    pub picture: Option<String>,
    #[schema(required)]
    pub bio: Option<String>,
    #[schema(required, value_type = Option<Object>)]
    pub data: Option<Box<RawValue>>,
    pub updated_at: Timestamp,
}

impl From<domain::Profile> for Profile {
    fn from(profile: domain::Profile) -> Self {
        let domain::ProfileContent { card, bio, data } = profile.content;
        let Card { name, handle, picture } = card.into();
        Self { user: profile.user, name, handle, picture, bio, data: raw(data), updated_at: profile.updated_at }
    }
}

#[derive(Debug, ToSchema)]
#[schema(examples(json!({ "private": true })))]
pub struct PrivacyRequest {
    pub private: bool,
}

impl RequestBody for PrivacyRequest {
    fn read(body: &Body) -> Result<Self, Problem> {
        Ok(Self { private: body.required_flag("private")? })
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "private": true })))]
pub struct Privacy {
    /// Only accepted followers see the caller's posts.
    pub private: bool,
}

/// The caller as the API knows them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "2", "profile": null, "private": false,
    "counters": { "followings": 2, "followers": 1, "posts": 3, "likes_received": 4, "favorites_received": 0 },
    "inbox_unread": 1, "rollout": "on",
})))]
pub struct Me {
    pub id: UserId,
    /// Null until it is set.
    #[schema(required)]
    pub profile: Option<Profile>,
    /// Only accepted followers see the caller's posts.
    pub private: bool,
    pub counters: Counters,
    /// The number of unread groups of the caller's inbox.
    pub inbox_unread: u64,
    /// Whether an application should serve this user from here, `on`, or from the system before it, `off`.
    pub rollout: Rollout,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rollout {
    On,
    Off,
}

/// The relation between the caller and a user.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserRelation {
    /// The caller follows the user.
    pub following: bool,
    /// The user follows the caller.
    pub followed_by: bool,
    /// The two users follow each other.
    pub mutual: bool,
    /// The caller has muted the user.
    pub muted: bool,
    /// The caller has blocked the user.
    pub blocked: bool,
    /// The caller has asked to follow the user, who is private or was.
    pub requested: bool,
    /// The caller's lists that have the user.
    #[schema(max_items = 50)]
    pub lists: Vec<ListId>,
}

impl From<RelationTo> for UserRelation {
    fn from(RelationTo { status, muted, blocked, requested, lists }: RelationTo) -> Self {
        let Status { following, followed_by } = status;
        Self { following, followed_by, mutual: following && followed_by, muted, blocked, requested, lists }
    }
}

/// The user's followers whom the caller follows.
#[derive(Debug, Serialize, ToSchema)]
pub struct KnownFollowers {
    pub count: u64,
    /// Those whose follow is newest.
    #[schema(max_items = 3)]
    pub users: Vec<UserId>,
}

/// The followers that [`KnownFollowers`] shows.
const SHOWN: usize = 3;

impl From<Vec<Relation>> for KnownFollowers {
    fn from(known: Vec<Relation>) -> Self {
        Self { count: known.len() as u64, users: known.iter().take(SHOWN).map(|relation| relation.user).collect() }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({
    "id": "2", "profile": null, "private": false,
    "counters": { "followings": 2, "followers": 1, "posts": 3, "likes_received": 4, "favorites_received": 0 },
    "relation": {
        "following": true, "followed_by": false, "mutual": false, "muted": false, "blocked": false, "requested": false,
        "lists": ["1-1"],
    },
    "known_followers": { "count": 1, "users": ["3"] },
    "profiles": { "3": { "name": "Ada", "handle": "ada", "picture": null } },
})))]
pub struct User {
    pub id: UserId,
    /// Null if the user has none.
    #[schema(required)]
    pub profile: Option<Profile>,
    /// Only accepted followers see the user's posts.
    pub private: bool,
    pub counters: Counters,
    pub relation: UserRelation,
    pub known_followers: KnownFollowers,
    /// The users of `known_followers` who have a profile.
    pub profiles: Profiles,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct UserEntry {
    pub id: UserId,
    #[schema(required)]
    pub profile: Option<Profile>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(examples(json!({ "items": [{ "id": "2", "profile": null }] })))]
pub struct Users {
    /// One for each user, in the order of the request.
    #[schema(min_items = 1, max_items = 100)]
    pub items: Vec<UserEntry>,
}
