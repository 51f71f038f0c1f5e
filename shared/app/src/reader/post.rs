//! One post with its text and counts, as one reader sees it.

use std::collections::HashMap;

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use tidemark_domain::{Card, Post, PostId, PostSummary, PostText, ReactionCounts, UserId};
use tracing::warn;

use super::Readers;
use crate::{
    error::{Store, StoreError},
    ports::{CountsVersion, KnownPost, KnownReader},
};

/// A live post as one user sees it.
#[derive(Debug, Clone)]
pub struct PostDetails {
    pub post: PostSummary,
    pub text: PostText,
    pub read: bool,
    pub liked: bool,
    pub favorited: bool,
    /// Reactions of all users.
    pub counts: ReactionCounts,
    /// The author's card, if the view returned it with the post.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Whether facts were read because Redis was unavailable.
    pub degraded: bool,
}

/// The part of a post that a page has only if it is asked for.
#[derive(Debug, Clone, Default)]
pub struct Body {
    pub text: PostText,
    pub counts: ReactionCounts,
}

/// How many posts are read in parallel.
const PARALLEL: usize = 16;

impl Readers {
    /// Returns those of these posts that are live, in order.
    pub async fn posts(&self, reader: UserId, ids: &[PostId]) -> Result<Vec<PostDetails>, StoreError> {
        let Some((&first, rest)) = ids.split_first() else { return Ok(Vec::new()) };
        // The first post rebuilds the reader's view, if it is missing. All others use it.
        let first = self.post(reader, first).boxed().await?;
        let rest: Vec<BoxFuture<'_, _>> = rest.iter().map(|&id| self.post(reader, id).boxed()).collect();
        let rest: Vec<Option<PostDetails>> = stream::iter(rest).buffered(PARALLEL).try_collect().await?;
        Ok(first.into_iter().chain(rest.into_iter().flatten()).collect())
    }

    /// Returns a live post; `None` if it is deleted or unknown. A post that is read often costs one round trip to Redis.
    /// A hot post may be a second old, except for its author and for a caller who has made a change in the meantime.
    pub async fn post(&self, reader: UserId, id: PostId) -> Result<Option<PostDetails>, StoreError> {
        let hot = self.hot_posts.is_hot(&id) && reader != id.author;
        let mut found = match hot.then(|| self.hot_posts.get(&id)).flatten() {
            Some(kept) => self.hot_post(reader, id, kept).boxed().await,
            None => Ok(None),
        };
        if let Ok(None) = found {
            found = self.cached_post(reader, id).boxed().await;
            if hot && let Ok(Some(PostDetails { post, text, counts, cards, .. })) = &found {
                let (text, card) = (Some(text.clone()), cards.get(&id.author).cloned());
                self.hot_posts.put(
                    id,
                    KnownPost { summary: Some(post.clone()), text, counts: Some(*counts), card, ..KnownPost::default() },
                );
            }
        }
        match found {
            Err(error) if error.store() == Store::Views => {
                warn!(%id, error = &error as &dyn std::error::Error, "view unavailable, responding from the facts");
                self.post_of_facts(reader, id, error.is_unavailable()).await
            }
            found => found,
        }
    }

    /// Returns a post from memory; `None` if the reader has made a change.
    async fn hot_post(&self, reader: UserId, id: PostId, kept: KnownPost) -> Result<Option<PostDetails>, StoreError> {
        let (outage, known) = futures::join!(self.outage.check(), self.stores.post_views.of_reader(reader, id.author));
        match outage.and(known)? {
            known if known.changed_lately => Ok(None),
            known => self.known_post(reader, id, kept, &known).await,
        }
    }

    async fn cached_post(&self, reader: UserId, id: PostId) -> Result<Option<PostDetails>, StoreError> {
        let (outage, known) = futures::join!(self.outage.check(), self.stores.post_views.post(reader, id));
        let (post, known) = outage.and(known)?;
        self.known_post(reader, id, post, &known).await
    }

    /// Completes what Redis knows.
    async fn known_post(
        &self,
        reader: UserId,
        id: PostId,
        known: KnownPost,
        of_reader: &KnownReader,
    ) -> Result<Option<PostDetails>, StoreError> {
        let KnownPost { summary, text, counts, counts_in_motion, card } = known;
        // A deleted post has no text.
        let text = if summary.as_ref().is_some_and(|summary| summary.deleted) { Some(PostText::default()) } else { text };
        let (post, text) = match summary.zip(text) {
            Some(known) => known,
            None => {
                let Some((post, text)) = self.fact_of(id).await? else { return Ok(None) };
                let post = PostSummary::from(post);
                if let Err(error) = self.stores.post_views.remember(&[(post.clone(), Some(text.clone()))]).await {
                    warn!(%id, error = &error as &dyn std::error::Error, "post not stored");
                }
                (post, text)
            }
        };
        if post.deleted {
            return Ok(None);
        }
        let seqs = [id.seq];
        let (counts, sight, reactions) = futures::try_join!(
            // A reader who has just reacted sees the exact counts.
            self.counts_of(id, counts.filter(|_| !(counts_in_motion && of_reader.changed_lately))),
            self.sight(reader, id.author, of_reader, &seqs),
            self.reactions_of_page(reader, std::slice::from_ref(&post), Some(of_reader.reactions.clone()))
        )?;
        let reactions = reactions.get(&id.author);
        Ok(Some(PostDetails {
            read: sight.is_read(id.seq),
            liked: reactions.is_some_and(|state| state.liked.contains(id.seq)),
            favorited: reactions.is_some_and(|state| state.favorited.contains(id.seq)),
            counts,
            text,
            cards: card.map(|card| (id.author, card)).into_iter().collect(),
            post,
            degraded: false,
        }))
    }

