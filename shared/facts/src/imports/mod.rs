//! Writes facts that were made elsewhere, for migrations and for imports of files. Each write may be repeated: what is
//! there already stays as it is. Numbers, times and revisions are those of the other system. Counters are counted here,
//! and the projector updates the views.

mod comments;
mod fence;
mod inbox;
mod marks;
mod notices;
mod people;
mod posts;
mod relations;

pub use comments::{CommentImport, ImportedComment};
pub use fence::Import;
pub use marks::ImportedReaction;
pub use notices::{ImportedNotice, NoticeImport};
pub use people::{IdentityImport, ProfileImport, ReceiptImport};
pub use posts::{FENCE_CHECK, ImportedContent, ImportedPost, PlannedPost, PostImport, PostPlan, PostsImported};

/// The outcome of a write that is refused only if one of the users has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    Written,
    /// It is there already, or was removed here later.
    Existing,
    Erased,
    /// One of the two blocks the other.
    Blocked,
    /// The user has the maximum number of requests.
    LimitReached,
}
