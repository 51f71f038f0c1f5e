//! [`HeadViews`] on Redis.

use std::collections::HashMap;

use async_trait::async_trait;
use redis_link::{Age, Epoch};
use tidemark_app::ports::{HeadViews, StoreError};
use tidemark_domain::{AuthorHead, Modes, SeqSet, Timestamp, UserId};

use super::{keys, library::Function};
use crate::connection::{Redis, ms};

/// Bytes of the version. The script reads it too.
const VERSION: usize = 6;

/// Eight-byte little-endian numbers after the version: latest_seq, latest_at, posts, changes, pulled. The set of
/// deleted posts follows them.
const NUMBERS: usize = 5;

#[async_trait]
impl HeadViews for Redis {
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError> {
        if authors.is_empty() {
            return Ok(HashMap::new());
        }
        let keys: Vec<String> = authors.iter().map(|&author| keys::head(author)).collect();
        let values = self.strings("heads", &keys, Age::MomentOld).await?;
        // A value that cannot be read counts as unknown and comes from the facts.
        let current = |value: Option<(Vec<u8>, Epoch)>| value.and_then(|(value, epoch)| decode(epoch.current(&value)?));
        Ok(authors.iter().zip(values).filter_map(|(&author, value)| Some((author, current(value)?))).collect())
    }

    async fn store_head(&self, author: UserId, head: &AuthorHead) -> Result<(), StoreError> {
        // Every publish raises the first summand, and every deletion raises the second.
        let version = head.latest_seq + u64::from(head.deletions());
        let args = [version.into(), encode(head).into(), ms(keys::HEAD_LIFETIME)];
        self.call::<u8>(Function::Advance, &[keys::head(author)], &args).await.map(|_| ())
    }
}

fn encode(head: &AuthorHead) -> Vec<u8> {
    let Modes { changes, pulled } = head.modes;
    let numbers = [head.latest_seq, head.latest_at.ms(), head.posts, u64::from(changes), pulled];
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes.extend(head.deleted.to_bytes());
    bytes
}

pub fn decode(bytes: &[u8]) -> Option<AuthorHead> {
    let (numbers, deleted) = bytes.get(VERSION..)?.split_at_checked(NUMBERS * 8)?;
    let numbers: Vec<u64> = numbers.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
    let &[latest_seq, latest_at, posts, changes, pulled] = numbers.as_slice() else { return None };
    Some(AuthorHead {
        latest_seq,
        latest_at: Timestamp::from_ms(latest_at),
        posts,
        deleted: SeqSet::from_bytes(deleted).ok()?,
        modes: Modes { changes: u32::try_from(changes).ok()?, pulled },
        ..AuthorHead::default()
    })
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
            ..Default::default()
        };
        let stored = [&[0; VERSION], encode(&head).as_slice()].concat();
        assert_eq!(decode(&stored), Some(head));
        assert_eq!(decode(&stored[..40]), None);
        assert_eq!(decode(&stored[..stored.len() - 1]), None);
        assert_eq!(decode(b""), None);
    }
}
