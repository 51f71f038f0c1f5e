//! The differences of stored data: pure functions compare both sides, in the same types. A difference has a [`Kind`], a
//! [`Subject`] and a [`Remedy`]. A new kind is one row in the [table of kinds](kinds), and the code that finds it.
//!
//! - Facts against facts ([`facts`], [`notices`]): each repair is one write or one transaction, on condition that the
//!   facts are as the look found them.
//! - Work in progress that should have moved and has not: the `fan-outs` job or an operator resumes it.
//! - Views against facts ([`reader`], [`views`], [`notices`]): a view that differs is forgotten. The facts rebuild it
//!   when it is needed.
//!
//! A count that is negative or not a number has `"seen": null`, and is repaired like any other. Its change number is
//! read before the items are listed. If it is the same when the count is set, none of the items has changed in between.
//! It is part of the difference, so a second look confirms only a count that was wrong all the time.

pub mod comments;
pub mod facts;
pub mod kinds;
pub mod notices;
pub mod reader;
pub mod views;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use serde::Serialize;
use tidemark_domain::{
    CommentId, CommentNumber, GroupId, Handle,
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
    /// A hash of the versions that were compared; zero if they make no difference. If one changes before the second
    /// look, that look finds another difference.
    #[serde(skip)]
    pub version: u64,
}

impl Difference {
    pub fn new(kind: Kind, subject: Subject, remedy: impl Into<Remedy>) -> Self {
        Self { kind, subject, remedy: remedy.into(), version: 0 }
    }

    /// A view is forgotten because of this field of it.
    pub fn of_view(kind: Kind, view: View, field: &'static str, part: Part) -> Self {
        // A rebuild takes the head and the times of an author from Redis. They may be the cause of the difference.
        let author = match (&view, &part) {
            (View::Reader(_), Part::Author { author }) => Some(*author),
            (View::Reader(_), Part::Post { post }) => Some(post.author),
            _ => None,
        };
        let sources = author.into_iter().flat_map(|author| [View::Head(author), View::Times(author)]);
        let forget = Remedy::Forget(sources.chain([view.clone()]).collect());
        Self::new(kind, Subject::View(InView { view, field, part }), forget)
    }

    #[must_use]
    pub(crate) fn in_version(self, version: impl Hash) -> Self {
        Self { version: BuildHasherDefault::<DefaultHasher>::default().hash_one(version), ..self }
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
    Left { user: UserId, facts: Vec<&'static str> },
    Pair { user: UserId, author: UserId },
    Reads { user: UserId, author: UserId, latest: Seq },
    Count(Recount),
    LivePosts { author: UserId, seen: Option<u64>, right: u64 },
    Post { post: PostId },
    Reaction(ListedReaction),
    Repost(ListedRepost),
    Quote(ListedQuote),
    Comment { comment: CommentId, user: UserId },
    CommentNumbers { post: PostId, seen: CommentNumber, right: CommentNumber },
    Group { user: UserId, group: GroupId },
    Handle { user: UserId, handle: String },
    PostInHead { post: PostId, deleted: bool },
    FanOut { post: PostId, pages: usize },
    FanOuts { posts: u64 },
    StreamRecords { records: u64 },
    Slots { platform: Platform, seen: Slot, right: Slot },
    NoticeReadsBeyond { user: UserId, platform: Platform, latest: Slot },
    Notice { notice: NoticeId },
    PendingEdit { platform: Platform, revision: u64 },
    Record { record: String },
    Item(DamagedItem),
    View(InView),
}

/// A field of a view, or the part of the view that is wrong or lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct InView {
    pub view: View,
    pub field: &'static str,
    #[serde(flatten)]
    pub part: Part,
}

/// What a field of a view is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum Part {
    Whole {},
    Author { author: UserId },
    Post { post: PostId },
    Member { member: UserId },
    Key { key: String },
}

/// The action that removes a difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// Nothing: the job `fan-outs` resumes what it reports, and an operator corrects a damaged item from a backup.
    ReportOnly,
    /// Writes facts, under the condition that they are still as they were read.
    Correct(Correction),
    /// Starts a finished erasure again.
    EraseAgain { user: UserId },
    /// Computes a post's step from its reactions, as a worker does after a reaction.
    Rank { post: PostId },
    /// Derives a group of an inbox from its acts, as the projector does.
    Derive { user: UserId, group: GroupId },
    /// Deletes a view, after the views that it is rebuilt from. It is rebuilt when it is needed.
    Forget(Vec<View>),
}

