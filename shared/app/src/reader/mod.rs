//! Use cases of one reader: the view, or the facts instead; rebuilds, updates and pages.

mod author_page;
mod catch_up;
mod feed;
mod merge;
mod oldest;
mod originals;
mod own;
mod post;
mod ranked;
mod reactions;
mod rebuild;
mod shared;
mod sight;
mod sync;
mod unread;

use std::{collections::HashMap, sync::Arc};

use tidemark_domain::{
    AuthorHead, AuthorState, Blocks, Edge, HalfLife, ReadState, ReaderState, Standing, Store, StoreError, UserId, Viewer,
    feed::FeedCap, store::Result,
};
use tracing::warn;

pub use author_page::{AuthorPage, AuthorQuery};
pub use feed::{FeedItem, FeedPage, FeedQuery, Status};
pub use originals::{Original, Originals};
pub(crate) use post::shorten;
pub use post::{Body, MOST_TEXT, PostDetails, TooMuchText};
pub use reactions::{ReactedPage, ReactorsPage};
use rebuild::Part;
pub(crate) use sight::Flags;

use crate::{Stores, outage::Outage};

/// Use cases of one reader. Clones share the stores.
#[derive(Clone)]
pub struct Readers {
    stores: Arc<Stores>,
    outage: Outage,
    /// Of the scores in ranked feeds.
    half_life: HalfLife,
    feed_cap: FeedCap,
}

/// The source of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    View,
    /// The facts, because the view is damaged or being rebuilt.
    Rebuilding,
    /// The facts, because Redis is unavailable, the outage note stands, or the view did not accept a mark.
    Degraded,
}

/// The state of a reader's followed authors at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The state of every followed author. In a snapshot from the facts, every post counts as delivered.
    pub state: ReaderState,
    /// The heads of the followed authors, if they were read from the facts.
    pub heads: HashMap<UserId, AuthorHead>,
    pub origin: Origin,
}

/// The facts of one reader and one author.
#[derive(Debug, Clone)]
pub struct PairFacts {
    pub author: UserId,
    /// The live edge or the tombstone.
    pub edge: Option<Edge>,
    pub head: AuthorHead,
    pub reads: ReadState,
}

impl PairFacts {
    fn of(edges: Vec<Edge>, heads: &HashMap<UserId, AuthorHead>, reads: HashMap<UserId, ReadState>) -> Vec<Self> {
        Self::of_authors(edges.into_iter().map(|edge| (edge.author, Some(edge))), heads, reads)
    }

    fn of_authors(
        authors: impl IntoIterator<Item = (UserId, Option<Edge>)>,
        heads: &HashMap<UserId, AuthorHead>,
        mut reads: HashMap<UserId, ReadState>,
    ) -> Vec<Self> {
        let pair = |(author, edge)| Self {
            author,
            edge,
            head: heads.get(&author).cloned().unwrap_or_default(),
            reads: reads.remove(&author).unwrap_or_default(),
        };
        authors.into_iter().map(pair).collect()
    }

    pub fn live_edge(&self) -> Option<&Edge> {
        self.edge.as_ref().filter(|edge| edge.following)
    }

    /// Returns the standing of the viewer, who is the user of this pair, with its author.
    pub(crate) fn standing(&self, viewer: Viewer, blocks: Blocks) -> Standing {
        let kept = viewer.kept_from(self.author, self.head.audience(), self.live_edge().is_some());
        Standing::of(blocks, kept)
    }

    /// Returns the state that the facts imply; `None` if the user does not follow the author.
    pub fn state(&self) -> Option<AuthorState> {
        self.live_edge().map(|edge| AuthorState::from_facts(edge, &self.head, &self.reads))
    }
}

impl Snapshot {
    /// Returns whether the view of this snapshot lacks a follow, an unfollow or a read state that is in these facts. It
    /// does if a request ended between its fact and the view.
    pub(crate) fn lacks(&self, pair: &PairFacts) -> bool {
        match (self.state.authors.get(&pair.author), pair.live_edge()) {
            (Some(field), Some(edge)) => field.rev < edge.rev || (field.rev == edge.rev && field.version < pair.reads.version),
            (None, None) => false,
            (Some(field), None) => pair.edge.as_ref().is_none_or(|edge| field.rev < edge.rev),
            (None, Some(_)) => true,
        }
    }

