//! Fan-out: the delivery of a post to the views of its author's followers, page by page. The posts of a pulled author
//! have no pages: reads fetch them (`reader/catch_up.rs`). The author's head decides it for each post.
//!
//! Publish and delete [start](FanOuts::start) a fan-out. They send a batch for each of up to [`INLINE_PAGES`] pages, or
//! tasks that list ranges of pages if there are more. Reconcile [resumes](FanOuts::resume) unfinished fan-outs.

mod ranks;

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::warn;

use crate::{OutOfTime, Stores, live, metrics::Metric, outage::Outage};
use tidemark_domain::{
    AuthorHead, Delivery, DeliveryState, FanOutKind, HalfLife, Modes, Post, PostId, PostSummary, StoreError, Timestamp, UserId,
    feed::FeedCap,
    ids::SHARDS,
    pages::{INLINE_PAGES, page_buckets, page_tasks},
    store::Result,
};
use tidemark_facts::Look;
use tidemark_queue::{FanOut, Task};
use tidemark_views::Progress;

/// Use cases of fan-outs. Clones share the stores.
#[derive(Clone)]
pub struct FanOuts {
    stores: Arc<Stores>,
    outage: Outage,
    /// Of the scores in ranked feeds.
    half_life: HalfLife,
    feed_cap: FeedCap,
}

/// Pages that wait longer than this in a queue that is not drained count as lost.
pub(crate) const BACKLOG_WAIT_MS: u64 = 3_600_000;

/// The longest time from the note that a run sends pages to the note that they are sent. No function runs as long.
const SENDING_MS: u64 = 60_000;

/// A post is just published for this time.
const JUST_PUBLISHED_MS: u64 = 60_000;

/// Usually a publish has sent its pages within this time, an instant after its post is in the stream.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Up to this many messages in flight are no sign of a backlog: 33 workers hold as many.
const HELD_BY_WORKERS: u64 = 100;

/// The wait for pages that were sent again doubles at most this often.
const MOST_DOUBLINGS: u32 = 10;

/// The input of one look at unfinished fan-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookPlan {
    pub now: Timestamp,
    /// The longest time of the pages of a publish. After attempt `k` the wait is 2ᵏ times as long.
    pub wait_ms: u64,
    /// Whether the queue was drained. If it was, pages that were sent before and are not done are lost.
    pub drained: bool,
    /// Missing pages are sent again at most this often.
    pub most_attempts: u32,
}

/// Whether an unfinished fan-out is due for inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Now,
    /// Its pages may still wait in the queue or be in progress.
    Later,
    /// It is unknown since when its pages wait. The time of this look is stored, and a later look decides.
    Unseen,
}

impl LookPlan {
    /// Returns whether the missing pages of this fan-out count as lost.
    ///
    /// A lack of progress is not enough: pages that wait in a backlog make no progress either. SQS has no attribute for
    /// the age of its oldest message (a metric has it, minutes late). It returns how many messages wait and how many
    /// are in flight. If no message waits, the queue has given every page that was sent before to a worker. A page that
    /// is neither done nor in progress is then lost, or fails repeatedly; the doubled waits limit the cost of that.
    /// While messages wait, no page is sent again for an hour, which doubles with each attempt. After that time pages
    /// are sent even if the queue is busy at every look, so lost pages do not stay lost. A run that began to send
    /// pages, and did not store that they are sent, has ended or failed; after [`SENDING_MS`] another one sends them.
    pub fn due(&self, delivery: &Delivery) -> Due {
        let doublings = delivery.attempts.min(MOST_DOUBLINGS);
        let wait = match (delivery.sending, self.drained) {
            (true, _) => SENDING_MS,
            (false, true) => self.wait_ms << doublings,
            (false, false) => self.wait_ms.max(BACKLOG_WAIT_MS) << doublings,
        };
        let since = delivery.sent_at.unwrap_or(delivery.started_at);
        if since.plus_ms(wait) > self.now {
            Due::Later
        } else if !self.drained && delivery.sent_at.is_none() {
            // A retraction or an import may have begun long after the post was published.
            Due::Unseen
        } else {
            Due::Now
        }
    }
}

