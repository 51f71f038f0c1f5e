//! The authors with unread posts, in the order of the feed.

use std::collections::HashMap;

use tidemark_domain::{AuthorState, FeedKey, PostId, ReaderState, Timestamp, UserId, store::Result};

use super::{Readers, shared::HeadsFrom};

impl Readers {
    /// Returns the authors with unread posts and the numbers of these posts. The author of the most recent post is
    /// first: of the author's newest post in the feed, read or not. Its time is looked up only if a newer post is
    /// deleted.
    pub async fn unread_authors(&self, state: &ReaderState) -> Result<Vec<(UserId, u64)>> {
        let unread = state.heard().map(|(author, state)| (author, state, state.unread()));
        let unread: Vec<(UserId, &AuthorState, u64)> = unread.filter(|(_, _, unread)| *unread > 0).collect();
        let unknown = unread.iter().filter(|(_, state, _)| state.newest_live().is_none()).map(|(author, ..)| *author);
        let unknown: Vec<UserId> = unknown.collect();
        let heads = if unknown.is_empty() { HashMap::new() } else { self.authors(&unknown, HeadsFrom::Views).await?.heads };
        let newest = |author, state: &AuthorState| {
            let of_head = || heads.get(&author)?.feed_seqs(state.floor, state.newest_delivered(), 1).first().copied();
            PostId::new(author, state.newest_live().or_else(of_head).unwrap_or_else(|| state.newest_delivered()))
        };
        let placed = unread.into_iter().map(|(author, state, unread)| (newest(author, state), state, unread));
        let placed: Vec<(PostId, &AuthorState, u64)> = placed.collect();
        let older = placed.iter().filter(|(post, state, _)| post.seq < state.newest_delivered()).map(|(post, ..)| *post);
        let times = self.times(&older.collect::<Vec<_>>()).await?;
        let key = |post, state: &AuthorState| FeedKey { at: times.get(&post).copied().unwrap_or(state.newest_at), post };
        let mut authors: Vec<(FeedKey, u64)> =
            placed.into_iter().map(|(post, state, unread)| (key(post, state), unread)).collect();
        authors.sort_unstable_by(|a, b| b.cmp(a));
        Ok(authors.into_iter().map(|(key, unread)| (key.post.author, unread)).collect())
    }

    async fn times(&self, posts: &[PostId]) -> Result<HashMap<PostId, Timestamp>> {
        if posts.is_empty() {
            return Ok(HashMap::new());
        }
        Ok(self.live_summaries(posts).await?.into_iter().map(|post| (post.id, post.created_at)).collect())
    }
}
