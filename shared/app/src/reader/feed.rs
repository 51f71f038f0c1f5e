//! One page of the feed.

use std::collections::{BTreeSet, HashMap};

use tidemark_domain::{
    AuthorState, Card, FeedKey, PostId, PostSummary, PostText, ReactionCounts, ReactionState, Score, UserId, feed::FEED_CAP,
};

use super::{Body, Lane, Merge, Origin, Readers, Snapshot};
use crate::{
    error::{Store, StoreError},
    ports::{KnownReactions, PageParts, View},
};

/// Which posts a page contains.
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

/// The page that a reader asks for.
#[derive(Debug, Clone, Copy)]
pub struct FeedQuery {
    /// The number of a list of the reader. The feed has the posts of the authors on it.
    pub list: Option<u32>,
    pub status: Status,
    /// The page begins below this entry; at the newest if `None`.
    pub before: Option<FeedKey>,
    /// The most posts.
    pub limit: usize,
    /// The feed ends above this entry.
    pub since: Option<FeedKey>,
    pub parts: PageParts,
}

/// A page, newest first.
#[derive(Debug, Clone)]
pub struct FeedPage {
    /// At most as many as requested.
    pub items: Vec<FeedItem>,
    /// The next page begins below this entry. `None` only at the end.
    pub next: Option<FeedKey>,
    /// The number of unread posts in the whole feed.
    pub unread_total: u64,
    /// The cards that the view returned with the posts. [`crate::People::complete`] returns the others.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Texts and counts of the items, if they were asked for.
    pub bodies: HashMap<PostId, Body>,
    pub origin: Origin,
}

/// Entries that are read in addition to a page, because some entries may not be shown.
pub(super) const MARGIN: usize = 10;

/// Entries that are read if the newest are not enough. No view stores more.
pub(super) const ALL: usize = 2 * FEED_CAP;

/// A page that is being collected.
struct Collected {
    posts: Vec<PostSummary>,
    /// The reactions that the view returned with the posts.
    reactions: Option<KnownReactions>,
    parts: PageParts,
    /// What the view returned with the posts.
    cards: HashMap<UserId, Option<Card>>,
    texts: HashMap<PostId, PostText>,
    counts: HashMap<PostId, ReactionCounts>,
    wanted: usize,
    /// The rest of the page lies below this entry.
    bound: Option<FeedKey>,
    /// The feed ends above this entry.
    since: Option<FeedKey>,
    /// Whether the facts have nothing more for the page.
    ended: bool,
}

impl Collected {
    fn missing(&self) -> usize {
        self.wanted - self.posts.len()
    }

    fn is_inside(&self, key: &FeedKey) -> bool {
        self.bound.is_none_or(|bound| *key < bound) && self.since.is_none_or(|since| *key > since)
    }
}

