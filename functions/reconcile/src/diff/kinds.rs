//! The table of kinds: one row for each kind of difference. Repairs run in the order of the rows.

use serde::Serialize;

macro_rules! kinds {
    ($($kind:ident = $id:literal: $what:literal)*) => {
        /// A kind of difference. Reports, logs and metrics have its id.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Kind {
            $(#[doc = $what] #[serde(rename = $id)] $kind,)*
        }

        impl Kind {
            /// The id in reports, logs and metrics.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$kind => $id,)* }
            }
        }
    };
}

kinds! {
    // Facts against facts.
    FollowerMissing = "follower-missing": "The followee's list of followers lacks an edge (F1)."
    FollowerGhost = "follower-ghost": "A listed follower has no edge (F1)."
    FollowerSince = "follower-since": "The list has another time than the edge."
    FollowingsCount = "followings-count": "The count differs from the number of edges (F1)."
    FollowersCount = "followers-count": "The count differs from the number of followers that the shard lists (F1)."
    HeadPosts = "head-posts": "The head's count differs from the number of its live posts."
    HeadDeletion = "head-deletion": "The head's deleted posts and a post's tombstone disagree. The tombstone is right."
    ReadsBeyond = "reads-beyond": "A read state covers posts that do not exist (F3)."
    PostReactions = "post-reactions": "A post's count differs from the number of users' reactions (F5)."
    AuthorReactions = "author-reactions": "An author's count differs from the number of users' reactions (F5)."
    ReactionUnlisted = "reaction-unlisted": "The list of a user's likes or favorites lacks a reaction."
    ReactionGhost = "reaction-ghost": "A listed like or favorite does not exist."
    StepWrong = "step-wrong": "A post's step is not the one that its reactions imply."
    BlockFlagsWrong = "block-flags-wrong": "The reactions of a blocked and a blocking user do not say what the pair says."
    HandleLost = "handle-lost": "A profile has a handle that is not the user's. If another user has it, an operator decides."
    UnfinishedLeft = "unfinished-left": "The index of unfinished fan-outs lists a finished one."
    UnfinishedMissing = "unfinished-missing": "The index does not list an unfinished fan-out."
    BodyLeft = "body-left": "A deleted post has a body."
    RecordExpired = "record-expired": "An idempotency record is past its time."
    RecordDamaged = "record-damaged": "An idempotency record cannot be read."
    RecordOfNothing = "record-of-nothing": "An idempotency record names a post or notices that never existed."
    FactNamesErased = "fact-names-erased": "A fact names a user whose erasure has ended."
    TombstoneExpired = "tombstone-expired": "The tombstone of an unfollow is past its time."
    ItemDamaged = "item-damaged": "An item cannot be read. Nothing else is derived from a list with this item."
    NoticeMissing = "notice-missing": "A platform's head lists a notice that does not exist and cannot be shown."
    NoticeLeft = "notice-left": "A notice exists that the head does not list. The head is right."
    SlotsBehind = "slots-behind": "The head's latest slot is below a slot that a user has read and that is counted."
    NoticeReadsBeyond = "notice-reads-beyond": "A read state goes beyond the head, in slots that are not counted."

    // In progress: work that should have moved and has not.
    DeliveryUnfinished = "delivery-unfinished": "Pages of a delivery are not done and are lost, as `LookPlan::due` decides."
    RetractionUnfinished = "retraction-unfinished": "The same for a retraction."
    FanOutsGivenUp = "fan-outs-given-up": "Fan-outs were sent as often as allowed."
    RecordsGivenUp = "records-given-up": "Stream records are in the projector's failure queue."

    // Views against facts: readers.
    FieldMissing = "field-missing": "A followed author has no field."
    FieldOpening = "field-opening": "A followed author has a field that was never seeded."
    FieldOld = "field-old": "A followed author has a field of an earlier follow."
    FieldGhost = "field-ghost": "There is a field of an author who is not followed (V1)."
    FieldAhead = "field-ahead": "A field has numbers that are ahead of the facts."
    DeliveredAhead = "delivered-ahead": "A field has delivered bits that are ahead of the facts."
    ReadsBehind = "reads-behind": "A field has an earlier version of the read state than the fact."
    ReadsWrong = "reads-wrong": "A field has other read or deleted bits than the facts (V2)."
    DeletionMissing = "deletion-missing": "A deleted post has no deleted bit (V2)."
    BaseWrong = "base-wrong": "A post up to a field's base is neither read nor deleted."
    FloorWrong = "floor-wrong": "A field has another floor than the edge."
    ChoiceWrong = "choice-wrong": "A field hides an author who is not muted, shows one who is, or has other lists than the edge."
    PreferenceWrong = "preference-wrong": "A field has another preference than the edge."
    ModesBehind = "modes-behind": "A field does not know a change of the author's mode."
    Undelivered = "undelivered": "A post has no delivered bit."
    EntryMissing = "entry-missing": "A post is counted and not in the feed (V3)."
    EntryGhost = "entry-ghost": "The facts do not imply an entry of the feed."
    FeedIncomplete = "feed-incomplete": "Many entries are missing."
    FeedDisordered = "feed-disordered": "The feed is out of order, or has an entry twice."
    FeedDamaged = "feed-damaged": "The feed cannot be read."
    FeedUnannounced = "feed-unannounced": "The state does not know of the feed."
    FeedLost = "feed-lost": "The feed does not exist, but the state knows of one."
    FeedShortLived = "feed-short-lived": "The feed would expire before its state."
    RankWrong = "rank-wrong": "A ranked feed has a post that the feed lacks, or another score than the facts (V9)."
    RankDamaged = "rank-damaged": "A ranked feed or its moves cannot be read."
    FeedOrphan = "feed-orphan": "There is a feed without a state."
    StateDamaged = "state-damaged": "The state cannot be read."
    StateHeadless = "state-headless": "There are fields without the field that makes them a view."
    RebuildAbandoned = "rebuild-abandoned": "A building mark is past its deadline."

    // The other views against facts.
    ListMissing = "list-missing": "A cached relation list lacks a relation."
    ListGhost = "list-ghost": "A cached relation list has a relation that does not exist."
    ListTime = "list-time": "A cached relation list has another time than the edge."
    ListDamaged = "list-damaged": "A cached relation list cannot be read."
    CountersWrong = "counters-wrong": "Cached counters differ from the facts."
    CountersDamaged = "counters-damaged": "Cached counters cannot be read."
    ReactionsBehind = "reactions-behind": "A reader's reactions to an author have an earlier version than the fact."
    ReactionsWrong = "reactions-wrong": "A reader's reactions to an author differ from the fact."
    ReactionsDamaged = "reactions-damaged": "A reader's reactions cannot be read."
    HeadWrong = "head-wrong": "A cached head differs from the author's head, or cannot be read."
    SummaryOfDeleted = "summary-of-deleted": "The summary of a deleted post shows it as live."
    SummaryWrong = "summary-wrong": "The summary of a post has another title or time."
    SummaryDamaged = "summary-damaged": "The summary of a post cannot be read."
    SummaryOfNothing = "summary-of-nothing": "The summary is of a post that does not exist."
    TextWrong = "text-wrong": "The text of a post differs from the fact, belongs to a deleted post, or cannot be read."
    CountsWrong = "counts-wrong": "Reaction counts of a post differ from the facts, or cannot be read."
    CardWrong = "card-wrong": "A user's card differs from the profile, or cannot be read."
    MarksWrong = "marks-wrong": "Marks of an author who is not followed differ from the fact, or cannot be read."
    NoticeReadsBehind = "notice-reads-behind": "A user's read state has an earlier version than the fact."
    NoticeReadsWrong = "notice-reads-wrong": "A user's read state has other slots or a later version than the fact."
    NoticeReadsDamaged = "notice-reads-damaged": "A user's read state cannot be read."
    PlatformHeadWrong = "platform-head-wrong": "A cached head differs from the platform's head, or cannot be read."
    TitleWrong = "title-wrong": "The title or time differs from the notice's in this revision."
    TitleDamaged = "title-damaged": "The title of a notice cannot be read."
    TitleOfNothing = "title-of-nothing": "The notice, or its revision, does not exist yet."
    KeyOfWrongType = "key-of-wrong-type": "A key has another type than its name says. No operation leaves it so."
    KeyWithoutLifetime = "key-without-lifetime": "A key has no lifetime. No operation leaves it so."
    KeyAstray = "key-astray": "A key is in another bucket than its user's. No operation leaves it so."
}
