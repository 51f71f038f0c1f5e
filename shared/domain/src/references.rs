//! Posts that name another post: reposts and quotes.

use super::{ids::PostId, model::Post, model::PostSummary};

/// The post that a post names: its *original*. An original is never a repost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// The post has no title, and stands for its original: reactions to it, and its pages, are those of the original.
    Repost(PostId),
    /// The post has a title of its own.
    Quote(PostId),
}

impl Reference {
    pub fn original(self) -> PostId {
        match self {
            Self::Repost(original) | Self::Quote(original) => original,
        }
    }

    /// Returns the original of a repost.
    pub fn reposted(self) -> Option<PostId> {
        if let Self::Repost(original) = self { Some(original) } else { None }
    }

    /// Returns what remains in the tombstone of the post. A repost's withdrawal may be repeated, so it is still known
    /// what it was of.
    pub(crate) fn after_deletion(self) -> Option<Self> {
        self.reposted().map(Self::Repost)
    }
}

impl Post {
    /// Returns the original, if this is a repost or the tombstone of one.
    pub fn reposted(&self) -> Option<PostId> {
        self.of.and_then(Reference::reposted)
    }
}

impl PostSummary {
    /// Returns the original, if this is a live repost.
    pub fn reposted(&self) -> Option<PostId> {
        self.of.and_then(Reference::reposted)
    }

    /// Returns the title; `None` for a repost.
    pub fn shown_title(&self) -> Option<String> {
        self.reposted().is_none().then(|| self.title.clone())
    }
}
