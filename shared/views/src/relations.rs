//! Cached relation lists and counters.

use std::collections::HashMap;

use redis::{Cmd, ToRedisArgs, Value};
use redis_link::{Bundle, Consistency, Epoch};
use tidemark_domain::{Counters, Edge, Relation, Timestamp, UserId, feed::author_prefix};

use super::{Function, Result, keys};
use crate::connection::{Views, damaged, fcall, ms, set, token_arg};

/// A relation list of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Authors whom the user follows. The cached list has all of them.
    Following(UserId),
    /// Followers of the user. The cached list has the newest.
    Followers(UserId),
}

/// The start of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Below this entry; at the top if `None`.
    Below(Option<Relation>),
    /// After this many entries.
    Offset(usize),
}

/// The part of a page that a cached list has, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSlice {
    pub items: Vec<Relation>,
    /// The place where the page continues in the facts. `None` if the slice is full or the cached list is complete.
    pub rest: Option<Start>,
}

/// The users among some who are in a cached list, with their times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Among {
    pub found: HashMap<UserId, Timestamp>,
    /// Whether the cached list has all entries. If not, the others may be in the facts.
    pub is_complete: bool,
}

/// The newest followers that a cached list contains. Older pages come from the facts.
pub const FOLLOWERS_CAP: usize = 1_000;

/// The first byte of a list's marker, before the epoch; no user sorts below it. Its score is the time from which the
/// list is complete. A marker of another epoch does not count.
const MARKER: u8 = 0;

/// The detail of the error about a list that cannot be read.
const LIST: &str = "relation list";

/// Whether a member of a list is a marker, of any epoch.
pub fn is_marker(member: &[u8]) -> bool {
    member.first() == Some(&MARKER)
}

pub fn is_marker_of(member: &[u8], epoch: Epoch) -> bool {
    epoch.current(member) == Some(&[MARKER])
}

