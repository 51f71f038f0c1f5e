//! [`Following`]: follow and unfollow.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Stores, ViewSync,
    ports::{Followed, StoreError},
};
use tidemark_domain::{Edge, Relation, Timestamp, UserId};

/// Use cases of a follower. Clones share the stores.
#[derive(Clone)]
pub struct Following {
    pub stores: Arc<Stores>,
    /// Updates the views of edges.
    pub sync: ViewSync,
}

/// The most users whom one user mutes. The mutes of a user are read together.
pub const MOST_MUTED: usize = 1_000;

/// The outcome of a request to follow one author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    Following {
        since: Timestamp,
        /// Whether this request created the edge.
        created: bool,
        preference: i8,
    },
    /// The caller follows the maximum number of authors.
    LimitReached,
    /// The author is the caller.
    Oneself,
}

impl Follow {
    fn of(edge: &Edge, created: bool) -> Self {
        Self::Following { since: edge.since, created, preference: edge.preference }
    }
}

impl Following {
    /// Follows each of these authors independently, with this preference if there is one. Without one, an edge that exists
    /// keeps its own. Returns one outcome for each element of `authors`, in order.
    ///
    /// Fails if the facts fail, or if neither the views nor the queue accept the change. Some authors may then be
    /// followed.
    pub async fn follow(
        &self,
        caller: UserId,
        authors: &[UserId],
        preference: Option<i8>,
    ) -> Result<Vec<(UserId, Follow)>, StoreError> {
        let mut distinct: Vec<UserId> = Vec::new();
        for &author in authors {
            if author != caller && !distinct.contains(&author) {
                distinct.push(author);
            }
        }
        let heads = self.stores.posts.heads(&distinct).await?;
        let mut outcomes = self.stores.edges.follow(caller, &distinct, &heads, self.stores.clock.now()).await?;
        if let Some(preference) = preference {
            for outcome in &mut outcomes {
                self.set_preference(caller, outcome, preference).await?;
            }
        }
        // Includes edges that existed: an earlier request may have ended between its fact and the views.
        let edges: Vec<Edge> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Followed::Created(edge) | Followed::Existing(edge) => Some(edge.clone()),
                Followed::LimitReached => None,
            })
            .collect();
        self.sync.edges(caller, &edges).await?;
        let outcome_of = |author: UserId| match distinct.iter().position(|known| *known == author).map(|index| &outcomes[index]) {
            None => Follow::Oneself,
            Some(Followed::LimitReached) => Follow::LimitReached,
            Some(Followed::Created(edge)) => Follow::of(edge, true),
            Some(Followed::Existing(edge)) => Follow::of(edge, false),
        };
        Ok(authors.iter().map(|&author| (author, outcome_of(author))).collect())
    }

    /// Sets the preference of an edge that was just written or read. If the follow has ended in the meantime, the outcome
    /// stays as it is.
    async fn set_preference(&self, caller: UserId, outcome: &mut Followed, preference: i8) -> Result<(), StoreError> {
        let (Followed::Created(edge) | Followed::Existing(edge)) = outcome else { return Ok(()) };
        let now = self.stores.clock.now();
        if edge.preference != preference
            && let Some(next) = self.stores.edges.set_preference(caller, edge.author, preference, now).await?
        {
            *edge = next;
        }
        Ok(())
    }

    /// Returns the caller's preferences for these authors. Authors whom the caller does not follow are left out.
    pub async fn preferences(&self, caller: UserId, authors: &[UserId]) -> Result<HashMap<UserId, i8>, StoreError> {
        let edges = self.stores.edges.edges(caller, authors).await?.into_values().filter(|edge| edge.following);
        Ok(edges.map(|edge| (edge.author, edge.preference)).collect())
    }

    /// Ends a follow, if there is one. Fails if the facts fail, or if neither the views nor the queue accept the
    /// change.
    pub async fn unfollow(&self, caller: UserId, author: UserId) -> Result<(), StoreError> {
        let edges = &self.stores.edges;
        let tombstone = match edges.unfollow(caller, author, self.stores.clock.now()).await? {
            Some(tombstone) => Some(tombstone),
            // An earlier request may have ended between its fact and the views.
            None => edges.edges(caller, &[author]).await?.remove(&author).filter(|edge| !edge.following),
        };
        self.sync.edges(caller, tombstone.as_slice()).await.map(|_| ())
    }

    /// Mutes an author or ends that. Returns false, and changes nothing, if the caller mutes [`MOST_MUTED`] users.
    pub async fn set_muted(&self, caller: UserId, author: UserId, muted: bool) -> Result<bool, StoreError> {
        let edges = &self.stores.edges;
        if muted {
            let known = edges.muted(caller).await?;
            if known.len() >= MOST_MUTED && known.iter().all(|edge| edge.author != author) {
                return Ok(false);
            }
        }
        let edge = edges.set_muted(caller, author, muted, self.stores.clock.now()).await?;
        // Also if the fact said so before: an earlier request may have ended between its fact and the view.
        self.sync.edges(caller, edge.as_slice()).await?;
        Ok(true)
    }

    /// Returns the users whom the caller mutes, newest first, below `below`.
    pub async fn muted(&self, caller: UserId, below: Option<Relation>) -> Result<Vec<Relation>, StoreError> {
        let muted = self.stores.edges.muted(caller).await?.into_iter();
        let mut muted: Vec<Relation> =
            muted.filter_map(|edge| Some(Relation { since: edge.muted?, user: edge.author })).collect();
        muted.retain(|relation| below.is_none_or(|below| *relation < below));
        muted.sort_unstable_by(|a, b| b.cmp(a));
        Ok(muted)
    }
}
