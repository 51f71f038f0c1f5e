//! Fan-out: from a post to the views of its author's followers, page by page.
//!
//! Publish (or delete) [starts](FanOuts::start) it: few pages are listed and sent as batches at once, many are handed to page tasks.
//! Workers [run](FanOuts::run) tasks; reconcile [resumes](FanOuts::resume) what was lost.

use crate::Stores;
use crate::ViewSync;
use crate::error::{Store, StoreError};
use std::{ops::Range, sync::Arc};

use tracing::warn;

use crate::{
    notices::NoticeBoard,
    outage::{FEW_TRIES, Later, MOST_TRIES},
    ports::{FanOut, FanOutKind, Look, Progress, Task},
    reader::Readers,
    relations::Relations,
};
use tidemark_domain::{
    AuthorHead, Delivery, DeliveryState, FeedKey, Post, Timestamp, UserId,
    ids::SHARDS,
    pages::{INLINE_PAGES, page_buckets, page_tasks},
};

/// How many attempts of its own a task has that failed with `error`, before it is left to the receives that the queue allows; none if it may be the task's fault.
pub fn most_tries(error: &StoreError, task: &Task) -> u8 {
    match task {
        _ if !error.is_retryable() => 0,
        // DynamoDB also refuses a request for what is wrong with it, and reconcile resumes a fan-out.
        Task::Batch { .. } | Task::List { .. } if error.store() != Store::Views => FEW_TRIES,
        _ => MOST_TRIES,
    }
}

/// Use cases of fan-outs. Clones share the stores.
#[derive(Clone)]
pub struct FanOuts {
    /// The stores.
    pub stores: Arc<Stores>,
    /// Views that a worker brings in line later.
    pub later: Later,
    /// For tasks that bring a view of notices in line.
    pub notices: NoticeBoard,
    /// For tasks that rebuild a view.
    pub readers: Readers,
    /// For counters of what was published.
    pub relations: Relations,
    /// For tasks that bring one pair in line.
    pub sync: ViewSync,
}

/// How long pages may wait in a queue that is never seen drained before they are taken for lost.
const BACKLOG_WAIT_MS: u64 = 3_600_000;

/// Messages in flight that are no sign of a backlog: about what all workers hold at once.
const HELD_BY_WORKERS: u64 = 100;

/// How often the wait for pages that were sent again doubles.
const MOST_DOUBLINGS: u32 = 10;

/// What a look at unfinished fan-outs goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookPlan {
    /// Now.
    pub now: Timestamp,
    /// How long the pages of a publish may take. After attempt `k` it is 2ᵏ times as long.
    pub wait_ms: u64,
    /// Whether the queue was seen drained: what is not done and was sent before is lost.
    pub drained: bool,
    /// How often pages are sent again.
    pub most_attempts: u32,
}

/// Whether it is time for an unfinished fan-out to be looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Now.
    Now,
    /// Its pages may still be on their way.
    Later,
    /// Nobody knows since when its pages wait: noted, and then later.
    Unseen,
}

impl LookPlan {
    /// Whether the pages of this fan-out are to be taken for lost, if nobody has done them.
    ///
    /// Standing still does not tell: pages that wait in a backlog do the same. SQS has no attribute for the age of its oldest message (that is a metric, minutes late), but
    /// it tells how many messages wait and how many are in flight. A queue without waiting messages has given all that was sent before to workers, so that a page which is
    /// neither done nor moving is lost, or fails again and again; the doubled waits bound what that costs. While messages wait, nothing is sent, for an hour doubled with each
    /// attempt: a queue that is busy at every look must not hold off for ever what is really lost.
    pub fn due(&self, delivery: &Delivery) -> Due {
        let wait = if self.drained { self.wait_ms } else { self.wait_ms.max(BACKLOG_WAIT_MS) };
        let since = delivery.sent_at.unwrap_or(delivery.started_at);
        if since.plus_ms(wait << delivery.attempts.min(MOST_DOUBLINGS)) > self.now {
            Due::Later
        } else if !self.drained && delivery.sent_at.is_none() {
            // A retraction, or an import, of a post of long ago.
            Due::Unseen
        } else {
            Due::Now
        }
    }
}

