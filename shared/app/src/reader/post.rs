//! One post with its text and counts, as one reader sees it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::{BoxFuture, try_join_all},
    stream,
};
use tidemark_domain::{
    Audience, Card, CountsVersion, PostId, PostSummary, PostText, ReactionCounts, ReactionState, Seen, Seq, Standing, Store,
    StoreError, UserId, Viewer, Withheld,
    store::Result,
    visibility::{gone, may_see, retain_seen},
};
use tidemark_views::{KnownFollow, KnownPage, KnownPost, KnownReader, PageParts};
use tracing::{error, warn};

use super::{FeedItem, Readers, sight::Sight, unless_failed};
use crate::PARALLEL;

/// A live post as one user sees it.
#[derive(Debug, Clone)]
pub struct PostDetails {
    pub item: FeedItem,
    pub text: PostText,
    /// Reactions of all users.
    pub counts: ReactionCounts,
    /// The author's card, if the view returned it with the post.
    pub cards: HashMap<UserId, Option<Card>>,
    pub degraded: bool,
}

type FoundPost = Result<Seen<Box<PostDetails>>>;

/// What a page has of a post with `include=counts` or `include=body`.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// Only with `include=body`.
    pub text: Option<PostText>,
    pub counts: ReactionCounts,
}

/// The texts of these posts are longer than [`MOST_TEXT`] together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuchText;

/// Posts whose counts are read and stored together. A counts lease is short, and a failed read stores none of them.
const COUNTED_TOGETHER: usize = 25;

/// The most bytes of text in a response. Lambda returns at most 6 MB, and JSON inside JSON may make seven bytes of one.
pub const MOST_TEXT: usize = 800 * 1024;

/// Ends a page where its texts, which have these bytes, become longer than [`MOST_TEXT`]. No single text is. Returns
/// whether items were removed.
pub(crate) fn shorten<T>(items: &mut Vec<T>, text_bytes: impl Fn(&T) -> usize) -> bool {
    let (before, mut bytes) = (items.len(), 0);
    let fit = items.iter().take_while(|item| {
        bytes += text_bytes(item);
        bytes <= MOST_TEXT
    });
    let fit = fit.count();
    items.truncate(fit);
    fit < before
}

impl Readers {
    /// Returns those of these posts that are live and that the reader may see, in order. Damaged posts are left out.
    pub async fn posts(&self, viewer: impl Into<Viewer>, ids: &[PostId]) -> Result<Result<Vec<PostDetails>, TooMuchText>> {
        let viewer = viewer.into();
        let found = match self.known_posts(viewer, ids).boxed().await {
            // Each of the others may be found alone.
            Err(error) if error.store() == Store::Views || matches!(error, StoreError::DamagedItem { .. }) => {
                warn!(reader = %viewer.user, error = &error as &dyn std::error::Error, "posts are read one by one");
                let posts: Vec<BoxFuture<'_, _>> = ids.iter().map(|&id| self.post_unless_damaged(viewer, id).boxed()).collect();
                let posts: Vec<Option<PostDetails>> = stream::iter(posts).buffered(PARALLEL).try_collect().await?;
                posts.into_iter().flatten().collect()
            }
            found => found?,
        };
        let bytes: usize = found.iter().map(|post| post.text.bytes()).sum();
        Ok(if bytes > MOST_TEXT { Err(TooMuchText) } else { Ok(found) })
    }

