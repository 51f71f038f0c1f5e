//! Ports of users: profiles, handles, identities, limits and erasures.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use tidemark_domain::{
    Card, Erasure, Handle, Platform, PostId, Profile, ProfileContent, Reaction, ReactionState, Removed, Timestamp, UserId,
};

use crate::error::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileSet {
    /// The profile has the content now, whether or not this call changed it.
    Stands(Profile),
    /// Another user has the handle, or gave it up less than 30 days ago. Nothing changed.
    HandleTaken,
}

/// Profiles, and the users who have handles.
#[async_trait]
pub trait Profiles: Send + Sync {
    /// Returns the profiles of these users. Users without one are left out.
    async fn profiles(&self, users: &[UserId]) -> Result<HashMap<UserId, Profile>>;
    /// Replaces profile and handle in one transaction. Writes nothing if the stored profile has this content.
    async fn set_profile(&self, user: UserId, content: &ProfileContent, now: Timestamp) -> Result<ProfileSet>;
    async fn user_of(&self, handle: &Handle) -> Result<Option<UserId>>;
}

/// A version of a card; `None` if the user has no profile. The version is then 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CardVersion {
    pub version: u32,
    pub card: Option<Card>,
}

impl CardVersion {
    pub fn of(profile: Option<Profile>) -> Self {
        profile.map_or_else(Self::default, |profile| Self { version: profile.version, card: Some(profile.content.card) })
    }
}

/// Cards, so that a page reads no facts.
#[async_trait]
pub trait CardViews: Send + Sync {
    /// Returns the known cards. The value is `None` for a user who is known to have no profile.
    async fn cards(&self, users: &[UserId]) -> Result<HashMap<UserId, Option<Card>>>;
    async fn lease_cards(&self, users: &[UserId], token: u64) -> Result<Vec<UserId>>;
    async fn fill_cards(&self, cards: &[(UserId, CardVersion)], token: u64) -> Result<()>;
    async fn replace_card(&self, user: UserId, card: &CardVersion) -> Result<()>;
}

/// User ids of claims.
#[async_trait]
pub trait Identities: Send + Sync {
    /// Returns the user id of a claim; `None` if it has none yet.
    async fn identity(&self, claim: &str) -> Result<Option<UserId>>;
    /// Gives `candidate` to a claim without a user id. Returns the claim's id; `None` if the candidate is taken.
    async fn assign(&self, claim: &str, candidate: UserId) -> Result<Option<UserId>>;
}

/// User ids of claims, so that a request reads no facts. They never change, so a stored one is always right.
#[async_trait]
pub trait IdentityViews: Send + Sync {
    async fn known_identity(&self, claim: &str) -> Result<Option<UserId>>;
    async fn remember_identity(&self, claim: &str, user: UserId) -> Result<()>;
}

/// A kind of request. Every kind has its own bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Changes of posts, notices and profiles.
    Posts,
    /// Changes of follows, mutes, blocks and lists.
    Follows,
    Reactions,
    Marks,
    /// All requests that change nothing.
    Reads,
}

impl Budget {
    pub const ALL: [Self; 5] = [Self::Posts, Self::Follows, Self::Reactions, Self::Marks, Self::Reads];

    /// The name in headers and in Redis.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posts => "posts",
            Self::Follows => "follows",
            Self::Reactions => "reactions",
            Self::Marks => "marks",
            Self::Reads => "reads",
        }
    }
}

/// The result of [`LimitViews::spend`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// The time until the bucket has enough tokens, if it has too few.
    pub wait: Option<Duration>,
    /// The tokens in the bucket.
    pub left: u64,
    /// Whether the user may call; `None` if only the facts know.
    pub access: Option<bool>,
}

/// Buckets and access, for [`AccessCheck`](crate::AccessCheck).
#[async_trait]
pub trait LimitViews: Send + Sync {
    /// Takes the tokens of a request from a bucket that holds a number of tokens a minute; 0 means that there is no
    /// bucket. A full bucket allows a request of any number of tokens.
    async fn spend(&self, user: UserId, bucket: (Budget, u32), tokens: u32, now: Timestamp) -> Result<Spent>;
    /// Takes the tokens of work that is done, whatever the bucket holds.
    async fn owe(&self, user: UserId, bucket: (Budget, u32), tokens: u32, now: Timestamp) -> Result<()>;
}

