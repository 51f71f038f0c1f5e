//! One page of the feed.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{
    AuthorHead, AuthorState, Card, FeedKey, PostId, PostSummary, PostText, ReactionCounts, ReactionState, ReaderState, Score,
    Seq, Since, Store, Timestamp, Trail, UserId, feed::FEED_CAP, store::Result,
};
use tidemark_views::{KnownReactions, NEWEST, PageParts, View};

use super::{
    Body, Origin, Readers, Snapshot,
    merge::{FactSource, Lane, Merge, Summaries},
    rebuild::Part,
    shared::HeadsFrom,
};

/// The posts that a page contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    #[default]
    All,
    /// Posts that count as unread.
    Unread,
}

/// A post with the flags of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    pub post: PostSummary,
    /// False if and only if the post counts as unread.
    pub read: bool,
    pub liked: bool,
    pub favorited: bool,
    /// In a ranked feed.
    pub score: Option<Score>,
}

impl FeedItem {
    pub fn new(post: PostSummary, read: bool, reactions: &ReactionState) -> Self {
        let seq = post.id.seq;
        let (liked, favorited) = (reactions.liked.contains(seq), reactions.favorited.contains(seq));
        Self { post, read, liked, favorited, score: None }
    }
}

/// The page that a reader asks for. `Place` is a position in the order of the feed.
#[derive(Debug, Clone)]
pub struct FeedQuery<Place> {
    /// The number of a list of the reader. The feed has the posts of the authors on it.
    pub list: Option<u32>,
    pub status: Status,
    /// The feed has the reader's own posts too, as read.
    pub own: bool,
    /// The page begins below this place, and has of the newest posts only those that the trail allows: the others have
    /// entered the feed after the first page. `None` for a first page.
    pub before: Option<(Place, Trail)>,
    pub limit: usize,
    /// The feed has only what has entered it since then.
    pub since: Option<Since>,
    pub parts: PageParts,
}

impl<Place> FeedQuery<Place> {
    /// Returns whether the feed has this entry.
    pub(super) fn has(&self, state: &ReaderState, key: &FeedKey) -> bool {
        state.shows(key) && (self.status == Status::All || state.is_unread(key.post))
    }

    /// Returns whether the walk began with the facts. The view may lack posts that the facts had.
    pub(super) fn continues_facts(&self) -> bool {
        self.before.as_ref().is_some_and(|(_, trail)| trail.is_of_facts())
    }

    /// Returns whether the feed has the reader's own posts. None of them is unread.
    pub(super) fn has_own(&self) -> bool {
        self.own && self.status == Status::All
    }

    pub(super) fn is_new(&self, key: &FeedKey) -> bool {
        self.since.as_ref().is_none_or(|since| since.is_new(key))
    }

    /// Returns what a first page knows of the newest posts, and whether these entries of the view suffice for it. If
    /// none of them is in the feed, all of the feed is below `low`.
    pub(super) fn start(&self, state: &ReaderState, entries: &[FeedKey], whole: bool) -> (Start, bool) {
        let feed = || entries.iter().filter(|key| self.has(state, key)).copied();
        let start = Start { newest: feed().next().or(state.meta.low), trail: Trail::of(feed(), state.meta.low) };
        let suffice = whole || entries.last().is_some_and(|last| last.at < start.trail.from());
        (start, suffice)
    }
}

/// The newest posts of the feed when the first page of a walk was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    /// `None` if the feed is empty, and on a later page.
    pub(super) newest: Option<FeedKey>,
    pub(super) trail: Trail,
}

/// A page in the order of the feed.
#[derive(Debug, Clone)]
pub struct FeedPage<Next> {
    pub items: Vec<FeedItem>,
    /// [`FeedQuery::before`] of the next page. `None` only at the end.
    pub next: Option<Next>,
    /// [`FeedQuery::since`] of the next poll. Only a first page has it, and the last one of a walk from the oldest post
    /// on.
    pub first: Option<Since>,
    /// The number of unread posts in the whole feed.
    pub unread_total: u64,
    /// The cards that the view returned with the posts. Those of other users are read when the page is finished.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Texts and counts of the items, if they were asked for.
    pub bodies: HashMap<PostId, Body>,
    pub origin: Origin,
}

