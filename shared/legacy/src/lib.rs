//! Imports data that legacy systems keep in Redis, a bounded slice in each invocation: posts, read marks, follows.
//! While both systems are in use, it follows the legacy lists, and mirrors changes of facts back.
//!
//! Every write is conditional and exact. Users continue during a migration. A run may be interrupted, repeated, or run
//! at the same time as another. A change that was made here stays. `docs/migration.md` beside this crate describes the
//! order, the rules and the procedure; `docs/rollout.md` describes how users move while both are in use.

mod context;
mod edges;
mod facts;
mod follow;
mod import;
pub mod legacy;
mod likes;
mod mirror;
mod notices;
mod posts;
mod progress;
mod reads;
mod records;
mod removals;
mod report;
pub mod rollout;
mod run;
mod schema;
mod source;
mod untimed;

use std::collections::BTreeMap;

use futures::FutureExt;
use lambda_runtime::LambdaEvent;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidemark::{
    App, Failure,
    domain::{NoticeId, Timestamp, UserId},
};
use tidemark_domain::StoreError;
use tracing::error;

use crate::{
    legacy::{Layout, Reason, Unread},
    mirror::Mirror,
    source::SourceError,
};

pub use facts::Imports;
pub use records::{KnownSource, SeenList, StoredProgress};

/// The event of an invocation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Request {
    /// The URL of the legacy Redis, whose server is that of `LEGACY_REDIS_URL` or one of `MIGRATION_SOURCES`. `None`
    /// means `LEGACY_REDIS_URL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The layouts to import. `None` means all. Their order is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<Vec<Layout>>,
    /// Reads and judges entries, and writes no fact. It stores its position in an item of its own.
    pub dry_run: bool,
    /// Ends the invocation after about this number of entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The notice here that each legacy notice, `{platform}:{notice}`, was published as. The source has no text of a
    /// notice, so the match cannot be derived.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notices: BTreeMap<String, NoticeId>,
    /// Which posts are unread after the import of a follow.
    pub unread: Unread,
    /// Imports follows although tombstones of unfollows since the first run may have expired.
    pub again: bool,
    /// Imports what has changed since the last such pass, removals too.
    pub follow: bool,
    /// The percentage of a list, and of all lists of a kind, that a pass may miss and still remove. `None` means 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removals_percent: Option<u64>,
    /// The number of missing members that an operator has checked, by layout. A pass removes up to so many.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub confirm_removals: BTreeMap<Layout, u64>,
    /// Mirrors everything of these users into the legacy Redis, and does nothing else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mirror: Vec<UserId>,
}

/// A failed invocation. The saved progress stays, and the next invocation continues from it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error("invalid event: {0}")]
    Invalid(String),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The progress was stored in a format that this version cannot read.
    #[error("stored progress cannot be read")]
    Progress(#[from] serde_json::Error),
    /// Tombstones of unfollows may have expired, because the first run began more than six days ago. So an unfollow
    /// cannot be told from a follow that was never imported.
    #[error("the first run began on {0}: an unfollow may look like a follow never imported; see shared/legacy/docs/migration.md")]
    TooLate(Timestamp),
    /// The source is another server process than that whose lists passes compare. If it lost data, its empty lists
    /// would end follows and delete posts.
    #[error(
        "the legacy Redis was restarted: check that it has its data, and begin a pass with \"again\"; see shared/legacy/docs/rollout.md"
    )]
    Restarted,
    /// An item cannot hold the progress.
    #[error("the progress of the run takes {0} bytes, more than an item holds")]
    TooLarge(usize),
    /// The whole key cannot be imported. It is counted.
    #[error("the key is refused: {0:?}")]
    Refused(Reason),
    /// Another run has begun an import of the same author.
    #[error("another run of this migration has taken over")]
    Overtaken,
}

impl MigrateError {
    /// The name of the error that operators see. It does not change.
    fn kind(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "InvalidEvent",
            Self::Source(SourceError::WrongType) => "SourceDamaged",
            Self::Source(SourceError::Unavailable { .. }) => "SourceUnavailable",
            Self::Store(error) => error.kind(),
            Self::Progress(_) => "ProgressDamaged",
            Self::TooLate(_) => "TooLate",
            Self::Restarted => "SourceRestarted",
            Self::TooLarge(_) => "ProgressTooLarge",
            Self::Refused(_) => "KeyRefused",
            Self::Overtaken => "Overtaken",
        }
    }

    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::Source(error) => matches!(error, SourceError::Unavailable { .. }),
            Self::Store(error) => error.is_retryable(),
            Self::Invalid(_)
            | Self::Progress(_)
            | Self::TooLate(_)
            | Self::Restarted
            | Self::TooLarge(_)
            | Self::Refused(_)
            | Self::Overtaken => false,
        }
    }
}

/// Processes one slice, or mirrors a batch of stream records. For a slice, returns the report so far and, until `done`,
/// the event of the next invocation in `next`; for records, those that failed.
pub async fn handle(app: &App, event: LambdaEvent<Value>) -> Result<Value, Failure> {
    let invocation = app.invocation(&event.context);
    let deadline = event.context.deadline;
    let invalid = |error: serde_json::Error| MigrateError::Invalid(error.to_string());
    let work = async {
        if event.payload.get("Records").is_some() {
            let failed = mirror::batch(app, serde_json::from_value(event.payload).map_err(invalid)?).boxed().await?;
            return Ok(json!(failed));
        }
        let request: Request = serde_json::from_value(event.payload).map_err(invalid)?;
        if request.mirror.is_empty() {
            return run::slice(app, request, deadline).boxed().await;
        }
        let mirror = Mirror::connect(app).await?;
        for user in &request.mirror {
            mirror.user(*user).boxed().await?;
        }
        Ok(json!({ "mirrored": request.mirror.len() }))
    };
    let outcome = work.await;
    invocation.worked(1, usize::from(outcome.is_err()));
    outcome.map_err(|failure| {
        error!(retryable = failure.is_retryable(), error = &failure as &dyn std::error::Error, "migration slice failed");
        Failure::new(failure.kind(), failure)
    })
}
