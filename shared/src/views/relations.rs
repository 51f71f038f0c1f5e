//! [`RelationViews`] on Redis.

use async_trait::async_trait;

use super::{
    connection::{Arg, Redis, ms},
    keys,
    library::Function,
    readers::token_arg,
};
use crate::{
    domain::{Counters, Edge, Relation, Timestamp, UserId, feed::author_prefix},
    ports::{List, ListSlice, RelationViews, ViewError},
    relations::{FANS_CAP, Start},
};

/// The member whose score says from which time on a list is complete. Sorts before every user.
pub(super) const MARKER: &[u8] = b"\0";

#[async_trait]
impl RelationViews for Redis {
    async fn slice(&self, list: List, start: Start, limit: usize) -> Result<Option<ListSlice>, ViewError> {
        let [key, ..] = keys::list(list);
        let mut pipeline = redis::pipe();
        pipeline.cmd("ZSCORE").arg(&key).arg(MARKER);
        match start {
            Start::Below(before) => {
                // Entries of the cursor's own millisecond are asked for apart: the cursor may lie anywhere among them.
                let tied = before.map_or("+inf".to_owned(), |before| before.since.ms().to_string());
                let below = before.map_or("+inf".to_owned(), |before| format!("({}", before.since.ms()));
                pipeline.cmd("ZRANGE").arg(&key).arg(&tied).arg(&tied).arg("BYSCORE").arg("REV").arg("WITHSCORES");
                pipeline.cmd("ZRANGE").arg(&key).arg(&below).arg("-inf").arg("BYSCORE").arg("REV");
                pipeline.arg("LIMIT").arg(0).arg(limit).arg("WITHSCORES");
            }
            Start::Offset(offset) => {
                pipeline.cmd("ZRANGE").arg(&key).arg(offset).arg(offset.saturating_add(limit).saturating_sub(1));
                pipeline.arg("REV").arg("WITHSCORES");
                pipeline.cmd("ECHO").arg("");
            }
        }
        let (low, first, second): (Option<f64>, redis::Value, redis::Value) = self.pipeline("list", &pipeline).await?;
        let Some(low) = low else { return Ok(None) };
        let parts: &[&redis::Value] = if matches!(start, Start::Offset(_)) { &[&first] } else { &[&first, &second] };
        let mut items = Vec::new();
        for part in parts {
            items.extend(relations(part)?);
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

    async fn lease(&self, list: List, token: u64) -> Result<(), ViewError> {
        let [_, _, lease] = keys::list(list);
        self.take_lease(&lease, token).await
    }

    async fn fill(&self, list: List, token: u64, members: &[Relation], low: Timestamp) -> Result<(), ViewError> {
        let lifetime = if members.is_empty() { keys::EMPTY_LIFETIME } else { keys::RELATIONS_LIFETIME };
        let mut args = vec![token_arg(token), ms(lifetime), low.ms().into()];
        args.extend(members.iter().flat_map(|member| [Arg::from(author_prefix(member.user)), member.since.ms().into()]));
        self.call::<u8>(Function::Fill, &keys::list(list), &args).await.map(|_| ())
    }

    async fn changed_lately(&self, user: UserId) -> Result<bool, ViewError> {
        self.query("changed_lately", redis::cmd("EXISTS").arg(keys::changed(user))).await
    }

    async fn apply(&self, edges: &[Edge]) -> Result<(), ViewError> {
        if edges.is_empty() {
            return Ok(());
        }
        let mut calls = Vec::with_capacity(edges.len() * 2);
        let mut then = Vec::new();
        for edge in edges {
            let sides = [(List::Following(edge.user), edge.author, 0), (List::Fans(edge.author), edge.user, FANS_CAP as u64)];
            for (list, member, most) in sides {
                let args = vec![
                    u64::from(edge.following).into(),
                    edge.since.ms().into(),
                    author_prefix(member).into(),
                    most.into(),
                    ms(keys::RELATIONS_LIFETIME),
                ];
                calls.push((Function::Relate, keys::list(list).to_vec(), args));
            }
            for user in [edge.user, edge.author] {
                let mut del = redis::cmd("DEL");
                del.arg(&keys::counters(user));
                then.push(del);
            }
            let mut changed = redis::cmd("SET");
            changed.arg(keys::changed(edge.user)).arg(1).arg("PX").arg(keys::CHANGED_LIFETIME.as_millis() as u64);
            then.push(changed);
        }
        self.call_all(&calls, &then).await
    }

    async fn counters(&self, user: UserId, token: u64) -> Result<Option<Counters>, ViewError> {
        let [key, lease] = keys::counters(user);
        let record: Option<Vec<u8>> = self.query("counters", redis::cmd("GET").arg(&key)).await?;
        if let Some(counters) = record.as_deref().and_then(decode) {
            return Ok(Some(counters));
        }
        self.take_lease(&lease, token).await?;
        Ok(None)
    }

    async fn store_counters(&self, user: UserId, counters: Counters, token: u64) -> Result<(), ViewError> {
        let args = [token_arg(token), encode(counters).into(), ms(keys::RELATIONS_LIFETIME)];
        self.call::<u8>(Function::Store, &keys::counters(user), &args).await.map(|_| ())
    }

    async fn forget_counters(&self, user: UserId) -> Result<(), ViewError> {
        self.change("forget_counters", redis::pipe().del(&keys::counters(user)[..]).ignore()).await
    }
}

impl Redis {
    async fn take_lease(&self, key: &str, token: u64) -> Result<(), ViewError> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(&token.to_le_bytes()[..]).arg("PX").arg(keys::LEASE_LIFETIME.as_millis() as u64);
        self.query::<()>("lease", &set).await
    }
}

fn relations(part: &redis::Value) -> Result<Vec<Relation>, ViewError> {
    let damaged = || ViewError::Damaged { detail: "relation list".to_owned() };
    let pairs: Vec<(Vec<u8>, f64)> = redis::from_redis_value_ref(part).map_err(|_| damaged())?;
    pairs
        .into_iter()
        .filter(|(member, _)| member != MARKER)
        .map(|(member, score)| {
            let user = crate::domain::feed::author_of_prefix(&member).ok_or_else(damaged)?;
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

/// `None` when the record is short or damaged.
pub(super) fn decode(record: &[u8]) -> Option<Counters> {
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
    fn a_damaged_record_is_noticed() {
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
