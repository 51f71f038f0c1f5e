//! The times of authors' posts, for many questions about the same authors.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tidemark_domain::{AuthorHead, Seq, Timestamp, UserId};

use super::{Facts, Result};

/// For an author with at most this number of posts, all times are loaded at once. Otherwise each time is looked up.
const LOADED: u64 = 1_000;

/// Posts whose times are kept.
const KEPT: usize = 1_000_000;

/// Times and sequence numbers of one author's posts without archived ones, ascending.
type Times = Arc<Vec<(Timestamp, Seq)>>;

/// The times that are kept, by author and latest sequence number, and the number of all posts in them.
type Kept = (HashMap<(UserId, Seq), Times>, usize);

/// Keeps the times of authors with few posts. The value for a key never changes.
#[derive(Debug, Default)]
pub struct PostTimes {
    kept: Mutex<Kept>,
}

impl PostTimes {
    /// Returns the author's latest sequence number at a time, 0 before the first post.
    pub async fn latest_at(&self, facts: &Facts, author: UserId, head: &AuthorHead, at: Timestamp) -> Result<Seq> {
        if at >= head.latest_at || head.latest_seq == 0 {
            return Ok(head.latest_seq);
        }
        if head.latest_seq > LOADED {
            return Ok(facts.last_post_at(author, at).await?.map_or(0, |last| last.post.seq));
        }
        let key = (author, head.latest_seq);
        let known = self.locked(|(kept, _)| kept.get(&key).cloned());
        let times = match known {
            Some(times) => times,
            None => {
                let posts = facts.author_timeline(author, 0, head.latest_seq, LOADED as usize).await?;
                let ordered = posts.iter().rev().filter(|post| !post.archived).map(|post| (post.created_at, post.id.seq));
                let times: Times = Arc::new(ordered.collect());
                self.keep(key, &times);
                times
            }
        };
        let older = times.partition_point(|(created, _)| *created <= at);
        Ok(older.checked_sub(1).map_or(0, |last| times[last].1))
    }

    fn keep(&self, key: (UserId, Seq), times: &Times) {
        self.locked(|(kept, posts)| {
            if *posts + times.len() > KEPT {
                kept.clear();
                *posts = 0;
            }
            *posts += times.len() + 1;
            kept.insert(key, Arc::clone(times));
        });
    }

    fn locked<T>(&self, with: impl FnOnce(&mut Kept) -> T) -> T {
        with(&mut self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
