//! Applies remedies: the operations that write the views in any case, and conditional writes for facts.

use tidemark_domain::{AuthorHead, Edge, FeedKey, PostId, PostSummary, StoreError, UserId};
use tidemark_views::Rebuild;

use super::{Reconcile, ReconcileError};
use crate::diff::Remedy;

impl Reconcile {
    /// Applies a remedy; false if there is none, or the facts have changed since the look. Then the difference no
    /// longer exists, or the next run finds it. A repair may be repeated. The next look shows whether it has helped.
    pub(super) async fn repair(&self, remedy: &Remedy) -> Result<bool, ReconcileError> {
        let Remedy::Correct(correction) = remedy else { return self.update(remedy).await };
        let done = self.facts.correct(correction).await?;
        // Also if `done` is false: an earlier attempt whose response was lost may have changed the fact.
        for remedy in correction.views() {
            self.update(&remedy).await?;
        }
        Ok(done)
    }

    async fn update(&self, remedy: &Remedy) -> Result<bool, ReconcileError> {
        let (readers, stores) = (&self.app.readers, &self.app.stores);
        let views = &stores.views;
        match *remedy {
            Remedy::ReportOnly | Remedy::Correct(_) => return Ok(false),
            Remedy::SyncPair { user, author } => {
                readers.sync(user, &[author]).await?;
                readers.sync_reads(user, author).await?;
                readers.sync_reactions(user, author).await?;
            }
            Remedy::SyncNotices { platform, user } => self.app.notices.sync(platform, user).await?,
            Remedy::Deliver { user, post } => {
                let (key, head) = self.post(post).await?;
                views.deliver(&[user], key, head.modes, false).await?;
            }
            Remedy::Retract { user, post, at } => {
                let (key, head) = self.post(post).await?;
                let key = FeedKey { at: at.unwrap_or(key.at), post };
                views.retract(&[user], key, head.deletions(), head.modes).await?;
            }
            Remedy::DropAuthor { user, author, rev } => self.drop_author(user, author, rev).await?,
            Remedy::Rebuild { user, anew } => {
                readers.rebuild(user, if anew { Rebuild::Anew } else { Rebuild::Missing }).await?;
            }
            Remedy::Touch { user } => views.touch(user, stores.clock.now(), false).await?,
            Remedy::StoreTombstone { post } => {
                let tombstone = PostSummary::tombstone(self.post(post).await?.0);
                stores.views.remember_posts(&[(tombstone, None)], None).await?;
            }
            Remedy::EraseAgain { user } => return Ok(self.app.leaving.again(user).await?),
            Remedy::Rank { post } => self.app.fan_outs.rank(post, (stores.random)()).await?,
            Remedy::Forget(ref view) => self.app.stores.views.clear(std::slice::from_ref(view)).await?,
        }
        Ok(true)
    }

    /// Removes an author who is not followed from a view. A follow in the meantime has a later revision and stays.
    async fn drop_author(&self, user: UserId, author: UserId, known: u32) -> Result<(), ReconcileError> {
        let edge = self.app.stores.facts.edges(user, &[author]).await?.remove(&author);
        if edge.as_ref().is_some_and(|edge| edge.following) {
            return Ok(());
        }
        let rev = edge.map_or(known, |edge| edge.rev.max(known));
        let tombstone = Edge { rev, ..Edge::never(user, author) };
        Ok(self.app.stores.views.drop_author(&tombstone).await?)
    }

    /// The feed entry of a post, and its author's head.
    async fn post(&self, id: PostId) -> Result<(FeedKey, AuthorHead), ReconcileError> {
        let (ids, authors) = ([id], [id.author]);
        let (mut posts, mut heads) =
            futures::try_join!(self.app.stores.facts.posts(&ids), self.app.stores.facts.heads(&authors))?;
        let post = posts.remove(&id).ok_or(StoreError::DamagedItem {
            table: "posts",
            key: id.to_string(),
            detail: format!("no post {id}"),
        })?;
        Ok((post.key(), heads.remove(&id.author).unwrap_or_default()))
    }
}
