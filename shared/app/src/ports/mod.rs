//! What the use cases need of the outside world: one small trait per capability, speaking domain types.

mod notices;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use tidemark_domain::{
    AuthorHead, AuthorState, Counters, Edge, FeedKey, Modes, NewPost, Platform, Post, PostId, PostSummary, Reaction,
    ReactionCounts, ReactionState, ReadState, ReaderState, Relation, Seq, Timestamp, UserId,
};

pub use crate::error::{Source, Store, StoreError};
pub use notices::{NoticeRecord, NoticeView, NoticeViews, Notices, NoticesPublished};

/// Tells the time. The wall clock is read in one place only, its implementation at the edge.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// What came of a follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// The edge was made.
    Created(Edge),
    /// It was there.
    Existing(Edge),
    /// The user follows as many authors as allowed; nothing changed.
    LimitReached,
}

/// Follow edges and their counts.
#[async_trait]
pub trait Edges: Send + Sync {
    /// The edges of one user to these authors, tombstones included, absent ones left out.
    async fn edges(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, Edge>, StoreError>;
    /// All live edges of one user.
    async fn following(&self, user: UserId) -> Result<Vec<Edge>, StoreError>;
    /// Makes edges to distinct authors, both directions and counts in one transaction each or several together. `heads` gives base and floor.
    /// The answer has one outcome per author, in order.
    async fn follow(
        &self,
        user: UserId,
        authors: &[UserId],
        heads: &HashMap<UserId, AuthorHead>,
        now: Timestamp,
    ) -> Result<Vec<Followed>, StoreError>;
    /// Ends a follow; the tombstone when there was one to end, else `None`.
    async fn unfollow(&self, user: UserId, author: UserId, now: Timestamp) -> Result<Option<Edge>, StoreError>;
    /// Exact number of followers, shard by shard.
    async fn follower_counts(&self, author: UserId) -> Result<[u64; 16], StoreError>;
    /// Which of these pairs (follower, followee) follow, read in one round trip a hundred.
    async fn live(&self, pairs: &[(UserId, UserId)]) -> Result<HashSet<(UserId, UserId)>, StoreError>;
    /// Exact number of authors followed.
    async fn followings(&self, user: UserId) -> Result<u64, StoreError>;
    /// Followers below `before`, newest first, at most `limit`.
    async fn followers_by_time(
        &self,
        author: UserId,
        before: Option<Relation>,
        limit: usize,
    ) -> Result<Vec<Relation>, StoreError>;
    /// All followers whose bucket lies in `buckets`, in bucket order. Counts have no say in it.
    async fn followers_in(&self, author: UserId, buckets: Range<u16>) -> Result<Vec<UserId>, StoreError>;
}

/// An idempotent request: its key and what its body hashes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The header's value.
    pub key: String,
    /// SHA-256 of the body as it was understood.
    pub fingerprint: String,
}

/// What came of a publish.
#[derive(Debug, Clone, PartialEq)]
pub enum Published {
    /// A new post, and its author's head after it.
    Created(Post, AuthorHead),
    /// The same key and body published this before.
    Repeated(Post),
    /// The same key published something else before.
    KeyReused,
    /// The author has published as many posts as there are numbers.
    Full,
}

/// What came of a deletion.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// The post is a tombstone, and its retraction is to be started. The author's head after it.
    Deleted(Post, AuthorHead),
    /// It was one before, and its retraction is finished.
    Already(Post),
    /// There never was such a post.
    Unknown,
}

/// What came of a look at an unfinished fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its pages wait with others, since this time at the latest.
    Waiting(Timestamp),
    /// So many pages are done, more than before.
    Moving(u64),
    /// So many are done, and the others are sent again now.
    Sent(u64, Timestamp),
    /// It was sent as often as allowed: it leaves the list of what is resumed.
    GivenUp,
}

