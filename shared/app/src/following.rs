//! [`Following`]: follows and preferences, requests to follow private authors, mutes and blocks, lists.

mod lists;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

pub use lists::Membership;

pub use tidemark_domain::Hiding;

use crate::{Stores, ViewSync, newest_first};
use tidemark_domain::{Edge, Relation, RequestSide, UserId, store::Result};
use tidemark_facts::Followed;

/// Use cases of a follower. Clones share the stores.
#[derive(Clone)]
pub struct Following {
    stores: Arc<Stores>,
    sync: ViewSync,
}

/// The most users whom one user mutes, and whom one user blocks. They are read together.
pub const MOST_HIDDEN: u64 = 1_000;

/// The outcome of a request to mute or block a user, or to end that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hide {
    Done,
    /// The caller mutes or blocks [`MOST_HIDDEN`] users.
    LimitReached,
    Erased,
}

impl Following {
    pub fn new(stores: Arc<Stores>, sync: ViewSync) -> Self {
        Self { stores, sync }
    }

    /// Updates the views of a follower, and the lists of both sides, from edges that another writer has changed.
    pub async fn sync_views(&self, user: UserId, edges: &[Edge]) -> Result<()> {
        self.sync.edges(user, edges).await
    }

    /// Follows each of these authors independently, or asks them if they are private, with this preference if there
    /// is one. Without one, an edge that exists keeps its own. Returns one outcome for each element of `authors`, in
    /// order; `None` for the caller.
    pub async fn follow(&self, caller: UserId, authors: &[UserId], preference: Option<i8>) -> Result<Vec<Option<Followed>>> {
        let mut seen = HashSet::from([caller]);
        let distinct: Vec<UserId> = authors.iter().copied().filter(|&author| seen.insert(author)).collect();
        let mut outcomes = self.stores.facts.follow(caller, &distinct, self.stores.clock.now()).await?;
        let (mut follows, mut preferred) = (Vec::new(), Vec::new());
        for outcome in &mut outcomes {
            let changed = match preference {
                Some(preference) => self.set_preference(caller, outcome, preference).await?,
                None => false,
            };
            match outcome {
                Followed::Existing(edge) if changed => preferred.push(edge.clone()),
                // Includes edges that existed: an earlier request may have ended between its fact and the views.
                Followed::Created(edge) | Followed::Existing(edge) => follows.push(edge.clone()),
                // No view shows a request.
                Followed::Requested(_)
                | Followed::NoRequest
                | Followed::LimitReached
                | Followed::RequestLimitReached
                | Followed::Blocked
                | Followed::Erased => {}
            }
        }
        self.sync.edges(caller, &follows).await?;
        self.sync.choices(caller, &preferred).await?;
        let outcomes: HashMap<UserId, Followed> = distinct.into_iter().zip(outcomes).collect();
        Ok(authors.iter().map(|author| outcomes.get(author).cloned()).collect())
    }

    /// Sets the preference of an edge, or of a request. Returns whether it had another; false if it has ended.
    async fn set_preference(&self, caller: UserId, outcome: &mut Followed, preference: i8) -> Result<bool> {
        let (Followed::Created(edge) | Followed::Existing(edge) | Followed::Requested(edge)) = outcome else {
            return Ok(false);
        };
        if edge.preference == preference {
            return Ok(false);
        }
        let now = self.stores.clock.now();
        let prefer = |known: Option<&Edge>| {
            let known = known.filter(|edge| edge.is_counted() && edge.preference != preference)?;
            Some(Edge { preference, ..known.changed(now) })
        };
        let next = self.stores.facts.change_pair(caller, edge.author, &prefer).await?.filter(Edge::is_counted);
        let changed = next.is_some();
        *edge = next.unwrap_or_else(|| edge.clone());
        Ok(changed)
    }

    /// Returns the caller's preferences for these authors. Authors whom the caller does not follow are left out.
    pub async fn preferences(&self, caller: UserId, authors: &[UserId]) -> Result<HashMap<UserId, i8>> {
        let edges = self.stores.facts.edges(caller, authors).await?.into_values().filter(|edge| edge.following);
        Ok(edges.map(|edge| (edge.author, edge.preference)).collect())
    }