/// Views of users who leave.
#[async_trait]
pub trait ErasureViews: Send + Sync {
    /// Stores whether a user may call. A permission, which may be late, is stored only if nothing is known.
    async fn note_access(&self, user: UserId, may: bool) -> Result<()>;
    async fn clear_reactions(&self, user: UserId) -> Result<()>;
    /// Removes every view that is named by the user alone, except the note that the user may not call.
    async fn clear_user(&self, user: UserId) -> Result<()>;
    /// Removes the view of a read state. A process that has read the facts before can no longer store them.
    async fn clear_notice_reads(&self, user: UserId, platform: Platform) -> Result<()>;
    async fn clear_posts(&self, posts: &[PostId]) -> Result<()>;
}

/// Receipts, and what the other ports cannot remove or list. Every removal may be repeated.
#[async_trait]
pub trait Erasures: Send + Sync {
    /// Returns the receipt of a user; `None` if the user never asked to leave.
    async fn erasure(&self, user: UserId) -> Result<Option<Erasure>>;
    /// Stores a receipt unless there is one. From then on, follows of the user are refused. Returns the stored receipt.
    async fn begin_erasure(&self, user: UserId, now: Timestamp) -> Result<Erasure>;
    /// Replaces a receipt by its next version. Returns false, and writes nothing, if another run was first.
    async fn put_erasure(&self, user: UserId, next: &Erasure) -> Result<bool>;
    /// Replaces the receipt of a finished erasure by its next version, which is not finished. Returns false, and writes
    /// nothing, if another run was first.
    async fn reopen_erasure(&self, user: UserId, next: &Erasure) -> Result<bool>;
    /// Returns users whose erasures are not finished, in parts. A part that is damaged is an error of its own.
    async fn running_erasures(&self) -> Result<Vec<Result<Vec<UserId>>>>;
    /// Removes a user whose erasure is finished from the list of those that are not.
    async fn forget_running(&self, user: UserId) -> Result<()>;
    /// Counts what there is to remove, without what [`Self::count_some`] counts.
    async fn count_traces(&self, user: UserId) -> Result<Removed>;
    /// Counts some of the user's reactions of a kind, or of the authors of whose posts the user has marked some. Begins
    /// after an item. Returns the last item that was counted; `None` at the end.
    async fn count_some(&self, user: UserId, reaction: Option<Reaction>, after: Option<String>) -> Result<(u64, Option<String>)>;
    /// Returns at most `limit` users whom the user's pairs name, tombstones included, or who have a pair that names the
    /// user, tombstones excluded.
    async fn related(&self, user: UserId, limit: usize) -> Result<Vec<UserId>>;
    /// Removes both pairs of two users who follow each other no more, with their read states and reactions.
    async fn remove_pair(&self, user: UserId, other: UserId) -> Result<()>;
    /// Takes a reaction back, also that to a deleted post, and corrects the counts.
    async fn remove_reaction(&self, user: UserId, post: PostId, reaction: Reaction) -> Result<()>;
    /// Returns users with their reactions to an author, at most `limit` of each shard, or errors of damaged items.
    async fn reactions_to(&self, author: UserId, limit: usize) -> Result<Vec<Result<(UserId, ReactionState)>>>;
    /// Removes a user's reactions to an author whose posts are all deleted. The counts of the posts stay.
    async fn remove_reactions_to(&self, author: UserId, user: UserId, state: &ReactionState) -> Result<()>;
    /// Returns at most `limit` authors of whose posts the user has marked some.
    async fn marked_authors(&self, user: UserId, limit: usize) -> Result<Vec<UserId>>;
    /// Returns at most `limit` users who have marked posts of an author. Marks of the last second may be left out.
    async fn markers(&self, author: UserId, limit: usize) -> Result<Vec<UserId>>;
    async fn remove_reads(&self, user: UserId, author: UserId) -> Result<()>;
    /// Returns the platforms of which the user has read notices.
    async fn read_platforms(&self, user: UserId) -> Result<Vec<Platform>>;
    /// Removes a read state whose counts have been corrected. Returns false if its version has changed.
    async fn remove_notice_reads(&self, user: UserId, platform: Platform, version: u64) -> Result<bool>;
    async fn remove_profile(&self, user: UserId) -> Result<()>;
    /// Removes at most `limit` tombstones of posts, and returns how many there were.
    async fn remove_tombstones(&self, author: UserId, limit: usize) -> Result<usize>;
    /// Removes at most `limit` counts of reactions in each shard, and returns how many there were.
    async fn remove_reaction_counts(&self, user: UserId, limit: usize) -> Result<usize>;
    /// Whether there are lists or counters of the user.
    async fn has_counters(&self, user: UserId) -> Result<bool>;
    /// Removes lists, counters, and posts that wait for a number.
    async fn remove_counters(&self, user: UserId) -> Result<()>;
}