/// The state of an unfinished fan-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspected {
    /// Pages were done since reconcile last stored progress. Workers are active, so no page is sent again.
    Moving { pages_done: u64 },
    /// All pages are done, but the fact does not say so.
    Done(Progress),
    /// These pages are missing and may be sent again.
    Missing { pages_done: u64, pages: Vec<u16> },
    /// This many pages are missing and were sent as often as allowed. An operator has to resume the fan-out.
    UsedUp { pages: usize },
}

/// The delivery status of a post, as the API returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryStatus {
    pub state: DeliveryState,
    /// Followers handled, whether or not they have a live view.
    pub delivered: u64,
    pub pages_done: u64,
}

impl FanOuts {
    pub fn new(stores: Arc<Stores>, outage: Outage, half_life: HalfLife, feed_cap: FeedCap) -> Self {
        Self { stores, outage, half_life, feed_cap }
    }

    /// Starts a fan-out. The number of reads and sends has a bound that does not depend on the number of followers.
    ///
    /// If pages cannot be sent, or the end of a fan-out without pages cannot be stored, this still succeeds: the post
    /// stays listed as unfinished, and reconcile does the rest. Fails if Redis could not be updated
    /// (head, counters, deletion) and the outage could not be noted.
    pub async fn start(&self, fan_out: FanOut) -> Result<()> {
        if let Err(error) = self.show(fan_out).await {
            self.note_unsent(fan_out.kind, fan_out.post).await;
            return Err(error);
        }
        if logged!(self.send_pages(fan_out).await, "fan-out is left to reconcile", post = %fan_out.post).is_none() {
            self.note_unsent(fan_out.kind, fan_out.post).await;
        }
        let noted = self.stores.views.note_sent(fan_out.kind, fan_out.post).await;
        logged!(noted, "the projector may send the pages again", post = %fan_out.post);
        Ok(())
    }

    /// Starts the fan-out of a post that was just published or deleted, if the process that wrote it has ended before
    /// it could. Older ones, as those of an import, are left to reconcile.
    pub(crate) async fn start_unsent(&self, post: &Post) -> Result<()> {
        let is_old = post.created_at.plus_ms(JUST_PUBLISHED_MS) < self.stores.clock.now();
        if !post.deleted && (is_old || post.delivery.state != DeliveryState::Pending) {
            return Ok(());
        }
        for _ in 0..LOOKS {
            if self.stores.views.was_sent(FanOutKind::of(post), post.id).await? {
                return Ok(());
            }
            (self.stores.wait)(BETWEEN_LOOKS).await;
        }
        warn!(post = %post.id, "the process that wrote the post has not sent its pages");
        self.start(FanOut::of(post, &self.stores.facts.head_of(post.id.author).await?)).await
    }

    /// Tells Redis of a change of an author's posts, or leaves that to the projector. A page looks at the head again
    /// before its delivery ([`Self::renew_head`]).
    async fn show(&self, fan_out: FanOut) -> Result<()> {
        let tombstone = async {
            match fan_out.kind {
                FanOutKind::Deliver => Ok(()),
                FanOutKind::Retract => {
                    let tombstone = PostSummary::tombstone(fan_out.key());
                    self.stores.views.remember_posts(&[(tombstone, None)], None).await
                }
            }
        };
        let (head, tombstone) = futures::join!(self.show_head(fan_out.post.author), tombstone);
        self.outage.or_later(head.and(tombstone)).await
    }

    /// Updates the author's head from the facts, and removes the author's counters. The head of the facts: a publish
    /// and a delete at the same time know heads of the same version, each without the other's change.
    pub async fn show_head(&self, author: UserId) -> Result<()> {
        let stores = &self.stores;
        let head = async { stores.views.replace_head(author, &stores.facts.head_of(author).await?).await };
        let (shown, forgotten) = futures::join!(head, stores.views.forget_counters(author, None));
        shown.and(forgotten)
    }

