//! Events on EventBridge.
//!
//! An entry has the source `tidemark`, the event's type as `detail-type`, and a [`Detail`] as JSON. EventBridge gives
//! each accepted entry an id of its own, also a repeated one. The event's id is in its detail.

use std::time::Duration;

use aws_sdk_eventbridge::{
    Client,
    primitives::DateTime,
    types::{PutEventsRequestEntry, PutEventsResultEntry},
};
use futures::FutureExt;
use serde::Serialize;
use serde_json::{json, value::RawValue};
use tidemark_domain::{
    Event, EventPost, Happened, PostId, PostText, Profile, ProfileContent, Reaction, Reference, Seq, SeqSet, Timestamp, UserId,
};
use tracing::warn;
use utoipa::ToSchema;

use crate::PAUSES;

/// The source of all events.
pub const SOURCE: &str = "tidemark";

/// The maximum number of entries and of bytes in one PutEvents. The second is below the limit of EventBridge.
const BATCH_ENTRIES: usize = 10;
const BATCH_BYTES: usize = 250_000;

/// Bytes of an entry beside its detail: source, type and time.
const BESIDE: usize = 100;

/// The largest detail. One that would be larger is sent without its `body` and `data`.
const MOST_BYTES: usize = 240_000;

/// The most ranges of a read state. Each takes up to 24 bytes.
const MOST_RANGES: usize = 9_900;

/// What an event says. The fields have the names of the API.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Detail {
    FollowBegan(FollowBegan),
    FollowEnded(FollowEnded),
    PostPublished(PostDetail),
    PostEdited(PostDetail),
    PostDeleted(PostDeleted),
    ReactionGiven(ReactionGiven),
    ReactionRemoved(ReactionRemoved),
    CommentAdded(CommentAdded),
    CommentDeleted(CommentDeleted),
    ReadChanged(ReadChanged),
    ProfileChanged(ProfileChanged),
    PrivacyChanged(PrivacyChanged),
    UserErased(UserErased),
}

