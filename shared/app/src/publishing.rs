//! [`Publishing`]: publish, edit and delete a post; likes and favorites; the delivery status of a post.
//!
//! [`tidemark_domain::AuthorHead::publish`] gives the sequence number, in the transaction of the facts.

use std::sync::Arc;

use tracing::warn;

use crate::{
    Stores, ViewSync,
    fan_out::{DeliveryStatus, FanOuts},
    outage::Outage,
};
use tidemark_domain::{
    DeliveryState, IdempotencyKey, NewPost, Post, PostId, PostText, Reaction, ReactionCounts, Seen, UserId, Viewer, Withheld,
    store::Result,
    visibility::{gone, may_see_author},
};
use tidemark_facts::{Deleted, Published};
use tidemark_queue::FanOut;

/// Use cases of an author's posts. Clones share the stores.
#[derive(Clone)]
pub struct Publishing {
    stores: Arc<Stores>,
    outage: Outage,
    sync: ViewSync,
    fan_outs: FanOuts,
}

/// The outcome of a request to edit or delete a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostChange<T> {
    /// The post is as requested, by this request or an earlier one.
    Stands(T),
    NotAuthor,
    /// For an edit: there is no such live post. For a deletion: no such post was ever published.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct PostDelivery {
    /// The post, or its tombstone.
    pub post: Post,
    pub status: DeliveryStatus,
    /// Whether Redis was unavailable. `pages_done` is then 0.
    pub degraded: bool,
}

impl Publishing {
    pub fn new(stores: Arc<Stores>, outage: Outage, sync: ViewSync, fan_outs: FanOuts) -> Self {
        Self { stores, outage, sync, fan_outs }
    }

    /// Publishes a post and starts its delivery. A repetition with the same key starts an unfinished one again.
    pub async fn publish(&self, new: &NewPost, idempotency: Option<&IdempotencyKey>) -> Result<Published> {
        let counts = self.stores.facts.follower_counts(new.author).await?;
        let published = self.stores.facts.publish_post(new, counts.iter().sum(), idempotency, self.stores.clock.now()).await?;
        let fan_out = match &published {
            Published::Created(post, head) => FanOut::of(post, head),
            // A fan-out that is done is not started again.
            Published::Repeated(post) if !post.deleted && post.delivery.state == DeliveryState::Pending => {
                let head = self.stores.facts.head_of(new.author).await?;
                FanOut::of(post, &head)
            }
            Published::Repeated(_) | Published::KeyReused | Published::Full => return Ok(published),
        };
        // The post is published although its followers and counters do not know of it yet.
        logged!(self.fan_outs.start(fan_out).await, "fan-out is left to reconcile", post = %fan_out.post);
        Ok(published)
    }

    /// Deletes a post of `caller`, or of any author if `caller` is a moderator, and starts its retraction.
    pub async fn delete(&self, caller: UserId, moderator: bool, post: PostId) -> Result<PostChange<()>> {
        if post.author != caller && !moderator {
            return self.not_author(caller, post, |_| true).await;
        }
        let counts = self.stores.facts.follower_counts(post.author).await?;
        match self.stores.facts.delete_post(post, counts.iter().sum()).await? {
            // Views may show the post until they know of the deletion.
            Deleted::Deleted(post, head) => self.fan_outs.start(FanOut::of(&post, &head)).await?,
            Deleted::Already(_) => {}
            Deleted::Unknown => return Ok(PostChange::Unknown),
        }
        if post.author != caller {
            logged!(self.stores.views.note_change(caller).await, "the moderator may see the post for a second", %post);
        }
        Ok(PostChange::Stands(()))
    }

    /// Replaces title and text of a post of `caller`, also in feeds. Its place and its read state stay.
    pub async fn edit(&self, caller: UserId, id: PostId, title: &str, text: &PostText) -> Result<PostChange<Post>> {
        let stores = &self.stores;
        if id.author != caller {
            return self.not_author(caller, id, |post| !post.deleted).await;
        }
        let Some(post) = stores.facts.edit_post(id, title, text, stores.clock.now()).await? else {
            return Ok(PostChange::Unknown);
        };
        // Even if the facts had the text: an earlier request may have ended before its view.
        let shown = stores.views.remember_posts(&[(post.clone().into(), Some(text.clone()))], None).await;
        self.outage.or_later(shown).await?;
        Ok(PostChange::Stands(post))
    }

    /// The outcome for another caller than the author. A stranger to a private author does not learn whether there is
    /// such a post.
    async fn not_author<T>(&self, caller: UserId, id: PostId, is_there: fn(&Post) -> bool) -> Result<PostChange<T>> {
        let (ids, facts) = ([id], &self.stores.facts);
        let (posts, standing) = futures::try_join!(facts.posts(&ids), facts.standing(caller, id.author))?;
        let is_known = posts.get(&id).is_some_and(is_there) || gone(standing) != Withheld::Gone;
        Ok(if is_known { PostChange::NotAuthor } else { PostChange::Unknown })
    }

    /// Returns how far the delivery of a post is, also of a deleted one.
    pub async fn delivery(&self, viewer: impl Into<Viewer>, id: PostId) -> Result<Seen<PostDelivery>> {
        let ids = [id];
        let (mut posts, standing) =
            futures::try_join!(self.stores.facts.posts(&ids), self.stores.facts.standing(viewer, id.author))?;
        let Some(post) = posts.remove(&id) else { return Ok(Err(gone(standing))) };
        if let Err(withheld) = may_see_author(standing) {
            return Ok(Err(withheld));
        }
        let (status, degraded) = match self.fan_outs.status(&post).await {
            Ok(status) => (status, false),
            Err(error) => {
                warn!(post = %id, error = &error as &dyn std::error::Error, "progress unavailable");
                let delivered = post.delivery.delivered;
                (DeliveryStatus { state: post.delivery.state, delivered, pages_done: 0 }, true)
            }
        };
        Ok(Ok(PostDelivery { post, status, degraded }))
    }

    /// Gives a reaction to a live post, or removes one, also from a post that is deleted now, if the viewer may see the
    /// author's posts. Returns the post's counts, which include the change.
    pub async fn react(
        &self,
        viewer: impl Into<Viewer>,
        post: PostId,
        reaction: Reaction,
        given: bool,
    ) -> Result<Seen<ReactionCounts>> {
        let viewer = viewer.into();
        let state = match self.stores.facts.react(viewer, post, reaction, given, self.stores.clock.now()).await? {
            Ok(state) => state,
            Err(withheld) => return Ok(Err(withheld)),
        };
        // The views are updated even if the counts cannot be read.
        let (counts, shown) =
            futures::join!(self.stores.facts.reaction_counts(post), self.sync.reaction(viewer.user, post, &state));
        shown?;
        Ok(Ok(counts?.counts))
    }
}
