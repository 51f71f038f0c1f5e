//! What migration writes: facts that began elsewhere, each once, whatever happened to it here since.

use tidemark_domain::{AuthorHead, Post, Seq, SeqSet};

/// Blogs that one import takes: with head, record and mappings they fill a transaction.
pub const BLOGS_PER_IMPORT: usize = 48;

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
