//! The order of a feed, and how a post stands in a Redis ZSet.

use super::{
    ids::{PostId, UserId},
    time::Timestamp,
};

/// Newest posts that one live reader's feed keeps in Redis; older pages come from the facts.
pub const FEED_CAP: usize = 1_000;

/// An author's newest posts from before the follow that a feed shows, as read.
pub const BACKLOG: u64 = 100;

/// Where a post stands in a feed: by time, then author, then sequence number; newest first means greatest first.
///
/// The order is the ZSet's own (score, then member bytes), because [`FeedKey::member`] keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedKey {
    /// When the post was published; the score, in milliseconds.
    pub at: Timestamp,
    /// The post; the member.
    pub post: PostId,
}

impl FeedKey {
    /// The ZSet member: author, then seq, each as a length byte and its big-endian bytes without leading zeros, so that byte order is number order.
    pub fn member(&self) -> Vec<u8> {
        let mut bytes = author_prefix(self.post.author);
        push_ordered(&mut bytes, self.post.seq);
        bytes
    }

    /// Reads a member back; `None` when the bytes are not one.
    pub fn from_member(at: Timestamp, bytes: &[u8]) -> Option<Self> {
        let (author, rest) = take_ordered(bytes)?;
        let (seq, rest) = take_ordered(rest)?;
        rest.is_empty().then_some(())?;
        Some(Self { at, post: PostId::new(UserId::new(author)?, seq) })
    }
}

/// What all members of one author's posts begin with, and no others'.
pub fn author_prefix(author: UserId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(14);
    push_ordered(&mut bytes, author.get());
    bytes
}

/// The user that [`author_prefix`] wrote; `None` when the bytes are anything else.
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

    fn key(author: u64, seq: u64) -> FeedKey {
        FeedKey { at: Timestamp::from_ms(1), post: PostId::new(UserId::new(author).unwrap(), seq) }
    }

    proptest! {
        #[test]
        fn members_come_back_and_order_like_their_keys(a in 1..=u64::MAX, s in 1..1u64 << 53, b in 1..=u64::MAX, t in 1..1u64 << 53) {
            let (x, y) = (key(a, s), key(b, t));
            prop_assert_eq!(FeedKey::from_member(x.at, &x.member()), Some(x));
            prop_assert_eq!(x.cmp(&y), x.member().cmp(&y.member()));
            prop_assert_eq!(y.member().starts_with(&author_prefix(x.post.author)), a == b);
        }
    }

    #[test]
    fn a_member_is_a_few_bytes() {
        assert_eq!(key(1042, 17).member(), [2, 4, 18, 1, 17]);
        assert_eq!(FeedKey::from_member(Timestamp::default(), b"\x09aaaaaaaaa\x01\x01"), None);
        assert_eq!(FeedKey::from_member(Timestamp::default(), b"\x01\x01"), None);
    }
}
