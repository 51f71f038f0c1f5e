//! Fan-out: from a post to the views of its author's followers, page by page.
//!
//! Publish (or delete) [starts](FanOuts::start) it: few pages are listed and sent as batches at once, many are handed to page tasks.
//! Workers [run](FanOuts::run) tasks; reconcile [resumes](FanOuts::resume) what was lost.

use std::{ops::Range, sync::Arc};

use tracing::warn;

use crate::{
    domain::{
        AuthorHead, DeliveryState, Edge, FeedKey, Post, PostId, Timestamp, UserId,
        pages::{INLINE_PAGES, page_buckets, page_tasks},
    },
    notices::NoticeBoard,
    ports::{
        Clock, Edges, FactsError, FanOut, FanOutKind, Posts, Progress, ProgressViews, QueueError, ReaderViews, Task, TaskQueue,
        ViewError,
    },
    reader::{ReaderError, Readers},
    relations::Relations,
};

/// A fan-out did not go on.
#[derive(Debug, thiserror::Error)]
pub enum FanOutError {
    /// The facts did not answer.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// Redis did not answer.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The queue did not take a task.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl FanOutError {
    /// Whether a later attempt may succeed: a store was unavailable, and nothing is wrong with the task or an item.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Facts(FactsError::Unavailable { .. } | FactsError::Contention { .. })
            | Self::View(ViewError::Unavailable { .. })
            | Self::Queue(_) => true,
            Self::Facts(FactsError::Damaged { .. }) | Self::View(ViewError::Damaged { .. }) => false,
        }
    }
}

impl From<ReaderError> for FanOutError {
    fn from(error: ReaderError) -> Self {
        match error {
            ReaderError::Facts(error) => Self::Facts(error),
            ReaderError::View(error) => Self::View(error),
        }
    }
}

/// The fan-out side of the system.
#[derive(Clone)]
pub struct FanOuts {
    /// Follow edges.
    pub edges: Arc<dyn Edges>,
    /// Posts and the state of their fan-outs.
    pub posts: Arc<dyn Posts>,
    /// Tasks.
    pub queue: Arc<dyn TaskQueue>,
    /// Views of readers.
    pub views: Arc<dyn ReaderViews>,
    /// Progress.
    pub progress: Arc<dyn ProgressViews>,
    /// For tasks that bring a view of notices in line.
    pub notices: NoticeBoard,
    /// For tasks that bring one pair in line.
    pub readers: Readers,
    /// For the same, and for counters of what was published.
    pub relations: Relations,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// How an unfinished fan-out was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspected {
    /// Pages were done since the last look: workers are at it, and what is on its way need not be sent twice.
    Moving {
        /// Pages done.
        pages_done: u64,
    },
    /// Nothing was done since, or all of it and nobody has noted that.
    Standing {
        /// Progress.
        progress: Progress,
        /// Pages that nobody has done.
        missing: Vec<u16>,
    },
}

/// What came of resuming a fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// All pages were done: it is finished now.
    Finished,
    /// Pages were done since the last look: left to its workers.
    Moving,
    /// Missing pages were sent again.
    Sent {
        /// How many.
        pages: usize,
    },
    /// It was resumed as often as allowed; somebody has to look at it.
    GivenUp {
        /// How often.
        attempts: u32,
    },
}

/// Delivery status of a post as a client asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryStatus {
    /// How far it is.
    pub state: DeliveryState,
    /// Followers handled, whether or not their feed was live.
    pub delivered: u64,
    /// Pages done.
    pub pages_done: u64,
}

impl FanOut {
    /// The fan-out that a post needs: delivery while it lives, retraction when it is a tombstone.
    pub fn of(post: &Post, head: &AuthorHead) -> Self {
        Self {
            kind: if post.deleted { FanOutKind::Retract } else { FanOutKind::Deliver },
            post: post.id,
            at: post.created_at,
            pages: if post.deleted { post.delivery.retraction_pages } else { post.delivery.pages },
            deletions: head.deletions(),
            modes: head.modes,
        }
    }

    fn key(&self) -> FeedKey {
        FeedKey { at: self.at, post: self.post }
    }
}

