//! Pages of the ranked feed.
//!
//! A ranked feed has the stored entries of the feed by time, ordered by score. Workers fill it, and a ranked read adds
//! what it lacks. Without Redis, the page is computed from the newest posts in the facts.
//!
//! The posts of a list, and the unread posts, are a *selection* of the feed. If the view stores fewer of them than a
//! rebuilt view has, the newest of those below are added from their summaries. The reader's own posts are in no view,
//! and are added in the same way.
//!
//! A page's cursor has the stamp of the last move before the first page. Later pages leave out what has moved since. So
//! no post is returned twice, and a post that has not moved is returned once. A page notes the steps of posts beside
//! the view, which are the reader's own and those below it. In pages from the facts no moves are known.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use tidemark_domain::{
    FeedKey, PostId, PostSummary, Rank, RankedPlace, ReaderState, Score, Since, Store, Timestamp, Trail, UserId, store::Result,
};
use tidemark_views::{Ranked, View};

use super::{
    FeedPage, FeedQuery, Origin, Readers, Snapshot, Status,
    feed::{ALL, Collected, Collection, MARGIN, Start, lowest},
    merge::{FactSource, Lane, Merge, Summaries},
    rebuild::Part,
    shared::HeadsFrom,
};

type RankedQuery = FeedQuery<RankedPlace>;

/// How often a first page is read while posts of the view move.
const TRIES: u32 = 3;

impl RankedQuery {
    /// Returns whether a page of this query may have a post of the feed.
    fn takes(&self, key: &FeedKey, score: Score) -> bool {
        let is_below = |(place, trail): &(RankedPlace, Trail)| place.is_above(score, key) && trail.allows(key);
        self.is_new(key) && self.before.as_ref().is_none_or(is_below)
    }

    fn below(&self) -> Option<RankedPlace> {
        self.before.as_ref().map(|(place, _)| *place)
    }

    /// The same as [`FeedQuery::start`] for a page of a ranked feed.
    fn ranked_start(&self, View { state, entries, whole, ranked, .. }: &View) -> (Start, bool) {
        if let Some((_, trail)) = &self.before {
            return (Start { newest: None, trail: trail.clone() }, true);
        }
        if ranked.filled {
            return self.start(state, entries, *whole);
        }
        // Posts that just arrive are not ranked yet. The next poll returns them.
        let mut entries: Vec<FeedKey> = ranked.entries.iter().map(|(key, _)| *key).collect();
        entries.sort_unstable_by(|a, b| b.cmp(a));
        self.start(state, &entries, ranked.whole)
    }

    /// Returns whether the view has all entries of the ranked feed for this query. A poll needs only those that are
    /// new.
    fn has_all_of(&self, View { state, entries, whole, ranked, .. }: &View) -> bool {
        let end = |since: &Since| *whole || entries.last().is_some_and(|last| since.ends_at(last));
        let known: HashSet<&FeedKey> = ranked.entries.iter().map(|(key, _)| key).collect();
        let mut new = entries.iter().filter(|key| self.has(state, key) && self.is_new(key));
        ranked.whole || (self.before.is_none() && self.since.as_ref().is_some_and(end) && new.all(|key| known.contains(key)))
    }
}

fn keep_newest(posts: &mut Vec<(FeedKey, Score)>, most: usize) {
    posts.sort_unstable_by_key(|&(key, _)| Reverse(key));
    posts.truncate(most);
}

/// The result of noting the steps of posts beside the view.
enum Noted {
    All,
    /// Other posts have moved since the view was read.
    Moved,
    /// There is no view now.
    Lost,
}

/// A page, and the stamp of a walk that begins with it.
type Stamped = (Collection, u64);

impl Readers {
    /// Returns one page of the ranked feed, highest score first.
    pub async fn ranked_page(&self, user: UserId, query: RankedQuery) -> Result<FeedPage<(RankedPlace, Trail)>> {
        let of_view = match query.continues_facts() {
            true => Ok(None),
            false => self.ranked_of_view(user, &query).await,
        };
        let (found, stamp) = match of_view {
            Ok(Some(found)) => found,
            Ok(None) => self.ranked_of_facts(user, self.snapshot_of_facts(user, Origin::Rebuilding).await?, &query).await?,
            Err(error) if error.store() == Store::Views => {
                self.ranked_of_facts(user, self.instead_of_view(user, &error).await?, &query).await?
            }
            Err(error) => return Err(error),
        };
        let since = query.below().map_or(stamp, |place| place.since);
        let place = |post: &PostSummary, score: Option<Score>| {
            Some((RankedPlace { since, score: score?, key: post.key() }, Timestamp::MAX))
        };
        self.completed(user, found, &query, place).await
    }