    /// The same, in as many trips for many posts as for one, if Redis knows them.
    async fn known_posts(&self, viewer: Viewer, ids: &[PostId]) -> Result<Vec<PostDetails>> {
        let reader = viewer.user;
        let distinct: Vec<PostId> = ids.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let (page, mut of_reader) = self.outage.checked(self.stores.views.known_posts(reader, &distinct)).await?;
        let KnownPage { mut summaries, reactions, cards, mut texts, mut counts } = page;
        let lacks = |id: &PostId| summaries.get(id).is_none_or(|post| !post.deleted && !texts.contains_key(id));
        let missing: Vec<PostId> = distinct.iter().copied().filter(lacks).collect();
        if !missing.is_empty() {
            let lease = self.lease_posts(&missing).await;
            let read = self.stores.facts.posts_with_texts(&missing).await?;
            let read: Vec<(PostSummary, Option<PostText>)> = read.into_values().map(|(post, text)| (post.into(), text)).collect();
            self.store_posts(&read, lease).await;
            for (post, text) in read {
                texts.extend(text.map(|text| (post.id, text)));
                summaries.insert(post.id, post);
            }
            // Whether the reader may see a post is read after the post.
            of_reader.extend(self.outage.checked(self.stores.views.known_posts(reader, &missing)).await?.1);
        }
        // A damaged text has been logged.
        let mut live: Vec<PostSummary> = distinct.iter().filter_map(|id| summaries.remove(id)).collect();
        live.retain(|post| texts.contains_key(&post.id));
        retain_seen(&mut live, |_| Standing::Open);
        let (sights, reactions) = futures::try_join!(
            self.sights(viewer, &live, &mut of_reader),
            self.reactions_of_page(reader, &live, Some(reactions))
        )?;
        let nothing = ReactionState::default();
        let of = |author: &UserId| reactions.get(author).unwrap_or(&nothing);
        if of_reader.values().any(|known| known.changed_lately) {
            // A reader who has just reacted to a post sees its exact counts.
            counts.retain(|post, _| {
                let ReactionState { liked, favorited, .. } = of(&post.author);
                !(liked.contains(post.seq) || favorited.contains(post.seq))
            });
        }
        retain_seen(&mut live, |author| sights[&author].standing);
        let shown: Vec<PostId> = live.iter().map(|post| post.id).collect();
        let counts = self.counts_of(&shown, counts).await?;
        let details = live.into_iter().map(|post| {
            let (id, text) = (post.id, texts.remove(&post.id).unwrap_or_default());
            let item = FeedItem::new(post, sights[&id.author].is_read(id.seq), of(&id.author));
            let cards = cards.get(&id.author).map(|card| (id.author, card.clone())).into_iter().collect();
            (id, PostDetails { item, text, counts: counted(&counts, id), cards, degraded: false })
        });
        let details: HashMap<PostId, PostDetails> = details.collect();
        Ok(ids.iter().filter_map(|id| details.get(id).cloned()).collect())
    }

    /// Returns what the reader sees of the authors of these posts. A missing view is rebuilt once.
    async fn sights(
        &self,
        viewer: Viewer,
        posts: &[PostSummary],
        known: &mut HashMap<UserId, KnownReader>,
    ) -> Result<HashMap<UserId, Sight>> {
        let reader = viewer.user;
        let mut by_author: BTreeMap<UserId, Vec<Seq>> = BTreeMap::new();
        for post in posts {
            by_author.entry(post.id.author).or_default().push(post.id.seq);
        }
        let is_unknown =
            |author: &&UserId| **author != reader && known.get(author).is_none_or(|known| known.follow == KnownFollow::Unknown);
        let unknown: Vec<UserId> = by_author.keys().filter(is_unknown).copied().collect();
        if !unknown.is_empty() {
            let mut states = self.snapshot(reader).await?.state.authors;
            for author in unknown {
                known.entry(author).or_default().follow = states.remove(&author).into();
            }
        }
        let lacks_audience = |author: &&UserId| {
            **author != reader
                && known.get(author).is_some_and(|known| known.follow == KnownFollow::NotFollowing && known.audience.is_none())
        };
        let strangers: Vec<UserId> = by_author.keys().filter(lacks_audience).copied().collect();
        for (author, head) in self.heads_of_facts(&strangers).await? {
            known.entry(author).or_default().audience = Some(head.audience());
        }
        let (known, nothing) = (&*known, KnownReader::default());
        let lacks_marks = |author: &UserId| {
            let known = known.get(author).unwrap_or(&nothing);
            *author != reader && known.follow == KnownFollow::NotFollowing && known.marks.is_none()
        };
        let unmarked: Vec<UserId> = by_author.keys().copied().filter(lacks_marks).collect();
        let mut found: HashMap<UserId, Sight> = self.marks(viewer, &unmarked).await?.into_iter().collect();
        by_author.retain(|author, _| !found.contains_key(author));
        let sights: Vec<BoxFuture<'_, Result<(UserId, Sight)>>> = by_author
            .iter()
            .map(|(&author, seqs)| {
                let known = known.get(&author).unwrap_or(&nothing);
                async move { Ok((author, self.sight(viewer, author, known, seqs).await?)) }.boxed()
            })
            .collect();
        let sights: Vec<(UserId, Sight)> = stream::iter(sights).buffered(PARALLEL).try_collect().await?;
        found.extend(sights);
        Ok(found)
    }