impl FanOuts {
    /// Starts a fan-out: a bounded number of reads and sends, whatever the number of followers.
    ///
    /// # Errors
    /// Some pages may not have been sent; the post is listed as unfinished until they are, and reconcile sends them.
    pub async fn start(&self, fan_out: FanOut) -> Result<(), FanOutError> {
        // The pages count more than this: finishing does it again.
        if fan_out.pages == 0 {
            return self.finish(fan_out, 0).await;
        }
        if let Err(error) = self.tell(fan_out).await {
            warn!(post = %fan_out.post, error = &error as &dyn std::error::Error, "counters and summary not in line yet");
        }
        if fan_out.pages > INLINE_PAGES {
            let tasks: Vec<Task> = page_tasks(fan_out.pages).into_iter().map(|pages| list_task(fan_out, pages)).collect();
            return Ok(self.queue.send(&tasks).await?);
        }
        let counts = self.edges.follower_counts(fan_out.post.author).await?;
        if counts.iter().all(|&count| count == 0) {
            return self.finish(fan_out, 0).await;
        }
        let mut tasks = Vec::new();
        for page in 0..fan_out.pages {
            tasks.push(self.batch(fan_out, page, &counts).await?);
        }
        Ok(self.queue.send(&tasks).await?)
    }

    /// Runs one task. May be repeated at any time, in any order. `out_of_time` says when to stop and hand the rest on.
    ///
    /// # Errors
    /// The task is not done and has to be given back.
    pub async fn run(&self, task: &Task, out_of_time: &(dyn Fn() -> bool + Sync)) -> Result<(), FanOutError> {
        match task {
            Task::Batch { fan_out, page, followers } => {
                let users: Vec<UserId> = followers.iter().copied().filter_map(UserId::new).collect();
                self.handle(*fan_out, &users).await?;
                self.page_done(*fan_out, *page, users.len() as u64).await
            }
            Task::List { fan_out, from, to } => self.list(*fan_out, *from..*to, out_of_time).await,
            Task::Notices { platform, user, .. } => Ok(self.notices.sync(*platform, *user).await?),
            Task::Sync { user, author, .. } => {
                let edges: Vec<Edge> = self.edges.edges(*user, &[*author]).await?.into_values().collect();
                self.relations.apply(&edges).await?;
                self.readers.sync_edges(*user, edges).await?;
                self.readers.sync_reads(*user, *author).await?;
                // Last: the counters may count a reaction.
                self.readers.sync_reactions(*user, *author).await?;
                Ok(self.relations.forget_counters(*author, None).await?)
            }
        }
    }