impl Readers {
    /// Returns one page of the feed.
    pub async fn feed_page(&self, user: UserId, query: FeedQuery) -> Result<FeedPage, StoreError> {
        let FeedQuery { list, status, before, limit, since, parts } = query;
        let mut page = Collected {
            posts: Vec::with_capacity(limit + 1),
            reactions: None,
            parts,
            cards: HashMap::new(),
            texts: HashMap::new(),
            counts: HashMap::new(),
            // One more than requested shows whether there is a next page.
            wanted: limit + 1,
            bound: before,
            since,
            ended: false,
        };
        // The newest entries are at the end of the list, so a first page needs few entries. The position of a cursor is
        // unknown.
        let newest = if before.is_none() && status == Status::All && list.is_none() { limit + 1 + MARGIN } else { ALL };
        let mut snapshot = match self.view_of(user, (list, status), newest).await {
            Ok(Some(view)) => match self.collect_stored(user, view, (list, status), &mut page).await {
                Ok(snapshot) => snapshot,
                Err(error) if error.store() == Store::Views => self.without_view(user, &error, &mut page, before).await?,
                Err(error) => return Err(error),
            },
            Ok(None) => self.snapshot_of_facts(user, Origin::Rebuilding).await?,
            Err(error) if error.store() == Store::Views => self.without_view(user, &error, &mut page, before).await?,
            Err(error) => return Err(error),
        };
        snapshot.state = snapshot.state.of_list(list);
        if page.missing() > 0 && !page.ended {
            self.collect_facts(&mut snapshot, status, &mut page).await?;
        }
        let more = page.missing() == 0;
        page.posts.truncate(limit);
        let (bodies, shortened) = match parts.texts {
            true => self.bodies(&mut page.posts, page.texts, page.counts).await?,
            false => Default::default(),
        };
        let next = page.posts.last().filter(|_| more || shortened).map(PostSummary::key);
        let reactions = self.reactions_of_page(user, &page.posts, page.reactions).await?;
        let nothing = ReactionState::default();
        let counted: BTreeSet<UserId> =
            page.posts.iter().filter(|post| !snapshot.state.knows(post.id)).map(|post| post.id.author).collect();
        let exact = self.exact_states(user, counted).await?;
        let item = |post: PostSummary| {
            let state = exact.get(&post.id.author).or_else(|| snapshot.state.authors.get(&post.id.author));
            let read = !state.is_some_and(|state| state.is_unread(post.id.seq));
            let reactions = reactions.get(&post.id.author).unwrap_or(&nothing);
            FeedItem::new(post, read, reactions)
        };
        let items = page.posts.into_iter().map(item).collect();
        let unread_total = snapshot.state.unread_total();
        Ok(FeedPage { items, next, unread_total, cards: page.cards, bodies, origin: snapshot.origin })
    }

    /// Returns the view for a page. A page of unread posts needs to know which posts are unread. The facts say it for
    /// the authors whose older posts the view only counts.
    async fn view_of(
        &self,
        user: UserId,
        (list, status): (Option<u32>, Status),
        newest: usize,
    ) -> Result<Option<View>, StoreError> {
        let Some(mut view) = self.view(user, newest).await? else { return Ok(None) };
        view.state = view.state.of_list(list);
        if status == Status::Unread {
            let counted = view.state.authors.iter().filter(|(_, state)| state.older > 0).map(|(author, _)| *author).collect();
            view.state.authors.extend(self.exact_states(user, counted).await?);
        }
        Ok(Some(view))
    }

    /// Returns states of authors from the facts. They know of every post whether it is unread.
    pub(super) async fn exact_states(
        &self,
        user: UserId,
        authors: BTreeSet<UserId>,
    ) -> Result<HashMap<UserId, AuthorState>, StoreError> {
        let pairs = futures::future::try_join_all(authors.into_iter().map(|author| self.pair(user, author))).await?;
        Ok(pairs.iter().filter_map(|pair| Some((pair.author, pair.state()?))).collect())
    }

    /// Discards what was collected and starts again from the facts.
    async fn without_view(
        &self,
        user: UserId,
        error: &StoreError,
        page: &mut Collected,
        before: Option<FeedKey>,
    ) -> Result<Snapshot, StoreError> {
        page.posts.clear();
        page.reactions = None;
        (page.cards, page.texts, page.counts) = Default::default();
        page.bound = before;
        self.instead_of_view(user, error).await
    }

