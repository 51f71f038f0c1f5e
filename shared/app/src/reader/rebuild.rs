//! The rebuild of a reader's view while it is in use: by each read that finds it missing, damaged or abandoned, by a
//! read that needs more than a short view has, and by an update that disagrees with the view in every round. First the
//! view is flagged, so that deliveries, follows and marks reach it from then on. Then the facts are merged. Then the
//! flag is removed.
//!
//! Removals make a view short. A rebuild stores more entries than a short view has (`FeedCap`), so later reads do not
//! find it short again.

use tidemark_domain::{Edge, FeedKey, PostSummary, Rank, RankedPlace, ReaderState, StoreError, UserId, store::Result};
use tidemark_views::{Begun, Rebuild, Seed, View};
use tracing::{debug, info, warn};

use super::{
    Origin, PairFacts, Readers, Snapshot, Status,
    feed::ALL,
    merge::{FactSource, Lane, Merge, Placed, Source, Summaries},
    shared::{HeadsFrom, Places},
};
use crate::metrics::Metric;

/// How often facts that changed during the rebuild are loaded again, and a view that vanished is rebuilt again.
const ROUNDS: usize = 6;

/// The part of a feed that is read with the state.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// This many of the newest entries.
    Newest(usize),
    /// All entries, of a view that is not short.
    Full,
    /// At most this many entries of the ranked feed, of a view that is not short.
    Ranked { below: Option<RankedPlace>, most: usize },
}

impl Readers {
    /// Returns a complete view with a part of its feed. Rebuilds a missing, damaged or abandoned view. Returns `None`
    /// while another process rebuilds it, and after `ROUNDS` rounds without a complete view.
    pub(super) async fn view(&self, user: UserId, part: Part) -> Result<Option<View>> {
        // The posts of a walk stay where its first page found them.
        let ranked = matches!(part, Part::Ranked { .. });
        let (mut why, mut compared) = (Rebuild::Missing, matches!(part, Part::Ranked { below: Some(_), .. }));
        let mut refills = !matches!(part, Part::Newest(_));
        let mut first = Some(self.outage.checked(self.part(user, part)).await);
        for round in 1..=ROUNDS {
            let found = match first.take() {
                Some(found) => found,
                None => self.part(user, part).await,
            };
            match found {
                Ok(Some(view)) if view.state.is_complete() => {
                    let stale = self.stale(&view.state).await?;
                    if round < ROUNDS && !stale.is_empty() {
                        self.catch_up(user, &view.state, stale).await?;
                        continue;
                    }
                    if round < ROUNDS && refills && view.is_short(self.feed_cap) {
                        (why, refills) = (Rebuild::Short, false);
                    } else {
                        // A ranked feed that is still not filled in the last round lacks only posts that just arrive.
                        if round < ROUNDS && ranked && self.improve_ranks(user, &view, &mut compared).await? {
                            continue;
                        }
                        self.extend_lifetime(user, &view.state, ranked).await;
                        return Ok(Some(view));
                    }
                }
                // A follow opened the gate, and its facts were not merged. Merge them now.
                Ok(Some(View { state, .. })) if !state.meta.building => {
                    let opening: Vec<UserId> =
                        state.authors.iter().filter(|(_, state)| state.opening).map(|(author, _)| *author).collect();
                    self.sync(user, &opening).await?;
                    continue;
                }
                Ok(_) => {}
                Err(StoreError::DamagedView { detail }) => {
                    warn!(%user, detail, "damaged view, rebuilding it");
                    why = Rebuild::Anew;
                }
                Err(error) => return Err(error),
            }
            if !self.rebuild(user, why).await? {
                return Ok(None);
            }
            why = Rebuild::Missing;
        }
        Ok(None)
    }

    async fn part(&self, user: UserId, part: Part) -> Result<Option<View>> {
        match part {
            Part::Newest(newest) => self.stores.views.reader_view(user, newest).await,
            Part::Full => self.stores.views.reader_view(user, ALL).await,
            Part::Ranked { below, most } => self.stores.views.ranked_view(user, self.half_life, below, most).await,
        }
    }

