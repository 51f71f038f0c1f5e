//! What can be wrong with what is stored, and how to see it: pure functions from both sides, in the same types, to differences.
//!
//! Every difference has one remedy. What is written here is what `reconcile` lists in a dry run and does otherwise.
//!
//! **Facts against facts** ([`facts`]): each repair is one write, or one transaction, on the condition of what was seen.
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `follower-missing` | an edge that the followee's followers do not list (F1) | list it, while the edge is the same |
//! | `follower-ghost` | a follower is listed without an edge (F1) | take it off, while there is none |
//! | `follower-since` | it is listed with another time than the edge's | list it with the edge's |
//! | `followings-count` | another number than there are edges (F1) | set it, while its change number is the same |
//! | `followers-count` | another number than the shard lists (F1) | set it, while its change number is the same |
//! | `head-posts` | the head counts other than its live posts | set it, while the head's latest post and number of deletions are the same |
//! | `head-deletion` | the head's deleted posts and a post's tombstone disagree | put it in or out of them; the tombstone is right |
//! | `reads-beyond` | a read fact covers posts that do not exist (F3) | cut it, as a next version |
//! | `post-reactions`, `author-reactions` | another number than users' reactions make (F5) | set it, while its change number is the same |
//! | `unfinished-left` | the index of unfinished fan-outs lists one that is finished | take it out |
//! | `unfinished-missing` | it does not list one that is not | put it in; its fan-out is resumed from there |
//! | `body-left` | a deleted post has a body | delete it |
//! | `record-expired`, `record-damaged`, `record-of-nothing` | an idempotency record past its time, that cannot be read, or of a post or notices that never were | delete it |
//! | `tombstone-expired` | an unfollow's tombstone past its time | delete it |
//! | `item-damaged` | an item that cannot be read: its table and key | none: put it right by hand, from a backup; nothing is counted or concluded from what it is part of |
//! | `notice-missing` | a platform's head lists a notice that is not there | take it out of the head, as a next version: nothing can be shown of it |
//! | `notice-left` | a notice that the head does not list; the head is right | delete it |
//! | `slots-behind` | a head below a slot that a user has read and that is counted | raise it, as a next version: no slot is given twice |
//! | `notice-reads-beyond` | a read state above the head, in what nobody counts | cut it, as a next version |
//!
//! A count that is below zero or no number has `"seen": null`, and is set right as any other. A change number that is read before the items are listed, and is still the same when the count is set, says
//! that none of the items has changed in between. Because it is part of the difference, a second look confirms only what was wrong all the time.
//!
//! **Under way** ([`FlowDifference`]): what has stood still though it should have moved.
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `delivery-unfinished`, `retraction-unfinished` | pages that nobody has done and that are lost, as [`LookPlan::due`](tidemark_app::fan_out::LookPlan::due) says | send them again |
//! | `fan-outs-given-up` | fan-outs that were sent as often as allowed | none: an operator finds the cause and resumes them |
//! | `records-given-up` | stream records in the projector's failure queue | none; somebody has to look, and the walk repairs what they were about |
//!
//! **Views against facts** ([`reader`], [`views`]): a view may be thrown away at any moment, so what cannot be mended by the operations that write it is.
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `field-missing`, `field-opening`, `field-old` | a followed author without field, with one never seeded, or of an earlier follow | `sync` |
//! | `field-ghost` | a field of an author who is not followed (V1) | `drop` |
//! | `reads-behind`, `reads-wrong`, `base-wrong`, `floor-wrong`, `modes-behind` | bits or numbers other than the facts' | `seed` from the facts |
//! | `deletion-missing` | a deleted post without its deleted bit (V2) | `retract` |
//! | `field-ahead`, `delivered-ahead` | a field that claims what the facts do not know | rebuild |
//! | `undelivered`, `entry-missing` | a post without its delivered bit, or in the counts and not in the feed (V3) | `deliver` |
//! | `entry-ghost` | an entry that the facts do not imply | `retract` when deleted, `drop` when unfollowed, else rebuild |
//! | `feed-incomplete` | more than [`reader::MOST_ENTRIES`] entries missing | rebuild |
//! | `feed-disordered`, `feed-damaged`, `feed-unannounced`, `feed-lost`, `state-damaged` | a feed out of order or with an entry twice, that cannot be read, that the state does not know of, that is gone; a state that cannot be read | rebuild |
//! | `feed-short-lived` | a feed that would expire before its state | `touch` |
//! | `feed-orphan`, `state-headless` | a feed without a state, fields without the one that makes them a view | forget it |
//! | `rebuild-abandoned` | a building mark past its deadline | rebuild, which takes it over |
//! | `list-missing`, `list-ghost`, `list-time`, `list-damaged` | a cached relation list other than the edges | forget it |
//! | `counters-wrong`, `counters-damaged` | cached counters other than the facts' | forget them |
//! | `reactions-behind`, `reactions-wrong`, `reactions-damaged` | a reader's reactions to an author other than the fact | store it when behind, else forget all |
//! | `head-wrong` | a cached head other than the author's | forget it |
//! | `summary-of-deleted` | the summary of a post that is deleted | bury it |
//! | `summary-wrong`, `summary-damaged`, `summary-of-nothing` | another title or time, or no such post | forget it |
//! | `key-of-wrong-type`, `key-without-lifetime`, `key-astray` | a key that no operation could have left so, or in another bucket than its user's | forget it |
//!
//! Views of notices ([`notices`]):
//!
//! | kind | what is wrong | remedy |
//! |---|---|---|
//! | `notice-reads-behind` | what a user has read, of an earlier version than the fact | replace it |
//! | `notice-reads-wrong`, `notice-reads-damaged` | other slots, or a version still to come; it cannot be read | forget it |
//! | `platform-head-wrong` | a cached head other than the platform's | forget it |
//! | `title-wrong`, `title-damaged`, `title-of-nothing` | another title or time than the notice's in this revision; it cannot be read; a revision or notice still to come | forget it |

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

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Difference {
    /// In the facts.
    Fact(FactDifference),
    /// On its way.
    Flow(FlowDifference),
    /// In a view.
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
    /// Its table.
    pub table: &'static str,
    /// Its key, as text.
    pub key: String,
}