/// Entries that are read in addition to a page, because some entries may not be shown.
pub(super) const MARGIN: usize = 10;

/// Entries that are read if the newest are not enough. No view stores more.
pub(super) const ALL: usize = 2 * FEED_CAP;

/// The posts of a page that is being collected, and what the view returned with them.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) posts: Vec<PostSummary>,
    /// Of the posts of a ranked feed.
    pub(super) scores: HashMap<PostId, Score>,
    limit: usize,
    parts: PageParts,
    reactions: Option<KnownReactions>,
    cards: HashMap<UserId, Option<Card>>,
    texts: HashMap<PostId, PostText>,
    counts: HashMap<PostId, ReactionCounts>,
}

impl Collected {
    pub(super) fn new(limit: usize, parts: PageParts) -> Self {
        Self { limit, parts, ..Self::default() }
    }

    /// Returns the number of missing posts. One more than requested shows whether there is a next page.
    pub(super) fn missing(&self) -> usize {
        self.limit + 1 - self.posts.len()
    }
}

/// A page whose posts are collected.
pub(super) struct Collection {
    pub(super) page: Collected,
    pub(super) start: Start,
    pub(super) snapshot: Snapshot,
}

/// What a collected page shows.
pub(super) struct Shown {
    pub(super) items: Vec<FeedItem>,
    pub(super) cards: HashMap<UserId, Option<Card>>,
    pub(super) bodies: HashMap<PostId, Body>,
    /// Whether there is a next page.
    pub(super) more: bool,
}

/// A page of the feed by time that is being collected.
pub(super) struct Walk<'a> {
    pub(super) query: &'a FeedQuery<FeedKey>,
    page: Collected,
    /// The rest of the page lies below this entry.
    pub(super) bound: Option<FeedKey>,
    /// The reader's own posts in the view end above this number.
    pub(super) own_end: Option<Seq>,
    /// `None` until a first page has read the newest posts.
    start: Option<Start>,
    /// Whether there is nothing more for the page.
    ended: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(query: &'a FeedQuery<FeedKey>) -> Self {
        let (bound, trail) = query.before.clone().unzip();
        let start = trail.map(|trail| Start { newest: None, trail });
        Self { query, page: Collected::new(query.limit, query.parts), bound, own_end: None, start, ended: false }
    }

    /// Returns the start of the walk that begins with this merge.
    pub(super) async fn into_start(mut self, merge: &mut Merge<'_, PostSummary>) -> Result<Start> {
        self.next(merge).await?;
        Ok(self.start.unwrap_or_default())
    }

    /// Returns as many posts as the page lacks. A first page of the facts alone reads its trail too.
    async fn next(&mut self, merge: &mut Merge<'_, PostSummary>) -> Result<Vec<PostSummary>> {
        let mut posts = Vec::new();
        let mut extends = self.start.is_none();
        let (mut newest, mut trail) = (None, Trail::default());
        while extends || (posts.len() < self.page.missing() && !self.ended) {
            let Some(post) = merge.next().await? else {
                self.ended = true;
                break;
            };
            let key = post.key();
            newest = newest.or(Some(key));
            extends = extends && trail.extend(&key);
            self.ended |= self.ends_at(&key);
            if posts.len() < self.page.missing() && self.is_inside(&key) {
                posts.push(post);
            }
        }
        let start = self.start.get_or_insert(Start { newest, trail });
        start.newest = start.newest.or(newest);
        Ok(posts)
    }

    fn is_inside(&self, key: &FeedKey) -> bool {
        self.bound.is_none_or(|bound| *key < bound)
            && self.query.is_new(key)
            && self.start.as_ref().is_none_or(|start| start.trail.allows(key))
    }

    /// Returns whether the feed has nothing new at or below this entry.
    fn ends_at(&self, key: &FeedKey) -> bool {
        self.query.since.as_ref().is_some_and(|since| since.ends_at(key))
    }
}

/// What the entries that were read of a view have for a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    Collected,
    /// All that the view stores for this page is collected.
    NoMore,
    /// The view has to be read again, as a whole: its counts have changed, or more entries are needed.
    TooFew,
}

