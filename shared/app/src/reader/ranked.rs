//! Pages of the ranked feed.
//!
//! A ranked feed has the entries of the feed by time that Redis stores, ordered by score. Workers fill it, for readers
//! who have one. A ranked read adds what it lacks. Without Redis, the page is computed from the newest posts in the facts.
//!
//! A page's cursor has the stamp of the last move before the first page. Later pages leave out what has moved since. So
//! no post is returned twice, and a post that has not moved is returned once.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
};

use tidemark_domain::{
    Card, FeedKey, Post, PostId, PostSummary, PostText, Rank, RankedPlace, ReactionCounts, ReactionState, ReaderState, Score,
    UserId,
};

use super::{
    Body, FeedItem, Origin, Readers, Snapshot, Status,
    feed::{ALL, MARGIN},
    rebuild::Part,
};
use crate::{
    error::{Store, StoreError},
    ports::{KnownPage, KnownReactions, PageParts, View},
};

/// The page of a ranked feed that a reader asks for.
#[derive(Debug, Clone, Copy)]
pub struct RankedQuery {
    /// The number of a list of the reader. The page has the posts of the authors on it.
    pub list: Option<u32>,
    pub status: Status,
    /// The page begins below this place; at the top if `None`.
    pub below: Option<RankedPlace>,
    /// The most posts.
    pub limit: usize,
    pub parts: PageParts,
}

/// A page, highest score first.
#[derive(Debug, Clone)]
pub struct RankedPage {
    /// At most as many as requested.
    pub items: Vec<FeedItem>,
    /// The next page begins below this place. `None` only at the end.
    pub next: Option<RankedPlace>,
    /// The number of unread posts in the whole feed.
    pub unread_total: u64,
    /// The cards that the view returned with the posts.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Texts and counts of the items, if they were asked for.
    pub bodies: HashMap<PostId, Body>,
    pub origin: Origin,
}

/// A page that is being collected, with one post more if there are more.
struct Collected {
    posts: Vec<PostSummary>,
    scores: HashMap<PostId, Score>,
    snapshot: Snapshot,
    /// The stamp for a walk that begins with this page.
    stamp: u64,
    /// What the view returned with the posts.
    reactions: Option<KnownReactions>,
    cards: HashMap<UserId, Option<Card>>,
    texts: HashMap<PostId, PostText>,
    counts: HashMap<PostId, ReactionCounts>,
}

impl Collected {
    fn new(snapshot: Snapshot, stamp: u64) -> Self {
        let (posts, scores, reactions) = (Vec::new(), HashMap::new(), None);
        let (cards, texts, counts) = Default::default();
        Self { posts, scores, snapshot, stamp, reactions, cards, texts, counts }
    }

    /// Takes what the view knows of posts, except for their summaries.
    fn keep(&mut self, known: KnownPage) {
        let reactions = self.reactions.get_or_insert_default();
        reactions.of.extend(known.reactions.of);
        reactions.token = known.reactions.token;
        self.cards.extend(known.cards);
        self.texts.extend(known.texts);
        self.counts.extend(known.counts);
    }
}

impl RankedQuery {
    /// One more than requested shows whether there is a next page.
    fn wanted(&self) -> usize {
        self.limit + 1
    }

    /// Returns whether a page of this query may have the post.
    fn takes(&self, state: &ReaderState, key: &FeedKey) -> bool {
        state.shows(key) && (self.status == Status::All || state.is_unread(key.post))
    }
}