/// Posts, heads, and the state of fan-outs.
#[async_trait]
pub trait Posts: Send + Sync {
    /// The heads of these authors; absent ones are empty heads.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError>;
    /// Publishes: head, post, body and idempotency record in one transaction.
    async fn publish(
        &self,
        post: &NewPost,
        followers: u64,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<Published, StoreError>;
    /// Makes a tombstone: post, body and head in one transaction. Repeatable. `followers` plans the retraction.
    async fn delete(&self, post: PostId, followers: u64) -> Result<Deleted, StoreError>;
    /// These posts, tombstones included, unknown ones left out.
    async fn posts(&self, posts: &[PostId]) -> Result<HashMap<PostId, Post>, StoreError>;
    /// The body of a live post.
    async fn body(&self, post: PostId) -> Result<Option<String>, StoreError>;
    /// Posts of one author with sequence numbers in `after+1..=upto`, newest first, at most `limit`, tombstones included.
    async fn timeline(&self, author: UserId, after: Seq, upto: Seq, limit: usize) -> Result<Vec<Post>, StoreError>;
    /// These posts of one author, numbers greatest first, in that order; tombstones included, unknown ones left out. One range query when the numbers lie
    /// densely, reads by key, a hundred a request, when they do not.
    async fn posts_of(&self, author: UserId, seqs: &[Seq]) -> Result<Vec<Post>, StoreError>;
    /// The greatest sequence number of the author published at or before `at`; zero when there is none.
    async fn seq_at(&self, author: UserId, at: Timestamp) -> Result<Seq, StoreError>;
    /// Notes what came of a look at an unfinished fan-out; nothing when it is finished, or another one, by now.
    async fn note_look(&self, post: &Post, look: Look) -> Result<(), StoreError>;
    /// Sets a pending fan-out done.
    async fn finish_delivery(&self, post: PostId, followers: u64, now: Timestamp) -> Result<(), StoreError>;
    /// Notes that a cancelled fan-out has been retracted everywhere.
    async fn finish_retraction(&self, post: PostId) -> Result<(), StoreError>;
}

/// What users have read.
#[async_trait]
pub trait Reads: Send + Sync {
    /// What a user has read of these authors; absent ones left out.
    async fn reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReadState>, StoreError>;
    /// What a user has read of anybody.
    async fn all_reads(&self, user: UserId) -> Result<HashMap<UserId, ReadState>, StoreError>;
    /// Marks posts read, or unread again, whatever others mark at the same time: there is no condition that could fail. The state before it and the state after it.
    async fn mark(&self, user: UserId, author: UserId, seqs: &[Seq], read: bool) -> Result<(ReadState, ReadState), StoreError>;
    /// Writes a state whose version is one above the stored one; false, and nothing is written, when it is not.
    async fn put(&self, user: UserId, author: UserId, state: &ReadState) -> Result<bool, StoreError>;
}

/// What came of a reaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Reacted {
    /// What the user thinks of the author's posts now, whether or not this changed it.
    Stands(ReactionState),
    /// There is no such post, or only its tombstone.
    Unknown,
}

/// Likes and favorites, and their counts.
#[async_trait]
pub trait Reactions: Send + Sync {
    /// What a user thinks of these authors' posts; absent ones left out.
    async fn reactions(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReactionState>, StoreError>;
    /// Gives a reaction to a live post, or takes it back: state, the post's count and the author's in one transaction. Repeatable.
    async fn react(&self, user: UserId, post: PostId, reaction: Reaction, given: bool) -> Result<Reacted, StoreError>;
    /// Exact counts of one post.
    async fn counts(&self, post: PostId) -> Result<ReactionCounts, StoreError>;
    /// Exact counts of all of an author's posts, deleted ones included.
    async fn received(&self, author: UserId) -> Result<ReactionCounts, StoreError>;
}

/// What a fan-out does to the views it reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FanOutKind {
    /// Put the post in.
    Deliver,
    /// Take the deleted post out.
    Retract,
}

/// The post of a fan-out, with all that a worker needs to act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FanOut {
    /// Put in or take out.
    pub kind: FanOutKind,
    /// The post.
    pub post: PostId,
    /// When it was published.
    pub at: Timestamp,
    /// Pages of the whole fan-out.
    pub pages: u16,
    /// The author's deletions, for a retraction.
    #[serde(default)]
    pub deletions: u32,
    /// How the author's posts reach readers after this one.
    #[serde(default, skip_serializing_if = "Modes::is_push_alone")]
    pub modes: Modes,
}