    /// Replaces a head in Redis that lacks the change: a reader without a view is skipped here, and the rebuild of that
    /// view relies on the head. [`Self::show`] has failed to replace it, and the projector is late.
    async fn renew_head(&self, fan_out: FanOut) -> Result<()> {
        let PostId { author, seq } = fan_out.post;
        let known = self.stores.views.heads_now(&[author]).await?.remove(&author);
        let lacks = |head: AuthorHead| match fan_out.kind {
            FanOutKind::Deliver => head.latest_seq < seq,
            FanOutKind::Retract => !head.deleted.contains(seq),
        };
        if known.is_some_and(lacks) { self.show_head(author).await } else { Ok(()) }
    }

    /// Stores that pages are not in the queue. Without it, reconcile may send them only after [`BACKLOG_WAIT_MS`].
    async fn note_unsent(&self, kind: FanOutKind, post: PostId) {
        logged!(self.stores.facts.note_look(kind, post, Look::Unsent).await, "reconcile may send the pages late", %post);
    }

    /// Sends the pages, or stores the end of a fan-out whose pages are empty.
    async fn send_pages(&self, fan_out: FanOut) -> Result<()> {
        if fan_out.pages > INLINE_PAGES {
            let tasks: Vec<Task> = page_tasks(fan_out.pages).into_iter().map(|pages| list_task(fan_out, pages)).collect();
            return self.stores.queues.tasks.send(&tasks).await;
        }
        let mut tasks = Vec::new();
        for page in 0..fan_out.pages {
            tasks.push(self.batch(fan_out, page).await?);
        }
        let is_empty = |task: &Task| matches!(task, Task::Batch { followers, .. } if followers.is_empty());
        if tasks.iter().all(is_empty) {
            match self.complete(fan_out, 0).await {
                // A worker stores it after the empty pages. Without pages, reconcile does.
                Err(error) if error.is_retryable() && !tasks.is_empty() => {
                    warn!(post = %fan_out.post, error = &error as &dyn std::error::Error, "could not finish an empty fan-out, a worker will finish it");
                }
                completed => return completed,
            }
        }
        self.stores.queues.tasks.send(&tasks).await
    }

    pub(crate) async fn page(&self, fan_out: FanOut, page: u16, followers: &[u64]) -> Result<()> {
        let users: Vec<UserId> = followers.iter().copied().filter_map(UserId::new).collect();
        if !self.handle(fan_out, &users).await? {
            return Ok(());
        }
        let progress = self.stores.views.page_done(fan_out.kind, fan_out.post, page, users.len() as u64).await?;
        if progress.pages_done < u64::from(fan_out.pages) {
            return Ok(());
        }
        self.complete(fan_out, progress.handled).await
    }

    /// Returns whether no message waits and no more messages are in flight than the workers hold.
    pub async fn is_drained(&self) -> Result<bool> {
        let backlog = self.stores.queues.tasks.backlog().await?;
        Ok(backlog.waiting == 0 && backlog.in_flight <= HELD_BY_WORKERS)
    }