impl Readers {
    /// Returns one page of the ranked feed.
    pub async fn ranked_page(&self, user: UserId, query: RankedQuery) -> Result<RankedPage, StoreError> {
        let mut page = match self.ranked_of_view(user, query).await {
            Ok(Some(page)) => page,
            Ok(None) => self.ranked_of_facts(self.snapshot_of_facts(user, Origin::Rebuilding).await?, query).await?,
            Err(error) if error.store() == Store::Views => {
                self.ranked_of_facts(self.instead_of_view(user, &error).await?, query).await?
            }
            Err(error) => return Err(error),
        };
        let more = page.posts.len() > query.limit;
        page.posts.truncate(query.limit);
        let (bodies, shortened) = match query.parts.texts {
            true => self.bodies(&mut page.posts, page.texts, page.counts).await?,
            false => Default::default(),
        };
        let since = query.below.map_or(page.stamp, |place| place.since);
        let place = |post: &PostSummary| Some(RankedPlace { since, score: *page.scores.get(&post.id)?, key: post.key() });
        let next = page.posts.last().filter(|_| more || shortened).and_then(place);
        let reactions = self.reactions_of_page(user, &page.posts, page.reactions).await?;
        let nothing = ReactionState::default();
        let state = &page.snapshot.state;
        let counted: BTreeSet<UserId> =
            page.posts.iter().filter(|post| !state.knows(post.id)).map(|post| post.id.author).collect();
        let exact = self.exact_states(user, counted).await?;
        let item = |post: PostSummary| {
            let PostId { author, seq } = post.id;
            let read = !exact.get(&author).or_else(|| state.authors.get(&author)).is_some_and(|state| state.is_unread(seq));
            let score = page.scores.get(&post.id).copied();
            FeedItem { score, ..FeedItem::new(post, read, reactions.get(&author).unwrap_or(&nothing)) }
        };
        let items = page.posts.into_iter().map(item).collect();
        let (unread_total, origin) = (state.unread_total(), page.snapshot.origin);
        Ok(RankedPage { items, next, unread_total, cards: page.cards, bodies, origin })
    }

    /// Collects a page from the view; `None` if there is no complete view now.
    async fn ranked_of_view(&self, user: UserId, query: RankedQuery) -> Result<Option<Collected>, StoreError> {
        let RankedQuery { list, status, below, parts, .. } = query;
        let mut most = if status == Status::All && list.is_none() { query.wanted() + MARGIN } else { ALL };
        let mut gone: HashSet<PostId> = HashSet::new();
        loop {
            let Some(View { mut state, ranked, .. }) = self.view_with(user, Part::Ranked { below, most }).await? else {
                return Ok(None);
            };
            state = state.of_list(list);
            if status == Status::Unread {
                let counted = state.authors.iter().filter(|(_, state)| state.older > 0).map(|(author, _)| *author).collect();
                state.authors.extend(self.exact_states(user, counted).await?);
            }
            let stays = |key: &FeedKey| below.is_none_or(|place| !ranked.has_moved(key, place.since));
            let shown = ranked.entries.iter().filter(|(key, _)| query.takes(&state, key) && stays(key));
            let shown: Vec<(FeedKey, Score)> = shown.filter(|(key, _)| !gone.contains(&key.post)).copied().collect();
            if shown.len() < query.wanted() && !ranked.whole && most < ALL {
                most = ALL;
                continue;
            }
            let scores = shown.iter().map(|(key, score)| (key.post, *score)).collect();
            let snapshot = Snapshot { state, heads: HashMap::new(), origin: Origin::View };
            let mut page = Collected { scores, ..Collected::new(snapshot, ranked.stamp) };
            let (mut rest, mut promised) = (shown.as_slice(), BTreeSet::new());
            while page.posts.len() < query.wanted() && !rest.is_empty() && promised.is_empty() {
                let (part, after) = rest.split_at(rest.len().min(query.wanted() - page.posts.len()));
                rest = after;
                let ids: Vec<PostId> = part.iter().map(|(key, _)| key.post).collect();
                let mut known = self.stores.post_views.page(user, &ids, parts).await?;
                let summaries = std::mem::take(&mut known.summaries);
                page.keep(known);
                let (live, deleted) = self.complete(&ids, summaries).await?;
                page.posts.extend(live);
                // The retraction of these posts is not done. The counts of this page must not include them.
                let state = &page.snapshot.state;
                promised.extend(deleted.iter().filter(|&&post| state.is_unread(post)).map(|post| post.author));
                gone.extend(deleted);
            }
            if promised.is_empty() {
                // Deleted posts may have taken the places of others that were not read.
                if page.posts.len() < query.wanted() && !ranked.whole && most < ALL {
                    most = ALL;
                    continue;
                }
                return Ok(Some(page));
            }
            for author in promised {
                self.sync_reads(user, author).await?;
            }
        }
    }