    async fn post_unless_damaged(&self, viewer: Viewer, id: PostId) -> Result<Option<PostDetails>> {
        match self.post(viewer, id).await {
            Err(error @ StoreError::DamagedItem { .. }) => {
                error!(%id, error = &error as &dyn std::error::Error, "a damaged post is left out");
                Ok(None)
            }
            found => Ok(found?.ok().map(|post| *post)),
        }
    }

    /// Returns a live post. A post that Redis has costs one round trip.
    pub async fn post(&self, viewer: impl Into<Viewer>, id: PostId) -> FoundPost {
        let viewer = viewer.into();
        match unless_failed(viewer.user, self.cached_post(viewer, id).boxed().await)? {
            (Some(found), _) => Ok(found),
            (None, degraded) => self.post_of_facts(viewer, id, degraded).await,
        }
    }

    /// Reads what Redis knows of a post, and completes it.
    async fn cached_post(&self, viewer: Viewer, id: PostId) -> FoundPost {
        let reader = viewer.user;
        let (known, mut of_reader) = self.outage.checked(self.stores.views.known_post(reader, id)).await?;
        let KnownPost { summary, text, counts, counts_in_motion, cards } = known;
        // A deleted post has no text.
        let text = if summary.as_ref().is_some_and(|summary| summary.deleted) { Some(PostText::default()) } else { text };
        let (post, text) = match summary.zip(text) {
            Some(known) => known,
            None => {
                let lease = self.lease_posts(&[id]).await;
                let Some((post, text)) = self.fact_of(id).await? else {
                    return Ok(Err(self.gone(viewer, id, of_reader.audience).await?));
                };
                self.store_posts(&[(post.clone(), Some(text.clone()))], lease).await;
                // Whether the reader may see a post is read after the post.
                of_reader = self.outage.checked(self.stores.views.known_post(reader, id)).await?.1;
                (post, text)
            }
        };
        if post.deleted {
            return Ok(Err(self.gone(viewer, id, of_reader.audience).await?));
        }
        let (ids, seqs) = ([id], [id.seq]);
        // A reader who has just reacted sees the exact counts.
        let counts = counts.filter(|_| !(counts_in_motion && of_reader.changed_lately));
        let (counts, sight, reactions) = futures::try_join!(
            self.counts_of(&ids, counts.map(|counts| (id, counts)).into_iter().collect()),
            self.sight(viewer, id.author, &of_reader, &seqs),
            self.reactions_of_page(reader, std::slice::from_ref(&post), Some(of_reader.reactions.clone()))
        )?;
        if let Err(withheld) = may_see(post.state(), sight.standing) {
            return Ok(Err(withheld));
        }
        let nothing = ReactionState::default();
        let item = FeedItem::new(post, sight.is_read(id.seq), reactions.get(&id.author).unwrap_or(&nothing));
        Ok(Ok(Box::new(PostDetails { item, text, counts: counted(&counts, id), cards, degraded: false })))
    }

