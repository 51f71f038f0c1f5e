//! Port of the limits of requests.

use std::time::Duration;

use async_trait::async_trait;
use tidemark_domain::{Timestamp, UserId};

use crate::error::StoreError;

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
    /// The time that the user must wait, if the bucket is empty.
    pub wait: Option<Duration>,
    /// Whether the user may call; `None` if only the facts know.
    pub access: Option<bool>,
}

/// Buckets and access, for [`AccessCheck`](crate::AccessCheck).
#[async_trait]
pub trait LimitViews: Send + Sync {
    /// Takes a request from a bucket that holds `per_minute` of them; 0 means that there is no bucket. Also returns
    /// whether the user may call.
    async fn spend(&self, user: UserId, budget: Budget, per_minute: u32, now: Timestamp) -> Result<Spent, StoreError>;
}