/// A conditional write of facts. It fails if the facts have changed since the look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Correction {
    /// Makes the author's list agree with an edge of this time and revision, or with no edge.
    MirrorEdge { user: UserId, author: UserId, edge: Option<(Timestamp, u32)> },
    /// Makes the two entries of a request agree with a pair with a request of this time and revision, or with none.
    MirrorRequest { user: UserId, author: UserId, request: Option<(Timestamp, u32)> },
    /// Removes a request that stands beside a follow or a block, if the pair has this revision.
    EndRequest { user: UserId, author: UserId, rev: u32 },
    /// Sets a count, if its change number is the same.
    SetCount(Recount),
    /// Sets the number of live posts, if the head has this latest post and this number of deletions.
    SetPosts { author: UserId, right: u64, latest: Seq, deletions: Option<u64> },
    /// Adds a post to the deleted posts of its author's head, or removes it.
    SetDeleted { post: PostId, deleted: bool },
    /// Cuts a read state at the author's latest post, as the next version.
    CutReads { user: UserId, author: UserId },
    /// Adds a reaction to the list of the user, of this time or as old as the post, or removes it, if the user's
    /// reactions to the author have this version.
    ListReaction { of: ListedReaction, listed: bool, at: Option<Timestamp>, version: u32 },
    /// Adds a reaction to the list of the post, with the time of the user's list, if the user's reactions to the author
    /// have this version.
    AddLiker { of: ListedReaction, version: u32 },
    /// Removes a reaction of this time from the list of the post, on the same condition.
    DeleteLiker { of: ListedReaction, at: Timestamp, version: u32 },
    /// Adds a repost that stands to the lists that lack it.
    ListRepost(ListedRepost),
    /// Removes a repost that does not stand from the lists that have it.
    UnlistRepost(ListedRepost),
    /// Adds a quote that stands to the list of its original, or removes one that does not.
    SetQuote { of: ListedQuote, listed: bool },
    /// Adds a comment that stands to the list of its user, with its time, or takes the time of one that does not.
    ListComment { of: CommentId, user: UserId, at: Option<Timestamp> },
    /// Raises the last number of a post's comments to one that a comment has: no number is given twice.
    RaiseCommentNumbers { post: PostId, seen: CommentNumber, right: CommentNumber },
    /// Writes the notes of a block, or removes them, if the pair has this revision.
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
    /// Writes an edit to its notices, as the projector does.
    ApplyPendingEdit { platform: Platform, revision: u64 },
    /// Raises a head's latest slot, as the next version: no slot is given twice.
    RaiseSlot { platform: Platform, given: Slot },
    /// Cuts a read state at the head, as the next version.
    CutNoticeReads { user: UserId, platform: Platform },
}

/// A group of an inbox that was wrong in this version.
pub(crate) fn of_group(user: UserId, group: GroupId, version: u32) -> Difference {
    Difference::new(Kind::GroupWrong, Subject::Group { user, group }, Remedy::Derive { user, group }).in_version(version)
}

impl From<Correction> for Remedy {
    fn from(correction: Correction) -> Self {
        Self::Correct(correction)
    }
}

impl Remedy {
    /// The reader whose view it forgets. The reader's next request rebuilds it, which is the dearest read of all.
    pub(crate) fn forgotten_reader(&self) -> Option<UserId> {
        let views = match self {
            Self::Forget(views) => views.clone(),
            Self::Correct(correction) => correction.views(),
            Self::ReportOnly | Self::EraseAgain { .. } | Self::Rank { .. } | Self::Derive { .. } => Vec::new(),
        };
        views.into_iter().find_map(|view| if let View::Reader(user) = view { Some(user) } else { None })
    }
}

impl Correction {
    /// The views of the facts that it writes. They are forgotten.
    pub(crate) fn views(&self) -> Vec<View> {
        match *self {
            Self::MirrorEdge { author, .. } => vec![View::Followers(author), View::Counters(author)],
            Self::SetCount(Recount { of, .. }) => match of {
                Counter::Followings { user } => vec![View::Counters(user)],
                Counter::Followers { author, .. } | Counter::AuthorReactions { author, .. } => vec![View::Counters(author)],
                Counter::PostReactions { .. }
                | Counter::PostReposts { .. }
                | Counter::Comments { .. }
                | Counter::CommentsOf { .. }
                | Counter::RequestsSent { .. }
                | Counter::RequestsReceived { .. } => Vec::new(),
            },
            Self::SetPosts { author, .. } => vec![View::Counters(author)],
            Self::SetDeleted { post, .. } => vec![View::Head(post.author)],
            Self::CutReads { user, .. } => vec![View::Reader(user)],
            Self::UnlistNotice(NoticeId { platform, .. }) | Self::RaiseSlot { platform, .. } => vec![View::Platform(platform)],
            Self::CutNoticeReads { user, platform } => vec![View::NoticeReads(user, platform)],
            Self::SetBlockFlags { user, author, .. } => {
                vec![View::Marks(author, user), View::Reactions(user), View::Reactions(author)]
            }
            Self::ListReaction { .. }
            | Self::AddLiker { .. }
            | Self::DeleteLiker { .. }
            | Self::ListRepost(_)
            | Self::UnlistRepost(_)
            | Self::SetQuote { .. }
            | Self::ListComment { .. }
            | Self::RaiseCommentNumbers { .. }
            | Self::MirrorRequest { .. }
            | Self::EndRequest { .. }
            | Self::ClaimHandle { .. }
            | Self::SetUnfinished { .. }
            | Self::DeleteBody { .. }
            | Self::DeleteRecord(_)
            | Self::DeleteTombstone { .. }
            | Self::DeleteNotice(_)
            | Self::ApplyPendingEdit { .. } => Vec::new(),
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
    RequestsSent { user: UserId },
    RequestsReceived { author: UserId, shard: u16 },
    PostReactions { post: PostId, reaction: Reaction },
    AuthorReactions { author: UserId, shard: u16, reaction: Reaction },
    PostReposts { original: PostId },
    Comments { post: PostId, lane: u64 },
    CommentsOf { post: PostId, user: UserId },
}

/// A count and its right value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Recount {
    #[serde(flatten)]
    pub of: Counter,
    /// The stored count, zero if it is absent. `None` if it is negative or not a number, or if a list would not read a
    /// shard that has an entry.
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

/// A repost, as a list has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ListedRepost {
    pub repost: PostId,
    pub original: PostId,
    #[serde(skip)]
    pub at: Timestamp,
}

/// A quote, as the list of its original has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ListedQuote {
    pub quote: PostId,
    pub original: PostId,
    #[serde(skip)]
    pub at: Timestamp,
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