    /// Collects a page from the view; `None` if there is no complete view now.
    async fn ranked_of_view(&self, user: UserId, query: &RankedQuery) -> Result<Option<Stamped>> {
        let (below, selects) = (query.below(), query.status == Status::Unread || query.list.is_some());
        // The posts of a selection are counted from its top, and so are others with own posts.
        let counts = selects || query.has_own();
        let from = below.map(|place| if counts { RankedPlace { score: Score::MAX, ..place } } else { place });
        let mut most = if counts { ALL } else { query.limit + 1 + MARGIN };
        let (mut gone, mut tries): (HashSet<PostId>, u32) = (HashSet::new(), 0);
        loop {
            let Some(view) = self.view(user, Part::Ranked { below: from, most }).await? else { return Ok(None) };
            let mut view = View { state: self.state_for(user, view.state, query.list, query.status).await?, ..view };
            let mut beside = if query.has_own() { self.add_ranked_own(user, &mut view).await? } else { Vec::new() };
            let (start, suffices) = query.ranked_start(&view);
            if !suffices && most < ALL {
                most = ALL;
                continue;
            }
            // Entries that are not shown, or whose posts are deleted, may have taken the places of others.
            let partly = most < ALL && !query.has_all_of(&view);
            let View { state, mut ranked, .. } = view;
            let mut shown: Vec<(FeedKey, Score)> = ranked.entries.clone();
            shown.retain(|(key, _)| query.has(&state, key) && !gone.contains(&key.post));
            if selects {
                for (key, rank, score) in self.below_selected(&state, query, &ranked, shown.len()).await? {
                    beside.push((key, rank));
                    shown.push((key, score));
                }
            }
            match self.note_beside(user, beside, &mut ranked, below.is_none()).await? {
                Noted::Moved if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                // Then later pages leave out posts beside the view whose change has just been noted.
                Noted::Moved | Noted::All => {}
                Noted::Lost => return Ok(None),
            }
            if query.has_own() {
                keep_newest(&mut shown, self.feed_cap.filled());
            }
            // The view's entries are in this order already.
            shown.sort_by_key(|&(key, score)| Reverse((score, key)));
            let stays = |key: &FeedKey| below.is_none_or(|place| !ranked.has_moved(key, place.since));
            shown.retain(|(key, score)| query.takes(key, *score) && stays(key));
            let mut page = Collected::new(query.limit, query.parts);
            page.scores = shown.iter().map(|(key, score)| (key.post, *score)).collect();
            let keys: Vec<FeedKey> = shown.iter().map(|(key, _)| *key).collect();
            let (mut rest, mut again) = (keys.as_slice(), false);
            while page.missing() > 0 && !rest.is_empty() && !again && (!partly || rest.len() >= page.missing()) {
                let (part, after) = rest.split_at(rest.len().min(page.missing()));
                rest = after;
                let (deleted, stale) = self.collect(user, part, &state, &mut page).await?;
                again = stale;
                gone.extend(deleted);
            }
            if !again && page.missing() > 0 && partly {
                most = ALL;
                continue;
            }
            if !again {
                let snapshot = Snapshot { state, heads: HashMap::new(), origin: Origin::View };
                return Ok(Some((Collection { page, start, snapshot }, ranked.stamp)));
            }
        }
    }

    /// Notes the steps of posts beside the view, and adds their moves to those of the ranked feed. A first page gets a
    /// later stamp, if the view is then still as it was read.
    async fn note_beside(
        &self,
        user: UserId,
        mut posts: Vec<(FeedKey, Rank)>,
        ranked: &mut Ranked,
        is_first: bool,
    ) -> Result<Noted> {
        posts.retain(|(key, rank)| rank.step.changes > 0 || ranked.moved.contains_key(key));
        if posts.is_empty() {
            return Ok(Noted::All);
        }
        let since = is_first.then_some(ranked.stamp);
        let noted = self.stores.views.beside(user, self.half_life, &posts, since).await?;
        let Some((stamp, moved)) = noted else { return Ok(Noted::Lost) };
        ranked.moved.extend(moved);
        if is_first {
            let Some(stamp) = stamp else { return Ok(Noted::Moved) };
            ranked.stamp = stamp;
        }
        Ok(Noted::All)
    }

    /// Adds the reader's newest own posts to a ranked feed, as many as a rebuilt view has, and returns them.
    async fn add_ranked_own(&self, user: UserId, view: &mut View) -> Result<Vec<(FeedKey, Rank)>> {
        let own = self.own(user, HeadsFrom::Views).await?;
        let (summaries, lanes) = (Summaries(self), Lane::of(&own, Status::All));
        let posts: Vec<PostSummary> =
            Merge::new(&summaries, &self.stores.facts, lanes, None).take(self.feed_cap.filled()).await?;
        view.state.authors.extend(own.state.authors);
        let posts: Vec<PostSummary> = posts.into_iter().filter(|post| view.state.shows(&post.key())).collect();
        view.entries.extend(posts.iter().map(PostSummary::key));
        view.entries.sort_unstable_by(|a, b| b.cmp(a));
        view.ranked.entries.extend(posts.iter().map(|post| (post.key(), self.score(&view.state, post))));
        Ok(posts.iter().map(|post| (post.key(), post.rank)).collect())
    }

