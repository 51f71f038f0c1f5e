//! Pull: a read compares the view with the heads of pulled authors, and adds the missing posts.

use std::collections::HashMap;

use futures::{FutureExt, future::BoxFuture};
use tidemark_domain::{
    AuthorHead, AuthorState, Edge, FeedKey, PostId, PostSummary, ReadState, ReaderState, Seq, UserId, store::Result,
};
use tidemark_views::Seed;

use super::{Readers, feed::ALL};
use crate::in_parallel;

impl Readers {
    /// Returns the authors of whom the view lacks changes that are not pushed to it, with their heads.
    pub(super) async fn stale(&self, state: &ReaderState) -> Result<Vec<(UserId, AuthorHead)>> {
        let asking: Vec<(UserId, &AuthorState)> =
            state.authors.iter().filter(|(_, state)| state.asks()).map(|(author, state)| (*author, state)).collect();
        if asking.is_empty() {
            return Ok(Vec::new());
        }
        let mut heads = self.pulled_heads(&asking).await?;
        let stale = |(author, state): (UserId, &AuthorState)| {
            heads.remove(&author).filter(|head| state.is_behind(head)).map(|head| (author, head))
        };
        Ok(asking.into_iter().filter_map(stale).collect())
    }

    /// Updates the view to these heads, as a worker does for pushed authors.
    pub(super) async fn catch_up(&self, user: UserId, state: &ReaderState, stale: Vec<(UserId, AuthorHead)>) -> Result<()> {
        let authors: Vec<UserId> = stale.iter().map(|(author, _)| *author).collect();
        let (edges, reads) =
            futures::try_join!(self.stores.facts.edges(user, &authors), self.stores.facts.reads(user, &authors))?;
        self.retract_deleted(user, state, &stale).await?;
        let nothing = ReadState::default();
        let mut seeds: Vec<BoxFuture<'_, Result<()>>> = Vec::with_capacity(stale.len());
        for (author, head) in &stale {
            let field = state.authors.get(author);
            match edges.get(author).filter(|edge| edge.following && field.is_some_and(|field| field.rev == edge.rev)) {
                Some(edge) => {
                    // Read and retracted posts count as delivered, but may never have been fetched.
                    let known = field.map_or(0, |field| field.through.min(field.pull_cursor.seq));
                    seeds.push(self.seed_news(user, edge, head, reads.get(author).unwrap_or(&nothing), known).boxed());
                }
                // The view missed an unfollow, or a choice: the end of a mute needs more than the news.
                None => seeds.push(async { self.sync(user, &[*author]).await }.boxed()),
            }
        }
        in_parallel(seeds).await.into_iter().collect()
    }

    /// Removes the entries of posts that these authors have deleted. Nobody retracts posts of pulled authors. If this
    /// ends before the seed, the next read does it again.
    async fn retract_deleted(&self, user: UserId, state: &ReaderState, stale: &[(UserId, AuthorHead)]) -> Result<()> {
        let has_news = |(author, head): &&(UserId, AuthorHead)| {
            state.authors.get(author).is_some_and(|field| head.deletions() > field.pull_cursor.deletions)
        };
        let heads: HashMap<UserId, &AuthorHead> = stale.iter().filter(has_news).map(|(author, head)| (*author, head)).collect();
        if heads.is_empty() {
            return Ok(());
        }
        let Some(view) = self.stores.views.reader_view(user, ALL).await? else { return Ok(()) };
        let deleted = view.entries.iter().filter_map(|key| {
            let head = *heads.get(&key.post.author)?;
            head.deleted.contains(key.post.seq).then_some((*key, head))
        });
        let retractions: Vec<BoxFuture<'_, Result<()>>> = deleted
            .map(|(key, head)| {
                let retract =
                    async move { self.stores.views.retract(&[user], key, head.deletions(), head.modes).await.map(drop) };
                retract.boxed()
            })
            .collect();
        in_parallel(retractions).await.into_iter().collect()
    }

    /// Adds the posts that an author published after `known`.
    async fn seed_news(&self, user: UserId, edge: &Edge, head: &AuthorHead, reads: &ReadState, known: Seq) -> Result<()> {
        let after = known.max(edge.floor);
        let most = if edge.muted.is_some() { 0 } else { self.feed_cap.filled() };
        let news = head.feed_seqs(after, head.latest_seq, most);
        let news: Vec<PostId> = news.into_iter().map(|seq| PostId::new(edge.author, seq)).collect();
        let (posts, _) = self.summaries(&news).await?;
        let entries: Vec<FeedKey> = posts.iter().map(PostSummary::key).collect();
        let low = entries.iter().min().filter(|_| news.len() == self.feed_cap.filled()).copied();
        let state = AuthorState::from_facts(edge, head, reads);
        // If the view has newer facts by now, the next read compares it again.
        self.stores.views.seed(user, &Seed { authors: vec![(edge.author, state)], entries, token: None, low }).await?;
        Ok(())
    }

    /// Returns heads from Redis. Reads the facts if Redis has no head, or a head that is older than the view.
    async fn pulled_heads(&self, asking: &[(UserId, &AuthorState)]) -> Result<HashMap<UserId, AuthorHead>> {
        let authors: Vec<UserId> = asking.iter().map(|(author, _)| *author).collect();
        let mut heads = self.stores.views.heads(&authors).await?;
        let is_known = |author: &UserId, state: &AuthorState| heads.get(author).is_some_and(|head| !state.is_ahead_of(head));
        let unknown: Vec<UserId> =
            asking.iter().filter(|(author, state)| !is_known(author, state)).map(|(author, _)| *author).collect();
        heads.extend(self.heads_of_facts(&unknown).await?);
        Ok(heads)
    }
}
