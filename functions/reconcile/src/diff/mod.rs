//! The differences of stored data, and how they are found: pure functions compare both sides, in the same types, and
//! return differences.
//!
//! Every difference has one remedy. A dry run of `reconcile` lists the differences, and a run also applies the
//! remedies.
//!
//! **Facts against facts** ([`facts`]): each repair is one write or one transaction, on condition that the facts are as
//! the look found them.
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `follower-missing` | the followee's list of followers lacks an edge (F1) | add it, if the edge is the same |
//! | `follower-ghost` | a listed follower has no edge (F1) | remove the follower, if there is still no edge |
//! | `follower-since` | the list has another time than the edge | write the edge's time, if the edge is the same |
//! | `followings-count` | the count differs from the number of edges (F1) | set it, if its change number is the same |
//! | `followers-count` | the count differs from the number of followers that the shard lists (F1) | set it, if its change number is the same |
//! | `head-posts` | the head's count differs from the number of its live posts | set it, if the head's latest post and number of deletions are the same |
//! | `head-deletion` | the head's deleted posts and a post's tombstone disagree | add the post to them or remove it; the tombstone is right |
//! | `reads-beyond` | a read state covers posts that do not exist (F3) | cut it, as the next version |
//! | `post-reactions`, `author-reactions` | the count differs from the number of users' reactions (F5) | set it, if its change number is the same |
//! | `unfinished-left` | the index of unfinished fan-outs lists a finished one | remove it |
//! | `unfinished-missing` | the index does not list an unfinished fan-out | add it; its fan-out is resumed from there |
//! | `body-left` | a deleted post has a body | delete it |
//! | `record-expired`, `record-damaged`, `record-of-nothing` | an idempotency record is past its time, cannot be read, or names a post or notices that never existed | delete it |
//! | `tombstone-expired` | the tombstone of an unfollow is past its time | delete it |
//! | `item-damaged` | an item cannot be read; the difference has its table and key | none: an operator corrects it from a backup; no count and no other difference is derived from a list with this item |
//! | `notice-missing` | a platform's head lists a notice that does not exist and cannot be shown | remove it from the head, as the next version |
//! | `notice-left` | a notice exists that the head does not list; the head is right | delete it |
//! | `slots-behind` | the head's latest slot is below a slot that a user has read and that is counted | raise it, as the next version: no slot is given twice |
//! | `notice-reads-beyond` | a read state goes beyond the head, in slots that are not counted | cut it, as the next version |
//!
//! A count that is negative or not a number has `"seen": null`, and is repaired like any other. The change number is
//! read before the items are listed. If it is the same when the count is set, none of the items has changed in between.
//! It is part of the difference, so a second look confirms only a count that was wrong all the time.
//!
//! **In progress** ([`FlowDifference`]): work that should have moved and has not.
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `delivery-unfinished`, `retraction-unfinished` | pages are not done and are lost, as [`LookPlan::due`](tidemark_app::fan_out::LookPlan::due) decides | send them again |
//! | `fan-outs-given-up` | fan-outs were sent as often as allowed | none: an operator finds the cause and resumes them |
//! | `records-given-up` | stream records are in the projector's failure queue | none: an operator looks at them, and the walk repairs the views of their users |
//!
//! **Views against facts** ([`reader`], [`views`]): a view may be deleted at any time. So it is deleted if the
//! operations that write it cannot repair it.
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `field-missing`, `field-opening`, `field-old` | a followed author has no field, a field that was never seeded, or a field of an earlier follow | `sync` |
//! | `field-ghost` | there is a field of an author who is not followed (V1) | `drop` |
//! | `reads-behind`, `reads-wrong`, `base-wrong`, `floor-wrong`, `modes-behind` | bits or numbers differ from the facts | `seed` from the facts |
//! | `deletion-missing` | a deleted post has no deleted bit (V2) | `retract` |
//! | `field-ahead`, `delivered-ahead` | a field has numbers or bits that are ahead of the facts | rebuild |
//! | `undelivered`, `entry-missing` | a post has no delivered bit, or it is counted and not in the feed (V3) | `deliver` |
//! | `entry-ghost` | the facts do not imply an entry | `retract` if deleted, `drop` if unfollowed, else rebuild |
//! | `feed-incomplete` | more than [`reader::MOST_ENTRIES`] entries are missing | rebuild |
//! | `feed-disordered`, `feed-damaged`, `feed-unannounced`, `feed-lost`, `state-damaged` | the feed is out of order or has an entry twice; it cannot be read; the state does not know of it; it does not exist; the state cannot be read | rebuild |
//! | `feed-short-lived` | the feed would expire before its state | `touch` |
//! | `feed-orphan`, `state-headless` | there is a feed without a state, or there are fields without the field that makes them a view | delete it |
//! | `rebuild-abandoned` | a building mark is past its deadline | rebuild, which takes it over |
//! | `list-missing`, `list-ghost`, `list-time`, `list-damaged` | a cached relation list differs from the edges, or cannot be read | delete it |
//! | `counters-wrong`, `counters-damaged` | cached counters differ from the facts, or cannot be read | delete them |
//! | `reactions-behind`, `reactions-wrong`, `reactions-damaged` | a reader's reactions to an author are stale or differ from the fact, or cannot be read | store the fact if they are stale, else delete all |
//! | `head-wrong` | a cached head differs from the author's head | delete it |
//! | `summary-of-deleted` | the summary of a deleted post shows it as live | store its tombstone |
//! | `summary-wrong`, `summary-damaged`, `summary-of-nothing` | the summary has another title or time, cannot be read, or is of a post that does not exist | delete it |
//! | `key-of-wrong-type`, `key-without-lifetime`, `key-astray` | a key has another type than its name says, has no lifetime, or is in another bucket than its user's: no operation leaves it so | delete it |
//!
//! Views of notices ([`notices`]):
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `notice-reads-behind` | a user's read state has an earlier version than the fact | replace it |
//! | `notice-reads-wrong`, `notice-reads-damaged` | it has other slots or a later version than the fact; it cannot be read | delete it |
//! | `platform-head-wrong` | a cached head differs from the platform's head | delete it |
//! | `title-wrong`, `title-damaged`, `title-of-nothing` | the title or time differs from the notice's in this revision; it cannot be read; the revision or notice does not exist yet | delete it |

