//! [`Reconcile`], the settings of a run, and the units that it looks at.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use tidemark::App;
use tidemark_app::ports::StoreError;
use tidemark_domain::{NoticeId, Platform, PostId, UserId};

use super::segment::Segment;
use crate::{facts::StoredFacts, views::StoredViews};

/// A look or a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("another run has moved the walk meanwhile")]
    Overtaken,
}

/// The settings of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Lists differences and repairs nothing.
    pub dry_run: bool,
    /// The share of users, 0 to 1, whose views are compared. Of the users without views, the same share has its facts
    /// compared.
    pub share: f64,
    /// The least time that a difference lasts before it is repaired.
    pub settle: Duration,
    /// Keys or items in one step of a walk.
    pub slice: usize,
    /// The users of a walk.
    pub segment: Segment,
}

#[derive(Clone)]
pub struct Reconcile {
    /// Computes the right views from the facts, and writes them.
    pub app: App,
    pub facts: StoredFacts,
    pub views: StoredViews,
    /// Waits between two looks.
    pub wait: fn(Duration) -> BoxFuture<'static, ()>,
}

impl Reconcile {
    pub fn new(app: &App) -> Self {
        let (facts, views) = (StoredFacts(app.facts.clone()), StoredViews(app.redis.clone()));
        Self { app: app.clone(), facts, views, wait: |time| tokio::time::sleep(time).boxed() }
    }
}

/// The unit of a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// A user's facts, compared with each other.
    Facts(UserId),
    /// An idempotency record, by its key.
    Record(String),
    /// The tombstone of an unfollow.
    Tombstone(UserId, UserId),
    /// All that Redis has of a user.
    Views(UserId),
    /// A user's marks of an author whom the user does not follow.
    Marks(UserId, UserId),
    /// All that Redis has of a post.
    Post(PostId),
    /// A platform's head and its notices.
    Platform(Platform),
    /// A user's read state on a platform.
    NoticeReads(UserId, Platform),
    PlatformView(Platform),
    NoticeReadsView(UserId, Platform),
    /// The title of a notice in a revision.
    Title(NoticeId, u64),
    /// A key in a bucket where no request looks.
    Astray(String),
}

impl Target {
    /// The target's name in the log. It leaves out an idempotency key.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Facts(user) => format!("facts of {user}"),
            Self::Record(_) => "an idempotency record".to_owned(),
            Self::Tombstone(user, author) => format!("tombstone {user} {author}"),
            Self::Views(user) => format!("views of {user}"),
            Self::Marks(user, author) => format!("marks of {user} on {author}"),
            Self::Post(post) => format!("views of {post}"),
            Self::Platform(platform) => format!("facts of platform {platform}"),
            Self::NoticeReads(user, platform) => format!("read state of {user} on platform {platform}"),
            Self::PlatformView(platform) => format!("view of platform {platform}"),
            Self::NoticeReadsView(user, platform) => format!("view of the read state of {user} on platform {platform}"),
            Self::Title(notice, revision) => format!("title of notice {notice} in revision {revision}"),
            Self::Astray(key) => format!("key {key}"),
        }
    }
}
