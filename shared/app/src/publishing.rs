//! [`Publishing`]: publish, edit and delete a post; reposts; likes and favorites; the delivery status of a post.
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
    DeliveryState, IdempotencyKey, NewPost, Post, PostId, PostState, PostText, Reaction, ReactionCounts, Seen, UserId, Viewer,
    Withheld,
    store::Result,
    visibility::{gone, may_see, may_see_author},
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

/// The outcome of a request to repost a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reposting {
    /// This post of the caller reposts it, by this request or an earlier one, and so many users do.
    Stands { repost: PostId, reposts: u64 },
    /// The caller may not repost it.
    Withheld(Withheld),
    /// The caller has used all sequence numbers.
    Full,
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
        let (post, fan_out) = match &published {
            Published::Created(post, head) => (post, Some(FanOut::of(post, head))),
            // A fan-out that is done is not started again.
            Published::Repeated(post) if !post.deleted && post.delivery.state == DeliveryState::Pending => {
                let head = self.stores.facts.head_of(new.author).await?;
                (post, Some(FanOut::of(post, &head)))
            }
            Published::Repeated(post) => (post, None),
            Published::KeyReused | Published::Full | Published::Withheld(_) => return Ok(published),
        };
        // The post is published although its followers and counters do not know of it yet.
        if let Some(fan_out) = fan_out {
            logged!(self.fan_outs.start(fan_out).await, "fan-out is left to reconcile", post = %fan_out.post);
        }
        if let Some(original) = post.reposted() {
            self.sync.reposted(post.id.author, original).await?;
        }
        Ok(published)
    }

    /// Publishes the caller's repost of a post, or of the original of a repost, unless there is one.
    pub async fn repost(&self, caller: UserId, id: PostId) -> Result<Reposting> {
        let repost = match self.publish(&NewPost::repost(caller, id), None).await? {
            Published::Created(repost, _) | Published::Repeated(repost) => repost,
            Published::Withheld(withheld) => return Ok(Reposting::Withheld(withheld)),
            Published::Full | Published::KeyReused => return Ok(Reposting::Full),
        };
        let counts = self.stores.facts.counts_without_comments(repost.reposted().unwrap_or(id)).await?;
        Ok(Reposting::Stands { repost: repost.id, reposts: counts.reposts })
    }

    /// Deletes the caller's repost of a post, or of the original of a repost, if there is one, also if the caller does
    /// not see the original any more. Returns how many users repost it then; 0 if the caller does not see it.
    pub async fn withdraw(&self, viewer: Viewer, id: PostId) -> Result<Seen<u64>> {
        let (facts, user) = (&self.stores.facts, viewer.user);
        let original = match facts.target_of(viewer, id).await? {
            Ok(original) => original,
            Err(withheld) => return Ok(Err(withheld)),
        };
        if let Some(entry) = facts.repost_of(user, original).await? {
            match facts.standing_repost(user, original, entry).await? {
                Some(repost) => self.delete(user, false, repost.id).await.map(drop)?,
                None => facts.forget_repost(user, original, entry).await?,
            }
        }
        self.sync.reposted(user, original).await?;
        let ids = [original];
        let (posts, standing, head) =
            futures::try_join!(facts.posts(&ids), facts.standing(viewer, original.author), facts.head_of(original.author))?;
        match may_see(posts.get(&original).map_or(PostState::Gone, Post::state), standing) {
            Ok(()) => Ok(Ok(facts.counts_without_comments(original).await?.reposts)),
            // Posts are numbered without gaps, so there never was such a post.
            Err(Withheld::Gone) if original.seq > head.latest_seq => Ok(Err(Withheld::Gone)),
            Err(_) => Ok(Ok(0)),
        }
    }

    /// Deletes a post of `caller`, or of any author if `caller` is a moderator, and starts its retraction.
    pub async fn delete(&self, caller: UserId, moderator: bool, post: PostId) -> Result<PostChange<()>> {
        if post.author != caller && !moderator {
            return self.not_author(caller, post, |_| true).await;
        }
        let counts = self.stores.facts.follower_counts(post.author).await?;
        let reposted = match self.stores.facts.delete_post(post, counts.iter().sum()).await? {
            // Views may show the post until they know of the deletion.
            Deleted::Deleted(post, head) => {
                self.fan_outs.start(FanOut::of(&post, &head)).await?;
                post.reposted()
            }
            Deleted::Already(post) => post.reposted(),
            Deleted::Unknown => return Ok(PostChange::Unknown),
        };
        if let Some(original) = reposted {
            self.sync.reposted(post.author, original).await?;
        }
        if post.author != caller {
            logged!(self.stores.views.note_change(caller).await, "the moderator may see the post for a second", %post);
        }
        Ok(PostChange::Stands(()))
    }

    /// Replaces title and text of a post of `caller`, also in feeds. Its place and its read state stay. Changes nothing
    /// in a repost.
    pub async fn edit(&self, caller: UserId, id: PostId, title: &str, text: &PostText) -> Result<PostChange<Post>> {
        let stores = &self.stores;
        if id.author != caller {
            return self.not_author(caller, id, |post| !post.deleted).await;
        }
        let Some(post) = stores.facts.edit_post(id, title, text, stores.clock.now()).await? else {
            return Ok(PostChange::Unknown);
        };
        if post.reposted().is_some() {
            return Ok(PostChange::Stands(post));
        }
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
    /// author's posts. A repost stands for its original. Returns the post's counts without comments, which include the
    /// change.
    pub async fn react(
        &self,
        viewer: impl Into<Viewer>,
        post: PostId,
        reaction: Reaction,
        given: bool,
    ) -> Result<Seen<ReactionCounts>> {
        let viewer = viewer.into();
        let (post, state) = match self.stores.facts.react(viewer, post, reaction, given, self.stores.clock.now()).await? {
            Ok(reacted) => reacted,
            Err(withheld) => return Ok(Err(withheld)),
        };
        // The views are updated even if the counts cannot be read.
        let counts = self.stores.facts.counts_without_comments(post);
        let (counts, shown) = futures::join!(counts, self.sync.reaction(viewer.user, post, &state));
        shown?;
        Ok(Ok(counts?))
    }
}
