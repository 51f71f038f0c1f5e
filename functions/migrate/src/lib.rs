//! Imports what legacy systems keep in Redis, a bounded slice an invocation: posts, what was read of them, who follows whom.
//!
//! Every write is conditional and exact, so that users go on meanwhile, runs may be cut off, repeated and run side by side, and what was changed here since stays as it
//! is. `docs/migration.md` has the order, the rules and how it is run.

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

/// An invocation's event.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The legacy Redis; `LEGACY_REDIS_URL` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The layouts to import, all when left out. Their order is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Vec<Layout>>,
    /// Read and judge, and write nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// End the invocation after about so many entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Where a dry run goes on. A real run knows by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The notices here that legacy ones, `{platform}:{notice}`, were published as: nothing in the source says what a notice is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notices: BTreeMap<String, NoticeId>,
    /// Import follows although the first run began so long ago that unfollows of since then may be forgotten.
    #[serde(default)]
    pub again: bool,
}

/// An invocation failed; what it had saved stands, and the next one goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The event cannot be read.
    #[error("invalid event: {0}")]
    Invalid(String),
    /// The legacy Redis did not answer.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// One of our own stores failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Progress has another shape than this version's.
    #[error("stored progress cannot be read")]
    Progress(#[from] serde_json::Error),
    /// Unfollows of more than six days ago may be forgotten: they cannot be told from follows never imported.
    #[error(
        "the first run of this source began on {0}, too long ago to tell unfollowed from never imported; see docs/migration.md"
    )]
    TooLate(Timestamp),
}

impl MigrateError {
    /// Whether invoking again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Source(_) => true,
            Self::Store(error) => error.is_retryable(),
            Self::Invalid(_) | Self::Progress(_) | Self::TooLate(_) => false,
        }
    }
}

/// Works on one slice and answers the report so far, with the event that goes on, `next`, until `done`.
///
/// # Errors
/// [`MigrateError`]: the next invocation goes on from what was saved.
pub async fn handle(app: &App, event: LambdaEvent<Value>) -> Result<Value, Error> {
    let deadline = event.context.deadline;
    let work = async {
        let request = serde_json::from_value(event.payload).map_err(|error| MigrateError::Invalid(error.to_string()))?;
        run::slice(app, request, deadline).boxed().await
    };
    work.await.map_err(|failure| {
        error!(retryable = failure.is_retryable(), error = &failure as &dyn std::error::Error, "migration slice failed");
        failure.into()
    })
}