    async fn post_of_facts(&self, reader: UserId, id: PostId, degraded: bool) -> Result<Option<PostDetails>, StoreError> {
        let Some((post, text)) = self.fact_of(id).await?.filter(|(post, _)| !post.deleted) else { return Ok(None) };
        let (flags, reactions, counts) = futures::try_join!(
            self.flags(reader, id.author),
            self.reactions_to(reader, id.author),
            self.stores.reactions.counts(id)
        )?;
        Ok(Some(PostDetails {
            post: post.into(),
            text,
            read: flags.is_read(id.seq),
            liked: reactions.liked.contains(id.seq),
            favorited: reactions.favorited.contains(id.seq),
            counts: counts.counts,
            cards: HashMap::new(),
            degraded,
        }))
    }

    /// Returns a post or its tombstone, with the text of the same revision, from the facts.
    async fn fact_of(&self, id: PostId) -> Result<Option<(Post, PostText)>, StoreError> {
        Ok(self.stores.posts.with_texts(&[id]).await?.remove(&id))
    }

    /// Returns texts and counts of live posts. Redis has returned some of them already. A post that was edited in the
    /// meantime gets its new title.
    pub(super) async fn bodies(
        &self,
        posts: &mut [PostSummary],
        mut texts: HashMap<PostId, PostText>,
        counts: HashMap<PostId, ReactionCounts>,
    ) -> Result<HashMap<PostId, Body>, StoreError> {
        let missing: Vec<PostId> = posts.iter().map(|post| post.id).filter(|id| !texts.contains_key(id)).collect();
        if !missing.is_empty() {
            let mut found = self.stores.posts.with_texts(&missing).await?;
            let stored: Vec<(PostSummary, Option<PostText>)> =
                found.values().map(|(post, text)| (PostSummary::from(post.clone()), Some(text.clone()))).collect();
            if let Err(error) = self.stores.post_views.remember(&stored).await {
                warn!(error = &error as &dyn std::error::Error, "posts not stored");
            }
            for post in posts.iter_mut() {
                if let Some((found, text)) = found.remove(&post.id).filter(|(found, _)| !found.deleted) {
                    *post = found.into();
                    texts.insert(post.id, text);
                }
            }
        }
        let known: Vec<(PostId, Option<ReactionCounts>)> =
            posts.iter().map(|post| (post.id, counts.get(&post.id).copied())).collect();
        let counted =
            known.into_iter().map(|(id, known)| async move { Ok((id, self.counts_or_exact(id, known).await?)) }.boxed());
        let counted: Vec<(PostId, ReactionCounts)> =
            stream::iter(counted.collect::<Vec<BoxFuture<'_, _>>>()).buffered(PARALLEL).try_collect().await?;
        let body = |(id, counts)| (id, Body { text: texts.remove(&id).unwrap_or_default(), counts });
        Ok(counted.into_iter().map(body).collect())
    }

    /// The same from the facts alone.
    pub(super) async fn bodies_of_facts(&self, posts: &mut [Post]) -> Result<HashMap<PostId, Body>, StoreError> {
        let ids: Vec<PostId> = posts.iter().map(|post| post.id).collect();
        let mut found = self.stores.posts.with_texts(&ids).await?;
        let mut texts = HashMap::with_capacity(ids.len());
        for post in posts {
            if let Some((of_text, text)) = found.remove(&post.id).filter(|(found, _)| !found.deleted) {
                texts.insert(post.id, text);
                *post = of_text;
            }
        }
        let counted: Vec<BoxFuture<'_, _>> = ids.iter().map(|&id| self.stores.reactions.counts(id)).collect();
        let counted: Vec<CountsVersion> = stream::iter(counted).buffered(PARALLEL).try_collect().await?;
        let mut body = |id, counts: CountsVersion| Body { text: texts.remove(&id).unwrap_or_default(), counts: counts.counts };
        Ok(ids.into_iter().zip(counted).map(|(id, counts)| (id, body(id, counts))).collect())
    }

    /// Returns the counts of a post, also if Redis is unavailable.
    async fn counts_or_exact(&self, id: PostId, known: Option<ReactionCounts>) -> Result<ReactionCounts, StoreError> {
        match self.counts_of(id, known).await {
            Err(error) if error.store() == Store::Views => Ok(self.stores.reactions.counts(id).await?.counts),
            counts => counts,
        }
    }

    /// Returns the counts of a post. Counts that Redis does not have are read from the facts and stored.
    pub(super) async fn counts_of(&self, id: PostId, known: Option<ReactionCounts>) -> Result<ReactionCounts, StoreError> {
        if let Some(counts) = known {
            return Ok(counts);
        }
        let token = (self.stores.random)();
        self.stores.post_views.lease_counts(id, token).await?;
        let counts = self.stores.reactions.counts(id).await?;
        if let Err(error) = self.stores.post_views.store_counts(id, counts, token).await {
            warn!(%id, error = &error as &dyn std::error::Error, "counts not stored");
        }
        Ok(counts.counts)
    }
}
