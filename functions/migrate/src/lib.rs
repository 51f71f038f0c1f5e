//! Imports data that legacy systems keep in Redis, a bounded slice in each invocation: posts, read marks, follows.
//!
//! Every write is conditional and exact. Users continue during a migration. A run may be interrupted, repeated, or run
//! at the same time as another. A change that was made here stays. `docs/migration.md` describes the order, the rules
//! and the procedure.

mod edges;
mod facts;
mod feed;
pub mod imports;
mod in_line;
pub mod legacy;
mod notices;
mod posts;
mod progress;
mod reads;
mod report;
mod run;
mod schema;
mod source;

use std::collections::BTreeMap;
use tidemark_app::ports::StoreError;

use crate::legacy::Layout;
use futures::FutureExt;
use lambda_runtime::{Error, LambdaEvent};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemark::{
    App,
    domain::{NoticeId, Timestamp},
};
use tracing::error;

pub use facts::Imports;
pub use report::{Example, Found, Tally};
pub use source::SourceError;

/// The event of an invocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The URL of the legacy Redis. `None` means `LEGACY_REDIS_URL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The layouts to import. `None` means all. Their order is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Vec<Layout>>,
    /// Reads and judges entries, and writes nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Ends the invocation after about this number of entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The position where a dry run continues. A real run stores its position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The notice here that each legacy notice, `{platform}:{notice}`, was published as. The source has no text of a
    /// notice, so the match cannot be derived.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notices: BTreeMap<String, NoticeId>,
    /// Imports follows although the first run began so long ago that tombstones of unfollows since then may have
    /// expired.
    #[serde(default)]
    pub again: bool,
}

/// A failed invocation. The saved progress stays, and the next invocation continues from it.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("invalid event: {0}")]
    Invalid(String),
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A store of this system failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The progress was stored in a format that this version cannot read.
    #[error("stored progress cannot be read")]
    Progress(#[from] serde_json::Error),
    /// Tombstones of unfollows may have expired, because the first run began more than six days ago. So an unfollow
    /// cannot be told from a follow that was never imported.
    #[error(
        "the first run of this source began on {0}: an unfollow may look like a follow never imported; see docs/migration.md"
    )]
    TooLate(Timestamp),
}

impl MigrateError {
    /// Whether another invocation may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Source(_) => true,
            Self::Store(error) => error.is_retryable(),
            Self::Invalid(_) | Self::Progress(_) | Self::TooLate(_) => false,
        }
    }
}

/// Processes one slice. Returns the report so far and, until `done`, the event of the next invocation in `next`.
pub async fn handle(app: &App, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let invocation = app.invocation(&event.context);
    let deadline = event.context.deadline;
    let work = async {
        let request = serde_json::from_value(event.payload).map_err(|error| MigrateError::Invalid(error.to_string()))?;
        run::slice(app, request, deadline).boxed().await
    };
    let outcome = work.await;
    invocation.worked(1, usize::from(outcome.is_err()));
    outcome.map_err(|failure| {
        error!(retryable = failure.is_retryable(), error = &failure as &dyn std::error::Error, "migration slice failed");
        failure.into()
    })
}
