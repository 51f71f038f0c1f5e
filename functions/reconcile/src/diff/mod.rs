//! The differences of stored data: pure functions compare both sides, in the same types. A difference has a [`Kind`], a
//! [`Subject`] and a [`Remedy`]. A new kind is one row in the [table of kinds](kinds), and the code that finds it.
//!
//! - Facts against facts ([`facts`], [`notices`]): each repair is one write or one transaction, on condition that the
//!   facts are as the look found them.
//! - Work in progress that should have moved and has not: the `fan-outs` job or an operator resumes it.
//! - Views against facts ([`reader`], [`views`], [`notices`]): a view may be deleted at any time. So it is deleted if
//!   the operations that write it cannot repair it.
//!
//! A count that is negative or not a number has `"seen": null`, and is repaired like any other. Its change number is
//! read before the items are listed. If it is the same when the count is set, none of the items has changed in between.
//! It is part of the difference, so a second look confirms only a count that was wrong all the time.

pub mod facts;
pub mod kinds;
pub mod notices;
pub mod reader;
pub mod views;

use serde::Serialize;
use tidemark_domain::{
    Handle,
    ids::{PostId, Seq, UserId},
    notices::{NoticeId, Platform, Slot},
    reactions::Reaction,
    time::Timestamp,
};
use tidemark_views::keys::View;

pub use kinds::Kind;

/// Two looks found the same difference if all of it is equal. A report shows the kind and the subject.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Difference {
    pub kind: Kind,
    #[serde(flatten)]
    pub subject: Subject,
    #[serde(skip)]
    pub remedy: Remedy,
    /// The version of the fact; zero if it makes no difference. If the fact changes before the second look, that look
    /// finds another difference.
    #[serde(skip)]
    pub version: u64,
}

impl Difference {
    pub fn new(kind: Kind, subject: Subject, remedy: impl Into<Remedy>) -> Self {
        Self { kind, subject, remedy: remedy.into(), version: 0 }
    }

    #[must_use]
    pub(crate) fn in_version(self, version: u64) -> Self {
        Self { version, ..self }
    }
}

impl From<DamagedItem> for Difference {
    fn from(item: DamagedItem) -> Self {
        Self::new(Kind::ItemDamaged, Subject::Item(item), Remedy::ReportOnly)
    }
}

/// The data that a difference is about, with the numbers that differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Subject {
    User { user: UserId },
    Left { user: UserId, facts: Vec<&'static str> },
    Author { author: UserId },
    Pair { user: UserId, author: UserId },
    Reads { user: UserId, author: UserId, latest: Seq },
    Count(Recount),
    LivePosts { author: UserId, seen: Option<u64>, right: u64 },
    Post { post: PostId },
    Reaction(ListedReaction),
    Handle { user: UserId, handle: String },
    PostInHead { post: PostId, deleted: bool },
    FanOut { post: PostId, pages: usize },
    FanOuts { posts: u64 },
    StreamRecords { records: u64 },
    Entry { user: UserId, post: PostId },
    GhostEntry { user: UserId, post: PostId, why: Ghost },
    List { user: UserId, list: Side },
    Member { user: UserId, list: Side, member: UserId },
    Platform { platform: Platform },
    Slots { platform: Platform, seen: Slot, right: Slot },
    NoticeReads { user: UserId, platform: Platform },
    NoticeReadsBeyond { user: UserId, platform: Platform, latest: Slot },
    Notice { notice: NoticeId },
    Title { notice: NoticeId, revision: u64 },
    Record { record: String },
    Item(DamagedItem),
    Key { key: String },
}

/// The action that removes a difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// Nothing: the job `fan-outs` resumes what it reports, and an operator corrects a damaged item from a backup.
    ReportOnly,
    /// Writes facts, under the condition that they are still as they were read.
    Correct(Correction),
    /// Updates a reader's fields and reactions of one author from the facts.
    SyncPair { user: UserId, author: UserId },
    /// Updates a platform's head, or a user's read state on it.
    SyncNotices { platform: Platform, user: Option<UserId> },
    /// Delivers a post to one reader.
    Deliver { user: UserId, post: PostId },
    /// Retracts the entry of a post: the one at this time, or else at the post's own.
    Retract { user: UserId, post: PostId, at: Option<Timestamp> },
    /// Removes an author who is not followed. `rev` is the revision of the field, if there is one.
    DropAuthor { user: UserId, author: UserId, rev: u32 },
    /// Rebuilds a reader's view. Unless `anew`, only one that is not complete.
    Rebuild { user: UserId, anew: bool },
    /// Extends the lifetimes of a reader's view.
    Touch { user: UserId },
    /// Replaces the summary of a deleted post.
    StoreTombstone { post: PostId },
    /// Starts a finished erasure again.
    EraseAgain { user: UserId },
    /// Computes a post's step from its reactions, as a worker does after a reaction.
    Rank { post: PostId },
    /// Deletes a view. It is rebuilt when it is needed.
    Forget(View),
}