pub mod facts;
pub mod notices;
pub mod reader;
pub mod views;

use serde::Serialize;

use crate::diff::facts::StoredRecord;
use tidemark_domain::{
    ids::{PostId, Seq, UserId},
    notices::{NoticeId, Platform, Slot},
    reactions::Reaction,
    time::Timestamp,
};
use tidemark_views::keys::View;

/// A difference of one of the kinds above.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Difference {
    Fact(FactDifference),
    Flow(FlowDifference),
    View(ViewDifference),
}

impl Difference {
    /// The kind, as the tables above name it.
    pub fn kind(&self) -> String {
        let kind = serde_json::to_value(self).ok().and_then(|value| Some(value.get("kind")?.as_str()?.to_owned()));
        kind.unwrap_or_default()
    }
}

impl From<DamagedItem> for Difference {
    fn from(item: DamagedItem) -> Self {
        Self::Fact(FactDifference::ItemDamaged { item })
    }
}

impl From<FactDifference> for Difference {
    fn from(difference: FactDifference) -> Self {
        Self::Fact(difference)
    }
}

impl From<FlowDifference> for Difference {
    fn from(difference: FlowDifference) -> Self {
        Self::Flow(difference)
    }
}

impl From<ViewDifference> for Difference {
    fn from(difference: ViewDifference) -> Self {
        Self::View(difference)
    }
}

/// An item that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DamagedItem {
    pub table: &'static str,
    /// The key as text.
    pub key: String,
}

/// A count and its right value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Recount {
    /// The stored count, zero if there is none; `None` if it is negative or not a number.
    pub seen: Option<u64>,
    pub right: u64,
    /// The change number that was read before the items were listed; `None` if it is not a number.
    #[serde(skip)]
    pub changes: Option<u64>,
}

/// A stored number and its right value. A number that is not stored is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Off {
    pub seen: u64,
    pub right: u64,
}