    /// Returns the reason why the viewer does not see a post that is gone. `audience` is what Redis knows of it.
    async fn gone(&self, viewer: Viewer, id: PostId, audience: Option<Audience>) -> Result<Withheld> {
        match audience {
            Some(Audience::Everyone | Audience::Nobody) => Ok(Withheld::Gone),
            _ => Ok(gone(self.stores.facts.standing(viewer, id.author).await?)),
        }
    }

    async fn post_of_facts(&self, viewer: Viewer, id: PostId, degraded: bool) -> FoundPost {
        let live = self.fact_of(id).await?.filter(|(post, _)| !post.deleted);
        let Some((post, text)) = live else { return Ok(Err(self.gone(viewer, id, None).await?)) };
        let (sight, reactions, counts) = futures::try_join!(
            self.sight_of_facts(viewer, id.author),
            self.reactions_to(viewer.user, id.author),
            self.stores.facts.reaction_counts(id)
        )?;
        if let Err(withheld) = may_see(post.state(), sight.standing) {
            return Ok(Err(withheld));
        }
        let item = FeedItem::new(post, sight.is_read(id.seq), &reactions);
        Ok(Ok(Box::new(PostDetails { item, text, counts: counts.counts, cards: HashMap::new(), degraded })))
    }

    /// Returns a post or its tombstone, with the text of the same revision, from the facts.
    async fn fact_of(&self, id: PostId) -> Result<Option<(PostSummary, PostText)>> {
        let Some((post, text)) = self.stores.facts.posts_with_texts(&[id]).await?.remove(&id) else { return Ok(None) };
        let damaged = || StoreError::DamagedItem { table: "posts", key: id.to_string(), detail: "text".to_owned() };
        Ok(Some((post.into(), text.ok_or_else(damaged)?)))
    }

    /// Returns those parts of a page's live posts that are wanted. `known` is what Redis has returned; without it, all
    /// comes from the facts. With texts, an edited post gets its new title, and a damaged text is left out.
    ///
    /// Removes edited posts that the viewer may no longer see, and posts beyond [`MOST_TEXT`], and returns whether
    /// there were any of the latter.
    pub(super) async fn bodies(
        &self,
        viewer: Viewer,
        parts: PageParts,
        posts: &mut Vec<PostSummary>,
        known: Option<(HashMap<PostId, PostText>, HashMap<PostId, ReactionCounts>)>,
    ) -> Result<(HashMap<PostId, Body>, bool)> {
        if !parts.counts {
            return Ok(Default::default());
        }
        let of_views = known.is_some();
        let (mut texts, mut counts) = known.unwrap_or_default();
        // A repost has no text, and the counts of its original.
        for repost in posts.iter().filter(|post| post.reposted().is_some()) {
            if parts.texts {
                texts.entry(repost.id).or_default();
            }
            counts.insert(repost.id, ReactionCounts::default());
        }
        let missing: Vec<PostId> = posts.iter().map(|post| post.id).filter(|id| !texts.contains_key(id)).collect();
        if parts.texts && !missing.is_empty() {
            let lease = if of_views { self.lease_posts(&missing).await } else { None };
            let revisions: HashMap<PostId, u32> = posts.iter().map(|post| (post.id, post.revision)).collect();
            let read = self.load_texts(&missing, posts, &mut texts).await?;
            self.store_posts(&read, lease).await;
            let edited = posts.iter().filter(|post| revisions.get(&post.id) != Some(&post.revision));
            let edited: BTreeSet<UserId> = edited.map(|post| post.id.author).collect();
            if !edited.is_empty() {
                // Whether the reader may see a title is read after it.
                let standings = self.stores.facts.standings(viewer, &Vec::from_iter(edited)).await?;
                retain_seen(posts, |author| standings.get(&author).copied().unwrap_or_default());
            }
        }
        let shortened = shorten(posts, |post| texts.get(&post.id).map_or(0, PostText::bytes));
        let ids: Vec<PostId> = posts.iter().map(|post| post.id).collect();
        let counts = self.counts_or_exact(&ids, counts, of_views).await?;
        let body = |id| {
            let text = texts.remove(&id);
            (text.is_some() || !parts.texts).then(|| (id, Body { text, counts: counted(&counts, id) }))
        };
        Ok((ids.into_iter().filter_map(body).collect(), shortened))
    }