    fn of_pairs(pairs: Vec<PairFacts>, origin: Origin) -> Self {
        let mut snapshot = Self { state: ReaderState::default(), heads: HashMap::new(), origin };
        for pair in pairs {
            if let Some((edge, state)) = pair.live_edge().zip(pair.state()) {
                snapshot.state.authors.insert(edge.author, state);
                snapshot.heads.insert(edge.author, pair.head);
            }
        }
        snapshot
    }
}

impl Readers {
    pub fn new(stores: Arc<Stores>, outage: Outage, half_life: HalfLife, feed_cap: FeedCap) -> Self {
        Self { stores, outage, half_life, feed_cap }
    }

    /// Returns an error while views may lack changes. Responses then come from the facts.
    pub async fn check_views(&self) -> Result<()> {
        self.outage.check().await
    }

    /// Returns the reader's view, rebuilt if it is missing; from the facts if that is not possible now.
    pub async fn snapshot(&self, user: UserId) -> Result<Snapshot> {
        match self.view(user, Part::Newest(0)).await {
            Ok(Some(view)) => Ok(Snapshot { state: view.state, heads: HashMap::new(), origin: Origin::View }),
            Ok(None) => self.snapshot_of_facts(user, Origin::Rebuilding).await,
            Err(error) if error.store() == Store::Views => self.instead_of_view(user, &error).await,
            Err(error) => Err(error),
        }
    }

    /// Returns the snapshot that the facts imply, because the view failed.
    async fn instead_of_view(&self, user: UserId, error: &StoreError) -> Result<Snapshot> {
        warn!(%user, error = error as &dyn std::error::Error, "view unavailable, responding from the facts");
        let origin = if error.is_unavailable() { Origin::Degraded } else { Origin::Rebuilding };
        self.snapshot_of_facts(user, origin).await
    }

    pub(crate) async fn snapshot_of_facts(&self, user: UserId, origin: Origin) -> Result<Snapshot> {
        Ok(Snapshot::of_pairs(self.pairs(user).await?, origin))
    }

    /// Returns the facts of every author whom the user follows.
    pub async fn pairs(&self, user: UserId) -> Result<Vec<PairFacts>> {
        let edges = self.stores.facts.following(user).await?;
        let authors: Vec<UserId> = edges.iter().map(|edge| edge.author).collect();
        let (heads, reads) = futures::try_join!(self.stores.facts.heads(&authors), self.stores.facts.all_reads(user))?;
        Ok(PairFacts::of(edges, &heads, reads))
    }

    pub async fn pair(&self, user: UserId, author: UserId) -> Result<PairFacts> {
        Ok(self.pairs_with(user, &[author]).await?.remove(0))
    }

    /// Returns the facts of a user and of each of these distinct authors, in order.
    async fn pairs_with(&self, user: UserId, authors: &[UserId]) -> Result<Vec<PairFacts>> {
        let (mut edges, heads, reads) = futures::try_join!(
            self.stores.facts.edges(user, authors),
            self.stores.facts.heads(authors),
            self.stores.facts.reads(user, authors),
        )?;
        Ok(PairFacts::of_authors(authors.iter().map(|&author| (author, edges.remove(&author))), &heads, reads))
    }
}

/// Returns what the views returned; `None` if they failed. The response then comes from the facts, and is degraded
/// if Redis is unavailable.
fn unless_failed<T>(user: UserId, of_views: Result<T>) -> Result<(Option<T>, bool)> {
    match of_views {
        Ok(found) => Ok((Some(found), false)),
        Err(error) if error.store() == Store::Views => {
            warn!(%user, error = &error as &dyn std::error::Error, "view unavailable, responding from the facts");
            Ok((None, error.is_unavailable()))
        }
        Err(error) => Err(error),
    }
}