    /// Collects the part of a page that the view stores.
    async fn collect_stored(
        &self,
        user: UserId,
        mut view: View,
        (list, status): (Option<u32>, Status),
        page: &mut Collected,
    ) -> Result<Snapshot, StoreError> {
        loop {
            let state = &view.state;
            let wanted =
                |key: &&FeedKey| page.is_inside(key) && state.shows(key) && (status == Status::All || state.is_unread(key.post));
            let keys: Vec<FeedKey> = view.entries.iter().filter(wanted).take(page.missing()).copied().collect();
            // Whether all entries above `since` are in the view.
            let reached = page.since.is_some_and(|since| {
                state.meta.low.is_none_or(|low| low <= since) && (view.whole || view.entries.iter().any(|key| *key <= since))
            });
            let mut again = keys.is_empty() && !view.whole && !reached;
            if let Some(last) = keys.last() {
                page.bound = Some(*last);
                let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
                let known = self.stores.post_views.page(user, &ids, page.parts).await?;
                let reactions = page.reactions.get_or_insert_default();
                reactions.of.extend(known.reactions.of);
                reactions.token = known.reactions.token;
                page.cards.extend(known.cards);
                page.texts.extend(known.texts);
                page.counts.extend(known.counts);
                let (live, deleted) = self.complete(&ids, known.summaries).await?;
                page.posts.extend(live);
                // The retraction of these posts is not done. The counts of this page must not include them.
                let promised: BTreeSet<UserId> =
                    deleted.into_iter().filter(|&post| state.is_unread(post)).map(|post| post.author).collect();
                for &author in &promised {
                    self.sync_reads(user, author).await?;
                }
                again |= !promised.is_empty();
            } else if reached {
                page.ended = true;
            } else if view.whole {
                page.ended = match status {
                    Status::All => state.meta.low.is_none(),
                    Status::Unread => state.unread_total() == unread_stored(&view),
                };
            }
            if !again && (page.missing() == 0 || keys.is_empty()) {
                return Ok(Snapshot { state: view.state, heads: HashMap::new(), origin: Origin::View });
            }
            if again {
                match self.view_of(user, (list, status), ALL).await? {
                    Some(whole) => view = whole,
                    None => return self.snapshot_of_facts(user, Origin::Rebuilding).await,
                }
            }
        }
    }

    /// Continues the page from the facts.
    async fn collect_facts(&self, snapshot: &mut Snapshot, status: Status, page: &mut Collected) -> Result<(), StoreError> {
        if snapshot.origin == Origin::View {
            let authors: Vec<UserId> = snapshot.state.authors.keys().copied().collect();
            snapshot.heads = self.stores.posts.heads(&authors).await?;
            let low = snapshot.state.meta.low;
            page.bound = [page.bound, low].into_iter().flatten().min();
        }
        let lanes = match status {
            Status::All => Lane::of_feed(snapshot),
            Status::Unread => Lane::of_unread(snapshot),
        };
        let mut merge = Merge::new(&*self.stores.posts, lanes, page.bound);
        while page.missing() > 0
            && let Some(post) = merge.next().await?
            && page.since.is_none_or(|since| post.key() > since)
        {
            page.posts.push(post.into());
        }
        Ok(())
    }

    /// Returns the live posts in the order of `ids`, and the deleted ones.
    pub(super) async fn summaries(&self, ids: &[PostId]) -> Result<(Vec<PostSummary>, Vec<PostId>), StoreError> {
        let known = self.stores.post_views.summaries(ids).await?;
        self.complete(ids, known).await
    }

    /// The same, with the summaries that are known already.
    pub(super) async fn complete(
        &self,
        ids: &[PostId],
        mut posts: HashMap<PostId, PostSummary>,
    ) -> Result<(Vec<PostSummary>, Vec<PostId>), StoreError> {
        let unknown: Vec<PostId> = ids.iter().filter(|id| !posts.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let lease = self.lease_posts(&unknown).await;
            let found: Vec<PostSummary> = self.stores.posts.posts(&unknown).await?.into_values().map(PostSummary::from).collect();
            let filled: Vec<_> = found.iter().map(|post| (post.clone(), None)).collect();
            self.store_posts(&filled, lease).await;
            posts.extend(found.into_iter().map(|post| (post.id, post)));
        }
        let (deleted, live): (Vec<PostSummary>, Vec<PostSummary>) =
            ids.iter().filter_map(|id| posts.remove(id)).partition(|post| post.deleted);
        Ok((live, deleted.into_iter().map(|post| post.id).collect()))
    }
}

/// Returns how many unread posts the view stores.
fn unread_stored(view: &View) -> u64 {
    view.entries.iter().filter(|key| view.state.shows(key) && view.state.is_unread(key.post)).count() as u64
}