impl Off {
    /// `None` if both are the same.
    pub fn of(seen: u64, right: u64) -> Option<Self> {
        (seen != right).then_some(Self { seen, right })
    }
}

/// A contradiction between facts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FactDifference {
    FollowerMissing {
        user: UserId,
        author: UserId,
        #[serde(skip)]
        since: Timestamp,
        #[serde(skip)]
        rev: u32,
    },
    FollowerGhost {
        user: UserId,
        author: UserId,
        /// The time of the entry. If the user follows again before the second look, that look finds another difference.
        #[serde(skip)]
        since: Timestamp,
    },
    FollowerSince {
        user: UserId,
        author: UserId,
        #[serde(skip)]
        since: Timestamp,
        #[serde(skip)]
        rev: u32,
    },
    FollowingsCount {
        user: UserId,
        #[serde(flatten)]
        count: Recount,
    },
    FollowersCount {
        author: UserId,
        shard: u16,
        #[serde(flatten)]
        count: Recount,
    },
    HeadPosts {
        author: UserId,
        seen: Option<u64>,
        right: u64,
        #[serde(skip)]
        latest: Seq,
        #[serde(skip)]
        deletions: Option<u64>,
    },
    HeadDeletion {
        post: PostId,
        /// Whether the post itself is deleted or archived.
        deleted: bool,
    },
    ReadsBeyond {
        user: UserId,
        author: UserId,
        latest: Seq,
    },
    PostReactions {
        post: PostId,
        shard: u16,
        reaction: Reaction,
        #[serde(flatten)]
        count: Recount,
    },
    AuthorReactions {
        author: UserId,
        shard: u16,
        reaction: Reaction,
        #[serde(flatten)]
        count: Recount,
    },
    UnfinishedLeft {
        post: PostId,
    },
    UnfinishedMissing {
        post: PostId,
    },
    BodyLeft {
        post: PostId,
    },
    RecordExpired {
        #[serde(flatten)]
        record: StoredRecord,
    },
    RecordDamaged {
        #[serde(flatten)]
        record: StoredRecord,
    },
    RecordOfNothing {
        #[serde(flatten)]
        record: StoredRecord,
    },
    TombstoneExpired {
        user: UserId,
        author: UserId,
        #[serde(skip)]
        rev: u32,
    },
    ItemDamaged {
        #[serde(flatten)]
        item: DamagedItem,
    },
    NoticeMissing {
        notice: NoticeId,
    },
    NoticeLeft {
        notice: NoticeId,
    },
    SlotsBehind {
        platform: Platform,
        #[serde(flatten)]
        off: Off,
    },
    NoticeReadsBeyond {
        user: UserId,
        platform: Platform,
        latest: Slot,
    },
}

/// How long reconcile leaves an expired item to the table's own expiry, which takes up to two days.
const GRACE_SECONDS: u64 = 3 * 24 * 3600;

/// Work that should have moved and has not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FlowDifference {
    DeliveryUnfinished { post: PostId, pages: usize },
    RetractionUnfinished { post: PostId, pages: usize },
    FanOutsGivenUp { posts: u64 },
    RecordsGivenUp { records: u64 },
}

/// Why an entry of a feed is a ghost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ghost {
    Unfollowed,
    Deleted,
    /// The post does not exist, the entry has another time than the post, or this feed does not show it.
    Unknown,
}

/// A relation list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Following,
    Fans,
}

