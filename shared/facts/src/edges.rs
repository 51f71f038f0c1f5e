//! Follow edges, requests to follow private authors, and their counts. A transaction writes both directions of an
//! edge or of a request, and both counters.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use futures::future::try_join_all;
use tidemark_domain::{
    AuthorHead, Edge, Hiding, MOST_REQUESTS, NewFollow, RequestSide, Timestamp, UserId,
    ids::{BUCKETS, SHARDS},
};
use tracing::debug;

use super::{
    Facts, Result, attempts,
    counters::{Changed, FollowerShard, HeldUp},
    distinct,
    heads::{read_head_of, still_latest},
    item::{Item, Stored, flag, number, string},
    read,
    schema::{self, CounterItem, EdgeItem, FollowerItem, HeadItem, ReactionItem},
    write::{Cancelled, Write, absent, at_most, between, count_queried, having, is, only, present, queried, still},
};
use crate::retry::Attempts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    Created(Edge),
    /// The edge existed before.
    Existing(Edge),
    /// The author is private. The user has asked to follow them, now or before.
    Requested(Edge),
    /// There is no request that could be accepted.
    NoRequest,
    /// The user follows the maximum number of authors.
    LimitReached,
    /// [`MOST_REQUESTS`] requests of the user wait for an answer.
    RequestLimitReached,
    /// One of the two blocks the other.
    Blocked,
    /// The author has left.
    Erased,
}

/// Returns the next state of a stored pair; `None` if the pair stays as it is. It may run several times.
pub type ChangeOfPair<'a> = &'a (dyn Fn(Option<&Edge>) -> Option<Edge> + Sync);

/// The origin of a follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The follower makes it now. It is later than any earlier state of the pair. If the author is private, it
    /// becomes a request.
    Made,
    /// The author accepts the follower's request now.
    Accepted,
    /// The follow began elsewhere and earlier. Neither user may have asked to leave when it is written.
    Imported,
    /// The same, of a follow that was ended elsewhere by mistake, at `ended_at` or before. It replaces that tombstone,
    /// and keeps its time.
    Restored { ended_at: Timestamp },
}

impl Kind {
    fn begins_now(self) -> bool {
        matches!(self, Self::Made | Self::Accepted)
    }
}

/// Edges in one transaction of at most 100 items: each takes up to seven, and the follower two more.
const EDGES_PER_TRANSACTION: usize = 14;

/// The index of the first edge's check for a block in the transaction of a follow, and of a request.
pub(crate) const BLOCK_CHECK: usize = 1;

/// The indexes of the checks that neither user has left, in the transaction of one imported follow, and of a request.
pub(crate) const ERASURE_CHECKS: [usize; 2] = [5, 6];

/// The indexes of the first author's counter and of the edge in the transaction of a follow or of a request, and in
/// that of their end.
pub(crate) const FOLLOWED: [usize; 2] = [4, 2];
const PARTED: [usize; 2] = [2, 0];

struct Making {
    user: UserId,
    kind: Kind,
    outcomes: HashMap<UserId, Followed>,
    /// Edges whose write had an unknown outcome. If such an edge is stored, this call has created it.
    tried: Vec<Edge>,
    /// Whether the follower's counter refused the last cancelled follow.
    refused: bool,
    /// Several edges in a transaction until one is cancelled, then one by one: a refusal concerns one edge.
    together: usize,
    attempts: Attempts,
    held_up: HeldUp,
}

impl Making {
    /// Notes the outcome of a follow if the stored edge decides it. Returns whether it does.
    fn settle_by(&mut self, follow: &NewFollow, stored: &Edge) -> bool {
        // A tombstone prevails over an imported follow that is not later.
        let prevails = match self.kind {
            Kind::Made | Kind::Accepted => false,
            Kind::Imported => stored.since >= follow.since,
            Kind::Restored { ended_at } => stored.since > ended_at,
        };
        let is_unasked = self.kind == Kind::Accepted && !stored.is_counted();
        if is_unasked {
            self.outcomes.insert(stored.author, Followed::NoRequest);
        } else if stored.blocked.is_some() {
            self.outcomes.insert(stored.author, Followed::Blocked);
        } else if stored.following || prevails {
            let own = if self.tried.contains(stored) { Followed::Created } else { Followed::Existing };
            self.outcomes.insert(stored.author, own(stored.clone()));
        }
        self.outcomes.contains_key(&stored.author)
    }

