//! Use cases of relations: lists of followers and followees, relation status, counters.
//!
//! Lists and counters are views. A change is applied to a cached list, ordered by its time, and takes the lease from a
//! process that fills the list. So a fill that began before a change does not replace it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use tidemark_domain::{Counters, ListId, Relation, Store, Timestamp, UserId, store::Result};
use tidemark_views::{Among, FOLLOWERS_CAP, List, ListSlice, Start};
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

/// Everything between the caller and another user that the caller sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelationTo {
    pub status: Status,
    /// The caller mutes the user.
    pub muted: bool,
    /// The caller blocks the user.
    pub blocked: bool,
    /// The caller has asked to follow the user.
    pub requested: bool,
    /// The caller's lists that have the user.
    pub lists: Vec<ListId>,
}

/// More entries than a user's list of followed authors has.
const WHOLE: usize = 1 << 20;

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

    /// Returns one page of the entries of a list whom the caller follows.
    pub async fn page_of_followed(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<RelationPage> {
        let (all, degraded) = match list {
            List::Following(user) => self.common(caller, user).await?,
            List::Followers(user) => self.known_followers(caller, user).await?,
        };
        let mut items = match start {
            Start::Below(below) => newest_first(all.into_iter(), below),
            Start::Offset(skip) => all.into_iter().skip(skip).collect(),
        };
        let next = cut(&mut items, limit);
        Ok(RelationPage { items, next, degraded })
    }

    /// Returns the authors whom both the caller and `user` follow, since `user` does, newest first, and whether Redis
    /// was unavailable.
    async fn common(&self, caller: UserId, user: UserId) -> Result<(Vec<Relation>, bool)> {
        let (own, others) = futures::try_join!(self.followed(caller, caller), self.followed(caller, user))?;
        let (mut items, own_authors): (Vec<Relation>, HashSet<UserId>) =
            (others.items, own.items.iter().map(|relation| relation.user).collect());
        items.retain(|relation| own_authors.contains(&relation.user));
        Ok((items, own.degraded || others.degraded))
    }

    /// Returns the followers of `user` whom the caller follows, newest first, and whether Redis was unavailable.
    ///
    /// If the cached list has all followers, it costs no read of the facts. If not, each followed author who is not
    /// among the newest followers costs one.
    pub async fn known_followers(&self, caller: UserId, user: UserId) -> Result<(Vec<Relation>, bool)> {
        let RelationPage { items, mut degraded, .. } = self.followed(caller, caller).await?;
        let authors: Vec<UserId> = items.iter().map(|relation| relation.user).collect();
        if authors.is_empty() {
            return Ok((Vec::new(), degraded));
        }
        let list = List::Followers(user);
        let among = match self.cached(list, || self.stores.views.among(caller, list, &authors).boxed()).await {
            Err(error) if error.store() != Store::Facts => {
                warn!(?list, error = &error as &dyn std::error::Error, "list unavailable, responding from the facts");
                degraded = true;
                None
            }
            among => among?,
        };
        let Among { mut found, is_complete } = among.unwrap_or_default();
        if !is_complete {
            let others = authors.iter().filter(|author| !found.contains_key(author));
            let others: Vec<(UserId, UserId)> = others.map(|&author| (author, user)).collect();
            let edges = self.stores.facts.live_edges(&others).await?;
            found.extend(edges.into_iter().map(|edge| (edge.user, edge.since)));
        }
        let known = found.into_iter().map(|(user, since)| Relation { since, user });
        Ok((newest_first(known, None), degraded))
    }

    /// Returns all authors whom a user follows, newest first.
    async fn followed(&self, caller: UserId, user: UserId) -> Result<RelationPage> {
        self.page(caller, List::Following(user), Start::Offset(0), WHOLE).await
    }

    /// Returns everything between the caller and these users, from the facts.
    pub async fn relations_to(&self, caller: UserId, users: &[UserId]) -> Result<HashMap<UserId, RelationTo>> {
        let (facts, back) = (&self.stores.facts, users.iter().map(|&user| (user, caller)).collect::<Vec<_>>());
        let (mut edges, back, lists) =
            futures::try_join!(facts.edges(caller, users), facts.live_pairs(&back), facts.lists(caller))?;
        let mut relation = |user: UserId| {
            let followed_by = back.contains(&(user, caller));
            let Some(edge) = edges.remove(&user) else {
                return RelationTo { status: Status { following: false, followed_by }, ..RelationTo::default() };
            };
            // Deleted lists remain on edges until the edge changes.
            let numbers = edge.lists.iter().filter(|&&number| edge.following && lists.has(number));
            RelationTo {
                status: Status { following: edge.following, followed_by },
                muted: edge.muted.is_some(),
                blocked: edge.blocked.is_some(),
                requested: edge.requested.is_some(),
                lists: numbers.map(|&number| ListId { user: caller, number }).collect(),
            }
        };
        let distinct: HashSet<UserId> = users.iter().copied().collect();
        Ok(distinct.into_iter().map(|user| (user, relation(user))).collect())
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
        self.cached(list, || self.stores.views.list_slice(caller, list, start, limit).boxed()).await
    }

    /// Reads a cached list with `read`. A missing list is filled from the facts first.
    async fn cached<'a, T>(&self, list: List, read: impl Fn() -> BoxFuture<'a, Result<Option<T>>>) -> Result<Option<T>> {
        if let Some(found) = self.outage.checked(read()).await? {
            return Ok(Some(found));
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
        read().await
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