/// A message of the fan-out queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Task {
    /// One page of followers, listed.
    Batch {
        /// What to do.
        fan_out: FanOut,
        /// The page's number.
        page: u16,
        /// Its followers, in bucket order.
        followers: Vec<u64>,
        /// How often it has failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// Pages to list and send as batches.
    List {
        /// What to do.
        fan_out: FanOut,
        /// First page.
        from: u16,
        /// The page after the last.
        to: u16,
        /// How often it has failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// What is kept of a post's author and of the post itself did not hear of the fan-out when it began.
    Tell {
        /// What to tell.
        fan_out: FanOut,
        /// How often it has failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// A change that did not reach the view when it happened: make the view agree with the facts for this pair.
    Sync {
        /// The reader.
        user: UserId,
        /// The author.
        author: UserId,
        /// How often it has failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// Many changes of one reader that did not reach the view: make it anew.
    Rebuild {
        /// The reader.
        user: UserId,
        /// How often it has failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
    /// The same for notices: a platform's head, or what a user has read on it.
    Notices {
        /// The platform.
        platform: Platform,
        /// The user; none for the head.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<UserId>,
        /// How often it has failed.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u8,
    },
}

/// Authors of one reader whose read states are brought into the view one by one.
const MOST_SYNCS: usize = 8;

fn is_zero(tries: &u8) -> bool {
    *tries == 0
}

impl Task {
    /// The task that brings everything of one pair in line.
    pub fn sync(user: UserId, author: UserId) -> Self {
        Self::Sync { user, author, tries: 0 }
    }

    /// The tasks that bring the feed's view in line with read states of these authors. Many are one rebuild, which costs less and does not multiply a request that is repeated.
    pub fn sync_reads(user: UserId, authors: &[UserId]) -> Vec<Self> {
        match authors.len() {
            0..=MOST_SYNCS => authors.iter().map(|&author| Self::sync(user, author)).collect(),
            _ => vec![Self::Rebuild { user, tries: 0 }],
        }
    }

    /// The task after another failure, and how often it has failed then.
    pub fn tried_once_more(&self) -> (Self, u8) {
        let mut task = self.clone();
        let (Self::Batch { tries, .. }
        | Self::List { tries, .. }
        | Self::Tell { tries, .. }
        | Self::Sync { tries, .. }
        | Self::Rebuild { tries, .. }
        | Self::Notices { tries, .. }) = &mut task;
        *tries = tries.saturating_add(1);
        let tries = *tries;
        (task, tries)
    }

    /// Whether views are wrong until the task is done. Those that wait for a page of a fan-out are not: the post's delivery says that it is under way.
    pub fn is_missed_by_views(&self) -> bool {
        match self {
            Self::Tell { .. } | Self::Sync { .. } | Self::Rebuild { .. } | Self::Notices { .. } => true,
            Self::Batch { .. } | Self::List { .. } => false,
        }
    }

    /// Whose task it is, an author, a reader or a platform: nobody's tasks wait behind all of somebody else's.
    pub fn group(&self) -> String {
        match self {
            Self::Batch { fan_out, .. } | Self::List { fan_out, .. } | Self::Tell { fan_out, .. } => {
                fan_out.post.author.to_string()
            }
            Self::Sync { user, .. } | Self::Rebuild { user, .. } | Self::Notices { user: Some(user), .. } => user.to_string(),
            Self::Notices { platform, user: None, .. } => format!("platform-{platform}"),
        }
    }
}

/// How full a queue is, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Messages that no worker has.
    pub waiting: u64,
    /// Messages that a worker has, or that failed and are not visible yet.
    pub in_flight: u64,
}

/// Takes tasks for the workers.
#[async_trait]
pub trait TaskQueue: Send + Sync {
    /// How full it is. SQS counts within about a minute.
    async fn backlog(&self) -> Result<Backlog, StoreError>;
    /// Enqueues all tasks, not to be received before this time is over, in seconds; an error means that some may be missing.
    async fn send_after(&self, tasks: &[Task], delay: Duration) -> Result<(), StoreError>;
    /// Enqueues all tasks, to be received at once.
    async fn send(&self, tasks: &[Task]) -> Result<(), StoreError> {
        self.send_after(tasks, Duration::ZERO).await
    }
    /// Whether the queue answers.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// The note that views may lack changes of an outage.
#[async_trait]
pub trait Outages: Send + Sync {
    /// Until when; long ago when there was none.
    async fn outage_until(&self) -> Result<Timestamp, StoreError>;
    /// Notes one that lasts until then at least.
    async fn note_outage(&self, until: Timestamp) -> Result<(), StoreError>;
}

/// A queue of what could not be worked on, for whoever watches.
#[async_trait]
pub trait Failures: Send + Sync {
    /// How many messages wait in it, about.
    async fn waiting(&self) -> Result<u64, StoreError>;
}

/// What `begin` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// The rebuild is the caller's.
    Begun,
    /// Somebody else is rebuilding.
    Building,
    /// There is a view.
    Ready,
}

/// What `admit` found for one author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// The gate is open, the facts are to be merged.
    Opening,
    /// The follow is in the view, facts and all.
    Complete,
    /// The view knows a later revision.
    Stale,
}

/// What `seed` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeded {
    /// Merged, but for these authors, of whom the view knows more than the caller did.
    Merged {
        /// Authors whose facts must be loaded again.
        stale: Vec<UserId>,
    },
    /// There is no view, or the rebuild is somebody else's by now.
    Gone,
}

/// A complete set of facts on its way into one view.
#[derive(Debug, Clone, Default)]
pub struct Seed {
    /// Author states from facts.
    pub authors: Vec<(UserId, AuthorState)>,
    /// Feed entries.
    pub entries: Vec<FeedKey>,
    /// The token of the rebuild this is part of.
    pub token: Option<u64>,
    /// The entry from which on these are all there are; `None` when they are all there are at all.
    pub low: Option<FeedKey>,
}

/// A reader's view at one moment: counts and feed agree.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The gate, the bits and what they imply.
    pub state: ReaderState,
    /// The newest entries of the feed, newest first.
    pub entries: Vec<FeedKey>,
    /// Whether these are all the entries that the view stores.
    pub whole: bool,
}

