//! Ports of the views of readers, authors, posts, reactions and relations.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use tidemark_domain::{
    AuthorHead, AuthorState, Card, Counters, Edge, FeedKey, HalfLife, Modes, PostId, PostSummary, PostText, PostTimes, Rank,
    RankedPlace, ReactionCounts, ReactionState, ReadState, ReaderState, Relation, Score, Seq, SeqSet, Step, Timestamp, UserId,
    feed::FeedCap,
};

use super::{facts::CountsVersion, live::Notified};
use crate::error::Result;

/// When [`ReaderViews::begin`] starts a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rebuild {
    /// If there is no view.
    Missing,
    /// Also if the view is [short](View::is_short). Its ranked feed keeps what has moved.
    Short,
    /// Even if there is a view, or another process rebuilds it.
    Anew,
}

/// The result of [`ReaderViews::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The caller owns the rebuild.
    Begun,
    /// Another process owns a rebuild, and its deadline has not passed.
    Building,
    /// There is nothing to rebuild.
    Ready,
}

/// The result of [`ReaderViews::open_gate`] for one author. Once an author's *gate* is open, the reader's view accepts
/// the author's new posts, and the facts from before are merged as a [`Seed`].
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
    pub(crate) fn is_short(&self, cap: FeedCap) -> bool {
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
    pub(crate) fn has_moved(&self, key: &FeedKey, since: u64) -> bool {
        let stamps = [self.moved.get(key), self.moved_authors.get(&key.post.author)];
        stamps.into_iter().flatten().any(|&stamp| stamp > since)
    }
}

/// The result of [`ReaderViews::deliver`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delivered {
    /// The number of users whose view follows the author.
    pub reached: u64,
    /// Readers among them who have a ranked feed. [`ReaderViews::rank`] puts the post there.
    pub ranked: Vec<UserId>,
    /// Readers among them with live connections. The caller must send them a task: the views count it as sent.
    pub notified: Notified,
}

/// Feeds and read states of live readers.
#[async_trait]
pub trait ReaderViews: Send + Sync {
    /// Returns the state and the `newest` entries of the feed, read atomically; `None` if there is no view.
    async fn view(&self, user: UserId, newest: usize) -> Result<Option<View>>;
    /// The same with at most `most` entries of the ranked feed below a place, or of its top. At the top, it has the
    /// newest entries of the feed too: `most`, and at least [`NEWEST`].
    async fn ranked(&self, user: UserId, half_life: HalfLife, below: Option<RankedPlace>, most: usize) -> Result<Option<View>>;
    /// Returns the entries of the feed that the ranked feed lacks.
    async fn unranked(&self, user: UserId, half_life: HalfLife) -> Result<Vec<FeedKey>>;
    /// Puts posts into the ranked feeds of these users, or moves them there, unless a feed lacks the post or has a
    /// later step. With `create`, a user with a feed and without a ranked feed gets one.
    async fn rank(&self, users: &[UserId], half_life: HalfLife, posts: &[(FeedKey, Rank)], create: bool) -> Result<()>;
    /// Starts a rebuild.
    async fn begin(&self, user: UserId, token: u64, now: Timestamp, rebuild: Rebuild) -> Result<Begun>;
    /// Opens the gate for these edges. Returns one result for each edge, in order; `None` if there is no view.
    async fn open_gate(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Gate>>>;
    /// Merges facts into the view. Returns the authors of whom the view has newer facts, or no field of this follow:
    /// their facts have to be loaded again, and their entries are not stored. `None` if there is no view, or the caller
    /// no longer owns the rebuild.
    async fn seed(&self, user: UserId, seed: &Seed) -> Result<Option<Vec<UserId>>>;
    /// Ends a rebuild. Returns false if the caller no longer owns it.
    async fn finish(&self, user: UserId, token: u64, now: Timestamp) -> Result<bool>;
    /// Removes an unfollowed author: state, counts and entries.
    async fn drop_author(&self, tombstone: &Edge) -> Result<()>;
    /// Takes the lease for storing the marks of an author whom the user does not follow.
    async fn lease_marks(&self, user: UserId, author: UserId, token: u64) -> Result<()>;
    async fn fill_marks(&self, user: UserId, author: UserId, marks: &Marks, token: u64) -> Result<()>;
    /// Removes the marks of these users and authors, and the leases.
    async fn forget_marks(&self, pairs: &[(UserId, UserId)]) -> Result<()>;
    /// Extends the lifetimes of a view after a read, and of the ranked feed if that was read. Removes the oldest
    /// entries beyond the cap, and old tombstones.
    async fn touch(&self, user: UserId, now: Timestamp, ranked: bool) -> Result<()>;
    /// Adds a post to the views of these users, with its author's modes after it, except to ranked feeds. A damaged
    /// view is deleted, and the next read rebuilds it.
    async fn deliver(&self, users: &[UserId], post: FeedKey, modes: Modes, announce: bool) -> Result<Delivered>;
    /// Removes a deleted post from the views of these users. A damaged view is deleted. `deletions` is the author's
    /// number of deletions. Returns the watched readers who follow the author.
    async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32, modes: Modes) -> Result<Vec<UserId>>;
}

