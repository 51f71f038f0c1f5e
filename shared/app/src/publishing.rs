//! [`Publishing`]: publish, show, delete a post; likes and favorites; how far a delivery is.

use std::sync::Arc;

use tracing::warn;

use crate::{
    Stores, ViewSync,
    fan_out::{DeliveryStatus, FanOuts},
    ports::{Deleted, FanOut, IdempotencyKey, Published, Reacted, StoreError},
};
use tidemark_domain::{DeliveryState, NewPost, Post, PostId, Reaction, ReactionCounts, UserId};

/// Use cases of an author's posts. Clones share the stores.
#[derive(Clone)]
pub struct Publishing {
    /// The stores.
    pub stores: Arc<Stores>,
    /// Delivers and retracts posts.
    pub fan_outs: FanOuts,
    /// Shows reactions.
    pub sync: ViewSync,
}

/// A live post as one user sees it.
#[derive(Debug, Clone)]
pub struct PostDetails {
    /// The post.
    pub post: Post,
    /// Its text.
    pub body: Option<String>,
    /// Whether the user has read it.
    pub read: bool,
    /// Whether the user likes it.
    pub liked: bool,
    /// Whether it is among the user's favorites.
    pub favorited: bool,
    /// Reactions of all users.
    pub counts: ReactionCounts,
}

/// A post and how far its delivery is.
#[derive(Debug, Clone)]
pub struct PostDelivery {
    /// The post, or its tombstone.
    pub post: Post,
    /// Its delivery.
    pub status: DeliveryStatus,
    /// Whether Redis was unavailable, so that pages under way are not counted.
    pub degraded: bool,
}

/// What came of a request to delete a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// The post is deleted, by this request or an earlier one.
    Deleted,
    /// It is another author's.
    NotAuthor,
    /// There never was such a post.
    Unknown,
}

impl Publishing {
    /// Publishes a post and starts its delivery. A repeated key starts the delivery once more, if it is not done: the first request may have ended before that.
    ///
    /// # Errors
    /// The facts failed.
    pub async fn publish(&self, new: &NewPost, idempotency: Option<&IdempotencyKey>) -> Result<Published, StoreError> {
        let counts = self.stores.edges.follower_counts(new.author).await?;
        let published = self.stores.posts.publish(new, counts.iter().sum(), idempotency, self.stores.clock.now()).await?;
        match &published {
            Published::Created(post, head) => self.start(FanOut::of(post, head)).await,
            // What is done of a fan-out is not sent again.
            Published::Repeated(post) if !post.deleted && post.delivery.state == DeliveryState::Pending => {
                let head = self.stores.posts.heads(&[new.author]).await?.remove(&new.author).unwrap_or_default();
                self.start(FanOut::of(post, &head)).await;
            }
            Published::Repeated(_) | Published::KeyReused | Published::Full => {}
        }
        Ok(published)
    }

    /// Deletes a post of `caller` and starts its retraction.
    ///
    /// # Errors
    /// The facts failed.
    pub async fn delete(&self, caller: UserId, post: PostId) -> Result<Removal, StoreError> {
        if post.author != caller {
            let known = self.stores.posts.posts(&[post]).await?.contains_key(&post);
            return Ok(if known { Removal::NotAuthor } else { Removal::Unknown });
        }
        let counts = self.stores.edges.follower_counts(caller).await?;
        match self.stores.posts.delete(post, counts.iter().sum()).await? {
            Deleted::Deleted(post, head) => self.start(FanOut::of(&post, &head)).await,
            Deleted::Already(_) => {}
            Deleted::Unknown => return Ok(Removal::Unknown),
        }
        Ok(Removal::Deleted)
    }

    /// Starts the fan-out of a post that is a fact already. If a store is unavailable, the fan-out stays pending, and reconcile starts it.
    async fn start(&self, fan_out: FanOut) {
        if let Err(error) = self.fan_outs.start(fan_out).await {
            warn!(post = %fan_out.post, error = &error as &dyn std::error::Error, "fan-out is left to reconcile");
        }
    }

    /// A live post with its text, from the facts; `None` if it is deleted or unknown.
    ///
    /// # Errors
    /// The facts failed.
    pub async fn post(&self, caller: UserId, id: PostId) -> Result<Option<PostDetails>, StoreError> {
        let wanted = [id];
        let (mut posts, body) = futures::try_join!(self.stores.posts.posts(&wanted), self.stores.posts.body(id))?;
        let Some(post) = posts.remove(&id).filter(|post| !post.deleted) else { return Ok(None) };
        let readers = &self.sync.readers;
        let (flags, reactions, counts) = futures::try_join!(
            readers.flags(caller, id.author),
            readers.reactions_to(caller, id.author),
            self.stores.reactions.counts(id)
        )?;
        Ok(Some(PostDetails {
            post,
            body,
            read: flags.is_read(id.seq),
            liked: reactions.liked.contains(id.seq),
            favorited: reactions.favorited.contains(id.seq),
            counts,
        }))
    }

    /// How far the delivery of a post is; `None` if there never was such a post.
    ///
    /// # Errors
    /// The facts failed.
    pub async fn delivery(&self, id: PostId) -> Result<Option<PostDelivery>, StoreError> {
        let Some(post) = self.stores.posts.posts(&[id]).await?.remove(&id) else { return Ok(None) };
        let (status, degraded) = match self.fan_outs.status(&post).await {
            Ok(status) => (status, false),
            Err(error) => {
                warn!(post = %id, error = &error as &dyn std::error::Error, "progress unavailable");
                let delivered = post.delivery.delivered;
                (DeliveryStatus { state: post.delivery.state, delivered, pages_done: 0 }, true)
            }
        };
        Ok(Some(PostDelivery { post, status, degraded }))
    }

    /// Gives a reaction to a live post, or takes it back. Whether there is such a post.
    ///
    /// # Errors
    /// The facts failed, or neither the views nor the queue took the change.
    pub async fn react(&self, user: UserId, post: PostId, reaction: Reaction, given: bool) -> Result<bool, StoreError> {
        match self.stores.reactions.react(user, post, reaction, given).await? {
            Reacted::Stands(state) => {
                self.sync.reaction(user, post.author, &state).await?;
                Ok(true)
            }
            Reacted::Unknown => Ok(false),
        }
    }
}
