//! Identifiers: users, posts, sequence numbers.

use std::{fmt, num::NonZeroU64, str::FromStr};

/// A post's number within its author: 1, 2, 3, … without gaps.
pub type Seq = u64;

/// The highest sequence number: the greatest integer that a double, and so a Redis script, represents exactly.
pub const MAX_SEQ: Seq = (1 << 53) - 1;

/// The highest sequence number of a published post: views store it in four bytes.
pub const LAST_POST: Seq = u32::MAX as Seq;

/// The number of buckets of users. A bucket is the Redis hash tag, and decides the order of follower pages.
pub const BUCKETS: u16 = 4096;

/// The number of partitions of an author's followers, in the order of buckets: a shard is 256 consecutive ones.
pub const SHARDS: u16 = 16;

/// The reason why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseIdError(pub(super) &'static str);

/// A user: any unsigned 64-bit number except zero. In JSON it is a decimal string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserId(NonZeroU64);

impl UserId {
    pub const MIN: Self = Self(NonZeroU64::MIN);

    /// Returns the user with this number; `None` for zero.
    pub fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).map(Self)
    }

    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the user's bucket, `0..4096`: the upper bits of the hash.
    pub fn bucket(self) -> u16 {
        (self.hash() >> 52) as u16
    }

    /// Returns the user's percentile, `0..100`, from the lower bits of the hash: each share is in all buckets.
    pub fn percentile(self) -> u8 {
        (((self.hash() & u64::from(u32::MAX)) * 100) >> 32) as u8
    }

    /// A splitmix64 finalizer, which spreads dense and sparse ids evenly.
    fn hash(self) -> u64 {
        let mut x = self.get();
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns the shard, `0..16`, of this user among an author's followers.
    pub fn shard(self) -> u16 {
        self.bucket() / (BUCKETS / SHARDS)
    }
}

impl From<NonZeroU64> for UserId {
    fn from(id: NonZeroU64) -> Self {
        Self(id)
    }
}

impl From<UserId> for NonZeroU64 {
    fn from(user: UserId) -> Self {
        user.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for UserId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        parse_decimal(text)
            .and_then(Self::new)
            .ok_or(ParseIdError("must be a decimal number from 1 to 18446744073709551615, without sign or leading zeros"))
    }
}

/// A post: its author and its sequence number, written `{author}-{seq}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PostId {
    pub author: UserId,
    pub seq: Seq,
}

impl PostId {
    pub fn new(author: UserId, seq: Seq) -> Self {
        Self { author, seq }
    }
}

impl fmt::Display for PostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.author, self.seq)
    }
}

impl FromStr for PostId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let parts = text.split_once('-').and_then(|(author, seq)| {
            let author = UserId::new(parse_decimal(author)?)?;
            let seq = parse_decimal(seq).filter(|seq| (1..=MAX_SEQ).contains(seq))?;
            Some(Self { author, seq })
        });
        parts.ok_or(ParseIdError("must be {author}-{seq}, two decimal numbers without sign or leading zeros"))
    }
}

/// In JSON these ids are their texts.
macro_rules! serde_as_text {
    ($($id:ty),*) => { $(
        impl serde::Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $id {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}

serde_as_text!(UserId, PostId, super::CommentId, super::ListId, super::NoticeId);

/// Parses a canonical decimal number: digits only, and no leading zero except in `0`.
pub fn parse_decimal(text: &str) -> Option<u64> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_ids_are_canonical_decimals() {
        for good in ["1", "1042", "18446744073709551615"] {
            assert_eq!(good.parse::<UserId>().unwrap().to_string(), good);
        }
        for bad in ["", "0", "01", "+1", "-1", "1 ", "1.0", "18446744073709551616", "a", "１"] {
            assert!(bad.parse::<UserId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn post_ids_are_author_and_seq() {
        let post: PostId = "1042-7".parse().unwrap();
        assert_eq!((post.author.get(), post.seq), (1042, 7));
        assert_eq!(post.to_string(), "1042-7");
        for bad in ["1042", "1042-", "-7", "1042-0", "1042-07", "0-1", "1-2-3", "1-9007199254740992"] {
            assert!(bad.parse::<PostId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn buckets_spread_dense_and_sparse_ids_and_order_like_shards() {
        for step in [1_u64, 4096, 1 << 40] {
            let mut seen = std::collections::HashSet::new();
            for i in 1..=40_960_u64 {
                let user = UserId::new(i.wrapping_mul(step) | 1).unwrap();
                assert!(user.bucket() < BUCKETS && user.shard() < SHARDS);
                assert_eq!(user.shard(), user.bucket() >> 8);
                seen.insert(user.bucket());
            }
            assert!(seen.len() > 4000, "step {step}: {} buckets", seen.len());
        }
    }

    #[test]
    fn the_bucket_of_a_user_never_changes() {
        let bucket = |id| UserId::new(id).unwrap().bucket();
        assert_eq!([bucket(1), bucket(2), bucket(1042), bucket(u64::MAX)], [1385, 3517, 831, 2893]);
    }
}
