//! A reader's view, as it is read, rebuilt and delivered to.

use std::collections::HashMap;

use tidemark_domain::{AuthorState, FeedKey, ReaderState, Score, UserId, feed::FeedCap};

use crate::Notified;

/// When [`Views::begin_rebuild`](crate::Views::begin_rebuild) starts a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// If there is no view.
    Missing,
    /// Also if the view is [short](View::is_short). Its ranked feed keeps what has moved.
    Short,
    /// Even if there is a view, or another process rebuilds it.
    Anew,
}

/// The result of [`Views::begin_rebuild`](crate::Views::begin_rebuild).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The caller owns the rebuild.
    Begun,
    /// Another process owns a rebuild, and its deadline has not passed.
    Building,
    /// There is nothing to rebuild.
    Ready,
}

/// The result of [`Views::open_gate`](crate::Views::open_gate) for one author. Once an author's *gate* is open, the
/// reader's view accepts the author's new posts, and the facts from before are merged as a [`Seed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The gate is open, and the facts have to be merged.
    Opening,
    /// The follow and its facts are in the view.
    Complete,
    /// The view has a later revision of the edge.
    Stale,
}

/// Facts that are merged into one view.
#[derive(Debug, Clone, Default)]
pub struct Seed {
    pub authors: Vec<(UserId, AuthorState)>,
    pub entries: Vec<FeedKey>,
    /// The token of the rebuild, if the seed is part of one.
    pub token: Option<u64>,
    /// From this entry on, `entries` is complete, and older posts exist. `None` if there are no older posts.
    pub low: Option<FeedKey>,
}

/// A reader's view at one moment. Counts and feed agree.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub state: ReaderState,
    /// The newest entries of the feed, newest first.
    pub entries: Vec<FeedKey>,
    /// Whether `entries` contains all entries that the view stores.
    pub whole: bool,
    /// The number of entries that the view stores, if it was read.
    pub stored: Option<usize>,
    /// The ranked feed, if it was asked for.
    pub ranked: Ranked,
}

impl View {
    /// Returns whether removals have left fewer entries than a feed has, although the facts have older posts.
    pub fn is_short(&self, cap: FeedCap) -> bool {
        self.state.meta.low.is_some() && self.stored.is_some_and(|stored| stored < cap.least())
    }
}

/// A first page reads at least this many of the newest entries: usually all of the last minutes ([`Trail`]).
///
/// [`Trail`]: tidemark_domain::Trail
pub const NEWEST: usize = 128;

/// A part of a ranked feed.
#[derive(Debug, Clone, Default)]
pub struct Ranked {
    /// Entries with their scores, the highest score first.
    pub entries: Vec<(FeedKey, Score)>,
    /// Whether `entries` contains everything below the place where it begins.
    pub whole: bool,
    /// Whether the ranked feed has every entry of the feed.
    pub filled: bool,
    /// The stamp of the last move. Stamps only grow.
    pub stamp: u64,
    /// The stamps of posts whose scores have changed, and of authors whose preferences have. Only below a place.
    pub moved: HashMap<FeedKey, u64>,
    pub moved_authors: HashMap<UserId, u64>,
}

impl Ranked {
    pub fn has_moved(&self, key: &FeedKey, since: u64) -> bool {
        let stamps = [self.moved.get(key), self.moved_authors.get(&key.post.author)];
        stamps.into_iter().flatten().any(|&stamp| stamp > since)
    }
}

/// The result of [`Views::deliver`](crate::Views::deliver).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivered {
    /// The number of users whose view follows the author.
    pub reached: u64,
    /// Readers among them who have a ranked feed. [`Views::rank`](crate::Views::rank) puts the post there.
    pub ranked: Vec<UserId>,
    /// Readers among them with live connections. The caller must send them a task: the views count it as sent.
    pub notified: Notified,
}