    /// How an unfinished fan-out is.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn inspect(&self, post: &Post, head: &AuthorHead) -> Result<Inspected, ViewError> {
        let fan_out = FanOut::of(post, head);
        let (progress, missing) = self.progress.progress(fan_out.kind, post.id, fan_out.pages).await?;
        if !missing.is_empty() && progress.pages_done > post.delivery.seen_pages {
            return Ok(Inspected::Moving { pages_done: progress.pages_done });
        }
        Ok(Inspected::Standing { progress, missing })
    }

    /// Sends again the pages of an unfinished fan-out that nobody has done, or finishes it when all are.
    ///
    /// # Errors
    /// Facts, Redis or the queue do not answer; to be repeated.
    pub async fn resume(
        &self,
        post: &Post,
        head: &AuthorHead,
        inspected: Inspected,
        most_attempts: u32,
    ) -> Result<Resumed, FanOutError> {
        let fan_out = FanOut::of(post, head);
        let (progress, missing) = match inspected {
            Inspected::Moving { pages_done } => {
                self.posts.note_look(post.id, pages_done, false).await?;
                return Ok(Resumed::Moving);
            }
            Inspected::Standing { progress, missing } => (progress, missing),
        };
        if missing.is_empty() {
            self.finish(fan_out, progress.handled).await?;
            return Ok(Resumed::Finished);
        }
        if post.delivery.attempts >= most_attempts {
            return Ok(Resumed::GivenUp { attempts: post.delivery.attempts });
        }
        self.posts.note_look(post.id, progress.pages_done, true).await?;
        let tasks: Vec<Task> =
            missing.chunk_by(|a, b| a + 1 == *b).map(|run| list_task(fan_out, run[0]..run[run.len() - 1] + 1)).collect();
        self.queue.send(&tasks).await?;
        Ok(Resumed::Sent { pages: missing.len() })
    }

    /// How far the delivery of a post is.
    ///
    /// # Errors
    /// Redis does not answer while the fan-out is under way.
    pub async fn status(&self, post: &Post) -> Result<DeliveryStatus, ViewError> {
        let delivery = &post.delivery;
        if delivery.state == DeliveryState::Done {
            let pages_done = u64::from(delivery.pages);
            return Ok(DeliveryStatus { state: DeliveryState::Done, delivered: delivery.delivered, pages_done });
        }
        let (progress, _) = self.progress.progress(FanOutKind::Deliver, post.id, delivery.pages).await?;
        let state = match delivery.state {
            DeliveryState::Pending if progress.pages_done > 0 => DeliveryState::Running,
            state => state,
        };
        Ok(DeliveryStatus { state, delivered: progress.handled, pages_done: progress.pages_done })
    }

    async fn list(&self, fan_out: FanOut, pages: Range<u16>, out_of_time: &(dyn Fn() -> bool + Sync)) -> Result<(), FanOutError> {
        if pages.end > fan_out.pages {
            return Err(ViewError::Damaged { detail: format!("pages {pages:?} of {}", fan_out.pages) }.into());
        }
        let counts = self.edges.follower_counts(fan_out.post.author).await?;
        let end = pages.end;
        for page in pages {
            if out_of_time() {
                return Ok(self.queue.send(&[list_task(fan_out, page..end)]).await?);
            }
            if !self.is_wanted(fan_out).await? {
                return Ok(());
            }
            let batch = self.batch(fan_out, page, &counts).await?;
            self.queue.send(&[batch]).await?;
        }
        Ok(())
    }

    async fn batch(&self, fan_out: FanOut, page: u16, counts: &[u64; 16]) -> Result<Task, FanOutError> {
        let buckets = page_buckets(page, fan_out.pages);
        let followers = self.edges.followers_in(fan_out.post.author, buckets, counts).await?;
        Ok(Task::Batch { fan_out, page, followers: followers.into_iter().map(UserId::get).collect() })
    }

    async fn handle(&self, fan_out: FanOut, users: &[UserId]) -> Result<(), FanOutError> {
        if users.is_empty() {
            return Ok(());
        }
        if self.is_wanted(fan_out).await? {
            match fan_out.kind {
                FanOutKind::Deliver => self.views.deliver(users, fan_out.key(), fan_out.modes).await?,
                FanOutKind::Retract => self.views.retract(users, fan_out.key(), fan_out.deletions, fan_out.modes).await?,
            };
        }
        Ok(())
    }

    /// The fact decides, not the message: a deleted post is not delivered, a live one not retracted.
    async fn is_wanted(&self, fan_out: FanOut) -> Result<bool, FanOutError> {
        let post = self.posts.posts(&[fan_out.post]).await?.remove(&fan_out.post);
        Ok(post.is_some_and(|post| post.deleted == (fan_out.kind == FanOutKind::Retract)))
    }

    async fn page_done(&self, fan_out: FanOut, page: u16, handled: u64) -> Result<(), FanOutError> {
        let progress = self.progress.page_done(fan_out.kind, fan_out.post, page, handled).await?;
        if progress.pages_done >= u64::from(fan_out.pages) {
            self.finish(fan_out, progress.handled).await?;
        }
        Ok(())
    }

    async fn finish(&self, fan_out: FanOut, handled: u64) -> Result<(), FanOutError> {
        // Once more than publish itself, which may have been cut off.
        self.tell(fan_out).await?;
        match fan_out.kind {
            FanOutKind::Deliver => self.posts.finish_delivery(fan_out.post, handled, self.clock.now()).await?,
            FanOutKind::Retract => self.posts.finish_retraction(fan_out.post).await?,
        }
        Ok(())
    }

    /// Forgets what is kept of author and post that is not so any more.
    async fn tell(&self, fan_out: FanOut) -> Result<(), FanOutError> {
        let author = fan_out.post.author;
        self.relations.forget_counters(author, None).await?;
        if fan_out.kind == FanOutKind::Retract {
            self.readers.post_views.bury(fan_out.key()).await?;
        }
        if !fan_out.modes.is_push_alone() {
            // Some readers ask for the head instead of being told.
            let head = self.posts.heads(&[author]).await?.remove(&author).unwrap_or_default();
            self.readers.head_views.store_head(author, &head).await?;
        }
        Ok(())
    }

    /// Posts whose fan-out should be finished by now and is not, oldest first, with the author's head.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn overdue(&self, before: Timestamp, limit: usize) -> Result<Vec<(Post, AuthorHead)>, FanOutError> {
        let ids: Vec<PostId> = self.posts.unfinished(before, limit).await?;
        let authors: Vec<UserId> = ids.iter().map(|id| id.author).collect();
        let (mut posts, heads) = futures::try_join!(self.posts.posts(&ids), self.posts.heads(&authors))?;
        Ok(ids
            .iter()
            .filter_map(|id| posts.remove(id))
            .map(|post| {
                let head = heads.get(&post.id.author).cloned().unwrap_or_default();
                (post, head)
            })
            .collect())
    }
}

fn list_task(fan_out: FanOut, pages: Range<u16>) -> Task {
    Task::List { fan_out, from: pages.start, to: pages.end }
}