/// Returns the lowest number of each author among these entries.
pub(super) fn lowest<'a>(entries: impl Iterator<Item = &'a FeedKey>) -> HashMap<UserId, Seq> {
    let mut lowest = HashMap::new();
    for FeedKey { post, .. } in entries {
        lowest.entry(post.author).and_modify(|seq: &mut Seq| *seq = post.seq.min(*seq)).or_insert(post.seq);
    }
    lowest
}

impl Readers {
    /// Returns one page of the feed, newest first.
    pub async fn feed_page(&self, user: UserId, query: FeedQuery<FeedKey>) -> Result<FeedPage<(FeedKey, Trail)>> {
        let mut walk = Walk::new(&query);
        // A first page needs few of the newest entries. The position of a cursor is unknown.
        let few = query.before.is_none() && query.status == Status::All && query.list.is_none();
        let newest = if few { NEWEST.max(query.limit + 1 + MARGIN) } else { ALL };
        let view = match query.continues_facts() {
            true => Ok(None),
            false => self.view_of(user, &mut walk, Part::Newest(newest)).await,
        };
        let collected = match view {
            Ok(Some(view)) => self.collect_stored(user, view, &mut walk).await,
            Ok(None) => self.snapshot_of_facts(user, Origin::Rebuilding).await,
            Err(error) => Err(error),
        };
        let mut snapshot = match collected {
            Err(error) if error.store() == Store::Views => {
                // The collected posts are discarded.
                walk = Walk::new(&query);
                self.instead_of_view(user, &error).await?
            }
            collected => collected?,
        };
        if snapshot.origin != Origin::View {
            snapshot = self.selected(user, snapshot, &query).await?;
            let facts = FactSource(&self.stores.facts);
            let lanes = Lane::of(&snapshot, query.status);
            let posts = walk.next(&mut Merge::new(&facts, &self.stores.facts, lanes, walk.bound)).await?;
            walk.page.posts.extend(posts);
        }
        let Walk { page, start, .. } = walk;
        let place = |post: &PostSummary, _| Some((post.key(), post.created_at));
        let found = Collection { page, start: start.unwrap_or_default(), snapshot };
        self.completed(user, found, &query, place).await
    }

    /// Completes a page. `place` returns the place of a post with this score, and the time after which no post is below
    /// the place.
    pub(super) async fn completed<Place>(
        &self,
        user: UserId,
        Collection { page, start, snapshot }: Collection,
        query: &FeedQuery<Place>,
        place: impl FnOnce(&PostSummary, Option<Score>) -> Option<(Place, Timestamp)>,
    ) -> Result<FeedPage<(Place, Trail)>> {
        let Shown { items, cards, bodies, more } = self.shown(user, page, &snapshot.state).await?;
        let next = items.last().filter(|_| more).and_then(|item| place(&item.post, item.score));
        let known = query.since.as_ref().map(|since| &since.trail);
        let of_walk = |trail: Trail| if snapshot.origin == Origin::View { trail } else { trail.of_facts() };
        let next = next.map(|(place, latest)| (place, of_walk(start.trail.clone().without(known, latest))));
        let first = query.before.is_none().then(|| Since::after(query.since.as_ref(), start.newest, start.trail));
        let unread_total = snapshot.state.unread_total();
        Ok(FeedPage { items, next, first, unread_total, cards, bodies, origin: snapshot.origin })
    }

    /// Returns what a page shows: its posts with texts, reactions, and what is read.
    pub(super) async fn shown(&self, user: UserId, page: Collected, state: &ReaderState) -> Result<Shown> {
        let more = page.missing() == 0;
        let Collected { mut posts, scores, limit, parts, reactions, cards, texts, counts } = page;
        posts.truncate(limit);
        let (bodies, shortened) = self.bodies(user.into(), parts, &mut posts, Some((texts, counts))).await?;
        let reactions = self.reactions_of_page(user, &posts, reactions).await?;
        let nothing = ReactionState::default();
        let counted = posts.iter().filter(|post| !state.knows(post.id)).map(|post| post.id.author).collect();
        let exact = self.exact_states(user, counted).await?;
        let item = |post: PostSummary| {
            let PostId { author, seq } = post.id;
            let read = !exact.get(&author).or_else(|| state.authors.get(&author)).is_some_and(|state| state.is_unread(seq));
            let score = scores.get(&post.id).copied();
            FeedItem { score, ..FeedItem::new(post, read, reactions.get(&author).unwrap_or(&nothing)) }
        };
        let items = posts.into_iter().map(item).collect();
        Ok(Shown { items, cards, bodies, more: more || shortened })
    }