impl Views {
    /// Returns at most `limit` entries of a cached list; `None` if it is not cached. The result may be a moment old,
    /// except for the owner of the list and for a caller who made a change within the last seconds.
    pub async fn list_slice(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<Option<ListSlice>> {
        let (List::Following(owner) | List::Followers(owner)) = list;
        if self.may_be_old(caller, owner).await
            && let Some(slice) = self.read_slice(list, start, limit, Consistency::Eventual).await?
        {
            return Ok(Some(slice));
        }
        self.read_slice(list, start, limit, Consistency::Strong).await
    }

    /// Returns those of these users who are in a cached list; `None` if it is not cached. As old as
    /// [`Self::list_slice`].
    pub async fn among(&self, caller: UserId, list: List, users: &[UserId]) -> Result<Option<Among>> {
        let (List::Following(owner) | List::Followers(owner)) = list;
        if self.may_be_old(caller, owner).await
            && let Some(among) = self.read_among(list, users, Consistency::Eventual).await?
        {
            return Ok(Some(among));
        }
        self.read_among(list, users, Consistency::Strong).await
    }

    /// Takes the lease for filling a list. A later lease and a change of the list take it away.
    pub async fn lease_list(&self, list: List, token: u64) -> Result<()> {
        let [_, _, lease] = keys::list(list);
        self.take_lease(&lease, keys::LEASE_LIFETIME, token).await
    }

    /// Stores a list that is complete from `low` on, if the caller still has the lease.
    pub async fn fill_list(&self, list: List, token: u64, members: &[Relation], low: Timestamp) -> Result<()> {
        let lifetime = if members.is_empty() { keys::EMPTY_LIFETIME } else { keys::RELATIONS_LIFETIME };
        let members: Vec<_> = members.iter().map(|member| (author_prefix(member.user), member.since.ms())).collect();
        let args = (token_arg(token), ms(lifetime), low.ms(), members);
        self.call::<u8>(Function::Fill, &keys::list(list), args).await.map(drop)
    }

    pub async fn note_change(&self, user: UserId) -> Result<()> {
        self.query("note_change", self.change(user)).await
    }

    /// Applies edges to the cached lists of both sides, removes the counters of both, and notes that the follower made
    /// a change. The result depends only on the edges, so any number of these updates may run, in any order.
    pub async fn apply_edges(&self, edges: &[Edge]) -> Result<()> {
        let (mut calls, mut then) = (Vec::with_capacity(edges.len() * 5), Vec::new());
        for edge in edges {
            let sides = [(List::Following(edge.user), edge.author, 0), (List::Followers(edge.author), edge.user, FOLLOWERS_CAP)];
            for (list, member, most) in sides {
                let change = (edge.following, edge.since.ms(), author_prefix(member));
                calls.push(fcall(Function::Relate, &keys::list(list), (change, most, ms(keys::RELATIONS_LIFETIME))));
            }
            then.extend([edge.user, edge.author].map(|user| Cmd::del(&keys::counters(user))));
            then.push(self.change(edge.user));
        }
        calls.append(&mut then);
        self.each::<Value>("apply", calls).await.map(drop)
    }

    /// Returns the cached counters, as old as those of [`Self::list_slice`]. Takes the lease if they are missing or
    /// damaged.
    pub async fn counters(&self, caller: UserId, user: UserId, token: u64) -> Result<Option<Counters>> {
        let [key, lease] = keys::counters(user);
        let old = self.may_be_old(caller, user).await;
        for consistency in old.then_some(Consistency::Eventual).into_iter().chain([Consistency::Strong]) {
            let get = Bundle::from(Cmd::get(&key)).with(consistency);
            let (record, epoch): (Option<Vec<u8>>, _) = self.query_in_epoch("counters", get).await?;
            if let Some(counters) = record.as_deref().and_then(|record| decode(epoch.current(record)?)) {
                return Ok(Some(counters));
            }
        }
        self.take_lease(&lease, keys::LEASE_LIFETIME, token).await?;
        Ok(None)
    }

    pub async fn store_counters(&self, user: UserId, counters: Counters, token: u64) -> Result<()> {
        self.store(keys::counters(user), token, encode(counters), keys::RELATIONS_LIFETIME).await
    }

    /// Removes counters and their lease, and notes that `changed_by` made a change.
    pub async fn forget_counters(&self, user: UserId, changed_by: Option<UserId>) -> Result<()> {
        let note = changed_by.map(|by| self.change(by));
        let commands = note.into_iter().chain([Cmd::del(&keys::counters(user))]).collect();
        self.each::<Value>("forget_counters", commands).await.map(drop)
    }
}

impl Views {
    async fn read_among(&self, list: List, users: &[UserId], consistency: Consistency) -> Result<Option<Among>> {
        let [key, ..] = keys::list(list);
        // The marker is the lowest member.
        let mut commands = vec![range(&key, (0, 0))];
        if !users.is_empty() {
            let members: Vec<_> = users.iter().map(|user| author_prefix(*user)).collect();
            commands.push(redis::cmd("ZMSCORE").arg(&key).arg(members).take());
        }
        let (responses, epoch): (Vec<Value>, _) = self.together("among", commands, consistency).await?;
        let mut responses = responses.into_iter();
        let Some(low) = low_of(responses.next(), epoch)? else { return Ok(None) };
        let scores: Vec<Option<f64>> = match responses.next() {
            Some(scores) => redis::from_redis_value(scores).map_err(|_| damaged(LIST))?,
            None => Vec::new(),
        };
        let found = users.iter().zip(scores).filter_map(|(user, score)| Some((*user, Timestamp::from_ms(score? as u64))));
        Ok(Some(Among { found: found.collect(), is_complete: low == 0.0 }))
    }

    async fn read_slice(&self, list: List, start: Start, limit: usize, consistency: Consistency) -> Result<Option<ListSlice>> {
        let [key, ..] = keys::list(list);
        // The marker is the lowest member.
        let mut commands = vec![range(&key, (0, 0))];
        match start {
            Start::Below(before) => {
                // The cursor may lie anywhere in its own millisecond, which therefore needs a range of its own.
                let tied = before.map_or("+inf".to_owned(), |before| before.since.ms().to_string());
                let below = before.map_or("+inf".to_owned(), |before| format!("({}", before.since.ms()));
                commands.push(range(&key, (&tied, &tied, "BYSCORE", "REV")));
                commands.push(range(&key, (below, "-inf", "BYSCORE", "REV", "LIMIT", 0, limit)));
            }
            Start::Offset(offset) => {
                let last = offset.saturating_add(limit).saturating_sub(1);
                commands.push(range(&key, (offset, last, "REV")));
            }
        }
        let (responses, epoch): (Vec<Value>, _) = self.together("list", commands, consistency).await?;
        let mut responses = responses.into_iter();
        let Some(low) = low_of(responses.next(), epoch)? else { return Ok(None) };
        let mut items = Vec::new();
        for part in responses {
            items.extend(relations(&part)?);
        }
        if let Start::Below(Some(before)) = start {
            items.retain(|relation| *relation < before);
        }
        items.truncate(limit);
        let rest = (low > 0.0 && items.len() < limit).then(|| match (items.last(), start) {
            (Some(last), _) => Start::Below(Some(*last)),
            (None, start) => start,
        });
        Ok(Some(ListSlice { items, rest }))
    }