    /// Accepts a request to follow the caller: the follow begins now. The caller's privacy makes no difference.
    pub async fn accept(&self, caller: UserId, user: UserId) -> Result<Followed> {
        let outcome = self.stores.facts.accept(caller, user, self.stores.clock.now()).await?;
        if let Followed::Created(edge) | Followed::Existing(edge) = &outcome {
            self.sync.edges(user, std::slice::from_ref(edge)).await?;
        }
        Ok(outcome)
    }

    /// Rejects a request to follow the caller, if there is one. No view shows it.
    pub async fn reject(&self, caller: UserId, user: UserId) -> Result<()> {
        self.stores.facts.end_request(user, caller, self.stores.clock.now()).await.map(drop)
    }

    /// Returns at most `limit` of the caller's requests of one side below `below`, newest first, and how many there
    /// are.
    pub async fn requests(
        &self,
        caller: UserId,
        side: RequestSide,
        below: Option<Relation>,
        limit: usize,
    ) -> Result<(Vec<Relation>, u64)> {
        let facts = &self.stores.facts;
        futures::try_join!(facts.requests(caller, side, below, limit), facts.request_count(caller, side))
    }

    /// Ends a follow, or withdraws a request, if there is one.
    pub async fn unfollow(&self, caller: UserId, author: UserId) -> Result<()> {
        let ended = self.stores.facts.unfollow(caller, author, self.stores.clock.now()).await?;
        self.show_end(caller, author, ended).await
    }

    /// Shows the end of a follow, also if an earlier request has ended between its fact and the views.
    async fn show_end(&self, user: UserId, author: UserId, ended: Option<Edge>) -> Result<()> {
        let tombstone = match ended {
            Some(tombstone) => Some(tombstone),
            None => self.stores.facts.edges(user, &[author]).await?.remove(&author).filter(|edge| !edge.following),
        };
        self.sync.edges(user, tombstone.as_slice()).await
    }

    /// Ends the follow of a user who follows the caller, if there is one. The user is not told. A request stays.
    pub async fn remove_follower(&self, caller: UserId, follower: UserId) -> Result<()> {
        let ended = self.stores.facts.remove_follower(caller, follower, self.stores.clock.now()).await?;
        self.show_end(follower, caller, ended).await?;
        // The unfollow notes a change of the follower only.
        logged!(self.stores.views.note_change(caller).await, "the caller may see the follow for a second", %follower);
        Ok(())
    }

    /// Mutes or blocks a user, or ends that. A refused request changes nothing. Parallel requests may exceed the limit.
    pub async fn hide(&self, caller: UserId, user: UserId, hiding: Hiding, hidden: bool) -> Result<Hide> {
        let (facts, now) = (&self.stores.facts, self.stores.clock.now());
        if hidden {
            if self.stores.facts.erasure(user).await?.is_some() {
                return Ok(Hide::Erased);
            }
            let known = facts.edges(caller, &[user]).await?;
            let is_hidden = known.values().any(|edge| hiding.since(edge).is_some());
            if !is_hidden && facts.hidden_count(caller, hiding).await? >= MOST_HIDDEN {
                return Ok(Hide::LimitReached);
            }
        }
        // The views are updated even if the fact was there, because an earlier request may have ended before its view.
        let shown = match hiding {
            Hiding::Mute => {
                let mute = |known: Option<&Edge>| {
                    let known = known.cloned().unwrap_or_else(|| Edge::never(caller, user));
                    (known.muted.is_some() != hidden).then(|| Edge { muted: hidden.then_some(now), ..known.changed(now) })
                };
                let followed = facts.change_pair(caller, user, &mute).await?.filter(|edge| edge.following);
                self.sync.choices(caller, followed.as_slice()).await
            }
            Hiding::Block => {
                let [own, reverse] = facts.set_blocked(caller, user, hidden.then_some(now), now).await?;
                let own = self.sync.edges(caller, own.as_slice());
                let (own, reverse, blocks) =
                    futures::join!(own, self.sync.edges(user, reverse.as_slice()), self.sync.blocks(caller, user));
                own.and(reverse).and(blocks)
            }
        };
        shown.map(|()| Hide::Done)
    }

    /// Returns the users whom the caller mutes or blocks, newest first, below `below`.
    pub async fn hidden(&self, caller: UserId, hiding: Hiding, below: Option<Relation>) -> Result<Vec<Relation>> {
        let hidden = self.stores.facts.hidden(caller).await?.into_iter();
        let hidden = hidden.filter_map(|edge| Some(Relation { since: hiding.since(&edge)?, user: edge.author }));
        Ok(newest_first(hidden, below))
    }
}