    /// Adds these entries of a view to a page. Returns those whose posts are deleted, and whether the view has to be
    /// read again: its counts must not include posts whose retraction is not done.
    pub(super) async fn collect(
        &self,
        user: UserId,
        keys: &[FeedKey],
        state: &ReaderState,
        page: &mut Collected,
    ) -> Result<(Vec<PostId>, bool)> {
        let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
        let known = self.stores.views.known_page(user, &ids, page.parts).await?;
        let reactions = page.reactions.get_or_insert_default();
        reactions.of.extend(known.reactions.of);
        reactions.token = known.reactions.token;
        page.cards.extend(known.cards);
        page.texts.extend(known.texts);
        page.counts.extend(known.counts);
        let (live, deleted) = self.fill_summaries(&ids, known.summaries).await?;
        page.posts.extend(live);
        let promised: BTreeSet<UserId> = deleted.iter().filter(|&&post| state.is_unread(post)).map(|post| post.author).collect();
        for &author in &promised {
            self.sync_reads(user, author).await?;
        }
        Ok((deleted, !promised.is_empty()))
    }

    async fn view_of(&self, user: UserId, walk: &mut Walk<'_>, part: Part) -> Result<Option<View>> {
        let Some(mut view) = self.view(user, part).await? else { return Ok(None) };
        view.state = self.state_for(user, view.state, walk.query.list, walk.query.status).await?;
        if walk.query.has_own() {
            self.add_own(&self.own(user, HeadsFrom::Views).await?, &mut view, walk).await?;
        }
        Ok(Some(view))
    }

    /// Returns the state for a page. A page of unread posts needs to know which posts are unread. The facts say it for
    /// the authors whose older posts the view only counts.
    pub(super) async fn state_for(
        &self,
        user: UserId,
        state: ReaderState,
        list: Option<u32>,
        status: Status,
    ) -> Result<ReaderState> {
        let mut state = state.of_list(list);
        if status == Status::Unread {
            let counted = state.authors.iter().filter(|(_, state)| state.older > 0).map(|(author, _)| *author).collect();
            state.authors.extend(self.exact_states(user, counted).await?);
        }
        Ok(state)
    }

    /// Returns states of authors from the facts. They know of every post whether it is unread.
    pub(super) async fn exact_states(&self, user: UserId, authors: BTreeSet<UserId>) -> Result<HashMap<UserId, AuthorState>> {
        let pairs = self.pairs_with(user, &authors.into_iter().collect::<Vec<_>>()).await?;
        Ok(pairs.iter().filter_map(|pair| Some((pair.author, pair.state()?))).collect())
    }

    /// Collects the part of a page that the view stores, and what lies below it.
    async fn collect_stored(&self, user: UserId, mut view: View, walk: &mut Walk<'_>) -> Result<Snapshot> {
        let query = walk.query;
        let mut refills = true;
        loop {
            if walk.start.is_none() {
                let (start, suffices) = query.start(&view.state, &view.entries, view.whole);
                walk.start = suffices.then_some(start);
            }
            let entries = match walk.start.is_some() {
                true => self.collect_entries(user, &view, walk).await?,
                false => Entries::TooFew,
            };
            let needs_more = walk.page.missing() > 0 && !walk.ended;
            let part = if entries == Entries::TooFew {
                Part::Newest(ALL)
            } else if needs_more && entries == Entries::Collected {
                continue;
            } else if needs_more && view.is_short(self.feed_cap) && std::mem::take(&mut refills) {
                Part::Full
            } else {
                let mut snapshot = Snapshot { state: view.state, heads: HashMap::new(), origin: Origin::View };
                if needs_more {
                    let mut lowest = lowest(view.entries.iter());
                    lowest.extend(walk.own_end.map(|end| (user, end)));
                    self.collect_below(user, &mut snapshot, &lowest, walk).await?;
                }
                return Ok(snapshot);
            };
            match self.view_of(user, walk, part).await? {
                Some(whole) => view = whole,
                None => return self.snapshot_of_facts(user, Origin::Rebuilding).await,
            }
        }
    }