    /// Returns the newest posts of a selection below what the view stores, so that it has as many as a rebuilt view.
    async fn below_selected(
        &self,
        state: &ReaderState,
        query: &RankedQuery,
        ranked: &Ranked,
        stored: usize,
    ) -> Result<Vec<(FeedKey, Rank, Score)>> {
        let missing = self.feed_cap.filled().saturating_sub(stored);
        // No post below a view is new.
        let may_have = |low: &FeedKey| missing > 0 && !query.since.as_ref().is_some_and(|since| since.ends_at(low));
        let Some(low) = state.meta.low.filter(may_have) else { return Ok(Vec::new()) };
        if query.status == Status::Unread && state.unread_total() <= stored as u64 {
            return Ok(Vec::new());
        }
        let heads = self.known_heads(state.authors.keys().copied().collect()).await?;
        let snapshot = Snapshot { state: state.clone(), heads, origin: Origin::View };
        let lanes = Lane::below(&snapshot, query.status, low, &lowest(ranked.entries.iter().map(|(key, _)| key)));
        let posts: Vec<PostSummary> = Merge::new(&Summaries(self), &self.stores.facts, lanes, Some(low)).take(missing).await?;
        Ok(posts.iter().map(|post| (post.key(), post.rank, self.score(state, post))).collect())
    }

    /// Returns the score of a post in the reader's ranked feed.
    fn score(&self, state: &ReaderState, post: &PostSummary) -> Score {
        let preference = state.authors.get(&post.id.author).map_or(0, |state| state.preference);
        self.half_life.score(post.created_at, post.rank, preference)
    }

    /// Collects a page from the newest posts in the facts, the same number as a view stores.
    async fn ranked_of_facts(&self, user: UserId, snapshot: Snapshot, query: &RankedQuery) -> Result<Stamped> {
        let snapshot = self.selected(user, snapshot, query).await?;
        let (source, lanes) = (FactSource(&self.stores.facts), Lane::of(&snapshot, query.status));
        let posts = Merge::new(&source, &self.stores.facts, lanes, None).take(self.feed_cap.filled()).await?;
        let start = match &query.before {
            Some((_, trail)) => Start { newest: None, trail: trail.clone() },
            None => {
                let low = posts.last().filter(|_| posts.len() == self.feed_cap.filled()).map(PostSummary::key);
                Start { newest: posts.first().map(PostSummary::key), trail: Trail::of(posts.iter().map(PostSummary::key), low) }
            }
        };
        let state = &snapshot.state;
        let scored = |post: PostSummary| (self.score(state, &post), post.key(), post);
        let mut posts: Vec<(Score, FeedKey, PostSummary)> =
            posts.into_iter().map(scored).filter(|(score, key, _)| query.takes(key, *score)).collect();
        posts.sort_unstable_by_key(|&(score, key, _)| Reverse((score, key)));
        posts.truncate(query.limit + 1);
        let mut page = Collected::new(query.limit, query.parts);
        for (score, key, post) in posts {
            page.scores.insert(key.post, score);
            page.posts.push(post);
        }
        // Stamps are microseconds of Redis's clock.
        Ok((Collection { page, start, snapshot }, self.stores.clock.now().ms() * 1_000))
    }

    /// Adds the posts that a ranked feed lacks, or moves those of authors who were ever pulled, unless this was
    /// `compared` before in this walk. Returns whether the ranked feed has to be read again.
    pub(super) async fn improve_ranks(&self, user: UserId, view: &View, compared: &mut bool) -> Result<bool> {
        if !view.ranked.filled {
            // From now on moves reach the ranked feed. A step that is read later is not older than they are.
            self.stores.views.rank(&[user], self.half_life, &[], true).await?;
            let missing = self.stores.views.unranked(user, self.half_life).await?;
            let ranks = self.ranks(&missing).await?;
            let posts: Vec<(FeedKey, Rank)> =
                missing.into_iter().map(|key| (key, ranks.get(&key.post).copied().unwrap_or_default())).collect();
            self.stores.views.rank(&[user], self.half_life, &posts, true).await?;
            return Ok(true);
        }
        if std::mem::replace(compared, true) || view.state.authors.values().all(|state| state.modes.is_push_alone()) {
            return Ok(false);
        }
        self.compare_pulled(user).await
    }

    /// Compares the scores of posts of authors who were ever pulled. Their followers get no rescore task.
    async fn compare_pulled(&self, user: UserId) -> Result<bool> {
        let Some(View { state, ranked, .. }) = self.stores.views.ranked_view(user, self.half_life, None, ALL).await? else {
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
        self.stores.views.rank(&[user], self.half_life, &moved, false).await?;
        Ok(true)
    }

    /// Returns what these posts add to their scores. Deleted and unknown posts are left out.
    async fn ranks(&self, keys: &[FeedKey]) -> Result<HashMap<PostId, Rank>> {
        let ids: Vec<PostId> = keys.iter().map(|key| key.post).collect();
        let (live, _) = self.summaries(&ids).await?;
        Ok(live.into_iter().map(|post| (post.id, post.rank)).collect())
    }
}