/// The posts of an author that a user who does not follow the author has marked read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Marks {
    /// The version of the read state.
    pub version: u32,
    pub read: SeqSet,
    /// Whether the author blocks the user.
    pub blocked: bool,
}

impl Marks {
    pub fn new(ReadState { version, read, .. }: ReadState, blocked: bool) -> Self {
        Self { version, read, blocked }
    }
}

/// Heads of authors. Timelines of all authors, and feeds of readers who pull, are computed from them.
#[async_trait]
pub trait HeadViews: Send + Sync {
    /// Returns the known heads of these authors. They may be a moment old.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>>;
    /// Returns what is known of these authors now.
    async fn authors(&self, authors: &[UserId]) -> Result<HashMap<UserId, KnownAuthor>>;
    async fn lease_heads(&self, authors: &[UserId], token: u64) -> Result<Vec<UserId>>;
    async fn fill_heads(&self, heads: &[(UserId, AuthorHead)], token: u64) -> Result<()>;
    async fn replace_head(&self, author: UserId, head: &AuthorHead) -> Result<()>;
    /// Takes the lease for storing the times of an author's posts. Returns false if another process has it.
    async fn lease_times(&self, author: UserId, token: u64) -> Result<bool>;
    async fn store_times(&self, author: UserId, times: &PostTimes, token: u64) -> Result<()>;
}

/// The data about an author's posts that Redis has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownAuthor {
    pub head: Option<AuthorHead>,
    pub times: Option<PostTimes>,
}

/// The reactions of a reader that Redis knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownReactions {
    /// By author. Authors without an entry have to be read from the facts.
    pub of: HashMap<UserId, ReactionState>,
    /// The token of the view; `None` if there is no view.
    pub token: Option<u64>,
}

/// The parts of a page that are read only if they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageParts {
    pub cards: bool,
    /// Texts and reaction counts.
    pub texts: bool,
}

/// The data for a page that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPage {
    pub summaries: HashMap<PostId, PostSummary>,
    pub reactions: KnownReactions,
    /// The cards of the authors; `None` for an author who has no profile.
    pub cards: HashMap<UserId, Option<Card>>,
    /// Texts in the revisions of the summaries.
    pub texts: HashMap<PostId, PostText>,
    pub counts: HashMap<PostId, ReactionCounts>,
}

/// The data of one post that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPost {
    pub summary: Option<PostSummary>,
    /// The text in the revision of the summary.
    pub text: Option<PostText>,
    pub counts: Option<ReactionCounts>,
    /// Whether the counts may lack reactions of this moment.
    pub counts_in_motion: bool,
    /// The author's card, if it is known that there is one or none.
    pub card: Option<Option<Card>>,
}

/// The data about one reader and one author that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownReader {
    /// The author's state in the view. Outer `None`: there is no usable view. Inner `None`: no follow.
    pub state: Option<Option<AuthorState>>,
    pub reactions: KnownReactions,
    /// The reader's marks, if it is known that the reader does not follow the author.
    pub marks: Option<Marks>,
    /// Whether a change of the reader was noted within the last seconds (`RelationViews::changed_lately`).
    pub changed_lately: bool,
}

/// Posts of an author whose steps have changed since the last `Task::Rescore`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// The number of changes of each post's step.
    pub posts: HashMap<Seq, u32>,
    /// When these notes began. `None` if Redis has none. A task for notes that began at another time takes all posts of
    /// the author, because these may lack some.
    pub life: Option<u64>,
}

/// The result of [`PostViews::note_step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedStep {
    /// When the author's notes began.
    pub life: u64,
    /// The delay of the `Task::Rescore` that the caller has to send; `None` if another caller sends one.
    pub delay: Option<Duration>,
}