/// A conditional write of facts. It fails if the facts have changed since the look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Correction {
    /// Makes the author's list agree with an edge of this time and revision, or with no edge.
    MirrorEdge { user: UserId, author: UserId, edge: Option<(Timestamp, u32)> },
    /// Sets a count, if its change number is the same.
    SetCount(Recount),
    /// Sets the number of live posts, if the head has this latest post and this number of deletions.
    SetPosts { author: UserId, right: u64, latest: Seq, deletions: Option<u64> },
    /// Adds a post to the deleted posts of its author's head, or removes it.
    SetDeleted { post: PostId, deleted: bool },
    /// Cuts a read state at the author's latest post, as the next version.
    CutReads { user: UserId, author: UserId },
    /// Adds a reaction to the list of the user, as old as the post, or removes it, if the user's reactions to the
    /// author have this version.
    ListReaction { of: ListedReaction, listed: bool, version: u32 },
    /// Writes the flags of a block, or removes them, if the pair has this revision.
    SetBlockFlags { user: UserId, author: UserId, blocked: bool, rev: Option<u32> },
    /// Gives the handle in a profile of this version to its user, if no other user has it.
    ClaimHandle { user: UserId, handle: Handle, version: u32 },
    /// Adds a post to the index of unfinished fan-outs, from where it is resumed, or removes it.
    SetUnfinished { post: PostId, unfinished: bool },
    /// Deletes the body of a deleted post.
    DeleteBody { post: PostId },
    /// Deletes an idempotency record, if its content is the same.
    DeleteRecord(StoredRecord),
    /// Deletes the tombstone of an unfollow, if its revision is the same.
    DeleteTombstone { user: UserId, author: UserId, rev: u32 },
    /// Removes a notice that does not exist from its head, as the next version.
    UnlistNotice(NoticeId),
    /// Deletes a notice that its head does not list.
    DeleteNotice(NoticeId),
    /// Raises a head's latest slot, as the next version: no slot is given twice.
    RaiseSlot { platform: Platform, given: Slot },
    /// Cuts a read state at the head, as the next version.
    CutNoticeReads { user: UserId, platform: Platform },
}

impl From<Correction> for Remedy {
    fn from(correction: Correction) -> Self {
        Self::Correct(correction)
    }
}

impl Correction {
    /// The remedies for the views of the facts that it writes.
    pub fn views(&self) -> Vec<Remedy> {
        let counters = |user| Remedy::Forget(View::Counters(user));
        match *self {
            Self::MirrorEdge { author, .. } => vec![Remedy::Forget(View::Fans(author)), counters(author)],
            Self::SetCount(Recount { of, .. }) => match of {
                Counter::Followings { user } => vec![counters(user)],
                Counter::Followers { author, .. } | Counter::AuthorReactions { author, .. } => vec![counters(author)],
                Counter::PostReactions { .. } => Vec::new(),
            },
            Self::SetPosts { author, .. } => vec![counters(author)],
            Self::SetDeleted { post, .. } => vec![Remedy::Forget(View::Head(post.author))],
            Self::CutReads { user, author } => vec![Remedy::SyncPair { user, author }],
            Self::UnlistNotice(NoticeId { platform, .. }) | Self::RaiseSlot { platform, .. } => {
                vec![Remedy::SyncNotices { platform, user: None }]
            }
            Self::CutNoticeReads { user, platform } => vec![Remedy::SyncNotices { platform, user: Some(user) }],
            Self::SetBlockFlags { user, author, .. } => vec![Remedy::Forget(View::Marks(author, user))],
            Self::ListReaction { .. }
            | Self::ClaimHandle { .. }
            | Self::SetUnfinished { .. }
            | Self::DeleteBody { .. }
            | Self::DeleteRecord(_)
            | Self::DeleteTombstone { .. }
            | Self::DeleteNotice(_) => Vec::new(),
        }
    }
}

/// An item that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DamagedItem {
    pub table: &'static str,
    pub key: String,
}

/// A stored count of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Counter {
    Followings { user: UserId },
    Followers { author: UserId, shard: u16 },
    PostReactions { post: PostId, shard: u16, reaction: Reaction },
    AuthorReactions { author: UserId, shard: u16, reaction: Reaction },
}

/// A count and its right value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Recount {
    #[serde(flatten)]
    pub of: Counter,
    /// The stored count, zero if there is none; `None` if it is negative or not a number.
    pub seen: Option<u64>,
    pub right: u64,
    /// The change number that was read before the items were listed; `None` if it is not a number.
    #[serde(skip)]
    pub changes: Option<u64>,
}

/// An entry in the list of a user's likes or favorites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ListedReaction {
    pub user: UserId,
    pub post: PostId,
    pub reaction: Reaction,
}

/// An idempotency record as it is stored, and its content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredRecord {
    pub key: String,
    /// `None` if it cannot be read.
    pub says: Option<RecordSays>,
    /// Whether the post or the notices exist, or existed.
    pub exists: bool,
}

/// What the record of a request with an idempotency key names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answered {
    Post(PostId),
    /// One for each platform.
    Notices(Vec<NoticeId>),
    /// Counts, or nothing yet: the record names nothing that exists.
    Numbers,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordSays {
    pub answered: Answered,
    /// The item's time to live, in Unix seconds.
    pub expires_at: u64,
}

/// The time that reconcile leaves an expired item to the table's own expiry, which takes up to two days.
const GRACE_SECONDS: u64 = 3 * 24 * 3600;

/// The reason why an entry of a feed is a ghost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ghost {
    Unfollowed,
    Deleted,
    /// The post does not exist, the entry has another time than the post, or this feed does not show it.
    Unknown,
}

/// One of the two relation lists of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Following,
    Fans,
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
    pub fn present(&self) -> Option<&T> {
        if let Self::Present(value) = self { Some(value) } else { None }
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
