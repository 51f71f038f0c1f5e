//! The receipt of an erasure: when a user asked to leave, and what was removed.

use serde::{Deserialize, Serialize};

use crate::{Seq, Timestamp, UserId};

/// The numbers of objects that an erasure removes, counted when it begins its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    /// Live posts of the user.
    pub posts: u64,
    /// Authors whom the user followed.
    pub follows: u64,
    pub followers: u64,
    /// Posts that the user liked.
    pub likes: u64,
    /// Posts that are favorites of the user.
    pub favorites: u64,
    /// Authors of whose posts the user had marked some.
    pub reads: u64,
    pub lists: u64,
    /// Users whom the user muted.
    pub mutes: u64,
    /// Users whom the user blocked.
    pub blocks: u64,
    /// Standing comments of the user.
    #[serde(default)]
    pub comments: u64,
}

/// The progress of the counts that take many reads: likes, favorites, authors with marked posts, and comments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counting {
    pub counts: [u64; 4],
    /// The index of the count in progress.
    pub part: usize,
    /// The last item that was counted.
    pub after: Option<String>,
}

/// An erasure. It is never deleted: the user id stays erased.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Erasure {
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// `None` until the work begins.
    pub removed: Option<Removed>,
    /// `None` before and after the work is counted.
    pub counting: Option<Counting>,
    /// The time at which nothing was left for the first time. Requests from before the erasure may have written since.
    pub swept_at: Option<Timestamp>,
    /// Users whose pair is being removed. They are stored before: a half removed pair is no longer listed.
    pub pairs: Vec<UserId>,
    /// Up to this sequence number, the views of the user's posts are removed.
    pub cleared: Seq,
    /// The time at which a worker last stored its progress, or reconcile last sent a task.
    pub touched_at: Timestamp,
    /// The chain of tasks that continues the erasure. Tasks of older ones do nothing.
    pub chain: u64,
    /// The reason why something could not be removed in the last run. Everything else is removed.
    pub incomplete: Option<String>,
    pub version: u64,
}

impl Erasure {
    pub fn begin(now: Timestamp) -> Self {
        Self { started_at: now, touched_at: now, ..Self::default() }
    }
}
