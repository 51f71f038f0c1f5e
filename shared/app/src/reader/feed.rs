//! One page of the home timeline.

use crate::error::{Store, StoreError};
use std::collections::{BTreeSet, HashMap};

use tracing::warn;

use super::{Lane, Merge, Origin, Readers, Snapshot};
use crate::ports::{KnownReactions, View};
use tidemark_domain::{AuthorState, FeedKey, PostId, PostSummary, ReactionState, UserId, feed::FEED_CAP};

/// Which posts a page is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// All.
    #[default]
    All,
    /// Those that count as unread.
    Unread,
}

/// A post and what the reader has done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// The post.
    pub post: PostSummary,
    /// False exactly when it counts as unread.
    pub read: bool,
    /// Whether the reader has liked it.
    pub liked: bool,
    /// Whether the reader has favorited it.
    pub favorited: bool,
}

impl FeedItem {
    /// A post with these flags.
    pub fn new(post: PostSummary, read: bool, reactions: &ReactionState) -> Self {
        let seq = post.id.seq;
        Self { post, read, liked: reactions.liked.contains(seq), favorited: reactions.favorited.contains(seq) }
    }
}

/// A page, newest first.
#[derive(Debug, Clone)]
pub struct FeedPage {
    /// At most as many as asked for.
    pub items: Vec<FeedItem>,
    /// Where the next page goes on; `None` at the end only.
    pub next: Option<FeedKey>,
    /// Posts that count as unread in the whole feed.
    pub unread_total: u64,
    /// Where the page comes from.
    pub origin: Origin,
}

/// Entries read beyond a page, for those that the page does not show.
const MARGIN: usize = 10;

/// Entries read when the newest are not enough: more than any view stores.
const ALL: usize = 2 * FEED_CAP;

/// A page that is being collected.
struct Collected {
    posts: Vec<PostSummary>,
    /// What came with those of the view.
    reactions: Option<KnownReactions>,
    wanted: usize,
    /// Everything below it is still to come.
    bound: Option<FeedKey>,
    /// Nothing is to come from the facts.
    ended: bool,
}

impl Collected {
    fn missing(&self) -> usize {
        self.wanted - self.posts.len()
    }

    fn is_below(&self, key: &FeedKey) -> bool {
        self.bound.is_none_or(|bound| *key < bound)
    }
}

