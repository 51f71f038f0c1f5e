//! [`RequestLimits`]: how many requests of each kind one user may send.
//!
//! A limit is a token bucket: a number of requests a minute in the long run, and as many at once. The buckets are in
//! Redis. While Redis is unavailable, or returns an error, no request is refused.

use std::{sync::Arc, time::Duration};

use tidemark_domain::UserId;
use tracing::warn;

use crate::Stores;

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

/// Requests a minute of each kind, in the order of [`Budget::ALL`]. 0 means no limit.
pub type PerMinute = [u32; Budget::ALL.len()];

/// A request beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    pub budget: Budget,
    pub per_minute: u32,
    /// When the next request is allowed.
    pub wait: Duration,
}

/// The limits of all users. Clones share the stores.
#[derive(Clone)]
pub struct RequestLimits {
    pub stores: Arc<Stores>,
    pub per_minute: PerMinute,
}

impl RequestLimits {
    /// Takes one request of this kind from the user's bucket.
    ///
    /// # Errors
    /// The bucket is empty.
    pub async fn spend(&self, user: UserId, budget: Budget) -> Result<(), OverLimit> {
        let per_minute = self.per_minute[budget as usize];
        if per_minute == 0 {
            return Ok(());
        }
        match self.stores.limit_views.spend(user, budget, per_minute, self.stores.clock.now()).await {
            Ok(None) => Ok(()),
            Ok(Some(wait)) => Err(OverLimit { budget, per_minute, wait }),
            Err(error) => {
                warn!(%user, error = &error as &dyn std::error::Error, "a request is not counted");
                Ok(())
            }
        }
    }
}
