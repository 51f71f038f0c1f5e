//! [`ViewSync`]: brings views in line with a change that is a fact already, or leaves that to a worker.

use crate::{
    outage::Later,
    ports::{StoreError, Task},
    reader::{PairFacts, Readers},
    relations::Relations,
};
use tidemark_domain::{Edge, ReactionState, UserId};

/// Every change of a reader's facts goes through here, also when the fact already said so: an earlier request may have ended between its fact and the view.
#[derive(Clone)]
pub struct ViewSync {
    /// The reader's views.
    pub readers: Readers,
    /// Lists and counters.
    pub relations: Relations,
    /// What a worker does instead.
    pub later: Later,
}

impl ViewSync {
    /// Edges of one follower, in the feed and in the lists of both sides. Whether the views have them now; a worker updates them if not.
    ///
    /// # Errors
    /// Neither the views nor the queue took the change.
    pub async fn edges(&self, user: UserId, edges: &[Edge]) -> Result<bool, StoreError> {
        if edges.is_empty() {
            return Ok(true);
        }
        // Both, whatever becomes of the other.
        let (feed, lists) = futures::join!(self.readers.sync_edges(user, edges.to_vec()), self.relations.apply(edges));
        let tasks = || edges.iter().map(|edge| Task::sync(user, edge.author)).collect();
        self.or_enqueue(feed.and(lists), tasks).await
    }

    /// Read states of one reader, as just read or written. Whether the view has them now; a worker updates it if not.
    ///
    /// # Errors
    /// Neither the view nor the queue took the change.
    pub async fn reads(&self, user: UserId, pairs: &[&PairFacts]) -> Result<bool, StoreError> {
        let shown = self.readers.show_reads(user, pairs).await;
        let authors = || pairs.iter().map(|pair| pair.author).collect::<Vec<_>>();
        self.or_enqueue(shown, || Task::sync_reads(user, &authors())).await
    }

    /// The read state of one pair, as it is now. Whether the view has it now; a worker updates it if not.
    ///
    /// # Errors
    /// Neither the view nor the queue took the change.
    pub async fn reads_of(&self, user: UserId, author: UserId) -> Result<bool, StoreError> {
        self.or_enqueue(self.readers.sync_reads(user, author).await, || vec![Task::sync(user, author)]).await
    }

    /// A reader's reactions to one author, and the author's counters. Whether the views have them now; a worker updates them if not.
    ///
    /// # Errors
    /// Neither the views nor the queue took the change.
    pub async fn reaction(&self, user: UserId, author: UserId, state: &ReactionState) -> Result<bool, StoreError> {
        let shown = self.readers.stores.reaction_views.change(user, author, state);
        // Both, whatever becomes of the other.
        let (shown, forgotten) = futures::join!(shown, self.relations.forget_counters(author, Some(user)));
        self.or_enqueue(shown.and(forgotten), || vec![Task::sync(user, author)]).await
    }

    /// Everything of one pair, from the facts as they are now.
    ///
    /// # Errors
    /// A store failed; to be repeated.
    pub async fn pair(&self, user: UserId, author: UserId) -> Result<(), StoreError> {
        self.follows(user, &[author]).await?;
        self.readers.sync_reads(user, author).await?;
        // Last: the counters may count a reaction.
        self.readers.sync_reactions(user, author).await?;
        self.relations.forget_counters(author, None).await
    }

    /// Feed, lists and counters of one follower, from the edges to these authors as they are now.
    ///
    /// # Errors
    /// A store failed; to be repeated.
    pub async fn follows(&self, user: UserId, authors: &[UserId]) -> Result<(), StoreError> {
        let edges: Vec<Edge> = self.readers.stores.edges.edges(user, authors).await?.into_values().collect();
        self.relations.apply(&edges).await?;
        self.readers.sync_edges(user, edges).await
    }

    async fn or_enqueue(&self, shown: Result<(), StoreError>, tasks: impl FnOnce() -> Vec<Task>) -> Result<bool, StoreError> {
        let Err(error) = shown else { return Ok(true) };
        self.later.instead(&error, &tasks()).await?;
        Ok(false)
    }
}
