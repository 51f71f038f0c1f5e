//! Applies remedies: conditional writes for facts, and deletions of views.

use super::{Reconcile, ReconcileError};
use crate::diff::Remedy;

impl Reconcile {
    /// Applies a remedy; false if there is none, or the facts have changed since the look. Then the difference no
    /// longer exists, or the next run finds it. A repair may be repeated. The next look shows whether it has helped.
    ///
    /// A view may be deleted at any moment, also while it is rebuilt: the rebuild then finds no view of its token, and
    /// begins again.
    pub(super) async fn repair(&self, remedy: &Remedy) -> Result<bool, ReconcileError> {
        match *remedy {
            Remedy::ReportOnly => return Ok(false),
            Remedy::Correct(ref correction) => {
                let done = self.facts.correct(correction).await?;
                // Also if `done` is false: an earlier attempt whose response was lost may have changed the fact.
                self.app.stores.views.clear(&correction.views()).await?;
                return Ok(done);
            }
            Remedy::EraseAgain { user } => return Ok(self.app.leaving.again(user).await?),
            Remedy::Rank { post } => self.app.fan_outs.rank(post, (self.app.stores.random)()).await?,
            Remedy::Forget(ref views) => self.app.stores.views.clear(views).await?,
        }
        Ok(true)
    }
}
