//! [`ViewSync`]: updates views after a change of facts, or writes the outage note and leaves them to the projector.

use crate::{
    Stores,
    outage::Outage,
    reader::{PairFacts, Readers},
};
use std::{sync::Arc, time::Duration};

use tidemark_domain::{Edge, PostId, ReactionState, UserId, store::Result};
use tidemark_queue::Task;

/// The time that reactions to a post wait for others, before its step is computed.
const RANK_DELAY: Duration = Duration::from_secs(1);

/// How long after a reaction the others rely on the task that it has sent. The task begins later, whatever the clocks
/// of Redis and SQS measure as a second.
const RELIED_ON: Duration = Duration::from_millis(900);

/// Updates the views after changes of edges, read states and reactions. A request calls it even if the fact already had
/// the requested value, because an earlier request may have ended between its fact and the view.
///
/// `edges`, `choices`, `blocks`, `reads`, `reads_of`, `reaction` and `reposted` leave an update that fails to the
/// projector. They fail if the outage note cannot be written. `post`, `reacted`, `follows` and `choices_of` return the
/// error, and the projector repeats them.
#[derive(Clone)]
pub struct ViewSync {
    stores: Arc<Stores>,
    readers: Readers,
    outage: Outage,
}

impl ViewSync {
    pub fn new(stores: Arc<Stores>, readers: Readers, outage: Outage) -> Self {
        Self { stores, readers, outage }
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Updates the feed of one follower, and the lists of both sides, from these edges.
    pub async fn edges(&self, user: UserId, edges: &[Edge]) -> Result<()> {
        if edges.is_empty() {
            return Ok(());
        }
        // Both updates run, even if one fails.
        let lists = self.stores.views.apply_edges(edges);
        let (feed, lists) = futures::join!(self.readers.sync_edges(user, edges.to_vec()), lists);
        self.outage.or_later(feed.and(lists)).await
    }

    /// Updates the feed of one follower after a change of a mute, a list or a preference in these edges. They are live:
    /// an author who is not followed has no field. Neither a list of followers nor a counter changes.
    pub(crate) async fn choices(&self, user: UserId, edges: &[Edge]) -> Result<()> {
        self.outage.or_later(self.readers.sync_edges(user, edges.to_vec()).await).await
    }

    /// Updates the view of one reader from these read states. Returns whether the view has them now.
    pub(crate) async fn reads(&self, user: UserId, pairs: &[&PairFacts]) -> Result<bool> {
        let shown = self.readers.show_reads(user, pairs).await;
        let is_shown = shown.is_ok();
        self.outage.or_later(shown).await?;
        Ok(is_shown)
    }

    pub async fn reads_of(&self, user: UserId, author: UserId) -> Result<()> {
        self.outage.or_later(self.readers.sync_reads(user, author).await).await
    }

    /// Updates a reader's reactions to one author, the counts of the post, and the author's counters. The projector has
    /// a worker compute the post's step.
    pub(crate) async fn reaction(&self, user: UserId, post: PostId, state: &ReactionState) -> Result<()> {
        let stores = &self.stores;
        // All updates run, even if one fails.
        let (shown, forgotten, counted) = futures::join!(
            stores.views.change_reactions(user, post.author, state),
            stores.views.forget_counters(post.author, Some(user)),
            stores.views.expire_counts(post, 1)
        );
        self.outage.or_later(shown.and(forgotten).and(counted.map(drop))).await
    }

    /// Updates the counts of a post after a repost of this user or its withdrawal.
    pub(crate) async fn reposted(&self, user: UserId, original: PostId) -> Result<()> {
        let views = &self.stores.views;
        let (counted, noted) = futures::join!(views.expire_counts(original, 1), views.note_change(user));
        self.outage.or_later(counted.map(drop).and(noted)).await
    }

    /// Updates what the reactions of two users say of blocks between them.
    pub(crate) async fn blocks(&self, user: UserId, other: UserId) -> Result<()> {
        let readers = &self.readers;
        let (own, reverse) = futures::join!(readers.sync_reactions(user, other), readers.sync_reactions(other, user));
        self.outage.or_later(own.and(reverse)).await
    }

    /// Updates the count of a post's comments after a comment of this user, or its withdrawal.
    pub(crate) async fn commented(&self, user: UserId, post: PostId) -> Result<()> {
        let views = &self.stores.views;
        // Both updates run, even if one fails.
        let (noted, counted) = futures::join!(views.note_change(user), views.expire_counts(post, 1));
        self.outage.or_later(noted.and(counted.map(drop))).await
    }

    /// The same after comments that requests have noted. May be repeated. No score depends on comments.
    pub(crate) async fn comments(&self, post: PostId) -> Result<()> {
        self.stores.views.expire_counts(post, 0).await.map(drop)
    }

    /// Updates the counts of a post after reactions that requests have noted, and has a worker compute its step. May be
    /// repeated.
    ///
    /// Others rely on a task only after it was sent, and only until it may begin. Until it is noted, each reaction
    /// sends a task of its own.
    pub(crate) async fn reacted(&self, post: PostId) -> Result<()> {
        let stores = &self.stores;
        let Some(now) = stores.views.expire_counts(post, 0).await? else { return Ok(()) };
        stores.queues.tasks.send_after(&[Task::Rank { post, token: (stores.random)() }], RANK_DELAY).await?;
        let until = now.plus_ms(RELIED_ON.as_millis() as u64);
        logged!(stores.views.note_rank(post, until).await, "the next reaction sends a task too", %post);
        Ok(())
    }

    /// Updates the view of a post from the facts. May be repeated after an error.
    pub(crate) async fn post(&self, id: PostId) -> Result<()> {
        let stores = &self.stores;
        let found = stores.facts.posts_with_texts(&[id]).await?.remove(&id);
        let stored: Vec<_> = found.into_iter().map(|(post, text)| (post.into(), text)).collect();
        stores.views.remember_posts(&stored, None).await
    }

    /// Updates feed, lists and counters of a follower from the current edges to these authors. May be repeated.
    pub async fn follows(&self, user: UserId, authors: &[UserId]) -> Result<()> {
        let edges: Vec<Edge> = self.stores.facts.edges(user, authors).await?.into_values().collect();
        self.stores.views.apply_edges(&edges).await?;
        self.readers.sync_edges(user, edges).await
    }

    /// The same after changes of the pairs that neither began nor ended a follow.
    pub async fn choices_of(&self, user: UserId, authors: &[UserId]) -> Result<()> {
        let edges: Vec<Edge> = self.stores.facts.edges(user, authors).await?.into_values().collect();
        let (live, others): (Vec<Edge>, Vec<Edge>) = edges.into_iter().partition(|edge| edge.following);
        // A block is in the marks of the other user.
        let marks: Vec<(UserId, UserId)> = others.iter().map(|edge| (edge.author, user)).collect();
        self.stores.views.forget_marks(&marks).await?;
        self.readers.sync_edges(user, live).await
    }
}
