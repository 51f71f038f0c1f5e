//! Terms of a request: its idempotency key, and the budget that it draws on.

/// The idempotency key of a request, with a hash of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// SHA-256 of the route, the path, and the body as it was parsed.
    pub fingerprint: String,
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