/// Feeds and read state of live readers.
#[async_trait]
pub trait ReaderViews: Send + Sync {
    /// The state and the `newest` entries of the feed, read at once; `None` when there is no view.
    async fn view(&self, user: UserId, newest: usize) -> Result<Option<View>, StoreError>;
    /// Starts a rebuild; `anew` also when there is a view.
    async fn begin(&self, user: UserId, token: u64, now: Timestamp, anew: bool) -> Result<Begun, StoreError>;
    /// Opens the gate for these edges; `None` when there is no view.
    async fn admit(&self, user: UserId, edges: &[Edge]) -> Result<Option<Vec<Admitted>>, StoreError>;
    /// Merges facts.
    async fn seed(&self, user: UserId, seed: &Seed) -> Result<Seeded, StoreError>;
    /// Ends a rebuild; false when it is not the caller's any more.
    async fn finish(&self, user: UserId, token: u64, now: Timestamp) -> Result<bool, StoreError>;
    /// Takes an unfollowed author out.
    async fn drop_author(&self, tombstone: &Edge) -> Result<(), StoreError>;
    /// Extends lifetimes after a read and drops what lies below the cap.
    async fn touch(&self, user: UserId, now: Timestamp) -> Result<(), StoreError>;
    /// Puts a post into the views of these users, with how its author's posts reach readers from now on; how many have a view that follows the author.
    async fn deliver(&self, users: &[UserId], post: FeedKey, modes: Modes) -> Result<u64, StoreError>;
    /// Takes a deleted post out of the views of these users.
    async fn retract(&self, users: &[UserId], post: FeedKey, deletions: u32, modes: Modes) -> Result<u64, StoreError>;
}

/// Heads of authors whose readers pull.
#[async_trait]
pub trait HeadViews: Send + Sync {
    /// Those that are known.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError>;
    /// Stores what the facts said, unless something later is known.
    async fn store_head(&self, author: UserId, head: &AuthorHead) -> Result<(), StoreError>;
}

/// What is known of a reader's reactions.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KnownReactions {
    /// By author; nothing for authors who have to be asked of the facts.
    pub of: HashMap<UserId, ReactionState>,
    /// Which view this is; `None` when there is none.
    pub token: Option<u64>,
}

