//! Port of the erasure of a user's facts.

use async_trait::async_trait;
use tidemark_domain::{Erasure, Platform, PostId, Reaction, ReactionState, Removed, Timestamp, UserId};

use crate::error::StoreError;

/// Views of users who leave.
#[async_trait]
pub trait ErasureViews: Send + Sync {
    /// Stores whether a user may call. A permission is stored only if nothing is known, because the process that read
    /// it may be late.
    async fn note_access(&self, user: UserId, may: bool) -> Result<(), StoreError>;
    /// Removes a reader's reactions.
    async fn clear_reactions(&self, user: UserId) -> Result<(), StoreError>;
    /// Removes every view that is named by the user alone, except the note that the user may not call.
    async fn clear_user(&self, user: UserId) -> Result<(), StoreError>;
    /// Removes the view of a user's read state on a platform. A reader who read the facts before this call cannot store
    /// them.
    async fn clear_notice_reads(&self, user: UserId, platform: Platform) -> Result<(), StoreError>;
    /// Removes every view of these posts.
    async fn clear_posts(&self, posts: &[PostId]) -> Result<(), StoreError>;
}

/// Receipts, and what the other ports cannot remove or list. Every removal may be repeated.
#[async_trait]
pub trait Erasures: Send + Sync {
    /// Returns the receipt of a user; `None` if the user never asked to leave.
    async fn erasure(&self, user: UserId) -> Result<Option<Erasure>, StoreError>;
    /// Stores a receipt unless the user has one, and that new follows of the user are refused. Returns the stored
    /// receipt.
    async fn begin_erasure(&self, user: UserId, now: Timestamp) -> Result<Erasure, StoreError>;
    /// Replaces a receipt by its next version. Returns false, and writes nothing, if another run was first.
    async fn put_erasure(&self, user: UserId, next: &Erasure) -> Result<bool, StoreError>;
    /// Returns users whose erasures are not finished, in parts. A part that is damaged is an error of its own.
    async fn running_erasures(&self) -> Result<Vec<Result<Vec<UserId>, StoreError>>, StoreError>;
    /// Removes a user whose erasure is finished from the list of those that are not.
    async fn forget_running(&self, user: UserId) -> Result<(), StoreError>;
    /// Counts what there is to remove, without what [`Self::count_some`] counts.
    async fn count_traces(&self, user: UserId) -> Result<Removed, StoreError>;
    /// Counts some of the user's reactions of a kind, or of the authors of whose posts the user has marked some. Begins
    /// after an item. Returns the last item that was counted; `None` at the end.
    async fn count_some(
        &self,
        user: UserId,
        reaction: Option<Reaction>,
        after: Option<String>,
    ) -> Result<(u64, Option<String>), StoreError>;
    /// Returns at most `limit` users whom the user's pairs name, tombstones included, or who have a pair that names the
    /// user, tombstones excluded.
    async fn related(&self, user: UserId, limit: usize) -> Result<Vec<UserId>, StoreError>;
    /// Removes both pairs of two users, who do not follow each other any more, with read states and reactions between
    /// them.
    async fn remove_pair(&self, user: UserId, other: UserId) -> Result<(), StoreError>;
    /// Takes a reaction back, also that to a deleted post, and corrects the counts.
    async fn remove_reaction(&self, user: UserId, post: PostId, reaction: Reaction) -> Result<(), StoreError>;
    /// Returns users who have reacted to posts of an author, with their reactions, at most `limit` of each shard. A
    /// damaged item is an error of its own.
    async fn reactions_to(
        &self,
        author: UserId,
        limit: usize,
    ) -> Result<Vec<Result<(UserId, ReactionState), StoreError>>, StoreError>;
    /// Removes a user's reactions to an author whose posts are all deleted. The counts of the posts stay.
    async fn remove_reactions_to(&self, author: UserId, user: UserId, state: &ReactionState) -> Result<(), StoreError>;
    /// Returns at most `limit` authors of whose posts the user has marked some.
    async fn marked_authors(&self, user: UserId, limit: usize) -> Result<Vec<UserId>, StoreError>;
    /// Returns at most `limit` users who have marked posts of an author. Marks of the last second may be left out.
    async fn markers(&self, author: UserId, limit: usize) -> Result<Vec<UserId>, StoreError>;
    /// Removes the read state of a user and an author.
    async fn remove_reads(&self, user: UserId, author: UserId) -> Result<(), StoreError>;
    /// Returns the platforms of which the user has read notices.
    async fn read_platforms(&self, user: UserId) -> Result<Vec<Platform>, StoreError>;
    /// Removes a read state of notices in this version, whose counts have been corrected. Returns false if it has
    /// changed.
    async fn remove_notice_reads(&self, user: UserId, platform: Platform, version: u64) -> Result<bool, StoreError>;
    /// Removes the profile and the handle.
    async fn remove_profile(&self, user: UserId) -> Result<(), StoreError>;
    /// Removes at most `limit` tombstones of posts, and returns how many there were.
    async fn remove_tombstones(&self, author: UserId, limit: usize) -> Result<usize, StoreError>;
    /// Removes at most `limit` counts of reactions in each shard, and returns how many there were.
    async fn remove_reaction_counts(&self, user: UserId, limit: usize) -> Result<usize, StoreError>;
    /// Removes lists, counters, and posts that wait for a number.
    async fn remove_counters(&self, user: UserId) -> Result<(), StoreError>;
}