/// How an unfinished fan-out was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspected {
    /// Pages were done since the last note: workers are at it, and what is on its way need not be sent twice.
    Moving {
        /// Pages done.
        pages_done: u64,
    },
    /// All pages are done, and nobody has noted that.
    Done(Progress),
    /// Pages are missing and may be sent again.
    Missing {
        /// Pages done.
        pages_done: u64,
        /// Pages that nobody has done.
        pages: Vec<u16>,
    },
    /// Pages are missing and were sent as often as allowed; an operator has to look at it.
    UsedUp {
        /// Pages that nobody has done.
        pages: usize,
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
    pub async fn start(&self, fan_out: FanOut) -> Result<(), StoreError> {
        if fan_out.pages == 0 {
            return match self.finish(fan_out, 0).await {
                Err(error) if error.is_retryable() => self.tell_later(fan_out, &error).await,
                finished => finished,
            };
        }
        // The pages count more than this, and go on their way in any case.
        let told = async {
            match self.tell(fan_out).await {
                Ok(()) => Ok(()),
                Err(error) => self.tell_later(fan_out, &error).await,
            }
        };
        let (told, sent) = futures::join!(told, self.send_pages(fan_out));
        sent.and(told)
    }

    /// Leaves to a worker what could not be told.
    async fn tell_later(&self, fan_out: FanOut, error: &StoreError) -> Result<(), StoreError> {
        self.later.instead(error, &[Task::Tell { fan_out, tries: 0 }]).await
    }

    async fn send_pages(&self, fan_out: FanOut) -> Result<(), StoreError> {
        if fan_out.pages > INLINE_PAGES {
            let tasks: Vec<Task> = page_tasks(fan_out.pages).into_iter().map(|pages| list_task(fan_out, pages)).collect();
            return self.stores.queue.send(&tasks).await;
        }
        let mut tasks = Vec::new();
        for page in 0..fan_out.pages {
            tasks.push(self.batch(fan_out, page).await?);
        }
        let is_empty = |task: &Task| matches!(task, Task::Batch { followers, .. } if followers.is_empty());
        if tasks.iter().all(is_empty) {
            match self.finish(fan_out, 0).await {
                Err(error) if error.is_retryable() => {
                    warn!(post = %fan_out.post, error = &error as &dyn std::error::Error, "an empty fan-out could not be finished, a worker will do it");
                }
                finished => return finished,
            }
        }
        self.stores.queue.send(&tasks).await
    }

    /// Runs one task. May be repeated at any time, in any order. `out_of_time` says when to stop and hand the rest on.
    ///
    /// # Errors
    /// The task is not done and has to be given back.
    pub async fn run(&self, task: &Task, out_of_time: &(dyn Fn() -> bool + Sync)) -> Result<(), StoreError> {
        match task {
            Task::Batch { fan_out, page, followers, .. } => {
                let users: Vec<UserId> = followers.iter().copied().filter_map(UserId::new).collect();
                self.handle(*fan_out, &users).await?;
                self.page_done(*fan_out, *page, users.len() as u64).await
            }
            Task::List { fan_out, from, to, .. } => self.list(*fan_out, *from..*to, out_of_time).await,
            Task::Tell { fan_out, .. } if fan_out.pages == 0 => self.finish(*fan_out, 0).await,
            Task::Tell { fan_out, .. } => self.tell(*fan_out).await,
            Task::Notices { platform, user, .. } => Ok(self.notices.sync(*platform, *user).await?),
            Task::Rebuild { user, .. } => Ok(self.readers.rebuild(*user, true).await.map(|_| ())?),
            Task::Sync { user, author, .. } => self.sync.pair(*user, *author).await,
        }
    }

    /// Whether the queue holds nothing but what workers are at.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn is_drained(&self) -> Result<bool, StoreError> {
        let backlog = self.stores.queue.backlog().await?;
        Ok(backlog.waiting == 0 && backlog.in_flight <= HELD_BY_WORKERS)
    }

    /// How an unfinished fan-out is that is due.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn inspect(&self, post: &Post, head: &AuthorHead, most_attempts: u32) -> Result<Inspected, StoreError> {
        let fan_out = FanOut::of(post, head);
        let (progress, pages) = self.stores.progress.progress(fan_out.kind, post.id, fan_out.pages).await?;
        let pages_done = progress.pages_done;
        Ok(if pages.is_empty() {
            Inspected::Done(progress)
        } else if pages_done > post.delivery.seen_pages {
            Inspected::Moving { pages_done }
        } else if post.delivery.attempts >= most_attempts {
            Inspected::UsedUp { pages: pages.len() }
        } else {
            Inspected::Missing { pages_done, pages }
        })
    }

    /// Does what an inspected fan-out needs: finishes it, sends its missing pages again, or gives it up.
    ///
    /// # Errors
    /// Facts, Redis or the queue do not answer; to be repeated.
    pub async fn resume(&self, post: &Post, head: &AuthorHead, inspected: &Inspected) -> Result<(), StoreError> {
        let fan_out = FanOut::of(post, head);
        match inspected {
            Inspected::Done(progress) => self.finish(fan_out, progress.handled).await?,
            Inspected::Moving { pages_done } => self.stores.posts.note_look(post, Look::Moving(*pages_done)).await?,
            Inspected::UsedUp { .. } => self.stores.posts.note_look(post, Look::GivenUp).await?,
            Inspected::Missing { pages_done, pages } => {
                self.stores.posts.note_look(post, Look::Sent(*pages_done, self.stores.clock.now())).await?;
                // As many page tasks as a publish sends at most. Each leaves out what is done.
                let run = pages.len().div_ceil(usize::from(SHARDS));
                let tasks: Vec<Task> =
                    pages.chunks(run).map(|pages| list_task(fan_out, pages[0]..pages[pages.len() - 1] + 1)).collect();
                self.stores.queue.send(&tasks).await?;
            }
        }
        Ok(())
    }

    /// How far the delivery of a post is.
    ///
    /// # Errors
    /// Redis does not answer while the fan-out is under way.
    pub async fn status(&self, post: &Post) -> Result<DeliveryStatus, StoreError> {
        let delivery = &post.delivery;
        if delivery.state == DeliveryState::Done {
            let pages_done = u64::from(delivery.pages);
            return Ok(DeliveryStatus { state: DeliveryState::Done, delivered: delivery.delivered, pages_done });
        }
        let (progress, _) = self.stores.progress.progress(FanOutKind::Deliver, post.id, delivery.pages).await?;
        let state = match delivery.state {
            DeliveryState::Pending if progress.pages_done > 0 => DeliveryState::Running,
            state => state,
        };
        Ok(DeliveryStatus { state, delivered: progress.handled, pages_done: progress.pages_done })
    }

    async fn list(&self, fan_out: FanOut, pages: Range<u16>, out_of_time: &(dyn Fn() -> bool + Sync)) -> Result<(), StoreError> {
        if pages.end > fan_out.pages {
            return Err(StoreError::DamagedView { detail: format!("pages {pages:?} of {}", fan_out.pages) });
        }
        let (_, missing) = self.stores.progress.progress(fan_out.kind, fan_out.post, fan_out.pages).await?;
        let end = pages.end;
        for page in missing.into_iter().filter(|page| pages.contains(page)) {
            if out_of_time() {
                return self.stores.queue.send(&[list_task(fan_out, page..end)]).await;
            }
            if !self.is_wanted(fan_out).await? {
                return Ok(());
            }
            let batch = self.batch(fan_out, page).await?;
            self.stores.queue.send(&[batch]).await?;
        }
        Ok(())
    }

    async fn batch(&self, fan_out: FanOut, page: u16) -> Result<Task, StoreError> {
        let followers = self.stores.edges.followers_in(fan_out.post.author, page_buckets(page, fan_out.pages)).await?;
        Ok(Task::Batch { fan_out, page, followers: followers.into_iter().map(UserId::get).collect(), tries: 0 })
    }

    async fn handle(&self, fan_out: FanOut, users: &[UserId]) -> Result<(), StoreError> {
        if users.is_empty() {
            return Ok(());
        }
        if self.is_wanted(fan_out).await? {
            match fan_out.kind {
                FanOutKind::Deliver => self.stores.reader_views.deliver(users, fan_out.key(), fan_out.modes).await?,
                FanOutKind::Retract => {
                    self.stores.reader_views.retract(users, fan_out.key(), fan_out.deletions, fan_out.modes).await?
                }
            };
        }
        Ok(())
    }

    /// The fact decides, not the message: a deleted post is not delivered, a live one not retracted.
    async fn is_wanted(&self, fan_out: FanOut) -> Result<bool, StoreError> {
        let post = self.stores.posts.posts(&[fan_out.post]).await?.remove(&fan_out.post);
        Ok(post.is_some_and(|post| post.deleted == (fan_out.kind == FanOutKind::Retract)))
    }

    async fn page_done(&self, fan_out: FanOut, page: u16, handled: u64) -> Result<(), StoreError> {
        let progress = self.stores.progress.page_done(fan_out.kind, fan_out.post, page, handled).await?;
        if progress.pages_done >= u64::from(fan_out.pages) {
            self.finish(fan_out, progress.handled).await?;
        }
        Ok(())
    }

    async fn finish(&self, fan_out: FanOut, handled: u64) -> Result<(), StoreError> {
        // Once more than publish itself, which may have been cut off.
        self.tell(fan_out).await?;
        match fan_out.kind {
            FanOutKind::Deliver => self.stores.posts.finish_delivery(fan_out.post, handled, self.stores.clock.now()).await?,
            FanOutKind::Retract => self.stores.posts.finish_retraction(fan_out.post).await?,
        }
        Ok(())
    }

    /// Forgets what is kept of author and post that is not so any more.
    async fn tell(&self, fan_out: FanOut) -> Result<(), StoreError> {
        let author = fan_out.post.author;
        self.relations.forget_counters(author, None).await?;
        if fan_out.kind == FanOutKind::Retract {
            self.stores.post_views.bury(fan_out.key()).await?;
        }
        if !fan_out.modes.is_push_alone() {
            // Some readers ask for the head instead of being told.
            let head = self.stores.posts.heads(&[author]).await?.remove(&author).unwrap_or_default();
            self.stores.head_views.store_head(author, &head).await?;
        }
        Ok(())
    }
}