macro_rules! details {
    ($($(#[$meta:meta])* $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty),* $(,)? })*) => { $(
        $(#[$meta])*
        #[derive(Debug, Serialize, ToSchema)]
        struct $name {
            /// The same for every repetition of the event.
            id: String,
            /// Grows with every change of the subject.
            revision: u32,
            $($(#[$of_field])* $field: $type,)*
        }
    )* };
}

details! {
    FollowBegan { user: UserId, author: UserId, since: Timestamp }
    FollowEnded { user: UserId, author: UserId, at: Timestamp }
    PostDetail {
        post: PostId,
        author: UserId,
        /// Null if the post is a repost.
        #[schema(required)]
        title: Option<String>,
        /// The post that it reposts or quotes. Absent if it is neither.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        of: Option<PostId>,
        /// Absent if the post has changed again before the event was sent, or if it is too large for an event.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        body: Option<Option<String>>,
        /// Absent together with `body`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        data: Option<Option<Box<RawValue>>>,
        weight: i8,
        created_at: Timestamp,
        /// Null if the post was never edited.
        #[schema(required)]
        edited_at: Option<Timestamp>,
    }
    PostDeleted { post: PostId, author: UserId }
    ReactionGiven { user: UserId, author: UserId, post: PostId, reaction: Reaction, at: Timestamp }
    ReactionRemoved { user: UserId, author: UserId, post: PostId, reaction: Reaction }
    CommentAdded {
        #[schema(examples("2-7-3"))]
        comment: String,
        post: PostId,
        /// The author of the comment.
        author: UserId,
        text: String,
        created_at: Timestamp,
    }
    CommentDeleted {
        #[schema(examples("2-7-3"))]
        comment: String,
        post: PostId,
    }
    /// The state after the change.
    ReadChanged {
        user: UserId,
        author: UserId,
        #[schema(value_type = u64)]
        through: Seq,
        /// The read posts as ranges of sequence numbers, each with its first and last. Absent if they are too many for
        /// an event.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Vec<Vec<u64>>>, nullable = false)]
        ranges: Option<Vec<(Seq, Seq)>>,
    }
    ProfileChanged { user: UserId, profile: ProfileDetail }
    PrivacyChanged {
        user: UserId,
        /// Whether followers alone see the user's posts from now on.
        private: bool,
    }
    UserErased { user: UserId }
}

/// A profile as the API returns it.
#[derive(Debug, Serialize, ToSchema)]
struct ProfileDetail {
    user: UserId,
    name: String,
    #[schema(required)]
    handle: Option<String>,
    #[schema(required)]
    picture: Option<String>,
    #[schema(required)]
    bio: Option<String>,
    #[schema(required, value_type = Option<Object>)]
    data: Option<Box<RawValue>>,
    updated_at: Timestamp,
}

impl From<&Profile> for ProfileDetail {
    fn from(profile: &Profile) -> Self {
        let ProfileContent { card, bio, data } = profile.content.clone();
        Self {
            user: profile.user,
            name: card.name,
            handle: card.handle.map(|handle| handle.to_string()),
            picture: card.picture,
            bio,
            data: raw(data),
            updated_at: profile.updated_at,
        }
    }
}

fn raw(text: Option<String>) -> Option<Box<RawValue>> {
    text.and_then(|text| RawValue::from_string(text).ok())
}

impl Detail {
    /// The detail of an event, without the text of a post if it is not `whole`.
    fn new(event: &Event, whole: bool) -> Self {
        let (id, revision) = (event.id(), event.revision);
        match &event.happened {
            &Happened::FollowBegan { user, author, since } => {
                Self::FollowBegan(FollowBegan { id, revision, user, author, since })
            }
            &Happened::FollowEnded { user, author, at } => Self::FollowEnded(FollowEnded { id, revision, user, author, at }),
            Happened::PostPublished(post) => Self::PostPublished(PostDetail::new(id, revision, post, whole)),
            Happened::PostEdited(post) => Self::PostEdited(PostDetail::new(id, revision, post, whole)),
            &Happened::PostDeleted(post) => Self::PostDeleted(PostDeleted { id, revision, post, author: post.author }),
            &Happened::ReactionGiven { user, post, reaction, at } => {
                Self::ReactionGiven(ReactionGiven { id, revision, user, author: post.author, post, reaction, at })
            }
            &Happened::ReactionRemoved { user, post, reaction } => {
                Self::ReactionRemoved(ReactionRemoved { id, revision, user, author: post.author, post, reaction })
            }
            &Happened::CommentAdded { comment, author, ref text, at } => {
                let (post, text) = (comment.post, text.clone());
                Self::CommentAdded(CommentAdded {
                    id,
                    revision,
                    comment: comment.to_string(),
                    post,
                    author,
                    text,
                    created_at: at,
                })
            }
            Happened::CommentDeleted(comment) => {
                Self::CommentDeleted(CommentDeleted { id, revision, comment: comment.to_string(), post: comment.post })
            }
            &Happened::ReadChanged { user, author, through, ref read } => {
                let some = |read: &SeqSet| read.ranges().take(MOST_RANGES + 1).collect::<Vec<_>>();
                let ranges = read.as_ref().map(some).filter(|ranges| ranges.len() <= MOST_RANGES);
                Self::ReadChanged(ReadChanged { id, revision, user, author, through, ranges })
            }
            Happened::ProfileChanged(profile) => {
                Self::ProfileChanged(ProfileChanged { id, revision, user: profile.user, profile: profile.into() })
            }
            &Happened::PrivacyChanged { user, private } => Self::PrivacyChanged(PrivacyChanged { id, revision, user, private }),
            &Happened::UserErased(user) => Self::UserErased(UserErased { id, revision, user }),
        }
    }
}

impl PostDetail {
    fn new(id: String, revision: u32, EventPost { post, text }: &EventPost, whole: bool) -> Self {
        let text = text.clone().filter(|_| whole);
        let (body, data) = text.map(|PostText { body, data }| (body, raw(data))).unzip();
        let title = post.reposted().is_none().then(|| post.title.clone());
        let (author, of) = (post.id.author, post.of.map(Reference::original));
        let (weight, created_at, edited_at) = (post.weight, post.created_at, post.edited_at);
        Self { id, revision, post: post.id, author, title, of, body, data, weight, created_at, edited_at }
    }
}

/// The JSON Schema of the details, by the type of the event.
pub fn schemas() -> serde_json::Value {
    let mut parts = Vec::new();
    Detail::schemas(&mut parts);
    let parts: serde_json::Map<String, serde_json::Value> =
        parts.into_iter().map(|(name, schema)| (name, json!(schema))).collect();
    let of = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
    let types = [
        ("follow.began", "FollowBegan"),
        ("follow.ended", "FollowEnded"),
        ("post.published", "PostDetail"),
        ("post.edited", "PostDetail"),
        ("post.deleted", "PostDeleted"),
        ("reaction.given", "ReactionGiven"),
        ("reaction.removed", "ReactionRemoved"),
        ("comment.added", "CommentAdded"),
        ("comment.deleted", "CommentDeleted"),
        ("read.changed", "ReadChanged"),
        ("profile.changed", "ProfileChanged"),
        ("privacy.changed", "PrivacyChanged"),
        ("user.erased", "UserErased"),
    ];
    let types: serde_json::Map<String, serde_json::Value> =
        types.into_iter().map(|(name, detail)| (name.to_owned(), of(detail))).collect();
    let text = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "description": "The `detail` of each event, by its `detail-type`.",
        "properties": types,
        "$defs": parts,
    });
    // References of OpenAPI name another place.
    serde_json::from_str(&text.to_string().replace("#/components/schemas/", "#/$defs/")).unwrap_or(text)
}

/// An event as an entry of PutEvents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventEntry {
    pub id: String,
    pub detail_type: &'static str,
    /// JSON.
    pub detail: String,
    /// The time of the change.
    pub at: Timestamp,
}

impl EventEntry {
    pub fn new(event: &Event, at: Timestamp) -> Self {
        let detail = |whole| serde_json::to_string(&Detail::new(event, whole)).unwrap_or_default();
        let whole = detail(true);
        let detail = if whole.len() > MOST_BYTES { detail(false) } else { whole };
        Self { id: event.id(), detail_type: event.name(), detail, at }
    }

    fn bytes(&self) -> usize {
        self.detail.len() + BESIDE
    }
}

/// Why the bus has not accepted an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The event is malformed. No later attempt can send it.
    Event,
    /// The bus is busy or has failed.
    Busy,
    /// The event, or the bus, or its policies. If the bus accepts other events, it is the event.
    Unknown,
}

