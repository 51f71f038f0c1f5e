//! The order of a feed, and the bytes of its entries.

use crate::{PostId, Timestamp, UserId};

/// The default of a [`FeedCap`], and the greatest.
pub const FEED_CAP: usize = 1_000;

/// How many of the newest posts that a reader's feed shows are in Redis. Older pages come from the facts.
///
/// A rebuild stores some more than the least number, so that as many removals lie between two refills. Deliveries add
/// still more, so that not each of them trims the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCap(usize);

impl FeedCap {
    pub const GREATEST: Self = Self(FEED_CAP);

    /// At least 1, and at most [`FEED_CAP`].
    pub fn new(cap: u64) -> Self {
        Self(usize::try_from(cap).unwrap_or(FEED_CAP).clamp(1, FEED_CAP))
    }

    /// A feed that stores fewer entries, although the facts have more, is short.
    pub fn least(self) -> usize {
        self.0
    }

    /// The number of entries that a rebuild stores, and that a trim leaves.
    pub const fn filled(self) -> usize {
        self.0 + slack(self.0)
    }

    /// A feed that stores more entries is trimmed. `most_of` in `shared/views/src/lua/codec.lua` does the same.
    pub const fn most(self) -> usize {
        self.filled() + slack(self.filled())
    }
}

const fn slack(entries: usize) -> usize {
    if entries < 32 { 1 } else { entries / 16 }
}

/// The number of an author's newest posts from before the follow that a feed shows, as read.
pub const BACKFILL: u64 = 100;

/// The place of a post in a feed: by time, then author, then sequence number. The newest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedKey {
    pub at: Timestamp,
    pub post: PostId,
}

impl FeedKey {
    /// Encodes the entry of a reader's feed: six bytes of time, big-endian; then author and seq, each as a length byte
    /// and its big-endian bytes without leading zeros. The order of the bytes is the order of the keys.
    pub fn entry(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20);
        bytes.extend_from_slice(&self.at.ms().to_be_bytes()[2..]);
        push_ordered(&mut bytes, self.post.author.get());
        push_ordered(&mut bytes, self.post.seq);
        bytes
    }

    pub fn from_entry(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<6>()?;
        let at = at.iter().fold(0, |at, &byte| at << 8 | u64::from(byte));
        let (author, rest) = take_ordered(rest)?;
        let (seq, rest) = take_ordered(rest)?;
        rest.is_empty().then_some(())?;
        Some(Self { at: Timestamp::from_ms(at), post: PostId::new(UserId::new(author)?, seq) })
    }
}

/// Returns the bytes that follow the time in all entries of one author, and in no entry of another. A relation list
/// uses them as the member.
pub fn author_prefix(author: UserId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(14);
    push_ordered(&mut bytes, author.get());
    bytes
}

/// Decodes the user that [`author_prefix`] encoded; `None` if the bytes are anything else.
pub fn author_of_prefix(bytes: &[u8]) -> Option<UserId> {
    let (author, rest) = take_ordered(bytes)?;
    rest.is_empty().then(|| UserId::new(author)).flatten()
}

fn push_ordered(bytes: &mut Vec<u8>, number: u64) {
    let all = number.to_be_bytes();
    let skip = (number.leading_zeros() / 8) as usize;
    bytes.push((8 - skip) as u8);
    bytes.extend_from_slice(&all[skip..]);
}

fn take_ordered(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_at_checked(usize::from(len))?;
    let mut all = [0; 8];
    all.get_mut(8usize.checked_sub(number.len())?..)?.copy_from_slice(number);
    Some((u64::from_be_bytes(all), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(at: u64, author: u64, seq: u64) -> FeedKey {
        FeedKey { at: Timestamp::from_ms(at), post: PostId::new(UserId::new(author).unwrap(), seq) }
    }

    proptest! {
        #[test]
        fn entries_decode_to_their_keys_and_have_the_same_order(
            p in 0..=Timestamp::MAX.ms(), q in 0..=Timestamp::MAX.ms(), tied: bool,
            a in 1..=u64::MAX, s in 1..1u64 << 53, b in 1..=u64::MAX, t in 1..1u64 << 53,
        ) {
            let (x, y) = (key(p, a, s), key(if tied { p } else { q }, b, t));
            prop_assert_eq!(FeedKey::from_entry(&x.entry()), Some(x));
            prop_assert_eq!(x.cmp(&y), x.entry().cmp(&y.entry()));
            prop_assert_eq!(y.entry()[6..].starts_with(&author_prefix(x.post.author)), a == b);
        }
    }

    #[test]
    fn a_rebuild_fills_a_feed_above_the_least_and_below_the_most() {
        let sizes = |cap| {
            let cap = FeedCap::new(cap);
            (cap.least(), cap.filled(), cap.most())
        };
        let expected = [(1, 2, 3), (20, 21, 22), (1_000, 1_062, 1_128), (1_000, 1_062, 1_128)];
        assert_eq!([0, 20, 1_000, u64::MAX].map(sizes), expected);
    }

    #[test]
    fn an_entry_takes_a_few_bytes() {
        assert_eq!(key(1, 1042, 17).entry(), [0, 0, 0, 0, 0, 1, 2, 4, 18, 1, 17]);
        for other in [&b"timeat\x09aaaaaaaaa\x01\x01"[..], b"timeat\x01\x01", b"time"] {
            assert_eq!(FeedKey::from_entry(other), None, "{other:?}");
        }
    }
}