    /// Notes the outcome of a write. The next edge has the whole time limit again.
    fn settle(&mut self, author: UserId, outcome: Followed) {
        self.outcomes.insert(author, outcome);
        self.attempts = attempts("follow");
    }
}

impl Facts {
    /// Returns the edges of one user to these authors, tombstones included. Pairs without an edge are left out.
    pub async fn edges(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Edge>> {
        let keys = distinct(authors).into_iter().map(|author| schema::edge(user, author)).collect();
        by(|edge| edge.author, self.get("edges", &self.tables.following, keys).await?)
    }

    /// Returns all live edges of one user.
    pub async fn following(&self, user: UserId) -> Result<Vec<Edge>> {
        let following = having(self.kept(user), is(EdgeItem::following, flag(true)));
        queried("following", following, usize::MAX).await?.into_iter().map(read_edge).collect()
    }

    /// Creates edges to distinct authors, each with both directions and counts in one transaction, or a request if an
    /// author is private. Reads the authors' heads for base and floor. Returns one outcome for each author, in order.
    pub async fn follow(&self, user: UserId, authors: &[UserId], now: Timestamp) -> Result<Vec<Followed>> {
        let follows = authors.iter().map(|&author| NewFollow::from_now(author, &AuthorHead::default(), now));
        self.make_follows(user, follows.collect(), now, Kind::Made).await
    }

    /// Makes the request of a user the follow that it asks for.
    pub async fn accept(&self, author: UserId, user: UserId, now: Timestamp) -> Result<Followed> {
        let follow = NewFollow::from_now(author, &AuthorHead::default(), now);
        let outcome = self.make_follows(user, vec![follow], now, Kind::Accepted).await?.pop();
        Ok(outcome.unwrap_or(Followed::NoRequest))
    }

    /// Ends a follow, or the request for one. Returns the tombstone, or `None` if there was neither.
    pub async fn unfollow(&self, user: UserId, author: UserId, now: Timestamp) -> Result<Option<Edge>> {
        self.part(user, author, |edge| Some(edge.parted(now))).await
    }

    /// Ends a follow. Returns the tombstone, or `None` if there was none. A request stays as it is.
    pub async fn remove_follower(&self, author: UserId, follower: UserId, now: Timestamp) -> Result<Option<Edge>> {
        self.end_follow(follower, author, |edge| Some(edge.ended(now))).await
    }

    /// Ends a request. Returns the tombstone, or `None` if there was none. A follow stays as it is.
    pub async fn end_request(&self, user: UserId, author: UserId, now: Timestamp) -> Result<Option<Edge>> {
        self.part(user, author, |edge| edge.requested.map(|_| edge.parted(now))).await
    }

    /// Returns the exact number of requests that the pages of this side list.
    pub async fn request_count(&self, user: UserId, side: RequestSide) -> Result<u64> {
        let requests = |parts: &[CounterItem]| CounterItem::total_or_zero(parts, |part| part.requests);
        match side {
            RequestSide::Received => Ok(self.follower_parts(user).await?.iter().map(|parts| requests(parts)).sum()),
            RequestSide::Sent => {
                let own = self.get_one("requests", &self.tables.counters, schema::followings_counter(user)).await?;
                Ok(requests(own.map(|item| read(item, Ok)).transpose()?.as_slice()))
            }
        }
    }

    /// Returns the edges and tombstones of the authors whom the user mutes or blocks.
    pub async fn hidden(&self, user: UserId) -> Result<Vec<Edge>> {
        let hidden = having(self.kept(user), present(EdgeItem::muted_at).or(present(EdgeItem::blocked_at)));
        queried("hidden", hidden, usize::MAX).await?.into_iter().map(read_edge).collect()
    }

    /// Returns how many authors the user mutes, or blocks. It reads all pairs of the user, and returns none.
    pub async fn hidden_count(&self, user: UserId, hiding: Hiding) -> Result<u64> {
        let since = match hiding {
            Hiding::Mute => EdgeItem::muted_at,
            Hiding::Block => EdgeItem::blocked_at,
        };
        count_queried("hidden_count", having(self.kept(user), present(since))).await
    }

    /// Changes one pair. Returns the pair after it; `None` if there is neither an edge nor a tombstone.
    pub async fn change_pair(&self, user: UserId, author: UserId, change: ChangeOfPair<'_>) -> Result<Option<Edge>> {
        let mut attempts = attempts("change");
        loop {
            attempts.next().await?;
            let known = self.edges(user, &[author]).await?.remove(&author);
            let Some(next) = change(known.as_ref()) else { return Ok(known) };
            attempts.outcome()?;
            let written = self.transact("change", vec![self.put_edge(&next, known.map(|edge| edge.rev))]).await;
            if attempts.done(written) {
                return Ok(Some(next));
            }
        }
    }

    /// Blocks a user since a time, or unblocks. A block also ends follows and requests in both directions, in the same
    /// transaction. Returns the pair and the reverse pair after it; `None` for one that has neither an edge nor a
    /// tombstone.
    pub async fn set_blocked(
        &self,
        user: UserId,
        other: UserId,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<[Option<Edge>; 2]> {
        let (mut attempts, blocked) = (attempts("set_blocked"), since.is_some());
        loop {
            attempts.next().await?;
            let pairs = vec![schema::edge(user, other), schema::edge(other, user)];
            let mut known = by(|edge| edge.user, self.get("set_blocked", &self.tables.following, pairs).await?)?;
            let [own, reverse] = [user, other].map(|user| known.remove(&user));
            let [own_rev, rev] = [&own, &reverse].map(|edge| edge.as_ref().map(|edge| edge.rev));
            if own.as_ref().is_some_and(|edge| edge.blocked.is_some()) == blocked {
                // A restored table or an operator may have lost the notes.
                if self.block_notes(&[(user, other)]).await? == [[blocked; 4]]
                    || self.restore_block_notes(user, other, blocked, own_rev).await?
                {
                    return Ok([own, reverse]);
                }
                continue;
            }
            attempts.outcome()?;
            let next = own.clone().unwrap_or_else(|| Edge::never(user, other)).with_block(since, now);
            let mut writes = vec![self.put_edge(&next, own_rev)];
            if let Some(own) = own.as_ref().filter(|_| blocked) {
                writes.extend(self.uncount(own, &FollowerShard::new(other, user)));
            }
            let ended = reverse.as_ref().filter(|edge| blocked && edge.is_counted()).map(|edge| (edge, edge.parted(now)));
            match &ended {
                Some((before, ended)) => {
                    writes.push(self.put_edge(ended, rev));
                    writes.extend(self.uncount(before, &FollowerShard::new(user, other)));
                }
                // A follow or request that began since then would stay beside the block.
                None if blocked => {
                    let check = Write::check(&self.tables.following, schema::edge(other, user));
                    writes.push(check.when(still(EdgeItem::rev, rev.map(number))));
                }
                None => {}
            }
            writes.extend(self.note_block(user, other, blocked));
            if attempts.done(self.transact("set_blocked", writes).await) {
                return Ok([Some(next), ended.map(|(_, ended)| ended).or(reverse)]);
            }
        }
    }

    /// Returns the exact number of followers in each shard.
    pub async fn follower_counts(&self, author: UserId) -> Result<[u64; 16]> {
        Ok(self.follower_parts(author).await?.map(|parts| CounterItem::total_or_zero(&parts, |part| part.count)))
    }

    /// Returns those of these pairs (follower, followee) that follow. One round trip reads a hundred pairs.
    pub async fn live_pairs(&self, pairs: &[(UserId, UserId)]) -> Result<HashSet<(UserId, UserId)>> {
        Ok(self.live_edges(pairs).await?.into_iter().map(|edge| (edge.user, edge.author)).collect())
    }

    /// Returns the live edges of these pairs (follower, followee), in any order.
    pub async fn live_edges(&self, pairs: &[(UserId, UserId)]) -> Result<Vec<Edge>> {
        let keys = distinct(pairs).into_iter().map(|(user, author)| schema::edge(user, author)).collect();
        let items = self.get("live", &self.tables.following, keys).await?;
        let edges: Vec<Edge> = items.into_iter().map(read_edge).collect::<Result<_, _>>()?;
        Ok(edges.into_iter().filter(|edge| edge.following).collect())
    }

    /// Returns the exact number of followed authors.
    pub async fn followings(&self, user: UserId) -> Result<u64> {
        let counter = self.get_one("followings", &self.tables.counters, schema::followings_counter(user)).await?;
        followings(counter)
    }

    /// Returns all followers whose bucket lies in `buckets`, in bucket order. It does not depend on the counts.
    pub async fn followers_in(&self, author: UserId, buckets: Range<u16>) -> Result<Vec<UserId>> {
        let per_shard = BUCKETS / SHARDS;
        let shards = buckets.start / per_shard..=buckets.end.saturating_sub(1) / per_shard;
        let listed = try_join_all(shards.map(|shard| self.followers_of_shard(author, shard, &buckets))).await?;
        Ok(listed.into_iter().flatten().collect())
    }
}

impl Facts {
    /// Queries all pairs of a user, without tombstones.
    fn kept(&self, user: UserId) -> QueryFluentBuilder {
        let query = self.query(&self.tables.following, [is(EdgeItem::user, number(user.get()))]);
        query.index_name(schema::KEPT).consistent_read(true)
    }

    /// Makes follows of one user, several in one transaction. Returns one outcome for each follow, in order. `base` and
    /// `floor` of a follow that is made now are those of its author's head, which is read here: after the counters.
    pub async fn make_follows(&self, user: UserId, follows: Vec<NewFollow>, now: Timestamp, kind: Kind) -> Result<Vec<Followed>> {
        let mut making = Making {
            user,
            kind,
            outcomes: HashMap::new(),
            tried: Vec::new(),
            refused: false,
            together: EDGES_PER_TRANSACTION,
            attempts: attempts("follow"),
            held_up: HeldUp::default(),
        };
        loop {
            making.attempts.next().await?;
            let mut missing: Vec<NewFollow> =
                follows.iter().filter(|follow| !making.outcomes.contains_key(&follow.author)).cloned().collect();
            let authors: Vec<UserId> = missing.iter().map(|follow| follow.author).collect();
            let own = vec![schema::followings_counter(user)];
            let (known, shards, own) = self.edges_and_shards("follow", user, &authors, own).await?;
            let followings = followings(own.into_iter().next())?;
            missing.retain(|follow| match known.get(&follow.author) {
                Some(stored) => !making.settle_by(follow, stored),
                None if kind == Kind::Accepted => making.outcomes.insert(follow.author, Followed::NoRequest).is_some(),
                None => true,
            });
            if missing.is_empty() {
                break;
            }
            making.attempts.outcome()?;
            let room = usize::try_from(self.limits.following.saturating_sub(followings)).unwrap_or(usize::MAX);
            let mut are_asked = true;
            if kind.begins_now() {
                let private = self.begin_at_heads(&mut making, &mut missing, now).await?;
                if kind == Kind::Made {
                    let (asked, others) = missing.into_iter().partition(|follow| private.contains(&follow.author));
                    missing = others;
                    are_asked = self.ask(&mut making, asked, &known, &shards, now).await;
                }
            }
            // Requests have a limit of their own.
            missing.truncate(room);
            if !missing.is_empty() && are_asked {
                self.write_missing(&mut making, &missing, &known, &shards, now).await;
            } else if are_asked {
                break;
            }
        }
        let outcome = |follow: &NewFollow| making.outcomes.get(&follow.author).cloned().unwrap_or(Followed::LimitReached);
        Ok(follows.iter().map(outcome).collect())
    }

    /// Writes follows, several in one transaction. Ends at one that is not done; the next attempt reads again.
    async fn write_missing(
        &self,
        making: &mut Making,
        missing: &[NewFollow],
        known: &HashMap<UserId, Edge>,
        shards: &HashMap<UserId, FollowerShard>,
        now: Timestamp,
    ) {
        let user = making.user;
        for chunk in missing.chunks(making.together) {
            let edge = |follow: &NewFollow| {
                let edge = follow.edge(user, known.get(&follow.author), now);
                let edge = Edge { accepted: making.kind == Kind::Accepted || follow.accepted, ..edge };
                let is_restored = matches!(making.kind, Kind::Restored { .. });
                if is_restored { Edge { since: follow.since, ..edge } } else { edge }
            };
            let edges: Vec<Edge> = chunk.iter().map(edge).collect();
            let written = self.write_follows(&edges, known, shards, making.kind).await;
            if let Ok(Err(cancelled)) = &written {
                let before = making.refused;
                let failed = |write: usize| {
                    chunk.len() == 1 && matches!(cancelled, Cancelled::Conditions(failed) if failed.contains(&write))
                };
                if failed(BLOCK_CHECK) {
                    making.settle(chunk[0].author, Followed::Blocked);
                    continue;
                }
                if !making.kind.begins_now() && ERASURE_CHECKS.into_iter().any(failed) {
                    making.settle(chunk[0].author, Followed::Erased);
                    continue;
                }
                making.refused = failed(0);
                // The counter may refuse only because the edge is counted already. A second attempt shows which is the
                // case.
                if making.refused && before {
                    return making.settle(chunk[0].author, Followed::LimitReached);
                }
                debug!(%user, edges = chunk.len(), "follow transaction cancelled; it is repeated");
                if let [follow] = chunk {
                    making.held_up.note(self, shards[&follow.author].first(self), cancelled, FOLLOWED).await;
                }
                making.together = 1;
            }
            if !making.attempts.done(written) {
                making.tried.extend(edges);
                return;
            }
            for edge in edges {
                making.settle(edge.author, Followed::Created(edge));
            }
        }
    }

    /// Asks these authors, who are private. Ends at one whose outcome is not known, and returns false; the next attempt
    /// reads again.
    async fn ask(
        &self,
        making: &mut Making,
        asked: Vec<NewFollow>,
        known: &HashMap<UserId, Edge>,
        shards: &HashMap<UserId, FollowerShard>,
        now: Timestamp,
    ) -> bool {
        for NewFollow { author, .. } in asked {
            let (pair, shard) = (known.get(&author), &shards[&author]);
            if let Some(edge) = pair.filter(|edge| edge.requested.is_some()) {
                making.settle(author, Followed::Requested(edge.clone()));
                continue;
            }
            let edge = pair.cloned().unwrap_or_else(|| Edge::never(making.user, author)).requesting(now);
            let written = self.write_request(&edge, pair.map(|edge| edge.rev), shard).await;
            if let Ok(Err(cancelled)) = &written {
                let failed = |write| matches!(cancelled, Cancelled::Conditions(failed) if failed.contains(&write));
                let refused = match () {
                    () if failed(BLOCK_CHECK) => Some(Followed::Blocked),
                    () if ERASURE_CHECKS.into_iter().any(failed) => Some(Followed::Erased),
                    // If an earlier attempt has counted the request, the pair has changed too.
                    () if failed(0) && !failed(FOLLOWED[1]) => Some(Followed::RequestLimitReached),
                    () => None,
                };
                if let Some(refused) = refused {
                    making.settle(author, refused);
                    continue;
                }
                making.held_up.note(self, shard.first(self), cancelled, FOLLOWED).await;
            }
            if !making.attempts.done(written) {
                return false;
            }
            making.settle(author, Followed::Requested(edge));
        }
        true
    }

    /// Makes follows begin at their authors' heads. Settles and removes those of authors who have left. Returns the
    /// authors who are private. The counters of the authors were read before.
    async fn begin_at_heads(&self, making: &mut Making, follows: &mut Vec<NewFollow>, now: Timestamp) -> Result<HashSet<UserId>> {
        let authors: Vec<UserId> = follows.iter().map(|follow| follow.author).collect();
        let keys = distinct(&authors).into_iter().map(schema::head).collect();
        let heads = self.get("heads", &self.tables.posts, keys).await?;
        let erased = heads.iter().filter(|head| HeadItem::erased.of(head).is_some()).map(|head| HeadItem::author.user(head));
        let erased: Vec<UserId> = erased.collect::<Result<_, _>>()?;
        follows.retain(|follow| !erased.contains(&follow.author));
        making.outcomes.extend(erased.into_iter().map(|author| (author, Followed::Erased)));
        let heads: HashMap<UserId, AuthorHead> = heads.into_iter().map(read_head_of).collect::<Result<_, _>>()?;
        for follow in follows {
            let head = heads.get(&follow.author).cloned().unwrap_or_default();
            *follow = NewFollow::from_now(follow.author, &head, now);
        }
        Ok(heads.into_iter().filter(|(_, head)| head.is_private()).map(|(author, _)| author).collect())
    }

    /// Reads the edges to these authors, the shards that count the user (one for each author), and other counters.
    async fn edges_and_shards(
        &self,
        operation: &'static str,
        user: UserId,
        authors: &[UserId],
        others: Vec<Item>,
    ) -> Result<(HashMap<UserId, Edge>, HashMap<UserId, FollowerShard>, Vec<Item>)> {
        let mut shards: HashMap<UserId, FollowerShard> =
            authors.iter().map(|&author| (author, FollowerShard::new(author, user))).collect();
        let counters = shards.values().map(FollowerShard::key).chain(others).collect();
        let edges = authors.iter().map(|&author| schema::edge(user, author)).collect();
        let wanted = [(self.tables.counters.as_str(), counters), (self.tables.following.as_str(), edges)];
        let [counters, edges] = self.batch_get(operation, wanted).await?;
        let name = |item: &Item| schema::key_text(CounterItem::TABLE, item);
        let (of_shards, others): (Vec<Item>, Vec<Item>) =
            counters.into_iter().partition(|item| schema::counter_shard(&name(item)).is_some());
        for item in of_shards {
            shards.extend([FollowerShard::read(&read(item, Ok)?)?]);
        }
        Ok((by(|edge| edge.author, edges)?, shards, others))
    }

    /// Writes a request, on the condition that its pair has not changed and that neither user has left.
    pub(crate) async fn write_request(
        &self,
        edge: &Edge,
        known: Option<u32>,
        shard: &FollowerShard,
    ) -> Result<Result<(), Cancelled>> {
        let &Edge { user, author, requested, .. } = edge;
        let one = Changed { requests: 1, ..Changed::default() };
        let room = absent(CounterItem::requests).or(at_most(CounterItem::requests, number(MOST_REQUESTS - 1)));
        let blocks = Write::check(&self.tables.reactions, schema::reaction(user, author));
        let entries = schema::request_items(user, author, requested.unwrap_or_default());
        let [by_author, by_user] = entries.map(|entry| Write::put(&self.tables.followers, entry));
        let writes = vec![
            self.add_to_counter(schema::followings_counter(user), one).when(room),
            blocks.when(absent(ReactionItem::blocked)).when(absent(ReactionItem::blocks)),
            self.put_edge(edge, known),
            by_author,
            shard.add(self, one),
            self.still_here(author, user.shard()),
            self.still_here(user, user.shard()),
            by_user,
        ];
        self.transact("request", writes).await
    }

    /// Writes edges of one user on the condition that none of their pairs has changed. For a follow that begins now,
    /// neither an import of the author's posts may have begun since the shard was read, nor may the author have become
    /// private. During an import, `base` must still be the author's latest post. An import may take long after it has
    /// read that both users are here, so its transaction checks that neither has asked to leave since.
    async fn write_follows(
        &self,
        edges: &[Edge],
        known: &HashMap<UserId, Edge>,
        shards: &HashMap<UserId, FollowerShard>,
        kind: Kind,
    ) -> Result<Result<(), Cancelled>> {
        let Some(user) = edges.first().map(|edge| edge.user) else { return Ok(Ok(())) };
        let added = edges.len() as u64;
        let Some(most) = self.limits.following.checked_sub(added) else { return Ok(Err(Cancelled::Conditions(vec![0]))) };
        let room = absent(CounterItem::count).or(at_most(CounterItem::count, number(most)));
        let asked = |author: &UserId| known.get(author).is_some_and(|edge| edge.requested.is_some());
        let accepted: Vec<UserId> = edges.iter().map(|edge| edge.author).filter(asked).collect();
        let change = Changed { follows: added as i64, requests: -(accepted.len() as i64) };
        let mut writes = vec![self.add_to_counter(schema::followings_counter(user), change).when(room)];
        for edge in edges {
            let shard = shards[&edge.author];
            // The item lies in one of sixteen partitions of the author, so a hot author's follows do not share one.
            let blocks = Write::check(&self.tables.reactions, schema::reaction(user, edge.author));
            writes.push(blocks.when(absent(ReactionItem::blocked)).when(absent(ReactionItem::blocks)));
            writes.push(self.put_edge(edge, known.get(&edge.author).map(|edge| edge.rev)));
            writes.push(Write::put(&self.tables.followers, schema::follower_item(user, edge.author, edge.since)));
            let change = Changed { follows: 1, requests: -i64::from(accepted.contains(&edge.author)) };
            match kind {
                Kind::Imported | Kind::Restored { .. } => {
                    writes.push(shard.add(self, change));
                    writes.push(self.still_here(edge.author, user.shard()));
                }
                Kind::Made | Kind::Accepted => {
                    writes.push(shard.add_behind_fences(self, change));
                    if shard.importing {
                        let head = Write::check(&self.tables.posts, schema::head(edge.author));
                        writes.push(head.when(still_latest(edge.base)));
                    }
                }
            }
        }
        if !kind.begins_now() {
            writes.push(self.still_here(user, user.shard()));
        }
        writes.extend(accepted.into_iter().flat_map(|author| self.unlist_request(user, author)));
        self.transact("follow", writes).await
    }

    /// Ends a follow, if `end` returns its tombstone. Returns the tombstone that was written.
    pub async fn end_follow(&self, user: UserId, author: UserId, end: impl Fn(&Edge) -> Option<Edge>) -> Result<Option<Edge>> {
        self.part(user, author, |edge| end(edge).filter(|_| edge.following)).await
    }

    /// Ends a follow or a request, if `end` returns what is left of the pair. Returns what was written.
    async fn part(&self, user: UserId, author: UserId, end: impl Fn(&Edge) -> Option<Edge>) -> Result<Option<Edge>> {
        let mut tried: Option<Edge> = None;
        let (mut attempts, mut held_up) = (attempts("unfollow"), HeldUp::default());
        loop {
            attempts.next().await?;
            let (mut edges, shards, _) = self.edges_and_shards("unfollow", user, &[author], Vec::new()).await?;
            let known = edges.remove(&author);
            if tried.is_some() && known == tried {
                return Ok(tried);
            }
            attempts.outcome()?;
            let Some(known) = known.filter(Edge::is_counted) else { return Ok(None) };
            let Some(tombstone) = end(&known) else { return Ok(None) };
            let shard = shards[&author];
            let mut writes = vec![self.put_edge(&tombstone, Some(known.rev))];
            writes.extend(self.uncount(&known, &shard));
            let written = self.transact("unfollow", writes).await;
            if let Ok(Err(cancelled)) = &written {
                held_up.note(self, shard.first(self), cancelled, PARTED).await;
            }
            if attempts.done(written) {
                return Ok(Some(tombstone));
            }
            tried = Some(tombstone);
        }
    }

    /// Takes the follow or the request of a pair, if it has one, out of both counters and its lists.
    fn uncount(&self, before: &Edge, shard: &FollowerShard) -> Vec<Write> {
        let &Edge { user, author, following, requested, .. } = before;
        let (change, unlisted) = match (following, requested) {
            (true, _) => {
                let listed = Write::delete(&self.tables.followers, schema::follower(author, user));
                (Changed { follows: -1, requests: 0 }, vec![listed])
            }
            (false, Some(_)) => (Changed { follows: 0, requests: -1 }, self.unlist_request(user, author).to_vec()),
            (false, None) => return Vec::new(),
        };
        let counted = vec![self.add_to_counter(schema::followings_counter(user), change), shard.add(self, change)];
        [counted, unlisted].concat()
    }

    pub(crate) fn unlist_request(&self, user: UserId, author: UserId) -> [Write; 2] {
        schema::requests(user, author).map(|entry| Write::delete(&self.tables.followers, entry))
    }

    /// Puts an edge on the condition that its stored revision is still `known`. `None` requires that no item exists.
    pub(crate) fn put_edge(&self, edge: &Edge, known: Option<u32>) -> Write {
        Write::put(&self.tables.following, schema::edge_item(edge)).when(still(EdgeItem::rev, known.map(number)))
    }

    async fn followers_of_shard(&self, author: UserId, shard: u16, buckets: &Range<u16>) -> Result<Vec<UserId>> {
        let (first, last) = schema::follower_range(buckets);
        let partition = is(FollowerItem::shard, string(schema::follower_shard(author, shard)));
        let range = between(FollowerItem::follower, string(first), string(last));
        let query = self.query(&self.tables.followers, [partition, range]).consistent_read(true);
        let items = queried("followers", only(query, &[FollowerItem::follower]), usize::MAX).await?;
        items.iter().map(|item| FollowerItem::follower.parsed(item, schema::follower_of)).collect()
    }
}

pub fn read_edge(item: Item) -> Result<Edge> {
    read(item, |item: EdgeItem| {
        let time = |at: Option<u64>| at.map(Timestamp::from_ms);
        Ok(Edge {
            user: item.user.into(),
            author: item.author.into(),
            following: item.following.unwrap_or(false),
            since: Timestamp::from_ms(item.since),
            rev: item.rev,
            begun: item.begun,
            base: item.base,
            floor: item.floor,
            muted: time(item.muted_at),
            blocked: time(item.blocked_at),
            lists: item.lists.unwrap_or_default().into_iter().collect(),
            preference: item.preference.unwrap_or(0),
            requested: time(item.requested_at),
            accepted: item.accepted == Some(true),
        })
    })
}

/// Edges by one of their users, in which they differ.
fn by(of: impl Fn(&Edge) -> UserId, items: Vec<Item>) -> Result<HashMap<UserId, Edge>> {
    items.into_iter().map(|item| read_edge(item).map(|edge| (of(&edge), edge))).collect()
}

/// The number of followed authors in a user's counter.
fn followings(counter: Option<Item>) -> Result<u64> {
    let counter = counter.map(|item| read(item, Ok::<CounterItem, _>)).transpose()?;
    Ok(CounterItem::total_or_zero(counter.as_slice(), |counter| counter.count))
}
