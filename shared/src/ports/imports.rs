//! What migration writes: facts that began elsewhere, each once, whatever happened to it here since.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{FactsError, Followed};
use crate::domain::{
    AuthorHead, Post, PostId, Seq, SeqSet, Timestamp, UserId,
    legacy::{Blog, BlogId, LegacyNotice},
};

/// Blogs that one import takes: with head, record and mappings they fill a transaction.
pub const BLOGS_PER_IMPORT: usize = 48;

/// A follow to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFollow {
    /// The followee.
    pub author: UserId,
    /// When it began.
    pub since: Timestamp,
    /// The author's last post that is not news.
    pub base: Seq,
    /// Posts up to it are not shown.
    pub floor: Seq,
    /// Whether `base` must still be the author's latest post when the edge is made: older posts may be on their way by migration, and are no news.
    pub exact: bool,
}

/// What was imported of an author.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportRecord {
    /// The posts that came by import.
    pub posts: SeqSet,
    /// First and last imported post that earlier followers have not been told of.
    pub unsettled: Option<(Seq, Seq)>,
}

/// What came of an import of blogs.
#[derive(Debug, Clone, Default)]
pub struct ImportedPosts {
    /// Those that are posts now and were not before.
    pub written: Vec<Post>,
    /// The author's head after it.
    pub head: AuthorHead,
}

/// How far a run is: written by nobody else since, when the version says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProgress {
    /// Grows by one with every save.
    pub version: u64,
    /// The run's own text.
    pub text: String,
}

/// Imports of facts. Every one is idempotent, and what was done here since is left as it is.
#[async_trait]
pub trait Imports: Send + Sync {
    /// The posts that these blogs became; others left out.
    async fn mapped(&self, blogs: &[BlogId]) -> Result<HashMap<BlogId, PostId>, FactsError>;
    /// What was imported of these authors; those of whom nothing was left out.
    async fn import_records(&self, authors: &[UserId]) -> Result<HashMap<UserId, ImportRecord>, FactsError>;
    /// Makes posts of one author's blogs, which are ordered by time and at most [`BLOGS_PER_IMPORT`]: head, posts, mappings and record in one transaction.
    /// They take the author's next sequence numbers. One that is older than the author's latest post is archived. When there are `followers`, the posts'
    /// fan-outs are pending. The record says that they are unsettled, and the head whether there are `more` blogs.
    async fn import_posts(
        &self,
        author: UserId,
        blogs: &[Blog],
        more: bool,
        followers: u64,
        now: Timestamp,
    ) -> Result<ImportedPosts, FactsError>;
    /// Notes that followers know of the author's imported posts up to `last`.
    async fn settle(&self, author: UserId, last: Seq) -> Result<(), FactsError>;
    /// Makes follows that began earlier, as [`super::Edges::follow`] does. An edge that is there stays as it is, and so does an unfollow that is not older
    /// than the follow: [`Followed::Existing`] has either.
    async fn import_follows(&self, user: UserId, follows: &[NewFollow], now: Timestamp) -> Result<Vec<Followed>, FactsError>;
    /// The read marks of one user that were imported, by author.
    async fn imported_reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, SeqSet>, FactsError>;
    /// Adds read marks and remembers them as imported; those imported before are left out, so that a post that was made unread here stays so. How many
    /// were new.
    async fn import_reads(&self, user: UserId, author: UserId, seqs: &SeqSet) -> Result<u64, FactsError>;
    /// Which bits of a block of a legacy notice's bitmap were imported.
    async fn imported_bits(&self, notice: LegacyNotice, block: u64) -> Result<SeqSet, FactsError>;
    /// Remembers more of them.
    async fn remember_bits(&self, notice: LegacyNotice, block: u64, bits: &SeqSet) -> Result<(), FactsError>;
    /// How far a run is.
    async fn progress(&self, run: &str) -> Result<Option<StoredProgress>, FactsError>;
    /// Writes progress whose version is one above the stored one; false, and nothing is written, when it is not.
    async fn save_progress(&self, run: &str, progress: &StoredProgress) -> Result<bool, FactsError>;
}
