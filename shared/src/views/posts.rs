//! [`PostViews`] on Redis.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{connection::Redis, keys, reactions};
use crate::{
    domain::{FeedKey, PostId, PostSummary, Timestamp, UserId},
    ports::{KnownReactions, PostViews, ViewError},
};

/// First byte of a summary: the post lives, or is deleted. Six bytes of time (ms, big-endian) and the title in UTF-8 follow.
const LIVE: u8 = 0;
const DELETED: u8 = 1;

#[async_trait]
impl PostViews for Redis {
    async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>, ViewError> {
        if posts.is_empty() {
            return Ok(HashMap::new());
        }
        let values: Vec<Option<Vec<u8>>> = self.query("summaries", &ask(posts)).await?;
        Ok(known(posts, values))
    }

    async fn page(&self, reader: UserId, posts: &[PostId]) -> Result<(HashMap<PostId, PostSummary>, KnownReactions), ViewError> {
        if posts.is_empty() {
            return Ok(Default::default());
        }
        let mut authors: Vec<UserId> = posts.iter().map(|post| post.author).collect();
        authors.sort_unstable();
        authors.dedup();
        let mut pipeline = redis::pipe();
        pipeline.add_command(ask(posts)).add_command(reactions::ask(reader, &authors));
        let (values, states): (_, Vec<Option<Vec<u8>>>) = self.pipeline("page", &pipeline).await?;
        Ok((known(posts, values), reactions::known(&authors, &states)))
    }

    async fn remember(&self, posts: &[PostSummary]) -> Result<(), ViewError> {
        let mut pipeline = redis::pipe();
        for post in posts {
            // Not over what is there: a deletion may have come since the facts were read.
            set(&mut pipeline, post).arg("NX").ignore();
        }
        self.pipeline("remember", &pipeline).await
    }

    async fn bury(&self, post: FeedKey) -> Result<(), ViewError> {
        let tombstone = PostSummary { id: post.post, title: String::new(), created_at: post.at, deleted: true };
        let mut pipeline = redis::pipe();
        set(&mut pipeline, &tombstone).ignore();
        self.change("bury", &pipeline).await
    }
}

fn ask(posts: &[PostId]) -> redis::Cmd {
    let mut command = redis::cmd("MGET");
    for &post in posts {
        command.arg(keys::post(post));
    }
    command
}

/// What cannot be read counts as unknown: the facts are asked, and its lifetime ends it.
fn known(posts: &[PostId], values: Vec<Option<Vec<u8>>>) -> HashMap<PostId, PostSummary> {
    posts.iter().zip(values).filter_map(|(&post, value)| Some((post, decode(post, &value?)?))).collect()
}

fn set<'a>(pipeline: &'a mut redis::Pipeline, post: &PostSummary) -> &'a mut redis::Pipeline {
    let lifetime = keys::POST_LIFETIME.as_millis() as u64;
    pipeline.cmd("SET").arg(keys::post(post.id)).arg(encode(post)).arg("PX").arg(lifetime)
}

fn encode(post: &PostSummary) -> Vec<u8> {
    let mut bytes = vec![if post.deleted { DELETED } else { LIVE }];
    bytes.extend_from_slice(&post.created_at.ms().to_be_bytes()[2..]);
    bytes.extend_from_slice(post.title.as_bytes());
    bytes
}

pub(super) fn decode(id: PostId, bytes: &[u8]) -> Option<PostSummary> {
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
    fn summaries_come_back_and_damaged_ones_are_unknown() {
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
