//! Pages of the feed from the oldest post on.
//!
//! A cursor says which posts the pages so far have returned: everything up to a place, and the posts of the last
//! minutes up to there by their hashes. So a post that becomes visible below the place is in a later page, and a walk
//! has what a chain of polls has. At its end, the same state is the `first_cursor` from which polls go on.
//!
//! A page is one merge: the posts below what the view stores, its entries, and the reader's own posts.

use std::collections::{HashMap, VecDeque};

use tidemark_domain::{FeedKey, Since, Store, UserId, store::Result};
use tidemark_views::View;

use super::{
    FeedPage, FeedQuery, Origin, Readers, Snapshot, Status,
    feed::{Collected, Collection, Shown, Start, Walk, lowest},
    merge::{FactSource, Lane, Merge, Placed, Source, Summaries},
    rebuild::Part,
    shared::HeadsFrom,
};

/// A page of a feed that begins with what is new since [`FeedQuery::since`].
type OldestQuery = FeedQuery<FeedKey>;

impl OldestQuery {
    fn is_first(&self) -> bool {
        self.since.is_none()
    }

    /// Merges these lanes from the place where the page begins.
    fn merge<'a, P: Placed>(&self, readers: &'a Readers, source: &'a dyn Source<P>, lanes: Vec<Lane<'a, P>>) -> Merge<'a, P> {
        let from = self.since.as_ref().map(Since::begins_at).unwrap_or_default();
        Merge::oldest_first(source, &readers.stores.facts, lanes, from)
    }

    /// Returns the next posts that no page has returned, at most `most`.
    async fn next<P: Placed>(&self, merge: &mut Merge<'_, P>, most: usize) -> Result<Vec<P>> {
        let mut posts = Vec::new();
        while posts.len() < most
            && let Some(post) = merge.next().await?
        {
            if self.is_new(&post.key()) {
                posts.push(post);
            }
        }
        Ok(posts)
    }
}

impl Readers {
    /// Returns one page of the feed, oldest first. `query.since` is its cursor.
    pub async fn oldest_page(&self, user: UserId, query: OldestQuery) -> Result<FeedPage<Since>> {
        let found = match self.oldest_of_view(user, &query).await {
            Ok(Some(found)) => found,
            Ok(None) => self.oldest_of_facts(user, self.snapshot_of_facts(user, Origin::Rebuilding).await?, &query).await?,
            Err(error) if error.store() == Store::Views => {
                self.oldest_of_facts(user, self.instead_of_view(user, &error).await?, &query).await?
            }
            Err(error) => return Err(error),
        };
        let Collection { page, start, snapshot } = found;
        let Shown { items, cards, bodies, more } = self.shown(user, page, &snapshot.state).await?;
        let mut returned: Vec<FeedKey> = items.iter().map(|item| item.post.key()).collect();
        returned.sort_unstable_by(|a, b| b.cmp(a));
        let walked = Since::walked(query.since.as_ref(), &returned, snapshot.state.newest_at(), more);
        let (next, first) = match more {
            true => (Some(walked), query.is_first().then(|| Since::after(None, start.newest, start.trail))),
            false => (None, Some(walked)),
        };
        let unread_total = snapshot.state.unread_total();
        Ok(FeedPage { items, next, first, unread_total, cards, bodies, origin: snapshot.origin })
    }

    /// Collects a page from the view and from what lies below it; `None` if there is no complete view now.
    async fn oldest_of_view(&self, user: UserId, query: &OldestQuery) -> Result<Option<Collection>> {
        loop {
            let Some(mut view) = self.view(user, Part::Full).await? else { return Ok(None) };
            view.state = self.state_for(user, view.state, query.list, query.status).await?;
            let own = match query.has_own() {
                true => self.own(user, HeadsFrom::Views).await?,
                false => Snapshot { state: Default::default(), heads: HashMap::new(), origin: Origin::View },
            };
            let start = if query.is_first() { self.start_of(&own, &view, query).await? } else { Start::default() };
            let View { state, entries, .. } = view;
            let stored: VecDeque<FeedKey> = entries.iter().filter(|key| query.has(&state, key)).copied().collect();
            let is_all = query.status == Status::Unread && state.unread_total() == stored.len() as u64;
            let is_passed = |low: &FeedKey| query.since.as_ref().is_some_and(|since| since.ends_at(low));
            let low = state.meta.low.filter(|low| !is_all && !is_passed(low));
            let mut snapshot = Snapshot { state, heads: HashMap::new(), origin: Origin::View };
            let mut lanes = Lane::of(&own, Status::All);
            if let Some(low) = low {
                snapshot.heads = self.known_heads(snapshot.state.authors.keys().copied().collect()).await?;
                lanes.extend(Lane::below(&snapshot, query.status, low, &lowest(entries.iter())));
            }
            lanes.push(Lane::loaded(stored));
            let summaries = Summaries(self);
            let (mut page, mut merge) = (Collected::new(query.limit, query.parts), query.merge(self, &summaries, lanes));
            let mut stale = false;
            while page.missing() > 0 && !stale {
                let keys = query.next(&mut merge, page.missing()).await?;
                if keys.is_empty() {
                    break;
                }
                (_, stale) = self.collect(user, &keys, &snapshot.state, &mut page).await?;
            }
            drop(merge);
            snapshot.state.authors.extend(own.state.authors);
            if !stale {
                return Ok(Some(Collection { page, start, snapshot }));
            }
        }
    }

    /// Returns the state of the feed when a walk begins.
    async fn start_of(&self, own: &Snapshot, view: &View, query: &OldestQuery) -> Result<Start> {
        let mut view = view.clone();
        if query.has_own() {
            self.add_own(own, &mut view, &mut Walk::new(query)).await?;
        }
        Ok(query.start(&view.state, &view.entries, view.whole).0)
    }

    /// Collects a page from the facts.
    async fn oldest_of_facts(&self, user: UserId, snapshot: Snapshot, query: &OldestQuery) -> Result<Collection> {
        let snapshot = self.selected(user, snapshot, query).await?;
        let facts = FactSource(&self.stores.facts);
        let start = match query.is_first() {
            true => {
                let lanes = Lane::of(&snapshot, query.status);
                Walk::new(query).into_start(&mut Merge::new(&facts, &self.stores.facts, lanes, None)).await?
            }
            false => Start::default(),
        };
        let mut page = Collected::new(query.limit, query.parts);
        let mut merge = query.merge(self, &facts, Lane::of(&snapshot, query.status));
        let posts = query.next(&mut merge, page.missing()).await?;
        page.posts.extend(posts);
        drop(merge);
        Ok(Collection { page, start, snapshot })
    }
}
