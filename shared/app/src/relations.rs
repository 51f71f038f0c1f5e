//! Use cases of relations: lists of followers and followees, relation status, counters.
//!
//! Lists and counters are views. A change is applied to a cached list, ordered by its time, and takes the lease from a
//! process that fills the list. So a fill that began before a change does not replace it.

use std::{collections::HashMap, sync::Arc};

use tidemark_domain::{Counters, Relation, Store, Timestamp, UserId, store::Result};
use tidemark_views::{FOLLOWERS_CAP, List, ListSlice, Start};
use tracing::warn;

use crate::{Stores, cut, newest_first, outage::Outage};

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelationPage {
    pub items: Vec<Relation>,
    /// The next page begins below this entry. `None` only at the end.
    pub next: Option<Relation>,
    pub degraded: bool,
}

/// The relation between the caller and another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The caller follows the user.
    pub following: bool,
    /// The user follows the caller.
    pub followed_by: bool,
}

/// The directions of a relation that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    Both,
    /// Whom the caller follows.
    Following,
}

/// Use cases of follower and followee lists. Clones share the stores.
#[derive(Clone)]
pub struct Relations {
    stores: Arc<Stores>,
    outage: Outage,
}

impl Relations {
    pub fn new(stores: Arc<Stores>, outage: Outage) -> Self {
        Self { stores, outage }
    }

    /// Returns one page of a list.
    pub async fn page(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<RelationPage> {
        let mut degraded = false;
        let slice = match self.slice(caller, list, start, limit + 1).await {
            Ok(slice) => slice,
            Err(error) if error.store() == Store::Facts => return Err(error),
            Err(error) => {
                warn!(?list, error = &error as &dyn std::error::Error, "list unavailable, responding from the facts");
                degraded = true;
                None
            }
        };
        let (mut items, rest) = slice.map_or((Vec::new(), Some(start)), |slice| (slice.items, slice.rest));
        if items.len() <= limit
            && let Some(rest) = rest
        {
            items.extend(self.read_facts(list, rest, limit + 1 - items.len()).await?);
        }
        let next = cut(&mut items, limit);
        Ok(RelationPage { items, next, degraded })
    }

    /// Returns the relation of the caller to these users. Directions that are not asked for are false.
    pub async fn status(&self, caller: UserId, users: &[UserId], directions: Directions) -> Result<HashMap<UserId, Status>> {
        let mut pairs: Vec<(UserId, UserId)> = users.iter().map(|&user| (caller, user)).collect();
        if directions == Directions::Both {
            pairs.extend(users.iter().map(|&user| (user, caller)));
        }
        let live = self.stores.facts.live_pairs(&pairs).await?;
        let status = |user| Status { following: live.contains(&(caller, user)), followed_by: live.contains(&(user, caller)) };
        Ok(users.iter().map(|&user| (user, status(user))).collect())
    }

    /// Returns the counters of `user` for `caller`, and whether Redis was unavailable.
    pub async fn counters(&self, caller: UserId, user: UserId) -> Result<(Counters, bool)> {
        let token = (self.stores.random)();
        match self.outage.checked(self.stores.views.counters(caller, user, token)).await {
            Ok(Some(counters)) => return Ok((counters, false)),
            Ok(None) => {}
            Err(error) => {
                warn!(%user, error = &error as &dyn std::error::Error, "counters unavailable, responding from the facts");
                return Ok((self.exact_counters(user).await?, true));
            }
        }
        let counters = self.exact_counters(user).await?;
        logged!(self.stores.views.store_counters(user, counters, token).await, "counters not stored", %user);
        Ok((counters, false))
    }

    /// Returns the newest entries of a list, from the facts.
    pub async fn newest(&self, list: List, limit: usize) -> Result<Vec<Relation>> {
        self.read_facts(list, Start::Below(None), limit).await
    }

    pub async fn exact_counters(&self, user: UserId) -> Result<Counters> {
        let authors = [user];
        let (followers, followings, heads, received) = futures::try_join!(
            self.stores.facts.follower_counts(user),
            self.stores.facts.followings(user),
            self.stores.facts.heads(&authors),
            self.stores.facts.reactions_received(user)
        )?;
        let clamp = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Counters {
            followings: clamp(followings),
            followers: clamp(followers.iter().sum()),
            posts: clamp(heads.get(&user).map_or(0, |head| head.posts)),
            likes: clamp(received.likes),
            favorites: clamp(received.favorites),
        })
    }

    /// Returns the part of a page that the cached list has. A missing list is filled from the facts first.
    async fn slice(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<Option<ListSlice>> {
        if let Some(slice) = self.outage.checked(self.stores.views.list_slice(caller, list, start, limit)).await? {
            return Ok(Some(slice));
        }
        let token = (self.stores.random)();
        self.stores.views.lease_list(list, token).await?;
        let cap = match list {
            List::Following(_) => usize::MAX,
            List::Followers(_) => FOLLOWERS_CAP,
        };
        let mut members = self.read_facts(list, Start::Below(None), cap.saturating_add(1)).await?;
        // The list is cut at a whole millisecond, so that the facts continue below it without a gap or an overlap.
        let low = members.get(cap).map_or_else(Timestamp::default, |first_left_out| first_left_out.since.plus_ms(1));
        members.retain(|member| member.since >= low);
        self.stores.views.fill_list(list, token, &members, low).await?;
        self.stores.views.list_slice(caller, list, start, limit).await
    }

    async fn read_facts(&self, list: List, start: Start, limit: usize) -> Result<Vec<Relation>> {
        let (before, skip) = match start {
            Start::Below(before) => (before, 0),
            Start::Offset(skip) => (None, skip),
        };
        let wanted = skip.saturating_add(limit);
        let relations = match list {
            List::Followers(author) => self.stores.facts.followers_by_time(author, before, wanted).await?,
            List::Following(user) => {
                let edges = self.stores.facts.following(user).await?.into_iter();
                newest_first(edges.map(|edge| Relation { since: edge.since, user: edge.author }), before)
            }
        };
        Ok(relations.into_iter().skip(skip).take(limit).collect())
    }
}