/// The bus to which events leave.
#[derive(Debug, Clone)]
pub struct EventBus {
    client: Client,
    name: String,
}

impl EventBus {
    pub fn new(client: Client, name: String) -> Self {
        Self { client, name }
    }

    /// Sends entries in their order, in as few requests as possible. Returns those that were refused, by their index.
    /// After a request without a response, it sends no more: the bus has accepted none of the rest.
    pub async fn put(&self, entries: &[EventEntry]) -> Vec<(usize, Refusal)> {
        let mut refused = Vec::new();
        let mut begin = 0;
        while begin < entries.len() {
            let mut bytes = 0;
            let fitting = entries[begin..].iter().take(BATCH_ENTRIES).take_while(|entry| {
                bytes += entry.bytes();
                bytes <= BATCH_BYTES
            });
            let end = begin + fitting.count().max(1);
            match self.put_batch(&entries[begin..end]).await {
                Ok(failed) => refused.extend(failed.into_iter().map(|(index, refusal)| (begin + index, refusal))),
                Err(reason) => {
                    let refusal = Refusal { reason, cause: Cause::Busy };
                    refused.extend((begin..entries.len()).map(|index| (index, refusal.clone())));
                    break;
                }
            }
            begin = end;
        }
        refused
    }

    /// EventBridge may refuse single entries, which the SDK does not repeat, so this does.
    async fn put_batch(&self, entries: &[EventEntry]) -> Result<Vec<(usize, Refusal)>, String> {
        let mut left: Vec<usize> = (0..entries.len()).collect();
        let mut refused = Vec::new();
        for pause in PAUSES {
            let results = self.put_once(entries, &left).await?;
            let failed = left.iter().zip(results).filter_map(|(&index, result)| Some((index, refusal(&result)?)));
            let (of_entry, again): (Vec<_>, Vec<_>) = failed.partition(|(_, refusal)| refusal.cause == Cause::Event);
            refused.extend(of_entry);
            if again.is_empty() || pause.is_zero() {
                refused.extend(again);
                break;
            }
            let (failed, all, reason) = (again.len(), entries.len(), &again[0].1.reason);
            warn!(failed, all, reason, "the event bus refused events, sending them again");
            left = again.into_iter().map(|(index, _)| index).collect();
            tokio::time::sleep(pause).await;
        }
        Ok(refused)
    }

    async fn put_once(&self, entries: &[EventEntry], which: &[usize]) -> Result<Vec<PutEventsResultEntry>, String> {
        let entry = |index: &usize| {
            let EventEntry { detail_type, detail, at, .. } = &entries[*index];
            let time = DateTime::from_millis(i64::try_from(at.ms()).unwrap_or_default());
            let entry = PutEventsRequestEntry::builder().event_bus_name(&self.name).source(SOURCE).time(time);
            entry.detail_type(*detail_type).detail(detail).build()
        };
        let request = self.client.put_events().set_entries(Some(which.iter().map(entry).collect()));
        let response = request.send().boxed().await;
        let response = response.map_err(|error| format!("{}", aws_sdk_eventbridge::error::DisplayErrorContext(&error)))?;
        if response.entries().len() == which.len() {
            Ok(response.entries.unwrap_or_default())
        } else {
            Err("the response has another number of entries".to_owned())
        }
    }

    /// The entry as `aws events put-events --cli-input-json` takes it.
    pub fn as_request(&self, EventEntry { detail_type, detail, at, .. }: &EventEntry) -> String {
        let entry =
            json!({ "EventBusName": self.name, "Source": SOURCE, "DetailType": detail_type, "Detail": detail, "Time": at });
        json!({ "Entries": [entry] }).to_string()
    }
}

fn refusal(result: &PutEventsResultEntry) -> Option<Refusal> {
    let code = result.error_code()?;
    let cause = match code {
        "MalformedDetail" | "InvalidArgument" | "ValidationException" => Cause::Event,
        "ThrottlingException" | "InternalFailure" | "InternalException" | "ServiceUnavailable" => Cause::Busy,
        _ => Cause::Unknown,
    };
    Some(Refusal { reason: format!("{code}: {}", result.error_message().unwrap_or_default()), cause })
}

/// The time from a change until the bus has its event.
pub fn lag(entry: &EventEntry, now: Timestamp) -> Duration {
    Duration::from_millis(now.ms().saturating_sub(entry.at.ms()))
}
