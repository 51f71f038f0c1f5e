//! The originals of the reposts and quotes of a page, as one reader sees them.
//!
//! An item of a page stays in its place and counts as it did, whatever becomes of its original. So a page is made
//! first, and then its originals are read, all together: one trip to Redis, for pages that have reposts or quotes only.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{
    Audience, Card, PostId, PostSummary, ReactionCounts, Reference, StoreError, UserId, Viewer, Withheld, store::Result,
    visibility::may_see_original,
};
use tidemark_views::{KnownOriginals, PageParts};
use tracing::error;

use super::{FeedItem, Readers, post::counted, unless_failed};

/// A live post that the reader sees in the place of its reposts, and in quotes of it.
#[derive(Debug, Clone)]
pub struct Original {
    pub post: PostSummary,
    liked: bool,
    favorited: bool,
    /// Of a repost, if they were asked for.
    counts: ReactionCounts,
}

/// Those originals of a page that are available to the reader.
#[derive(Debug, Clone, Default)]
pub struct Originals {
    of: HashMap<PostId, Original>,
    /// The cards of their authors that the view has returned.
    pub cards: HashMap<UserId, Option<Card>>,
    pub degraded: bool,
}

impl Originals {
    /// Returns the original of a post; `None` if it is not available to the reader.
    pub fn get(&self, of: Reference) -> Option<&Original> {
        self.of.get(&of.original())
    }

    /// Returns an item, and its counts, as they are shown: a repost has the reactions and counts of its original; none
    /// if that is not available.
    pub fn shown(&self, item: FeedItem, counts: ReactionCounts) -> (FeedItem, ReactionCounts) {
        let Some(of) = item.post.of.filter(|of| of.reposted().is_some()) else { return (item, counts) };
        let (liked, favorited, counts) =
            self.get(of).map(|original| (original.liked, original.favorited, original.counts)).unwrap_or_default();
        (FeedItem { liked, favorited, ..item }, counts)
    }
}

impl Readers {
    /// Returns the originals that these posts name and the reader sees. A page without reposts and quotes costs
    /// nothing.
    pub async fn originals(
        &self,
        viewer: Viewer,
        references: impl Iterator<Item = Reference>,
        parts: PageParts,
    ) -> Result<Originals> {
        let references: Vec<Reference> = references.collect();
        let distinct = |ids: &mut dyn Iterator<Item = PostId>| ids.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        let ids = distinct(&mut references.iter().map(|of| of.original()));
        if ids.is_empty() {
            return Ok(Originals::default());
        }
        let reader = viewer.user;
        let reposted = distinct(&mut references.iter().filter_map(|of| of.reposted()));
        let with_counts = if parts.counts { reposted.as_slice() } else { &[] };
        let known = self.stores.views.known_originals(reader, &ids, with_counts, parts.cards);
        let (known, degraded) = unless_failed(reader, self.outage.checked(known).await)?;
        let of_views = known.is_some();
        let KnownOriginals { summaries, mut audiences, mut reactions, cards, mut counts, changed_lately } =
            known.unwrap_or_default();
        let missing: Vec<PostId> = ids.iter().filter(|id| !summaries.contains_key(id)).copied().collect();
        let mut posts = self.readable(&ids, summaries).await?;
        if of_views && !missing.is_empty() {
            // Whether the reader may see an original is read after it.
            let known = self.stores.views.known_originals(reader, &missing, &[], false);
            let later = unless_failed(reader, self.outage.checked(known).await)?.0.unwrap_or_default();
            for id in &missing {
                audiences.remove(&id.author);
                reactions.of.remove(&id.author);
            }
            audiences.extend(later.audiences);
            reactions.of.extend(later.reactions.of);
            reactions.token = later.reactions.token;
        }
        let (reactions, kept_out) = futures::try_join!(
            self.reactions_of_page(reader, &posts, of_views.then_some(reactions)),
            self.kept_out(viewer, &posts, audiences)
        )?;
        let of = |post: &PostSummary| reactions.get(&post.id.author).cloned().unwrap_or_default();
        posts.retain(|post| may_see_original(post.state(), of(post).blocks, kept_out.get(&post.id.author).copied()));
        let reacts = |post: &PostSummary| {
            let state = of(post);
            (state.liked.contains(post.id.seq), state.favorited.contains(post.id.seq))
        };
        if changed_lately {
            // A reader who has just reacted to a post, or reposted it, sees its exact counts.
            counts.clear();
        }
        let shown: Vec<PostId> = posts.iter().map(|post| post.id).filter(|id| with_counts.contains(id)).collect();
        let counts = self.counts_or_exact(&shown, counts, of_views).await?;
        let originals = posts.into_iter().map(|post| {
            let ((liked, favorited), id) = (reacts(&post), post.id);
            (id, Original { post, liked, favorited, counts: counted(&counts, id) })
        });
        Ok(Originals { of: originals.collect(), cards, degraded })
    }

    /// Returns those of these posts that are live and can be read. Each of the others would otherwise hide every page
    /// that has a repost or a quote of it.
    async fn readable(&self, ids: &[PostId], known: HashMap<PostId, PostSummary>) -> Result<Vec<PostSummary>> {
        match self.fill_summaries(ids, known.clone()).await {
            Err(StoreError::DamagedItem { .. }) => {}
            found => return Ok(found?.0),
        }
        let mut posts = Vec::new();
        for &id in ids {
            match self.fill_summaries(&[id], known.clone()).await {
                Err(error @ StoreError::DamagedItem { .. }) => {
                    error!(%id, error = &error as &dyn std::error::Error, "a damaged original is unavailable");
                }
                found => posts.extend(found?.0),
            }
        }
        Ok(posts)
    }

    /// Returns the authors of these posts whose posts are kept from the viewer. `audiences` is what the heads in Redis
    /// say.
    async fn kept_out(
        &self,
        viewer: Viewer,
        posts: &[PostSummary],
        mut audiences: HashMap<UserId, Audience>,
    ) -> Result<HashMap<UserId, Withheld>> {
        let authors: BTreeSet<UserId> = posts.iter().map(|post| post.id.author).filter(|&author| author != viewer.user).collect();
        let unknown: Vec<UserId> = authors.iter().filter(|author| !audiences.contains_key(author)).copied().collect();
        audiences.extend(self.heads_of_facts(&unknown).await?.into_iter().map(|(author, head)| (author, head.audience())));
        audiences.retain(|author, _| authors.contains(author));
        self.stores.facts.kept_out(viewer, audiences).await
    }
}