    fn change(&self, user: UserId) -> Cmd {
        let lifetime = if self.link.reads_replicas() { keys::CHANGED_LIFETIME_REPLICAS } else { keys::CHANGED_LIFETIME };
        set(&keys::changed(user), 1, lifetime)
    }

    /// Whether a response about `owner` may come from a replica: if `caller` is known to have made no recent change.
    async fn may_be_old(&self, caller: UserId, owner: UserId) -> bool {
        let changed_lately = self.query("changed_lately", Cmd::exists(keys::changed(caller)));
        self.link.reads_replicas() && caller != owner && matches!(changed_lately.await, Ok(false))
    }
}

/// The score of a list's marker, which its lowest members include; `None` without a marker of this epoch.
fn low_of(lowest: Option<Value>, epoch: Epoch) -> Result<Option<f64>> {
    let lowest: Vec<(Vec<u8>, f64)> = redis::from_redis_value(lowest.unwrap_or(Value::Nil)).map_err(|_| damaged(LIST))?;
    Ok(lowest.into_iter().find(|(member, _)| is_marker_of(member, epoch)).map(|(_, low)| low))
}

fn range(key: &str, args: impl ToRedisArgs) -> Cmd {
    redis::cmd("ZRANGE").arg(key).arg(args).arg("WITHSCORES").take()
}

/// A member that cannot be read makes an error of the list. Pages come from the facts until it expires.
fn relations(part: &Value) -> Result<Vec<Relation>> {
    let pairs: Vec<(Vec<u8>, f64)> = redis::from_redis_value_ref(part).map_err(|_| damaged(LIST))?;
    pairs
        .into_iter()
        .filter(|(member, _)| !is_marker(member))
        .map(|(member, score)| {
            let user = tidemark_domain::feed::author_of_prefix(&member).ok_or_else(|| damaged(LIST))?;
            Ok(Relation { since: Timestamp::from_ms(score as u64), user })
        })
        .collect()
}

/// Five counts and a checksum.
fn encode(counters: Counters) -> Vec<u8> {
    let Counters { followings, followers, posts, likes, favorites } = counters;
    let mut record: Vec<u8> =
        [followings, followers, posts, likes, favorites].iter().flat_map(|count| count.to_le_bytes()).collect();
    record.extend(crc32fast::hash(&record).to_le_bytes());
    record
}

/// Returns `None` if the record is short or damaged.
pub fn decode(record: &[u8]) -> Option<Counters> {
    let (&counts, checksum) = record.split_first_chunk::<20>()?;
    if checksum != crc32fast::hash(&counts).to_le_bytes() {
        return None;
    }
    let (counts, _) = counts.as_chunks::<4>();
    let count = |index: usize| counts.get(index).copied().map(u32::from_le_bytes);
    Some(Counters { followings: count(0)?, followers: count(1)?, posts: count(2)?, likes: count(3)?, favorites: count(4)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_is_detected() {
        let counters = Counters { followings: 1, followers: 70_000, posts: 3, likes: 4, favorites: u32::MAX };
        let record = encode(counters);
        assert_eq!((record.len(), decode(&record)), (24, Some(counters)));
        assert_eq!(decode(&record[..7]), None);
        assert_eq!(decode(&[0; 24]), None);
        assert_eq!(decode(&[0xff; 20]), None);
        for byte in 0..24 {
            let mut damaged = record.clone();
            damaged[byte] ^= 1;
            assert_eq!(decode(&damaged), None);
        }
    }
}
