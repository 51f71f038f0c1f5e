//! The rebuild of a view that is in use. First the view is flagged, so that deliveries, follows and marks reach it from
//! then on. Then the facts are merged. Then the flag is removed.

use futures::FutureExt;
use tidemark_domain::{Edge, FeedKey, ReaderState, UserId, feed::FEED_CAP};
use tracing::{debug, info, warn};

use super::{Lane, Merge, Origin, PairFacts, Readers, Snapshot};
use crate::{
    error::StoreError,
    ports::{Begun, Seed, Seeded, View},
};

/// How often facts that changed during the rebuild are loaded again, and how often a view that vanished during the
/// rebuild is rebuilt again.
const ROUNDS: usize = 6;

impl Readers {
    /// Returns a complete view with its `newest` entries. Rebuilds a missing, damaged or abandoned view. Returns `None`
    /// while another process rebuilds it, and after `ROUNDS` rounds without a complete view.
    pub(super) async fn view(&self, user: UserId, newest: usize) -> Result<Option<View>, StoreError> {
        let mut anew = false;
        let (outage, mut first) = futures::join!(self.outage.check(), self.stores.reader_views.view(user, newest).map(Some));
        outage?;
        for round in 1..=ROUNDS {
            let found = match first.take() {
                Some(found) => found,
                None => self.stores.reader_views.view(user, newest).await,
            };
            match found {
                Ok(Some(view)) if view.state.is_complete() => {
                    let behind = self.behind(&view.state).await?;
                    if behind.is_empty() || round == ROUNDS {
                        self.extend_lifetime(user, &view.state).await;
                        return Ok(Some(view));
                    }
                    self.catch_up(user, &view.state, behind).await?;
                    continue;
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
                    anew = true;
                }
                Err(error) => return Err(error),
            }
            if !self.rebuild(user, anew).await? {
                return Ok(None);
            }
            anew = false;
        }
        Ok(None)
    }

    /// Rebuilds the view from the facts. Returns false while another process rebuilds it, or if facts changed in every
    /// round. After an error the view stays flagged, and another process takes over after the deadline.
    pub async fn rebuild(&self, user: UserId, anew: bool) -> Result<bool, StoreError> {
        let token = (self.stores.random)();
        match self.stores.reader_views.begin(user, token, self.stores.clock.now(), anew).await? {
            Begun::Building => return Ok(false),
            Begun::Ready => return Ok(true),
            Begun::Begun => {}
        }
        let edges = self.stores.edges.following(user).await?;
        if self.stores.reader_views.admit(user, &edges).await?.is_none() {
            return Ok(true);
        }
        // The facts are read only now, with the gate open. Posts that are published after these reads are delivered.
        // Posts that were published before are in the facts.
        let authors = edges.len();
        let snapshot = self.implied_by(user, edges, Origin::Rebuilding).await?;
        let (entries, low) = self.newest_entries(&snapshot).await?;
        debug!(%user, authors, entries = entries.len(), "rebuilding view");

        let authors = snapshot.state.authors.into_iter().collect();
        let mut seed = Seed { authors, entries, token: Some(token), low };
        for _ in 0..ROUNDS {
            match self.stores.reader_views.seed(user, &seed).await? {
                Seeded::Gone => return Ok(true),
                Seeded::Merged { stale } if stale.is_empty() => {
                    self.stores.reader_views.finish(user, token, self.stores.clock.now()).await?;
                    info!(%user, "view rebuilt");
                    return Ok(true);
                }
                Seeded::Merged { stale } => seed = self.reload(user, &stale, &seed).await?,
            }
        }
        Ok(false)
    }

    /// Returns what a complete view of the reader contains: the facts of each followed author, the newest entries, and
    /// the lowest of these entries if there are older posts.
    pub async fn implied_view(&self, user: UserId) -> Result<(Vec<PairFacts>, Vec<FeedKey>, Option<FeedKey>), StoreError> {
        let pairs = self.pairs(user).await?;
        let snapshot = Snapshot::of_pairs(pairs.clone(), Origin::Rebuilding);
        let (entries, low) = self.newest_entries(&snapshot).await?;
        Ok((pairs, entries, low))
    }

    /// Returns the newest entries of a reader's feed from the facts, at most the cap, and the lowest of them if there
    /// are older posts.
    async fn newest_entries(&self, snapshot: &Snapshot) -> Result<(Vec<FeedKey>, Option<FeedKey>), StoreError> {
        let mut merge = Merge::new(&*self.stores.posts, Lane::of_view(snapshot), None);
        let mut entries: Vec<FeedKey> = Vec::new();
        while let Some(post) = merge.next().await? {
            if entries.len() == FEED_CAP {
                let low = entries.last().copied();
                return Ok((entries, low));
            }
            entries.push(post.key());
        }
        Ok((entries, None))
    }

    /// Returns a seed with fresh facts of these authors only.
    async fn reload(&self, user: UserId, stale: &[UserId], seed: &Seed) -> Result<Seed, StoreError> {
        let edges: Vec<Edge> = self.stores.edges.edges(user, stale).await?.into_values().filter(|edge| edge.following).collect();
        self.stores.reader_views.admit(user, &edges).await?;
        let mut reloaded = Seed { token: seed.token, low: seed.low, ..Seed::default() };
        for edge in &edges {
            // If an edge has changed again, the request that changed it updates the view.
            let Some(author) = self.author_seed(user, edge).await? else { continue };
            reloaded.authors.extend(author.authors);
            reloaded.entries.extend(author.entries);
            reloaded.low = reloaded.low.max(author.low);
        }
        Ok(reloaded)
    }

    /// Extends the lifetimes of a view that is read, at most once in `TOUCH_INTERVAL_MS`. A failure costs at most an
    /// early rebuild.
    async fn extend_lifetime(&self, user: UserId, state: &ReaderState) {
        let now = self.stores.clock.now();
        if !state.meta.feed || now.ms() < state.meta.touched.ms() + TOUCH_INTERVAL_MS {
            return;
        }
        if let Err(error) = self.stores.reader_views.touch(user, now).await {
            warn!(%user, error = &error as &dyn std::error::Error, "could not extend the lifetime of a view");
        }
    }
}

const TOUCH_INTERVAL_MS: u64 = 30 * 60 * 1000;
