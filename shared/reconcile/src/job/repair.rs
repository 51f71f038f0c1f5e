//! Applies remedies: conditional writes for facts, and deletions of views.

use tidemark_domain::{GroupId, StoreError, Timestamp};

use super::{Reconcile, ReconcileError};
use crate::diff::{Correction, Counter, Recount, Remedy};

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
                let listed = self.listed_before(correction).await?;
                let done = self.facts.correct(correction).await?;
                self.derive_after(correction, listed).await?;
                // Also if `done` is false: an earlier attempt whose response was lost may have changed the fact.
                self.app.stores.views.clear(&correction.views()).await?;
                return Ok(done);
            }
            Remedy::EraseAgain { user } => return Ok(self.app.leaving.again(user).await?),
            Remedy::Rank { post } => self.app.fan_outs.rank(post, (self.app.stores.random)()).await?,
            Remedy::Derive { user, group } => self.app.inboxes.derive_anew(user, group).await?,
            Remedy::Forget(ref views) => self.app.stores.views.clear(views).await?,
        }
        Ok(true)
    }

    /// The time of the follow that the author's list has, which no stream shows.
    async fn listed_before(&self, correction: &Correction) -> Result<Option<Timestamp>, StoreError> {
        match *correction {
            Correction::MirrorEdge { user, author, .. } => Ok(self.app.stores.facts.listed_of(author, user).await?.0),
            _ => Ok(None),
        }
    }

    /// Derives the groups of inboxes that are derived from a list that was corrected.
    async fn derive_after(&self, correction: &Correction, listed: Option<Timestamp>) -> Result<(), StoreError> {
        match *correction {
            Correction::MirrorEdge { author, edge, .. } => {
                let follows = edge.map(|(since, _)| since).into_iter().chain(listed);
                self.app.inboxes.listed(author, follows.map(GroupId::follow)).await
            }
            Correction::MirrorRequest { author, .. }
            | Correction::SetCount(Recount { of: Counter::RequestsReceived { author, .. }, .. }) => {
                self.app.inboxes.listed(author, [GroupId::REQUEST]).await
            }
            _ => Ok(()),
        }
    }
}