/// A count, and what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Recount {
    /// What is stored, zero when nothing is; `None` when it is below zero or no number.
    pub seen: Option<u64>,
    /// What it should be.
    pub right: u64,
    /// The change number that was read before the items were listed; `None` when it is no number.
    #[serde(skip)]
    pub changes: Option<u64>,
}

/// A number that is stored, and what it should be. A number that is not stored is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Off {
    /// What is stored.
    pub seen: u64,
    /// What it should be.
    pub right: u64,
}

impl Off {
    /// `None` when both are the same.
    pub fn of(seen: u64, right: u64) -> Option<Self> {
        (seen != right).then_some(Self { seen, right })
    }
}

/// Facts that contradict each other.
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
        /// Of the entry: whoever follows anew meanwhile is another difference.
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
        /// What the post itself says.
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

/// How long past its time something may be left to the table's own expiry, which takes up to two days.
const GRACE_SECONDS: u64 = 3 * 24 * 3600;

/// What should have moved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FlowDifference {
    DeliveryUnfinished { post: PostId, pages: usize },
    RetractionUnfinished { post: PostId, pages: usize },
    FanOutsGivenUp { posts: u64 },
    RecordsGivenUp { records: u64 },
}

/// Why an entry of a feed is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ghost {
    /// Its author is not followed.
    Unfollowed,
    /// The post is deleted.
    Deleted,
    /// No such post, another time than its own, or nothing that this feed shows.
    Unknown,
}

/// A relation list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Whom the user follows.
    Following,
    /// Who follows the user.
    Fans,
}

/// A view that is not what the facts imply.
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
        /// The fact's: another one at the next look is another difference.
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
        /// The entry's own time.
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
        /// The fact's: another one at the next look is another difference.
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
        /// The fact's: another one at the next look is another difference.
        #[serde(skip)]
        version: u64,
    },
    NoticeReadsWrong {
        user: UserId,
        platform: Platform,
        /// The fact's: another one at the next look is another difference.
        #[serde(skip)]
        version: u64,
    },
    NoticeReadsDamaged {
        user: UserId,
        platform: Platform,
    },
    PlatformHeadWrong {
        platform: Platform,
        /// The fact's: another one at the next look is another difference.
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
        /// What it is part of.
        #[serde(skip)]
        view: View,
    },
    KeyWithoutLifetime {
        key: String,
        /// What it is part of.
        #[serde(skip)]
        view: View,
    },
    KeyAstray {
        key: String,
    },
}

/// One side of a comparison as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stored<T> {
    /// There is none.
    #[default]
    Absent,
    /// It cannot be read.
    Damaged,
    /// This.
    Present(T),
}

impl<T> Stored<T> {
    /// What there is, when it can be read.
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Absent | Self::Damaged => None,
        }
    }

    /// Reads what there is.
    pub fn read<R>(found: Option<R>, decode: impl FnOnce(R) -> Option<T>) -> Self {
        match found.map(decode) {
            None => Self::Absent,
            Some(None) => Self::Damaged,
            Some(Some(value)) => Self::Present(value),
        }
    }
}
