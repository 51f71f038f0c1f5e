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
    RequestBeside = "request-beside": "A pair has a request beside a follow or a block."
    RequestMissing = "request-missing": "The author's requests, or the user's own, lack a request of a pair."
    RequestGhost = "request-ghost": "A listed request is not in its pair."
    RequestsCount = "requests-count": "The count differs from the number of requests that are listed."
    FollowingsCount = "followings-count": "The count differs from the number of edges (F1)."
    FollowersCount = "followers-count": "The count differs from the number of followers that the shard lists (F1)."
    HeadPosts = "head-posts": "The head's count differs from the number of its live posts."
    HeadDeletion = "head-deletion": "The head's deleted posts and a post's tombstone disagree. The tombstone is right."
    ReadsBeyond = "reads-beyond": "A read state covers posts that do not exist (F3)."
    PostReactions = "post-reactions": "A post's count differs from the number of users' reactions (F5)."
    AuthorReactions = "author-reactions": "An author's count differs from the number of users' reactions (F5)."
    ReactionUnlisted = "reaction-unlisted": "The list of a user's likes or favorites lacks a reaction."
    ReactionGhost = "reaction-ghost": "A listed like or favorite does not exist."
    LikerMissing = "liker-missing": "The list of the users who have reacted to a post lacks one (F6)."
    LikerGhost = "liker-ghost": "The list has a user who has not reacted to the post, or has at another time (F6)."
    PostReposts = "post-reposts": "A post's count differs from the number of its reposts (F7)."
    RepostMissing = "repost-missing": "The list of a post's reposts, or of a user's, lacks one that stands (F7)."
    RepostGhost = "repost-ghost": "A list has a repost that does not stand, or has another time (F7)."
    QuoteMissing = "quote-missing": "The list of a post's quotes lacks one that stands (F7)."
    QuoteGhost = "quote-ghost": "The list of a post's quotes has one that does not stand, or has another time (F7)."
    CommentCount = "comment-count": "A count differs from the number of comments that stand (F8)."
    CommentNumbers = "comment-numbers": "A comment has a number that was not given."
    CommentUnlisted = "comment-unlisted": "The list of a user's comments lacks one that stands."
    CommentGhost = "comment-ghost": "The list of a user's comments has one that does not stand."
    StepWrong = "step-wrong": "A post's step is not the one that its reactions imply."
    GroupWrong = "group-wrong": "A group of an inbox is not what its acts imply, is missing, has no acts, or cannot be read."
    BlockFlagsWrong = "block-flags-wrong": "The reactions or the lists of a blocked and a blocking user do not say what the pair says."
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
    EditPending = "edit-pending": "An edit of many notices was not written to them. They are read from the edit meanwhile."
    SlotsBehind = "slots-behind": "The head's latest slot is below a slot that a user has read and that is counted."
    NoticeReadsBeyond = "notice-reads-beyond": "A read state goes beyond the head, in slots that are not counted."

    // In progress: work that should have moved and has not.
    DeliveryUnfinished = "delivery-unfinished": "Pages of a delivery are not done and are lost, as `LookPlan::due` decides."
    RetractionUnfinished = "retraction-unfinished": "The same for a retraction."
    FanOutsGivenUp = "fan-outs-given-up": "Fan-outs were sent as often as allowed."
    RecordsGivenUp = "records-given-up": "Stream records are in the projector's failure queue."

    // Views against facts. Each of them is forgotten.
    ViewDiffers = "view-differs": "A view differs from what the facts imply."
    ViewDamaged = "view-damaged": "A view cannot be read, is out of order, or has a wrong type or lifetime."
    ViewOrphan = "view-orphan": "A view of something that does not exist, a part whose other part is lost, or a rebuild that was abandoned."
}
