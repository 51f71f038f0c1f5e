//! The remedy of each difference: the operations that write the views in any case, and conditional writes for facts.

use super::{Reconcile, ReconcileError};
use crate::diff::{Difference, FactDifference, FlowDifference, Ghost, Side, ViewDifference};
use tidemark_app::ports::StoreError;
use tidemark_domain::{AuthorHead, Edge, FeedKey, NoticeId, PostId, Timestamp, UserId};
use tidemark_views::keys::View;

impl Reconcile {
    /// Applies the remedy of a difference; false if the facts have changed since the look. Then the difference no
    /// longer exists, or the next run finds it. A repair may be repeated. The next look shows whether it has helped.
    pub(super) async fn repair(&self, difference: &Difference) -> Result<bool, ReconcileError> {
        match difference {
            Difference::Fact(difference) => {
                let done = self.facts.repair(difference).await?;
                // The views are also updated if `done` is false: an earlier attempt whose response was lost may have
                // changed the fact.
                self.after_fact(difference).await?;
                Ok(done)
            }
            Difference::View(difference) => self.repair_view(difference).await.map(|()| true),
            // The job that finds it resumes it, or an operator does.
            Difference::Flow(
                FlowDifference::DeliveryUnfinished { .. }
                | FlowDifference::RetractionUnfinished { .. }
                | FlowDifference::FanOutsGivenUp { .. }
                | FlowDifference::RecordsGivenUp { .. },
            ) => Ok(false),
        }
    }

    /// Updates the views of a repaired fact.
    async fn after_fact(&self, difference: &FactDifference) -> Result<(), ReconcileError> {
        match *difference {
            FactDifference::FollowerMissing { author, .. }
            | FactDifference::FollowerGhost { author, .. }
            | FactDifference::FollowerSince { author, .. } => {
                self.views.forget(&View::Fans(author)).await?;
                self.relations.forget_counters(author, None).await?;
            }
            FactDifference::FollowingsCount { user: author, .. }
            | FactDifference::FollowersCount { author, .. }
            | FactDifference::HeadPosts { author, .. }
            | FactDifference::AuthorReactions { author, .. } => self.relations.forget_counters(author, None).await?,
            FactDifference::HeadDeletion { post, .. } => self.views.forget(&View::Head(post.author)).await?,
            FactDifference::ReadsBeyond { user, author, .. } => self.readers.sync_reads(user, author).await?,
            FactDifference::NoticeMissing { notice: NoticeId { platform, .. } }
            | FactDifference::SlotsBehind { platform, .. } => {
                self.notices.sync(platform, None).await?;
            }
            FactDifference::NoticeReadsBeyond { user, platform, .. } => self.notices.sync(platform, Some(user)).await?,
            FactDifference::NoticeLeft { .. }
            | FactDifference::PostReactions { .. }
            | FactDifference::UnfinishedLeft { .. }
            | FactDifference::UnfinishedMissing { .. }
            | FactDifference::BodyLeft { .. }
            | FactDifference::RecordExpired { .. }
            | FactDifference::RecordDamaged { .. }
            | FactDifference::RecordOfNothing { .. }
            | FactDifference::TombstoneExpired { .. }
            | FactDifference::ItemDamaged { .. } => {}
        }
        Ok(())
    }