    /// Collects entries of the view.
    async fn collect_entries(&self, user: UserId, view: &View, walk: &mut Walk<'_>) -> Result<Entries> {
        let (query, state) = (walk.query, &view.state);
        let wanted = |key: &&FeedKey| walk.is_inside(key) && query.has(state, key);
        let keys: Vec<FeedKey> = view.entries.iter().filter(wanted).take(walk.page.missing()).copied().collect();
        if let Some(last) = keys.last() {
            walk.bound = Some(*last);
            let (_, again) = self.collect(user, &keys, state, &mut walk.page).await?;
            return Ok(if again { Entries::TooFew } else { Entries::Collected });
        }
        // Whether all entries that may be new are in the view.
        let reached = query.since.is_some()
            && state.meta.low.is_none_or(|low| walk.ends_at(&low))
            && (view.whole || view.entries.iter().any(|key| walk.ends_at(key)));
        walk.ended = reached
            || view.whole
                && match query.status {
                    Status::All => state.meta.low.is_none(),
                    Status::Unread => {
                        let stored = view.entries.iter().filter(|key| query.has(state, key));
                        state.unread_total() == stored.count() as u64
                    }
                };
        Ok(if view.whole || reached { Entries::NoMore } else { Entries::TooFew })
    }

    /// Collects posts below what a view stores. `lowest` has the lowest number of each author in it.
    async fn collect_below(
        &self,
        user: UserId,
        snapshot: &mut Snapshot,
        lowest: &HashMap<UserId, Seq>,
        walk: &mut Walk<'_>,
    ) -> Result<()> {
        let Some(low) = snapshot.state.meta.low else { return Ok(()) };
        snapshot.heads = self.known_heads(snapshot.state.authors.keys().copied().collect()).await?;
        let lanes = Lane::below(snapshot, walk.query.status, low, lowest);
        let bound = walk.bound.map_or(low, |bound| bound.min(low));
        let summaries = Summaries(self);
        let mut merge = Merge::new(&summaries, &self.stores.facts, lanes, Some(bound));
        // Again if posts were deleted in between.
        while walk.page.missing() > 0 && !walk.ended {
            let keys: Vec<FeedKey> = walk.next(&mut merge).await?.iter().map(PostSummary::key).collect();
            self.collect(user, &keys, &snapshot.state, &mut walk.page).await?;
        }
        Ok(())
    }

    /// Returns heads from Redis. Those that Redis lacks are read from the facts and stored.
    pub(super) async fn known_heads(&self, authors: Vec<UserId>) -> Result<HashMap<UserId, AuthorHead>> {
        let mut heads = self.stores.views.heads(&authors).await?;
        let unknown: Vec<UserId> = authors.into_iter().filter(|author| !heads.contains_key(author)).collect();
        heads.extend(self.heads_of_facts(&unknown).await?);
        Ok(heads)
    }

    /// Returns the live posts in the order of `ids`, and the deleted ones.
    pub(super) async fn summaries(&self, ids: &[PostId]) -> Result<(Vec<PostSummary>, Vec<PostId>)> {
        let known = self.stores.views.summaries(ids).await?;
        self.fill_summaries(ids, known).await
    }

    /// The same, with the summaries that are known already.
    pub(super) async fn fill_summaries(
        &self,
        ids: &[PostId],
        mut posts: HashMap<PostId, PostSummary>,
    ) -> Result<(Vec<PostSummary>, Vec<PostId>)> {
        let unknown: Vec<PostId> = ids.iter().filter(|id| !posts.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let lease = self.lease_posts(&unknown).await;
            let found: Vec<PostSummary> = self.posts_of_facts(&unknown).await?.into_iter().map(PostSummary::from).collect();
            let filled: Vec<_> = found.iter().map(|post| (post.clone(), None)).collect();
            self.store_posts(&filled, lease).await;
            posts.extend(found.into_iter().map(|post| (post.id, post)));
        }
        let (deleted, live): (Vec<PostSummary>, Vec<PostSummary>) =
            ids.iter().filter_map(|id| posts.remove(id)).partition(|post| post.deleted);
        Ok((live, deleted.into_iter().map(|post| post.id).collect()))
    }
}