/// What lists show of posts, so that a page reads no facts.
#[async_trait]
pub trait PostViews: Send + Sync {
    /// Those that are known, deleted ones included.
    async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>, StoreError>;
    /// The same, and the reader's reactions to their authors' posts, in one round trip.
    async fn page(&self, reader: UserId, posts: &[PostId]) -> Result<(HashMap<PostId, PostSummary>, KnownReactions), StoreError>;
    /// Stores what the facts said, except over a later deletion.
    async fn remember(&self, posts: &[PostSummary]) -> Result<(), StoreError>;
    /// Stores that a post is deleted, over anything.
    async fn bury(&self, post: FeedKey) -> Result<(), StoreError>;
}

/// Readers' reactions, author by author, so that a page reads no facts.
#[async_trait]
pub trait ReactionViews: Send + Sync {
    /// The token of the reader's view, which is made with `token` when there is none. Facts are read after it and stored with it.
    async fn open(&self, user: UserId, token: u64) -> Result<u64, StoreError>;
    /// Stores facts that were read after the view with this token was opened, except over later ones. Nothing when that view is gone.
    async fn fill(&self, user: UserId, token: u64, of: &HashMap<UserId, ReactionState>) -> Result<(), StoreError>;
    /// Brings a change into the view, if there is one.
    async fn change(&self, user: UserId, author: UserId, state: &ReactionState) -> Result<(), StoreError>;
}

/// Progress of a fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Pages done.
    pub pages_done: u64,
    /// Followers handled in them.
    pub handled: u64,
}

/// Progress of fan-outs.
#[async_trait]
pub trait ProgressViews: Send + Sync {
    /// Notes a page as done, once; the progress after it.
    async fn page_done(&self, kind: FanOutKind, post: PostId, page: u16, handled: u64) -> Result<Progress, StoreError>;
    /// The progress, and which of `pages` pages are not done.
    async fn progress(&self, kind: FanOutKind, post: PostId, pages: u16) -> Result<(Progress, Vec<u16>), StoreError>;
    /// Whether Redis answers.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// A relation list of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// Whom the user follows; cached whole.
    Following(UserId),
    /// Who follows the user; the newest are cached.
    Fans(UserId),
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Below this entry; at the top when `None`.
    Below(Option<Relation>),
    /// After this many entries.
    Offset(usize),
}

/// What a cached list holds of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSlice {
    /// Entries, newest first.
    pub items: Vec<Relation>,
    /// Where the facts go on; `None` when the cached list is all there is.
    pub rest: Option<Start>,
}

/// Relation lists and counters.
#[async_trait]
pub trait RelationViews: Send + Sync {
    /// At most `limit` entries of a cached list; `None` when it is not cached. The answer may be a moment old, but not for a caller whose list it is or who
    /// has changed something lately.
    async fn slice(&self, caller: UserId, list: List, start: Start, limit: usize) -> Result<Option<ListSlice>, StoreError>;
    /// Takes the lease for filling a list; whoever takes it later, or changes the list, has it instead.
    async fn lease(&self, list: List, token: u64) -> Result<(), StoreError>;
    /// Stores a list that is complete from `low` on, if the lease is still the caller's.
    async fn fill(&self, list: List, token: u64, members: &[Relation], low: Timestamp) -> Result<(), StoreError>;
    /// Whether the user has followed or unfollowed anybody in the last seconds.
    async fn changed_lately(&self, user: UserId) -> Result<bool, StoreError>;
    /// Brings edges, as they are now, into cached lists of both sides, forgets the counters of both and notes that the follower changed something.
    async fn apply(&self, edges: &[Edge]) -> Result<(), StoreError>;
    /// The cached counters; when there are none, or damaged ones, takes the lease for storing them. How old they may be is as with [`Self::slice`].
    async fn counters(&self, caller: UserId, user: UserId, token: u64) -> Result<Option<Counters>, StoreError>;
    /// Stores counters, if the lease is still the caller's.
    async fn store_counters(&self, user: UserId, counters: Counters, token: u64) -> Result<(), StoreError>;
    /// Forgets counters and takes the lease from its holder, and notes who changed what they count.
    async fn forget_counters(&self, user: UserId, changed_by: Option<UserId>) -> Result<(), StoreError>;
}

/// Takes counts for CloudWatch.
pub trait Metrics: Send + Sync {
    /// Counts of a run of a job, of one kind of difference or of all.
    fn count(&self, at: Timestamp, job: &str, kind: Option<&str>, counts: &[(&'static str, u64)]);
}