/// Posts, so that a page reads no facts.
#[async_trait]
pub trait PostViews: Send + Sync {
    /// Returns the known summaries, those of deleted posts included.
    async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>>;
    /// Returns what Redis knows for a page, in one round trip.
    async fn page(&self, reader: UserId, posts: &[PostId], parts: PageParts) -> Result<KnownPage>;
    /// Returns what Redis knows of a post, and of a reader and the post's author, in one round trip.
    async fn post(&self, reader: UserId, id: PostId) -> Result<(KnownPost, KnownReader)>;
    /// The same for many posts, without the reactions in what it knows of the reader and each author.
    async fn posts(&self, reader: UserId, posts: &[PostId]) -> Result<(KnownPage, HashMap<UserId, KnownReader>)>;
    async fn of_reader(&self, reader: UserId, author: UserId) -> Result<KnownReader>;
    /// Returns the known head of an author, and what Redis knows of the reader and the author, in one round trip.
    async fn timeline(&self, reader: UserId, author: UserId) -> Result<(Option<AuthorHead>, KnownReader)>;
    /// Takes the leases for storing these posts. Redis must have them when the posts are stored.
    async fn lease(&self, posts: &[PostId], token: u64) -> Result<()>;
    /// Stores posts that were read from the facts, with their texts if these were read too, unless Redis has a later
    /// revision or knows that the post is deleted. `lease` is the token with which a reader leased the posts before it
    /// read the facts; `None` if the caller has changed the post, or is the projector. If Redis loses an edit while the
    /// projector reads, the view may show the post from before it.
    async fn remember(&self, posts: &[(PostSummary, Option<PostText>)], lease: Option<u64>) -> Result<()>;
    /// Takes the lease for storing the counts of a post. A reaction takes it away.
    async fn lease_counts(&self, post: PostId, token: u64) -> Result<()>;
    /// Stores counts from the facts, unless Redis has a later version; for two seconds without the lease.
    async fn store_counts(&self, post: PostId, counts: CountsVersion, token: u64) -> Result<()>;
    /// Notes a change of a post's counts by this number of new reactions; 0 if a request has noted them. Usually it
    /// removes the stored counts. If many users react at once, counts less than two seconds old stay until they are two
    /// seconds old.
    ///
    /// Returns `None` if a `Task::Rank` was sent before that has not begun ([`Self::note_rank`]). Otherwise the
    /// projector has to enqueue one. The time is that of this call, by the clock of Redis.
    async fn expire_counts(&self, post: PostId, reactions: u64) -> Result<Option<Timestamp>>;
    /// Notes that a `Task::Rank` of the post was sent that begins after this time, by the clock of Redis.
    async fn note_rank(&self, post: PostId, until: Timestamp) -> Result<()>;
    /// Notes that the step of a post has changed, for a `Task::Rescore` of the author. `token` names the caller, whose
    /// repetition gets the delay again.
    async fn note_step(&self, post: PostId, step: Step, token: u64, now: Timestamp) -> Result<NotedStep>;
    /// Returns the posts of an author whose steps have changed.
    async fn moved(&self, author: UserId) -> Result<Moved>;
    /// Removes these posts from the notes that began at `life`, if their steps have not changed since, and notes that
    /// no further `Task::Rescore` should run before `next`. Returns how many posts remain; 1 if these notes are lost.
    async fn settle(&self, author: UserId, life: u64, posts: &HashMap<Seq, u32>, next: Timestamp) -> Result<u64>;
}

/// Readers' reactions by author, so that a page reads no facts.
#[async_trait]
pub trait ReactionViews: Send + Sync {
    /// Returns the token of the reader's view, which is created with `token` if there is none. Facts for [`Self::fill`]
    /// are read after this call.
    async fn open(&self, user: UserId, token: u64) -> Result<u64>;
    /// Stores facts that were read after the view was opened, unless it is gone or has later versions.
    async fn fill(&self, user: UserId, token: u64, of: &HashMap<UserId, ReactionState>) -> Result<()>;
    /// Stores a changed state in the view, if there is a view.
    async fn change(&self, user: UserId, author: UserId, state: &ReactionState) -> Result<()>;
}

/// A relation list of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Authors whom the user follows. The cached list has all of them.
    Following(UserId),
    /// Followers of the user. The cached list has the newest.
    Fans(UserId),
}

/// The start of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Below this entry; at the top if `None`.
    Below(Option<Relation>),
    /// After this many entries.
    Offset(usize),
}

/// The part of a page that a cached list has, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSlice {
    pub items: Vec<Relation>,
    /// The place where the page continues in the facts. `None` if the slice is full or the cached list is complete.
    pub rest: Option<Start>,
}

/// Relation lists and counters.
#[async_trait]
pub trait RelationViews: Send + Sync {
    /// Returns at most `limit` entries of a cached list; `None` if it is not cached. The result may be a moment old,
    /// except for the owner of the list and for a caller who made a change within the last seconds.
    async fn slice(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<Option<ListSlice>>;
    /// Takes the lease for filling a list. A later lease and a change of the list take it away.
    async fn lease(&self, list: List, token: u64) -> Result<()>;
    /// Stores a list that is complete from `low` on, if the caller still has the lease.
    async fn fill(&self, list: List, token: u64, members: &[Relation], low: Timestamp) -> Result<()>;
    async fn note_change(&self, user: UserId) -> Result<()>;
    /// Returns whether a change of the user was noted within the last seconds.
    async fn changed_lately(&self, user: UserId) -> Result<bool>;
    /// Applies edges to the cached lists of both sides, removes the counters of both, and notes that the follower made
    /// a change. The result depends only on the edges, so any number of these updates may run, in any order.
    async fn apply(&self, edges: &[Edge]) -> Result<()>;
    /// Returns the cached counters, as old as those of [`Self::slice`]. Takes the lease if they are missing or damaged.
    async fn counters(&self, caller: UserId, user: UserId, token: u64) -> Result<Option<Counters>>;
    async fn store_counters(&self, user: UserId, counters: Counters, token: u64) -> Result<()>;
    /// Removes counters and their lease, and notes that `changed_by` made a change.
    async fn forget_counters(&self, user: UserId, changed_by: Option<UserId>) -> Result<()>;
}