    async fn repair_view(&self, difference: &ViewDifference) -> Result<(), ReconcileError> {
        let readers = &self.readers;
        match *difference {
            ViewDifference::FieldMissing { user, author }
            | ViewDifference::FieldOpening { user, author }
            | ViewDifference::FieldOld { user, author } => Ok(readers.sync(user, &[author]).await?),
            ViewDifference::FieldGhost { user, author, rev } => self.drop_author(user, author, rev).await,
            ViewDifference::ReadsBehind { user, author, .. }
            | ViewDifference::ReadsWrong { user, author }
            | ViewDifference::BaseWrong { user, author }
            | ViewDifference::FloorWrong { user, author }
            | ViewDifference::ModesBehind { user, author } => Ok(readers.sync_reads(user, author).await?),
            ViewDifference::Undelivered { user, post } | ViewDifference::EntryMissing { user, post } => {
                let (key, head) = self.post(post).await?;
                Ok(readers.stores.reader_views.deliver(&[user], key, head.modes).await.map(|_| ())?)
            }
            ViewDifference::DeletionMissing { user, post } => {
                let (key, head) = self.post(post).await?;
                Ok(readers.stores.reader_views.retract(&[user], key, head.deletions(), head.modes).await.map(|_| ())?)
            }
            ViewDifference::EntryGhost { user, post, why: Ghost::Deleted, at } => {
                let (_, head) = self.post(post).await?;
                Ok(readers
                    .stores
                    .reader_views
                    .retract(&[user], FeedKey { at, post }, head.deletions(), head.modes)
                    .await
                    .map(|_| ())?)
            }
            ViewDifference::EntryGhost { user, post, why: Ghost::Unfollowed, .. } => self.drop_author(user, post.author, 0).await,
            ViewDifference::EntryGhost { user, why: Ghost::Unknown, .. }
            | ViewDifference::FieldAhead { user, .. }
            | ViewDifference::DeliveredAhead { user, .. }
            | ViewDifference::FeedIncomplete { user }
            | ViewDifference::FeedDisordered { user }
            | ViewDifference::FeedDamaged { user }
            | ViewDifference::FeedUnannounced { user }
            | ViewDifference::FeedLost { user }
            | ViewDifference::StateDamaged { user } => Ok(readers.rebuild(user, true).await.map(|_| ())?),
            ViewDifference::RebuildAbandoned { user } => Ok(readers.rebuild(user, false).await.map(|_| ())?),
            ViewDifference::FeedShortLived { user } => {
                Ok(readers.stores.reader_views.touch(user, readers.stores.clock.now()).await?)
            }
            ViewDifference::FeedOrphan { user } | ViewDifference::StateHeadless { user } => {
                self.forget(&View::Reader(user)).await
            }
            ViewDifference::ListMissing { user, list, .. }
            | ViewDifference::ListGhost { user, list, .. }
            | ViewDifference::ListTime { user, list, .. }
            | ViewDifference::ListDamaged { user, list } => match list {
                Side::Following => self.forget(&View::Following(user)).await,
                Side::Fans => self.forget(&View::Fans(user)).await,
            },
            ViewDifference::CountersWrong { user } | ViewDifference::CountersDamaged { user } => {
                self.forget(&View::Counters(user)).await
            }
            ViewDifference::ReactionsBehind { user, author, .. } => Ok(readers.sync_reactions(user, author).await?),
            ViewDifference::ReactionsWrong { user, .. } | ViewDifference::ReactionsDamaged { user } => {
                self.forget(&View::Reactions(user)).await
            }
            ViewDifference::HeadWrong { author } => self.forget(&View::Head(author)).await,
            ViewDifference::SummaryOfDeleted { post } => Ok(readers.stores.post_views.bury(self.post(post).await?.0).await?),
            ViewDifference::SummaryWrong { post }
            | ViewDifference::SummaryDamaged { post }
            | ViewDifference::SummaryOfNothing { post } => self.forget(&View::Summary(post)).await,
            ViewDifference::NoticeReadsBehind { user, platform, .. } => Ok(self.notices.sync(platform, Some(user)).await?),
            ViewDifference::NoticeReadsWrong { user, platform, .. } | ViewDifference::NoticeReadsDamaged { user, platform } => {
                self.forget(&View::NoticeReads(user, platform)).await
            }
            ViewDifference::PlatformHeadWrong { platform, .. } => self.forget(&View::Platform(platform)).await,
            ViewDifference::TitleWrong { notice, revision }
            | ViewDifference::TitleDamaged { notice, revision }
            | ViewDifference::TitleOfNothing { notice, revision } => self.forget(&View::Title(notice, revision)).await,
            ViewDifference::KeyOfWrongType { ref view, .. } | ViewDifference::KeyWithoutLifetime { ref view, .. } => {
                self.forget(view).await
            }
            ViewDifference::KeyAstray { ref key } => self.forget(&View::Key(key.clone())).await,
        }
    }

    async fn forget(&self, view: &View) -> Result<(), ReconcileError> {
        Ok(self.views.forget(view).await?)
    }

    /// Removes an author who is not followed from a view. A follow in the meantime has a later revision and stays.
    async fn drop_author(&self, user: UserId, author: UserId, known: u32) -> Result<(), ReconcileError> {
        let edge = self.readers.stores.edges.edges(user, &[author]).await?.remove(&author);
        if edge.as_ref().is_some_and(|edge| edge.following) {
            return Ok(());
        }
        let rev = edge.map_or(known, |edge| edge.rev.max(known));
        let tombstone = Edge { user, author, following: false, since: Timestamp::default(), rev, base: 0, floor: 0 };
        Ok(self.readers.stores.reader_views.drop_author(&tombstone).await?)
    }

    /// The feed entry of a post, and its author's head.
    async fn post(&self, id: PostId) -> Result<(FeedKey, AuthorHead), ReconcileError> {
        let (ids, authors) = ([id], [id.author]);
        let (mut posts, mut heads) =
            futures::try_join!(self.readers.stores.posts.posts(&ids), self.readers.stores.posts.heads(&authors))?;
        let post = posts.remove(&id).ok_or(StoreError::DamagedItem {
            table: "posts",
            key: id.to_string(),
            detail: format!("no post {id}"),
        })?;
        Ok((post.key(), heads.remove(&id.author).unwrap_or_default()))
    }
}
