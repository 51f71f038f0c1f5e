//! Ports of the views of authors, posts and reactions.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use tidemark_domain::{
    AuthorHead, AuthorState, Card, PostId, PostSummary, PostText, PostTimes, ReactionCounts, ReactionState, Seq, Step, Timestamp,
    UserId,
};

use super::{facts::CountsVersion, readers::Marks};
use crate::error::StoreError;

/// Heads of authors. Timelines of all authors, and feeds of readers who pull, are computed from them.
#[async_trait]
pub trait HeadViews: Send + Sync {
    /// Returns the known heads of these authors. They may be a moment old.
    async fn heads(&self, authors: &[UserId]) -> Result<HashMap<UserId, AuthorHead>, StoreError>;
    /// Returns what is known of these authors now.
    async fn authors(&self, authors: &[UserId]) -> Result<HashMap<UserId, KnownAuthor>, StoreError>;
    /// Takes the leases for filling the heads of these authors, unless another process has them. Called before the
    /// facts are read. Returns the authors whose lease was taken.
    async fn lease_heads(&self, authors: &[UserId], token: u64) -> Result<Vec<UserId>, StoreError>;
    /// Stores heads that were read from the facts, if the caller still has their lease. A change or a loss of the head
    /// takes it away.
    async fn fill_heads(&self, heads: &[(UserId, AuthorHead)], token: u64) -> Result<(), StoreError>;
    /// Replaces a known head with a later one, and takes the lease from a process that fills it. An unknown head stays
    /// unknown. The next read fills it.
    async fn replace_head(&self, author: UserId, head: &AuthorHead) -> Result<(), StoreError>;
    /// Takes the lease for storing the times of an author's posts. Returns false if another process has it.
    async fn lease_times(&self, author: UserId, token: u64) -> Result<bool, StoreError>;
    /// Stores times that were read from the facts, if the caller still has the lease.
    async fn store_times(&self, author: UserId, times: &PostTimes, token: u64) -> Result<(), StoreError>;
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
    /// The cards of the authors.
    pub cards: bool,
    /// Texts and reaction counts.
    pub texts: bool,
}

/// The data for a page that Redis has.
#[derive(Debug, Clone, Default)]
pub struct KnownPage {
    pub summaries: HashMap<PostId, PostSummary>,
    /// The reader's reactions to the authors' posts.
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
    /// The state of the author in the reader's view. Outer `None`: Redis has no usable view. Inner `None`: the reader
    /// does not follow the author.
    pub state: Option<Option<AuthorState>>,
    /// The reader's reactions to the author's posts.
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
    /// False if Redis may have lost posts.
    pub whole: bool,
}

/// Posts, so that a page reads no facts.
#[async_trait]
pub trait PostViews: Send + Sync {
    /// Returns the known summaries, those of deleted posts included.
    async fn summaries(&self, posts: &[PostId]) -> Result<HashMap<PostId, PostSummary>, StoreError>;
    /// Returns what Redis knows for a page, in one round trip.
    async fn page(&self, reader: UserId, posts: &[PostId], parts: PageParts) -> Result<KnownPage, StoreError>;
    /// Returns what Redis knows of a post, and of a reader and the post's author, in one round trip.
    async fn post(&self, reader: UserId, id: PostId) -> Result<(KnownPost, KnownReader), StoreError>;
    /// Returns what Redis knows of a reader and an author.
    async fn of_reader(&self, reader: UserId, author: UserId) -> Result<KnownReader, StoreError>;
    /// Returns the known head of an author, and what Redis knows of the reader and the author, in one round trip.
    async fn timeline(&self, reader: UserId, author: UserId) -> Result<(Option<AuthorHead>, KnownReader), StoreError>;
    /// Takes the leases for storing these posts. Redis must have them when the posts are stored.
    async fn lease(&self, posts: &[PostId], token: u64) -> Result<(), StoreError>;
    /// Stores posts that were read from the facts, with their texts if these were read too, unless Redis has a later
    /// revision or knows that the post is deleted. `lease` is the token with which a reader leased the posts before it
    /// read the facts; `None` if the caller has changed the post, or is a task that updates its view. If Redis loses an
    /// edit while such a task runs, the view may show the post from before it.
    async fn remember(&self, posts: &[(PostSummary, Option<PostText>)], lease: Option<u64>) -> Result<(), StoreError>;
    /// Takes the lease for storing the counts of a post. A reaction takes it away.
    async fn lease_counts(&self, post: PostId, token: u64) -> Result<(), StoreError>;
    /// Stores counts that were read from the facts, unless Redis has a later version. Without the lease they are stored
    /// for two seconds only.
    async fn store_counts(&self, post: PostId, counts: CountsVersion, token: u64) -> Result<(), StoreError>;
    /// Notes a change of a post's counts. Usually it removes the stored counts. If many users react at once, counts
    /// less than two seconds old stay until they are two seconds old.
    ///
    /// Returns whether the caller has to enqueue a `Task::Rank`. If not, another one is enqueued that has not called
    /// [`Self::begin_rank`] yet, or its sender was killed. A repetition for the same user returns the same.
    async fn expire_counts(&self, post: PostId, by: UserId) -> Result<bool, StoreError>;
    /// Begins a `rank` task of a post: the next reaction enqueues another task.
    async fn begin_rank(&self, post: PostId) -> Result<(), StoreError>;
    /// Notes that the step of a post has changed. Returns the delay after which a `Task::Rescore` of the author may
    /// run; `None` if one was sent before ([`Self::note_rescore`]) and has not run.
    async fn note_step(&self, post: PostId, step: Step, now: Timestamp) -> Result<Option<Duration>, StoreError>;
    /// Notes that a `Task::Rescore` of the author was sent that runs at this time.
    async fn note_rescore(&self, author: UserId, at: Timestamp) -> Result<(), StoreError>;
    /// Returns the posts of an author whose steps have changed.
    async fn moved(&self, author: UserId) -> Result<Moved, StoreError>;
    /// Removes the posts of `moved` whose steps have not changed since, and notes that no further `Task::Rescore`
    /// should run before `next`. Returns how many posts remain.
    async fn settle(&self, author: UserId, moved: &Moved, next: Timestamp) -> Result<u64, StoreError>;
    /// Removes the counts of a post.
    async fn forget_counts(&self, post: PostId) -> Result<(), StoreError>;
}

/// Readers' reactions by author, so that a page reads no facts.
#[async_trait]
pub trait ReactionViews: Send + Sync {
    /// Returns the token of the reader's view. If there is no view, it is created with `token`. Facts are read after
    /// this call and stored with the returned token.
    async fn open(&self, user: UserId, token: u64) -> Result<u64, StoreError>;
    /// Stores facts that were read after the view with this token was opened. Later versions are not replaced. Does
    /// nothing if that view is gone.
    async fn fill(&self, user: UserId, token: u64, of: &HashMap<UserId, ReactionState>) -> Result<(), StoreError>;
    /// Stores a changed state in the view, if there is a view.
    async fn change(&self, user: UserId, author: UserId, state: &ReactionState) -> Result<(), StoreError>;
}