fn list_task(fan_out: FanOut, pages: Range<u16>) -> Task {
    Task::List { fan_out, from: pages.start, to: pages.end, tries: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::DeliveryMode;

    const MINUTE: u64 = 60_000;

    fn delivery(attempts: u32, sent_at: Option<u64>) -> Delivery {
        Delivery {
            mode: DeliveryMode::Push,
            state: DeliveryState::Pending,
            followers: 1,
            delivered: 0,
            pages: 1,
            retraction_pages: 0,
            attempts,
            seen_pages: 0,
            sent_at: sent_at.map(|minute| Timestamp::from_ms(minute * MINUTE)),
            started_at: Timestamp::from_ms(0),
            finished_at: None,
        }
    }

    #[test]
    fn pages_are_taken_for_lost_after_waits_that_double_and_in_a_backlog_after_hours() {
        let due = |minute: u64, drained: bool, attempts: u32, sent_at: Option<u64>| {
            let now = Timestamp::from_ms(minute * MINUTE);
            LookPlan { now, wait_ms: MINUTE / 2, drained, most_attempts: 8 }.due(&delivery(attempts, sent_at))
        };
        assert_eq!([due(0, true, 0, None), due(1, true, 0, None)], [Due::Later, Due::Now]);
        assert_eq!([due(103, true, 3, Some(100)), due(104, true, 3, Some(100))], [Due::Later, Due::Now]);
        assert_eq!([due(227, true, 8, Some(100)), due(228, true, 8, Some(100))], [Due::Later, Due::Now]);
        assert_eq!([due(1, false, 0, None), due(59, false, 0, None)], [Due::Later; 2], "it may wait with others");
        assert_eq!(due(60, false, 0, None), Due::Unseen, "a retraction of a post of long ago, for all that is known");
        assert_eq!([due(119, false, 0, Some(60)), due(120, false, 0, Some(60))], [Due::Later, Due::Now]);
        assert_eq!([due(219, false, 1, Some(100)), due(220, false, 1, Some(100))], [Due::Later, Due::Now]);
        assert_eq!(due(u64::MAX / MINUTE, true, u32::MAX, Some(0)), Due::Now);
    }
}
