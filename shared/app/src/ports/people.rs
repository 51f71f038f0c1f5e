//! Ports of profiles, handles and identities.

use std::collections::HashMap;

use async_trait::async_trait;
use tidemark_domain::{Card, Handle, Profile, ProfileContent, Timestamp, UserId};

use crate::error::StoreError;

/// The outcome of a change of a profile.
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
    async fn profiles(&self, users: &[UserId]) -> Result<HashMap<UserId, Profile>, StoreError>;
    /// Replaces a profile, and takes its handle and gives up the one before in the same transaction. Writes nothing if
    /// the stored profile has this content.
    async fn set_profile(&self, user: UserId, content: &ProfileContent, now: Timestamp) -> Result<ProfileSet, StoreError>;
    /// Returns the user who has this handle.
    async fn user_of(&self, handle: &Handle) -> Result<Option<UserId>, StoreError>;
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
    async fn cards(&self, users: &[UserId]) -> Result<HashMap<UserId, Option<Card>>, StoreError>;
    /// Takes the leases for filling the cards of these users, unless another process has them. Called before the facts
    /// are read. Returns the users whose lease was taken.
    async fn lease_cards(&self, users: &[UserId], token: u64) -> Result<Vec<UserId>, StoreError>;
    /// Stores cards that were read from the facts, if the caller still has their lease. A change or a loss of the
    /// record takes it away.
    async fn fill_cards(&self, cards: &[(UserId, CardVersion)], token: u64) -> Result<(), StoreError>;
    /// Replaces a card with a later version, and takes the lease from a process that fills it. A missing card stays
    /// missing.
    async fn replace_card(&self, user: UserId, card: &CardVersion) -> Result<(), StoreError>;
}

/// User ids of claims.
#[async_trait]
pub trait Identities: Send + Sync {
    /// Returns the user id of a claim; `None` if it has none yet.
    async fn identity(&self, claim: &str) -> Result<Option<UserId>, StoreError>;
    /// Gives `candidate` to a claim that has no user id. Returns the claim's user id, which may be one that it already
    /// had; `None` if another claim has the candidate.
    async fn assign(&self, claim: &str, candidate: UserId) -> Result<Option<UserId>, StoreError>;
}

/// User ids of claims, so that a request reads no facts. They never change, so a stored one is always right.
#[async_trait]
pub trait IdentityViews: Send + Sync {
    async fn known_identity(&self, claim: &str) -> Result<Option<UserId>, StoreError>;
    /// Stores a user id that was read from the facts.
    async fn remember_identity(&self, claim: &str, user: UserId) -> Result<(), StoreError>;
}
