//! Heads of authors, and the times of their posts. Timelines of all authors, and feeds of readers who pull, are
//! computed from them.

use std::collections::HashMap;

use integer_encoding::VarInt;
use redis::Value;
use redis_link::Consistency;
use tidemark_domain::{AuthorHead, Modes, PostTimes, SeqSet, Timestamp, UserId};

use super::{
    Result, keys,
    record::{self, VERSION, current, store, take_number},
};
use crate::connection::Views;

/// The data about an author's posts that Redis has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownAuthor {
    pub head: Option<AuthorHead>,
    pub times: Option<PostTimes>,
}

/// Eight-byte little-endian numbers after the version: latest_seq, latest_at, posts, changes, pulled. The set of
/// deleted posts follows them. The upper half of `changes` is the number of changes of privacy: to a version of this
/// program that does not know private authors, such a head is unknown.
const NUMBERS: usize = 5;

impl Views {
    /// Returns the known heads of these authors. They may be a moment old.
    pub async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>> {
        self.heads_as_of(authors, Consistency::Eventual).await
    }

    /// Returns the known heads as they are now: they say who is private.
    pub async fn heads_now(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>> {
        self.heads_as_of(authors, Consistency::Strong).await
    }

    async fn heads_as_of(&self, authors: &[UserId], consistency: Consistency) -> Result<HashMap<UserId, AuthorHead>> {
        let keys: Vec<String> = authors.iter().map(|&author| keys::head(author)[0].clone()).collect();
        let values = self.strings("heads", &keys, consistency).await?;
        // A value that cannot be read counts as unknown and comes from the facts.
        Ok(authors.iter().zip(values).filter_map(|(&author, value)| Some((author, current(value, decode)?))).collect())
    }

    /// Returns what is known of these authors now.
    pub async fn known_authors(&self, authors: &[UserId]) -> Result<HashMap<UserId, KnownAuthor>> {
        let heads = authors.iter().map(|&author| keys::head(author)[0].clone());
        let keys: Vec<String> = heads.chain(authors.iter().map(|&author| keys::times(author)[0].clone())).collect();
        let mut heads = self.strings("authors", &keys, Consistency::Strong).await?;
        let times = heads.split_off(authors.len());
        let known = |(head, times)| KnownAuthor { head: current(head, decode), times: current(times, decode_times) };
        Ok(authors.iter().copied().zip(heads.into_iter().zip(times).map(known)).collect())
    }

    pub async fn lease_heads(&self, authors: &[UserId], token: u64) -> Result<Vec<UserId>> {
        self.free_leases("lease_heads", authors, keys::head, token).await
    }

    pub async fn fill_heads(&self, heads: &[(UserId, AuthorHead)], token: u64) -> Result<()> {
        let store = |(author, head): &(_, _)| store(keys::head(*author), token, encode(head).1, keys::HEAD_LIFETIME);
        self.each::<Value>("fill_heads", heads.iter().map(store).collect()).await.map(drop)
    }

    pub async fn replace_head(&self, author: UserId, head: &AuthorHead) -> Result<()> {
        let (version, record) = encode(head);
        self.replace(keys::head(author), version, record, keys::HEAD_LIFETIME).await
    }

    /// Takes the lease for storing the times of an author's posts. Returns false if another process has it.
    pub async fn lease_times(&self, author: UserId, token: u64) -> Result<bool> {
        Ok(!self.free_leases("lease_times", &[author], keys::times, token).await?.is_empty())
    }

    pub async fn store_times(&self, author: UserId, times: &PostTimes, token: u64) -> Result<()> {
        self.store(keys::times(author), token, encode_times(times), keys::TIMES_LIFETIME).await
    }
}

/// Version and record of a head. Every publish raises the first summand, every deletion the second, and every change of
/// privacy the third. Two heads of one version may differ: those of a publish and a deletion at the same time. Each
/// lacks the other's change, so a caller reads the head again after its change.
fn encode(head: &AuthorHead) -> (u64, Vec<u8>) {
    let version = head.latest_seq + u64::from(head.deletions()) + u64::from(head.privacy);
    let Modes { changes, pulled } = head.modes;
    let changes = u64::from(head.privacy) << 32 | u64::from(changes);
    let numbers = [head.latest_seq, head.latest_at.ms(), head.posts, changes, pulled];
    let mut bytes = record::start(version);
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(head.deleted.to_bytes());
    (version, bytes)
}

/// Decodes the fields that [`AuthorHead::for_views`] keeps.
pub fn decode(bytes: &[u8]) -> Option<AuthorHead> {
    let (numbers, deleted) = bytes.get(VERSION..)?.split_at_checked(NUMBERS * 8)?;
    let numbers: Vec<u64> = numbers.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    let &[latest_seq, latest_at, posts, changes, pulled] = numbers.as_slice() else { return None };
    Some(AuthorHead {
        latest_seq,
        latest_at: Timestamp::from_ms(latest_at),
        posts,
        deleted: SeqSet::from_bytes(deleted).ok()?,
        modes: Modes { changes: changes as u32, pulled },
        privacy: (changes >> 32) as u32,
        ..AuthorHead::default()
    })
}

/// Both bounds, then the differences from one number, and from one time, to the next. All are variable-length integers.
fn encode_times(times: &PostTimes) -> Vec<u8> {
    let mut bytes: Vec<u8> = [times.above, times.upto].into_iter().flat_map(VarInt::encode_var_vec).collect();
    let (mut last_seq, mut last_at) = (times.above, 0);
    for (seq, at) in &times.times {
        bytes.extend((seq - last_seq).encode_var_vec());
        bytes.extend(at.ms().saturating_sub(last_at).encode_var_vec());
        (last_seq, last_at) = (*seq, at.ms());
    }
    bytes
}

fn decode_times(mut bytes: &[u8]) -> Option<PostTimes> {
    let mut next = || take_number(&mut bytes);
    let (above, upto) = (next()?, next()?);
    let (mut seq, mut at) = (above, 0_u64);
    let mut times = Vec::new();
    while let Some(step) = next() {
        (seq, at) = (seq.checked_add(step)?, at.checked_add(next()?)?);
        times.push((seq, Timestamp::from_ms(at)));
    }
    bytes.is_empty().then_some(PostTimes { above, upto, times })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_and_damaged_heads_are_unknown() {
        let head = AuthorHead {
            latest_seq: 9,
            latest_at: Timestamp::from_ms(1_700_000_000_123),
            posts: 7,
            deleted: [2, 5].into_iter().collect(),
            modes: Modes { changes: 3, pulled: 8 },
            privacy: 5,
            ..Default::default()
        };
        let (version, stored) = encode(&head);
        assert_eq!((version, record::version(&stored).map(|(version, _)| version)), (16, Some(16)));
        assert_eq!(decode(&stored), Some(head));
        assert_eq!(decode(&stored[..40]), None);
        assert_eq!(decode(&stored[..stored.len() - 1]), None);
        assert_eq!(decode(b""), None);
    }

    #[test]
    fn times_round_trip_and_a_post_takes_five_bytes() {
        let at = |seq: u64| (seq, Timestamp::from_ms(1_700_000_000_000 + seq * 3_600_000));
        let times = PostTimes::default().with(1_100, (1..=1_100).filter(|seq| seq % 7 > 0).map(at));
        let stored = encode_times(&times);
        assert!(stored.len() < 5 * times.times.len() + 20, "{} bytes for {}", stored.len(), times.times.len());
        assert_eq!(decode_times(&stored), Some(times));
        assert_eq!(decode_times(&stored[..stored.len() - 1]), None);
        assert_eq!(decode_times(&encode_times(&PostTimes::default())), Some(PostTimes::default()));
        assert_eq!(decode_times(b""), None);
    }
}
