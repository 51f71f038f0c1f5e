//! [`PostViews`] on Redis.

use std::collections::HashMap;

use async_trait::async_trait;
use redis::{Cmd, Value};
use redis_link::{Age, Epoch};
use tidemark_app::ports::{KnownPage, KnownReactions, PostViews, StoreError};
use tidemark_domain::{FeedKey, PostId, PostSummary, Timestamp, UserId};

use super::{keys, library::Function, people, reactions};
use crate::connection::{Redis, fcall, ms};

/// The first byte of a summary: a live or a deleted post. Six bytes of time (ms, big-endian) and the title in UTF-8
/// follow.
const LIVE: u8 = 0;
const DELETED: u8 = 1;

#[async_trait]
impl PostViews for Redis {
    async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>, StoreError> {
        if posts.is_empty() {
            return Ok(HashMap::new());
        }
        // Not from replicas: the caller may store a result of these summaries.
        let values = self.strings("summaries", &post_keys(posts), Age::Now).await?;
        Ok(known(posts, values))
    }

    async fn page(&self, reader: UserId, posts: &[PostId], cards: bool) -> Result<KnownPage, StoreError> {
        if posts.is_empty() {
            return Ok(KnownPage::default());
        }
        let mut authors: Vec<UserId> = posts.iter().map(|post| post.author).collect();
        authors.sort_unstable();
        authors.dedup();
        let named = if cards { authors.as_slice() } else { &[] };
        let keys = [post_keys(posts), people::card_keys(named)].concat();
        let own = Some(reactions::ask(reader, &authors));
        let (mut values, states) = self.strings_and("page", &keys, Age::MomentOld, own).await?;
        let cards = people::known(named, values.split_off(posts.len()));
        let summaries = known(posts, values);
        let reactions = match states {
            None => KnownReactions::default(),
            Some((states, epoch)) => {
                let states = redis::from_redis_value::<Vec<Option<Vec<u8>>>>(states);
                let states = states.map_err(|error| StoreError::DamagedView { detail: format!("page: {error}") })?;
                reactions::known(&authors, &states, epoch)
            }
        };
        Ok(KnownPage { summaries, reactions, cards })
    }

    async fn remember(&self, posts: &[PostSummary]) -> Result<(), StoreError> {
        let commands = posts.iter().map(|post| remember(post, false)).collect();
        self.each::<Value>("remember", commands).await.map(|_| ())
    }

    async fn bury(&self, post: FeedKey) -> Result<(), StoreError> {
        let tombstone = PostSummary { id: post.post, title: String::new(), created_at: post.at, deleted: true };
        self.query::<u8>("bury", remember(&tombstone, true)).await.map(drop)
    }
}

fn post_keys(posts: &[PostId]) -> Vec<String> {
    posts.iter().map(|&post| keys::post(post)).collect()
}

/// A summary that cannot be read counts as unknown and comes from the facts, until its lifetime ends.
fn known(posts: &[PostId], values: Vec<Option<(Vec<u8>, Epoch)>>) -> HashMap<PostId, PostSummary> {
    posts
        .iter()
        .zip(values)
        .filter_map(|(&post, value)| value.and_then(|(value, epoch)| Some((post, decode(post, epoch.current(&value)?)?))))
        .collect()
}

fn remember(post: &PostSummary, over_anything: bool) -> Cmd {
    let args = [encode(post).into(), ms(keys::POST_LIFETIME), u64::from(over_anything).into()];
    fcall(Function::Remember, &[keys::post(post.id)], &args)
}

fn encode(post: &PostSummary) -> Vec<u8> {
    let mut bytes = vec![if post.deleted { DELETED } else { LIVE }];
    bytes.extend_from_slice(&post.created_at.ms().to_be_bytes()[2..]);
    bytes.extend_from_slice(post.title.as_bytes());
    bytes
}

pub fn decode(id: PostId, bytes: &[u8]) -> Option<PostSummary> {
    let (&kind, rest) = bytes.split_first()?;
    let (at, title) = rest.split_first_chunk::<6>()?;
    let deleted = match kind {
        LIVE => false,
        DELETED => true,
        _ => return None,
    };
    let created_at = Timestamp::from_ms(at.iter().fold(0, |at, &byte| at << 8 | u64::from(byte)));
    Some(PostSummary { id, title: String::from_utf8(title.to_vec()).ok()?, created_at, deleted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_round_trip_and_damaged_summaries_are_unknown() {
        let id: PostId = "7-3".parse().unwrap();
        for (title, deleted) in [("Grüße", false), ("", true)] {
            let post = PostSummary { id, title: title.to_owned(), created_at: Timestamp::from_ms(1_700_000_000_123), deleted };
            assert_eq!(decode(id, &encode(&post)), Some(post));
        }
        assert_eq!(decode(id, b""), None);
        assert_eq!(decode(id, b"\x00abc"), None);
        assert_eq!(decode(id, b"\x02abcdefg"), None);
        assert_eq!(decode(id, b"\x00abcdef\xff"), None);
    }
}