    /// Rebuilds the view from the facts. Returns false while another process rebuilds it, or if facts changed in every
    /// round. After an error the view stays flagged, and another process takes over after the deadline.
    pub(super) async fn rebuild(&self, user: UserId, why: Rebuild) -> Result<bool> {
        let token = (self.stores.random)();
        match self.stores.views.begin_rebuild(user, token, self.stores.clock.now(), why).await? {
            Begun::Building => return Ok(false),
            Begun::Ready => return Ok(true),
            Begun::Begun => {}
        }
        let edges = self.stores.facts.following(user).await?;
        if self.stores.views.open_gate(user, &edges).await?.is_none() {
            return Ok(true);
        }
        // The gate is open: later posts are delivered, and earlier ones are in the facts.
        let ids: Vec<UserId> = edges.iter().map(|edge| edge.author).collect();
        let heads = if why == Rebuild::Anew { HeadsFrom::Facts } else { HeadsFrom::Views };
        let (mut known, reads) = futures::try_join!(self.authors(&ids, heads), self.stores.facts.all_reads(user))?;
        self.renew_heads(&mut known, &edges, &reads).await?;
        let snapshot = Snapshot::of_pairs(PairFacts::of(edges, &known.heads, reads), Origin::Rebuilding);
        let places = Places::new(&self.stores.facts, &known);
        let (entries, low) = match why {
            Rebuild::Short => {
                // Other readers lack the same posts, and a ranked read needs their ranks too.
                let (posts, low) = self.newest(&Summaries(self), &snapshot).await?;
                (posts.iter().map(PostSummary::key).collect(), low)
            }
            Rebuild::Missing | Rebuild::Anew => self.newest(&places, &snapshot).await?,
        };
        debug!(%user, authors = ids.len(), entries = entries.len(), "rebuilding view");

        let authors = snapshot.state.authors.into_iter().collect();
        let mut seed = Seed { authors, entries, token: Some(token), low };
        for _ in 0..ROUNDS {
            match self.stores.views.seed(user, &seed).await? {
                None => return Ok(true),
                Some(stale) if stale.is_empty() => {
                    self.stores.views.finish_rebuild(user, token, self.stores.clock.now()).await?;
                    info!(%user, "view rebuilt");
                    self.stores.recorder.count(Metric::Rebuilds, 1);
                    self.store_times(places.read(), &known).await;
                    return Ok(true);
                }
                Some(stale) => seed = self.reload(user, &stale, &seed).await?,
            }
        }
        Ok(false)
    }

    /// Returns what a complete view of the reader contains: the facts of each followed author, the newest entries with
    /// their ranks, and the lowest of these entries if there are older posts.
    pub async fn implied_view(&self, user: UserId) -> Result<(Vec<PairFacts>, Vec<(FeedKey, Rank)>, Option<FeedKey>)> {
        let pairs = self.pairs(user).await?;
        let snapshot = Snapshot::of_pairs(pairs.clone(), Origin::Rebuilding);
        let (posts, low) = self.newest(&FactSource(&self.stores.facts), &snapshot).await?;
        Ok((pairs, posts.iter().map(|post| (post.key(), post.rank)).collect(), low))
    }

    /// Returns the newest posts of a feed, as many as a rebuild stores, and the lowest of them if there are older
    /// posts.
    async fn newest<P: Placed>(&self, source: &dyn Source<P>, snapshot: &Snapshot) -> Result<(Vec<P>, Option<FeedKey>)> {
        let mut merge = Merge::new(source, &self.stores.facts, Lane::of(snapshot, Status::All), None);
        let posts = merge.take(self.feed_cap.filled()).await?;
        let has_more = merge.next().await?.is_some();
        let low = posts.last().filter(|_| has_more).map(P::key);
        Ok((posts, low))
    }

    /// Returns a seed with fresh facts of these authors only.
    async fn reload(&self, user: UserId, stale: &[UserId], seed: &Seed) -> Result<Seed> {
        let edges: Vec<Edge> = self.stores.facts.edges(user, stale).await?.into_values().filter(|edge| edge.following).collect();
        self.stores.views.open_gate(user, &edges).await?;
        let mut reloaded = Seed { token: seed.token, low: seed.low, ..Seed::default() };
        for edge in &edges {
            // If an edge has changed again, the request that changed it updates the view.
            let Some(author) = self.author_seed(user, edge, HeadsFrom::Facts).await? else { continue };
            reloaded.authors.extend(author.authors);
            reloaded.entries.extend(author.entries);
            reloaded.low = reloaded.low.max(author.low);
        }
        Ok(reloaded)
    }

    /// Extends the lifetimes of a view that is read. A failure costs at most an early rebuild.
    async fn extend_lifetime(&self, user: UserId, state: &ReaderState, ranked: bool) {
        let now = self.stores.clock.now();
        if !state.meta.feed || now.ms() < state.meta.touched.ms() + TOUCH_INTERVAL_MS {
            return;
        }
        logged!(self.stores.views.touch(user, now, ranked).await, "could not extend the lifetime of a view", %user);
    }
}

const TOUCH_INTERVAL_MS: u64 = 30 * 60 * 1000;