/// A difference between a view and the facts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ViewDifference {
    FieldMissing {
        user: UserId,
        author: UserId,
    },
    FieldOpening {
        user: UserId,
        author: UserId,
    },
    FieldOld {
        user: UserId,
        author: UserId,
    },
    FieldGhost {
        user: UserId,
        author: UserId,
        #[serde(skip)]
        rev: u32,
    },
    FieldAhead {
        user: UserId,
        author: UserId,
    },
    DeliveredAhead {
        user: UserId,
        author: UserId,
    },
    ReadsBehind {
        user: UserId,
        author: UserId,
        /// The version of the fact. If the fact changes before the second look, that look finds another difference.
        #[serde(skip)]
        version: u64,
    },
    ReadsWrong {
        user: UserId,
        author: UserId,
    },
    DeletionMissing {
        user: UserId,
        post: PostId,
    },
    BaseWrong {
        user: UserId,
        author: UserId,
    },
    FloorWrong {
        user: UserId,
        author: UserId,
    },
    ModesBehind {
        user: UserId,
        author: UserId,
    },
    Undelivered {
        user: UserId,
        post: PostId,
    },
    EntryMissing {
        user: UserId,
        post: PostId,
    },
    EntryGhost {
        user: UserId,
        post: PostId,
        why: Ghost,
        /// The time of the entry, not of the post.
        #[serde(skip)]
        at: Timestamp,
    },
    FeedIncomplete {
        user: UserId,
    },
    FeedDisordered {
        user: UserId,
    },
    FeedDamaged {
        user: UserId,
    },
    FeedUnannounced {
        user: UserId,
    },
    FeedLost {
        user: UserId,
    },
    FeedShortLived {
        user: UserId,
    },
    FeedOrphan {
        user: UserId,
    },
    StateDamaged {
        user: UserId,
    },
    StateHeadless {
        user: UserId,
    },
    RebuildAbandoned {
        user: UserId,
    },
    ListMissing {
        user: UserId,
        list: Side,
        member: UserId,
    },
    ListGhost {
        user: UserId,
        list: Side,
        member: UserId,
    },
    ListTime {
        user: UserId,
        list: Side,
        member: UserId,
    },
    ListDamaged {
        user: UserId,
        list: Side,
    },
    CountersWrong {
        user: UserId,
    },
    CountersDamaged {
        user: UserId,
    },
    ReactionsBehind {
        user: UserId,
        author: UserId,
        /// The version of the fact. If the fact changes before the second look, that look finds another difference.
        #[serde(skip)]
        version: u64,
    },
    ReactionsWrong {
        user: UserId,
        author: UserId,
    },
    ReactionsDamaged {
        user: UserId,
    },
    HeadWrong {
        author: UserId,
    },
    SummaryOfDeleted {
        post: PostId,
    },
    SummaryWrong {
        post: PostId,
    },
    SummaryDamaged {
        post: PostId,
    },
    SummaryOfNothing {
        post: PostId,
    },
    NoticeReadsBehind {
        user: UserId,
        platform: Platform,
        /// The version of the fact. If the fact changes before the second look, that look finds another difference.
        #[serde(skip)]
        version: u64,
    },
    NoticeReadsWrong {
        user: UserId,
        platform: Platform,
        /// The version of the fact. If the fact changes before the second look, that look finds another difference.
        #[serde(skip)]
        version: u64,
    },
    NoticeReadsDamaged {
        user: UserId,
        platform: Platform,
    },
    PlatformHeadWrong {
        platform: Platform,
        /// The version of the fact. If the fact changes before the second look, that look finds another difference.
        #[serde(skip)]
        version: u64,
    },
    TitleWrong {
        notice: NoticeId,
        revision: u64,
    },
    TitleDamaged {
        notice: NoticeId,
        revision: u64,
    },
    TitleOfNothing {
        notice: NoticeId,
        revision: u64,
    },
    KeyOfWrongType {
        key: String,
        /// The view that the key belongs to.
        #[serde(skip)]
        view: View,
    },
    KeyWithoutLifetime {
        key: String,
        /// The view that the key belongs to.
        #[serde(skip)]
        view: View,
    },
    KeyAstray {
        key: String,
    },
}

/// One side of a comparison, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stored<T> {
    #[default]
    Absent,
    /// It exists and cannot be read.
    Damaged,
    Present(T),
}

impl<T> Stored<T> {
    /// The value, if there is one that can be read.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Damaged => None,
        }
    }

    /// Decodes a value. `decode` returns `None` if it cannot be read.
    pub fn read<R>(found: Option<R>, decode: impl FnOnce(R) -> Option<T>) -> Self {
        match found.map(decode) {
            None => Self::Absent,
            Some(None) => Self::Damaged,
            Some(Some(value)) => Self::Present(value),
        }
    }
}