impl Readers {
    /// The page of `limit` posts below `before`.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn feed_page(
        &self,
        user: UserId,
        status: Status,
        before: Option<FeedKey>,
        limit: usize,
    ) -> Result<FeedPage, StoreError> {
        // One more than asked for tells whether there is a next page.
        let mut page =
            Collected { posts: Vec::with_capacity(limit + 1), reactions: None, wanted: limit + 1, bound: before, ended: false };
        // The top of the feed is at its end, so that a few entries are enough; where a cursor lies is not known.
        let newest = if before.is_none() && status == Status::All { limit + 1 + MARGIN } else { ALL };
        let mut snapshot = match self.view_of(user, status, newest).await {
            Ok(Some(view)) => match self.collect_stored(user, view, status, &mut page).await {
                Ok(snapshot) => snapshot,
                Err(error) if error.store() == Store::Views => self.without_view(user, &error, &mut page, before).await?,
                Err(error) => return Err(error),
            },
            Ok(None) => self.snapshot_of_facts(user, Origin::Rebuilding).await?,
            Err(error) if error.store() == Store::Views => self.without_view(user, &error, &mut page, before).await?,
            Err(error) => return Err(error),
        };
        if page.missing() > 0 && !page.ended {
            self.collect_facts(&mut snapshot, status, &mut page).await?;
        }
        let more = page.missing() == 0;
        page.posts.truncate(limit);
        let next = page.posts.last().filter(|_| more).map(PostSummary::key);
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
        Ok(FeedPage { items, next, unread_total: snapshot.state.unread_total(), origin: snapshot.origin })
    }

    /// The view for a page. A page of unread posts has to know which they are: where the view only counts them, the facts say it.
    async fn view_of(&self, user: UserId, status: Status, newest: usize) -> Result<Option<View>, StoreError> {
        let Some(mut view) = self.view(user, newest).await? else { return Ok(None) };
        if status == Status::Unread {
            let counted = view.state.authors.iter().filter(|(_, state)| state.older > 0).map(|(author, _)| *author).collect();
            view.state.authors.extend(self.exact_states(user, counted).await?);
        }
        Ok(Some(view))
    }

    /// States of authors from the facts, which know of every post whether it is unread.
    async fn exact_states(&self, user: UserId, authors: BTreeSet<UserId>) -> Result<HashMap<UserId, AuthorState>, StoreError> {
        let pairs = futures::future::try_join_all(authors.into_iter().map(|author| self.pair(user, author))).await?;
        Ok(pairs.iter().filter_map(|pair| Some((pair.author, pair.state()?))).collect())
    }

    /// Starts over from the facts.
    async fn without_view(
        &self,
        user: UserId,
        error: &StoreError,
        page: &mut Collected,
        before: Option<FeedKey>,
    ) -> Result<Snapshot, StoreError> {
        page.posts.clear();
        page.reactions = None;
        page.bound = before;
        self.instead_of_view(user, error).await
    }

    /// Takes what the view stores of a page.
    async fn collect_stored(
        &self,
        user: UserId,
        mut view: View,
        status: Status,
        page: &mut Collected,
    ) -> Result<Snapshot, StoreError> {
        loop {
            let state = &view.state;
            let wanted =
                |key: &&FeedKey| page.is_below(key) && state.shows(key) && (status == Status::All || state.is_unread(key.post));
            let keys: Vec<FeedKey> = view.entries.iter().filter(wanted).take(page.missing()).copied().collect();
            let mut again = keys.is_empty() && !view.whole;
            if let Some(last) = keys.last() {
                page.bound = Some(*last);
                let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
                let (known, reactions) = self.stores.post_views.page(user, &ids).await?;
                let page_reactions = page.reactions.get_or_insert_default();
                page_reactions.of.extend(reactions.of);
                page_reactions.token = reactions.token;
                let (live, deleted) = self.complete(&ids, known).await?;
                page.posts.extend(live);
                // Their retraction is still under way: the counts of this page shall not promise them.
                let promised: BTreeSet<UserId> =
                    deleted.into_iter().filter(|&post| state.is_unread(post)).map(|post| post.author).collect();
                for &author in &promised {
                    self.sync_reads(user, author).await?;
                }
                again |= !promised.is_empty();
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
                match self.view_of(user, status, ALL).await? {
                    Some(whole) => view = whole,
                    None => return self.snapshot_of_facts(user, Origin::Rebuilding).await,
                }
            }
        }
    }

    /// Goes on from the facts.
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
        {
            page.posts.push(post.into());
        }
        Ok(())
    }

    /// The live ones of these posts in their order, and the deleted ones.
    pub(super) async fn summaries(&self, ids: &[PostId]) -> Result<(Vec<PostSummary>, Vec<PostId>), StoreError> {
        let known = self.stores.post_views.summaries(ids).await?;
        self.complete(ids, known).await
    }

    /// The same with those that are known already.
    async fn complete(
        &self,
        ids: &[PostId],
        mut posts: HashMap<PostId, PostSummary>,
    ) -> Result<(Vec<PostSummary>, Vec<PostId>), StoreError> {
        let unknown: Vec<PostId> = ids.iter().filter(|id| !posts.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let found: Vec<PostSummary> = self.stores.posts.posts(&unknown).await?.into_values().map(PostSummary::from).collect();
            if let Err(error) = self.stores.post_views.remember(&found).await {
                warn!(error = &error as &dyn std::error::Error, "summaries not kept");
            }
            posts.extend(found.into_iter().map(|post| (post.id, post)));
        }
        let (deleted, live): (Vec<PostSummary>, Vec<PostSummary>) =
            ids.iter().filter_map(|id| posts.remove(id)).partition(|post| post.deleted);
        Ok((live, deleted.into_iter().map(|post| post.id).collect()))
    }
}

/// How many of the posts that count as unread the view stores.
fn unread_stored(view: &View) -> u64 {
    view.entries.iter().filter(|key| view.state.shows(key) && view.state.is_unread(key.post)).count() as u64
}