    /// Returns the state of an unfinished fan-out that is due.
    pub async fn inspect(&self, post: &Post, head: &AuthorHead, most_attempts: u32) -> Result<Inspected> {
        let fan_out = FanOut::of(post, head);
        let (progress, pages) = self.stores.views.progress(fan_out.kind, post.id, fan_out.pages).await?;
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

    /// Handles an inspected fan-out: finishes it, stores its progress, sends its missing pages again, or gives it up.
    /// Returns whether it did so; of two runs at once, one sends the pages. May be repeated after an error.
    pub async fn resume(&self, post: &Post, head: &AuthorHead, inspected: &Inspected) -> Result<bool> {
        let (fan_out, facts) = (FanOut::of(post, head), &self.stores.facts);
        match inspected {
            Inspected::Done(progress) => self.complete(fan_out, progress.handled).await.map(|()| true),
            Inspected::Moving { pages_done } => facts.note_look(fan_out.kind, post.id, Look::Moving(*pages_done)).await,
            Inspected::UsedUp { .. } => facts.note_look(fan_out.kind, post.id, Look::GivenUp).await,
            Inspected::Missing { pages_done, pages } => {
                let (before, at, token) = (post.delivery.sent_at, self.stores.clock.now(), (self.stores.random)());
                if !facts.note_look(fan_out.kind, post.id, Look::Sending { before, at, token }).await? {
                    return Ok(false);
                }
                // The publish and the projector may both be late.
                self.show(fan_out).await?;
                // At most as many tasks as a publish sends. Each skips the pages that are done.
                let run = pages.len().div_ceil(usize::from(SHARDS));
                let tasks: Vec<Task> =
                    pages.chunks(run).map(|pages| list_task(fan_out, pages[0]..pages[pages.len() - 1] + 1)).collect();
                self.stores.queues.tasks.send(&tasks).await?;
                let sent = Look::Sent { token, attempts: post.delivery.attempts.saturating_add(1), pages_done: *pages_done };
                facts.note_look(fan_out.kind, post.id, sent).await?;
                Ok(true)
            }
        }
    }

    /// Returns how far the delivery of a post is. It reads Redis only while the delivery is not done.
    pub(crate) async fn status(&self, post: &Post) -> Result<DeliveryStatus> {
        let delivery = &post.delivery;
        if delivery.state == DeliveryState::Done {
            let pages_done = u64::from(delivery.pages);
            return Ok(DeliveryStatus { state: DeliveryState::Done, delivered: delivery.delivered, pages_done });
        }
        let (progress, _) = self.stores.views.progress(FanOutKind::Deliver, post.id, delivery.pages).await?;
        let state = match delivery.state {
            DeliveryState::Pending if progress.pages_done > 0 => DeliveryState::Running,
            state => state,
        };
        Ok(DeliveryStatus { state, delivered: progress.handled, pages_done: progress.pages_done })
    }

    /// Sends the pages of a range as batches.
    pub(crate) async fn list(&self, fan_out: FanOut, pages: Range<u16>, out_of_time: OutOfTime<'_>) -> Result<()> {
        if pages.end > fan_out.pages {
            return Err(StoreError::DamagedView { detail: format!("pages {pages:?} of {}", fan_out.pages) });
        }
        let (_, missing) = self.stores.views.progress(fan_out.kind, fan_out.post, fan_out.pages).await?;
        let end = pages.end;
        for page in missing.into_iter().filter(|page| pages.contains(page)) {
            if out_of_time() {
                return self.stores.queues.tasks.send(&[list_task(fan_out, page..end)]).await;
            }
            if !self.post(fan_out).await?.is_some_and(|post| fan_out.is_wanted(&post)) {
                return Ok(());
            }
            let batch = self.batch(fan_out, page).await?;
            self.stores.queues.tasks.send(&[batch]).await?;
        }
        Ok(())
    }

    async fn batch(&self, fan_out: FanOut, page: u16) -> Result<Task> {
        let followers = self.stores.facts.followers_in(fan_out.post.author, page_buckets(page, fan_out.pages)).await?;
        Ok(Task::Batch { fan_out, page, followers: followers.into_iter().map(UserId::get).collect() })
    }

    /// Delivers or retracts the post. Returns false if nothing may be stored about it ([`Self::post`]).
    async fn handle(&self, fan_out: FanOut, users: &[UserId]) -> Result<bool> {
        let Some(post) = self.post(fan_out).await? else { return Ok(false) };
        if users.is_empty() || !fan_out.is_wanted(&post) {
            return Ok(true);
        }
        self.renew_head(fan_out).await?;
        match fan_out.kind {
            FanOutKind::Deliver => {
                let started = Instant::now();
                self.deliver(users, &post, fan_out.modes, true).await?;
                self.stores.recorder.time(Metric::PageDeliveryTime, started.elapsed());
                self.stores.recorder.count(Metric::FollowersDelivered, users.len() as u64);
            }
            FanOutKind::Retract => {
                let views = &self.stores.views;
                let watched = views.retract(users, fan_out.key(), fan_out.deletions, fan_out.modes).await?;
                live::notify(&self.stores, &watched, Some(fan_out.post)).await;
            }
        }
        Ok(true)
    }

    /// Delivers a live post to feeds, then to those that are ranked, and with `announce` sends tasks for watched
    /// readers. If it ends in between, the next ranked read sees that its ranked feed lacks the post, and the repeated
    /// delivery sends the tasks. Without `announce` the readers get a message after the next ping.
    pub async fn deliver(&self, users: &[UserId], post: &Post, modes: Modes, announce: bool) -> Result<()> {
        let views = &self.stores.views;
        let delivered = views.deliver(users, post.key(), modes, announce).await?;
        if !delivered.ranked.is_empty() {
            // From the delivery on, moves reach the post. An earlier move has passed it: its step is in the facts now.
            let now = self.stores.facts.posts(&[post.id]).await?.remove(&post.id);
            let rank = now.map_or(post.rank(), |now| now.rank());
            views.rank(&delivered.ranked, self.half_life, &[(post.key(), rank)], false).await?;
        }
        live::announce(&self.stores, delivered.notified).await;
        Ok(())
    }

    /// The post or its tombstone; `None` if its author was erased, or a retraction has a live post.
    async fn post(&self, fan_out: FanOut) -> Result<Option<Post>> {
        let post = self.stores.facts.posts(&[fan_out.post]).await?.remove(&fan_out.post);
        Ok(post.filter(|post| post.deleted || fan_out.kind == FanOutKind::Deliver))
    }

    /// Stores among the facts that all pages are done.
    async fn complete(&self, fan_out: FanOut, handled: u64) -> Result<()> {
        match fan_out.kind {
            FanOutKind::Deliver => {
                let now = self.stores.clock.now();
                if self.stores.facts.finish_delivery(fan_out.post, handled, now).await? {
                    let lag = Duration::from_millis(now.ms().saturating_sub(fan_out.at.ms()));
                    self.stores.recorder.time(Metric::DeliveryLag, lag);
                }
            }
            FanOutKind::Retract => self.stores.facts.finish_retraction(fan_out.post).await?,
        }
        Ok(())
    }
}

fn list_task(fan_out: FanOut, pages: Range<u16>) -> Task {
    Task::List { fan_out, from: pages.start, to: pages.end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::DeliveryMode;

    const MINUTE: u64 = 60_000;

    #[test]
    fn pages_count_as_lost_after_waits_that_double_and_in_a_backlog_after_hours() {
        let due = |minute: u64, drained: bool, attempts: u32, sent_at: Option<u64>| {
            let at = |minute: u64| Timestamp::from_ms(minute * MINUTE);
            let planned = Delivery::planned(DeliveryMode::Push, 1, at(0));
            let delivery = Delivery { attempts, sent_at: sent_at.map(at), ..planned };
            LookPlan { now: at(minute), wait_ms: MINUTE / 2, drained, most_attempts: 8 }.due(&delivery)
        };
        assert_eq!([due(0, true, 0, None), due(1, true, 0, None)], [Due::Later, Due::Now]);
        assert_eq!([due(103, true, 3, Some(100)), due(104, true, 3, Some(100))], [Due::Later, Due::Now]);
        assert_eq!([due(227, true, 8, Some(100)), due(228, true, 8, Some(100))], [Due::Later, Due::Now]);
        assert_eq!([due(1, false, 0, None), due(59, false, 0, None)], [Due::Later; 2], "the page may wait in the backlog");
        assert_eq!(due(60, false, 0, None), Due::Unseen, "it may be a new retraction of an old post");
        assert_eq!([due(119, false, 0, Some(60)), due(120, false, 0, Some(60))], [Due::Later, Due::Now]);
        assert_eq!([due(219, false, 1, Some(100)), due(220, false, 1, Some(100))], [Due::Later, Due::Now]);
        assert_eq!(due(u64::MAX / MINUTE, true, u32::MAX, Some(0)), Due::Now);
    }
}