    /// Collects a page from the newest posts in the facts, the same number as a view stores.
    async fn ranked_of_facts(&self, mut snapshot: Snapshot, query: RankedQuery) -> Result<Collected, StoreError> {
        let (posts, _) = self.newest_posts(&snapshot).await?;
        snapshot.state = snapshot.state.of_list(query.list);
        let state = &snapshot.state;
        let scored = |post: Post| {
            let preference = state.authors.get(&post.id.author).map_or(0, |state| state.preference);
            (self.half_life.score(post.created_at, post.rank(), preference), post.key(), post)
        };
        let mut posts: Vec<(Score, FeedKey, Post)> =
            posts.into_iter().filter(|post| query.takes(state, &post.key())).map(scored).collect();
        posts.retain(|(score, key, _)| query.below.is_none_or(|place| place.is_above(*score, key)));
        posts.sort_unstable_by_key(|&(score, key, _)| Reverse((score, key)));
        posts.truncate(query.wanted());
        // Stamps are microseconds of Redis's clock.
        let mut page = Collected::new(snapshot, self.stores.clock.now().ms() * 1_000);
        for (score, key, post) in posts {
            page.scores.insert(key.post, score);
            page.posts.push(post.into());
        }
        Ok(page)
    }

    /// Adds the posts that a ranked feed lacks, or moves those of authors who were ever pulled. Returns whether the ranked
    /// feed has to be read again. `compared` is whether it was compared before, also with an earlier page of the walk.
    pub(super) async fn improve_ranks(&self, user: UserId, view: &View, compared: &mut bool) -> Result<bool, StoreError> {
        if !view.ranked.filled {
            let missing = self.stores.reader_views.unranked(user, self.half_life).await?;
            let ranks = self.ranks(&missing).await?;
            let posts: Vec<(FeedKey, Rank)> =
                missing.into_iter().map(|key| (key, ranks.get(&key.post).copied().unwrap_or_default())).collect();
            self.stores.reader_views.rank(&[user], self.half_life, &posts, true).await?;
            return Ok(true);
        }
        if std::mem::replace(compared, true) || view.state.authors.values().all(|state| state.modes.is_push_alone()) {
            return Ok(false);
        }
        self.compare_pulled(user).await
    }

    /// Compares the scores of posts of authors who were ever pulled. Their followers get no rescore task.
    async fn compare_pulled(&self, user: UserId) -> Result<bool, StoreError> {
        let Some(View { state, ranked, .. }) = self.stores.reader_views.ranked(user, self.half_life, None, ALL).await? else {
            return Ok(true);
        };
        let pulled = |author: &UserId| state.authors.get(author).filter(|state| !state.modes.is_push_alone());
        let entries: Vec<(FeedKey, Score)> =
            ranked.entries.into_iter().filter(|(key, _)| pulled(&key.post.author).is_some()).collect();
        let keys: Vec<FeedKey> = entries.iter().map(|(key, _)| *key).collect();
        let ranks = self.ranks(&keys).await?;
        let moved = entries.into_iter().filter_map(|(key, score)| {
            let (rank, state) = (*ranks.get(&key.post)?, pulled(&key.post.author)?);
            (self.half_life.score(key.at, rank, state.preference) != score).then_some((key, rank))
        });
        let moved: Vec<(FeedKey, Rank)> = moved.collect();
        if moved.is_empty() {
            return Ok(false);
        }
        self.stores.reader_views.rank(&[user], self.half_life, &moved, false).await?;
        Ok(true)
    }

    /// Returns what these posts add to their scores. Deleted and unknown posts are left out.
    async fn ranks(&self, keys: &[FeedKey]) -> Result<HashMap<PostId, Rank>, StoreError> {
        let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
        let (live, _) = self.summaries(&ids).await?;
        Ok(live.into_iter().map(|post| (post.id, post.rank)).collect())
    }
}
