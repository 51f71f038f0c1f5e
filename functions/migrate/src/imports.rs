//! The data of imports. Each legacy fact is imported once, also if it was changed here since.

use tidemark_domain::{AuthorHead, Edge, Post, Seq, SeqSet, Timestamp, UserId};

use crate::legacy::BlogId;

/// The most blogs in one transaction: head, two windows of its sets, record, fence, and a post and
/// two mappings for each.
pub(crate) const BLOGS_PER_IMPORT: usize = 31;

/// An import of an author's posts that has begun. Only one can write at a time: a later import ends it. Until it ends,
/// follows of the author check the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Import {
    pub author: UserId,
    /// The number of imports of this author that have begun.
    pub number: u64,
}

/// The imports of one author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportRecord {
    /// The posts that were imported.
    pub posts: SeqSet,
    /// First and last imported post that the followers from before the import have not received yet.
    pub unsettled: Option<(Seq, Seq)>,
}

/// The legacy blog of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub blog: BlogId,
    /// Write-back made the blog, and may not have stored it in the legacy system yet.
    pub new: bool,
    /// Whether the unread sets of the followers know the post as deleted; `None` if they do not know it.
    pub told: Option<bool>,
}

/// The result of an import of blogs.
#[derive(Debug, Clone, Default)]
pub struct ImportedPosts {
    /// The new posts. Blogs that were posts before are left out.
    pub written: Vec<Post>,
    /// The author's head after the import.
    pub head: AuthorHead,
    /// The first and the last of the author's imported posts that are unsettled.
    pub unsettled: Option<(Seq, Seq)>,
}

/// The stored progress of a run. Its version shows whether another run has saved in the meantime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProgress {
    /// Grows by one with every save.
    pub version: u64,
    /// The progress as JSON.
    pub text: String,
}

/// The tombstone of a follow that was ended in the legacy system, as a pass that began at `now` sees it. Its time is
/// before the second of `now`: the scores of the legacy lists are seconds, and a follow there that the pass did not see
/// is later. `None` if the follow began here since `now`.
pub(crate) fn ended_there(edge: &Edge, now: Timestamp) -> Option<Edge> {
    let before = Timestamp::from_ms((now.seconds() * 1_000).saturating_sub(1));
    (edge.since < now).then(|| edge.ended(before))
}