    /// Takes the leases for storing posts that are read from the facts next; `None` if Redis does not give them.
    pub(super) async fn lease_posts(&self, ids: &[PostId]) -> Option<u64> {
        let token = (self.stores.random)();
        logged!(self.stores.views.lease_posts(ids, token).await, "posts not leased").map(|()| token)
    }

    /// Stores leased posts. Without it, the next reader reads them from the facts again.
    pub(super) async fn store_posts(&self, posts: &[(PostSummary, Option<PostText>)], lease: Option<u64>) {
        if lease.is_some() {
            logged!(self.stores.views.remember_posts(posts, lease).await, "posts not stored");
        }
    }

    /// Reads texts from the facts, with the summaries of the same revisions. Returns what was read.
    async fn load_texts(
        &self,
        ids: &[PostId],
        posts: &mut [PostSummary],
        texts: &mut HashMap<PostId, PostText>,
    ) -> Result<Vec<(PostSummary, Option<PostText>)>> {
        let found = self.stores.facts.posts_with_texts(ids).await?;
        let found: HashMap<PostId, (PostSummary, Option<PostText>)> =
            found.into_iter().map(|(id, (post, text))| (id, (post.into(), text))).collect();
        for post in posts {
            if let Some((summary, text)) = found.get(&post.id).filter(|(summary, _)| !summary.deleted) {
                *post = summary.clone();
                texts.extend(text.clone().map(|text| (post.id, text)));
            }
        }
        Ok(found.into_values().collect())
    }

    /// Returns the counts of these posts. Without `of_views`, or if Redis is unavailable, those that are not `known`
    /// come from the facts.
    pub(super) async fn counts_or_exact(
        &self,
        ids: &[PostId],
        mut known: HashMap<PostId, ReactionCounts>,
        of_views: bool,
    ) -> Result<HashMap<PostId, ReactionCounts>> {
        let (facts, unknown) = (&self.stores.facts, uncounted(ids, &known));
        let found = if of_views { self.load_counts(&unknown).await } else { facts.reaction_counts_of(&unknown).await };
        let found = match found {
            Err(error) if error.store() == Store::Views => facts.reaction_counts_of(&unknown).await?,
            found => found?,
        };
        known.extend(found.into_iter().map(|(id, counts)| (id, counts.counts)));
        Ok(known)
    }

    /// Returns the counts of these posts. Those that are not `known` are read from the facts and stored.
    async fn counts_of(
        &self,
        ids: &[PostId],
        mut known: HashMap<PostId, ReactionCounts>,
    ) -> Result<HashMap<PostId, ReactionCounts>> {
        let found = self.load_counts(&uncounted(ids, &known)).await?;
        known.extend(found.into_iter().map(|(id, counts)| (id, counts.counts)));
        Ok(known)
    }

    /// Reads counts from the facts, and stores them.
    async fn load_counts(&self, ids: &[PostId]) -> Result<HashMap<PostId, CountsVersion>> {
        let loads = ids.chunks(COUNTED_TOGETHER).map(|ids| async move {
            let token = (self.stores.random)();
            self.stores.views.lease_counts(ids, token).await?;
            let found = self.stores.facts.reaction_counts_of(ids).await?;
            logged!(self.stores.views.store_counts(&found, token).await, "counts not stored", posts = ids.len());
            Ok::<_, StoreError>(found)
        });
        Ok(try_join_all(loads).await?.into_iter().flatten().collect())
    }
}

fn uncounted(ids: &[PostId], known: &HashMap<PostId, ReactionCounts>) -> Vec<PostId> {
    ids.iter().copied().filter(|id| !known.contains_key(id)).collect()
}

pub(super) fn counted(counts: &HashMap<PostId, ReactionCounts>, id: PostId) -> ReactionCounts {
    counts.get(&id).copied().unwrap_or_default()
}
