//! Use cases of notices: the live notices of a platform, the read state of a reader, and the views of both.
//!
//! A head and a read state are facts with a version, and their views are copies. A missing view is filled from the
//! facts under a lease. The request that changes a fact replaces its view, or a worker does.

use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, StreamExt, future::join_all, stream};
use tidemark_domain::{
    IdempotencyKey, LiveNotice, Notice, NoticeContent, NoticeCounts, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet,
    Slot, Store, StoreError, Timestamp, UserId, store::Result,
};
use tidemark_facts::{NoticeWritten, NoticesPublished};
use tidemark_views::{NoticeRecord, NoticeView};
use tracing::warn;

use crate::{
    PARALLEL, Stores, cut, in_parallel,
    once::{Attempt, Begun, Once},
    outage::Outage,
};

/// A read state loses the slots of dead notices if it has more slots than twice the live notices and this number.
const SPARE_SLOTS: u64 = 64;

/// Use cases of notices. Clones share the stores.
#[derive(Clone)]
pub struct NoticeBoard {
    stores: Arc<Stores>,
    outage: Outage,
}

/// A platform as one reader sees it at one moment.
#[derive(Debug, Clone)]
pub struct Board {
    pub head: PlatformHead,
    pub read: SeqSet,
    /// Notices that have expired by this time are left out.
    pub now: Timestamp,
    pub degraded: bool,
}

impl Board {
    /// Returns the notice if it is live.
    pub fn find(&self, seq: Seq) -> Option<&LiveNotice> {
        self.head.find(seq, self.now)
    }

    pub fn counts(&self) -> NoticeCounts {
        self.head.counts(&self.read, self.now)
    }
}

/// A notice as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeItem {
    pub id: NoticeId,
    pub title: String,
    pub created_at: Timestamp,
    /// Whether the reader has read the notice's current slot.
    pub read: bool,
}

#[derive(Debug, Clone)]
pub struct NoticePage {
    /// Newest first. A notice that is deleted during the read may be missing.
    pub items: Vec<NoticeItem>,
    /// The next page begins below this number; `None` at the end.
    pub next: Option<Seq>,
    pub degraded: bool,
}

/// The outcome of a request to replace a notice.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticeEdited {
    Stands(Notice),
    /// An earlier request with the same key edited something else.
    KeyReused,
    /// The notice would expire before it is replaced. Nothing is changed.
    Expired,
    Unknown,
}

#[derive(Debug, Clone, Copy)]
pub struct NoticesMarked {
    /// The number of notices that the change made read or unread.
    pub changed: u64,
    pub counts: NoticeCounts,
    pub degraded: bool,
}

impl NoticesMarked {
    /// The numbers that a repetition returns.
    fn answer(&self) -> Vec<u64> {
        vec![self.changed, self.counts.unread, self.counts.read]
    }

    fn answered(answer: &[u64]) -> Self {
        let number = |index: usize| answer.get(index).copied().unwrap_or_default();
        Self { changed: number(0), counts: NoticeCounts { unread: number(1), read: number(2) }, degraded: false }
    }
}

impl NoticeBoard {
    pub fn new(stores: Arc<Stores>, outage: Outage) -> Self {
        Self { stores, outage }
    }

    /// Returns a platform as a reader sees it: one round trip if the views exist.
    pub async fn board(&self, platform: Platform, user: UserId) -> Result<Board> {
        let now = self.stores.clock.now();
        let missing = match self.outage.checked(self.stores.views.notice_state(platform, user)).await {
            Ok((Some(head), Some(read))) => return Ok(Board { head, read, now, degraded: false }),
            Ok((head, read)) => {
                let missing = [
                    head.is_none().then_some(NoticeRecord::Head(platform)),
                    read.is_none().then_some(NoticeRecord::Reads(user, platform)),
                ];
                Ok(missing.into_iter().flatten().collect())
            }
            Err(error) => Err(error),
        };
        let (head, reads, degraded) = self.facts(platform, user, missing).await?;
        Ok(Board { head, read: reads.read, now, degraded })
    }

    /// Returns the head and a user's read state from the facts. The head comes from its view if that `suffices`:
    /// DynamoDB reads one item some three thousand times a second at most, and Redis many times that.
    async fn state(
        &self,
        platform: Platform,
        user: UserId,
        suffices: impl Fn(&PlatformHead) -> bool,
    ) -> Result<(PlatformHead, NoticeReads)> {
        let missing = match self.outage.checked(self.stores.views.notice_head(platform)).await {
            Ok(Some(head)) if suffices(&head) => {
                let reads = self.stores.facts.notice_reads(platform, user).await?;
                // Only the facts say for sure which slots are dead. Without a look at them, a read state would grow.
                if reads.read.len() <= 2 * head.live.len() as u64 + SPARE_SLOTS {
                    return Ok((head, reads));
                }
                Ok(Vec::new())
            }
            Ok(Some(_)) => Ok(Vec::new()),
            Ok(None) => Ok(vec![NoticeRecord::Head(platform)]),
            Err(error) => Err(error),
        };
        let (head, reads, _) = self.facts(platform, user, missing).await?;
        // Slots that belong to no notice have no reader count, and are left out of what is written.
        let reads = reads.without_dead(&head);
        Ok((head, reads))
    }

    /// Reads the facts and fills the missing views, if Redis responded. Also returns whether Redis is unavailable.
    async fn facts(
        &self,
        platform: Platform,
        user: UserId,
        missing: Result<Vec<NoticeRecord>>,
    ) -> Result<(PlatformHead, NoticeReads, bool)> {
        let filled = async { self.fill(platform, user, &missing?).await };
        match filled.await {
            Ok((head, reads)) => Ok((head, reads, false)),
            Err(error) if error.store() == Store::Facts => Err(error),
            Err(error) => {
                let degraded = is_degraded(platform, &error);
                let (head, reads) = self.stores.facts.notice_state(platform, user).await?;
                Ok((head, reads, degraded))
            }
        }
    }

    /// Fills missing views. The leases come before the facts, so outdated facts are not stored.
    async fn fill(&self, platform: Platform, user: UserId, missing: &[NoticeRecord]) -> Result<(PlatformHead, NoticeReads)> {
        let token = (self.stores.random)();
        let leased = self.stores.views.lease_notices(missing, token).await?;
        let (head, reads) = self.stores.facts.notice_state(platform, user).await?;
        let views: Vec<NoticeView> = leased
            .into_iter()
            .map(|record| match record {
                NoticeRecord::Head(platform) => NoticeView::Head(platform, head.clone()),
                NoticeRecord::Reads(user, platform) => NoticeView::Reads(user, platform, reads.clone()),
            })
            .collect();
        self.stores.views.fill_notices(&views, token).await?;
        Ok((head, reads))
    }

    /// Returns one page of live notices, below `before`.
    pub async fn page(&self, platform: Platform, user: UserId, before: Option<Seq>, limit: usize) -> Result<NoticePage> {
        let board = self.board(platform, user).await?;
        let below = board.head.live_at(board.now).filter(|notice| before.is_none_or(|before| notice.seq < before));
        // One more than requested shows whether there is a next page.
        let mut notices: Vec<LiveNotice> = below.take(limit + 1).copied().collect();
        let next = cut(&mut notices, limit).map(|last| last.seq);
        let (mut titles, degraded) = self.titles(platform, &notices).await?;
        let items = notices.iter().filter_map(|notice| {
            let id = NoticeId { platform, seq: notice.seq };
            let (title, created_at) = titles.remove(&id)?;
            Some(NoticeItem { id, title, created_at, read: board.read.contains(notice.slot) })
        });
        Ok(NoticePage { items: items.collect(), next, degraded: board.degraded || degraded })
    }

    /// Returns titles and times, from the facts if Redis does not have them, and whether Redis was unavailable.
    async fn titles(&self, platform: Platform, notices: &[LiveNotice]) -> Result<(HashMap<NoticeId, (String, Timestamp)>, bool)> {
        let wanted: Vec<(NoticeId, u64)> =
            notices.iter().map(|notice| (NoticeId { platform, seq: notice.seq }, notice.revision)).collect();
        let (mut titles, mut degraded) = match self.stores.views.notice_titles(&wanted).await {
            Ok(titles) => (titles, false),
            Err(error) => (HashMap::new(), is_degraded(platform, &error)),
        };
        let missing: Vec<NoticeId> = wanted.iter().map(|(id, _)| *id).filter(|id| !titles.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok((titles, degraded));
        }
        let found: Vec<Notice> = self.stores.facts.notices(&missing).await?.into_values().collect();
        if !degraded && let Err(error) = self.stores.views.remember_titles(&found).await {
            degraded = is_degraded(platform, &error);
        }
        titles.extend(found.into_iter().map(|notice| (notice.id, (notice.content.title, notice.created_at))));
        Ok((titles, degraded))
    }

    /// Returns a live notice with its text, and whether the reader has read it; `None` if it is not live.
    pub async fn notice(&self, user: UserId, id: NoticeId) -> Result<Option<(Notice, LiveNotice, bool)>> {
        let (wanted, now) = ([id], self.stores.clock.now());
        let state = self.state(id.platform, user, |head| head.find(id.seq, now).is_some());
        let ((head, reads), mut found) = futures::try_join!(state, self.stores.facts.notices(&wanted))?;
        let live = head.find(id.seq, now).copied();
        let Some((live, notice)) = live.zip(found.remove(&id)) else { return Ok(None) };
        Ok(Some((notice, live, reads.read.contains(live.slot))))
    }

    /// Publishes one notice on each platform.
    pub async fn publish(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<NoticesPublished> {
        let published = self.stores.facts.publish_notices(user, platforms, content, idempotency, self.stores.clock.now()).await?;
        match &published {
            NoticesPublished::Created(created) => {
                let heads: Vec<NoticeView> =
                    created.iter().map(|(notice, head)| NoticeView::Head(notice.id.platform, head.clone())).collect();
                let shown = join_all(heads.iter().map(|head| self.show(head).boxed())).await;
                shown.into_iter().collect::<Result<Vec<bool>, _>>()?;
            }
            NoticesPublished::Repeated(notices) => {
                // The first request may have ended before it updated the views.
                let shown = notices.iter().map(async |notice| {
                    let platform = notice.id.platform;
                    self.show(&NoticeView::Head(platform, self.stores.facts.platform_head(platform).await?)).await
                });
                join_all(shown.map(FutureExt::boxed)).await.into_iter().collect::<Result<Vec<bool>, _>>()?;
            }
            _ => {}
        }
        Ok(published)
    }

    /// Replaces a live notice, once for each key of `user`.
    pub async fn edit(
        &self,
        user: UserId,
        id: NoticeId,
        content: &NoticeContent,
        renotify: bool,
        key: Option<&IdempotencyKey>,
    ) -> Result<NoticeEdited> {
        let now = self.stores.clock.now();
        let once = key.map(|key| (user, key));
        let (notice, head) = match self.stores.facts.edit_notice(id, content, renotify, once, now).await? {
            NoticeWritten::Edited(notice, head) => (notice, head),
            // The first request may have ended before it updated the view.
            NoticeWritten::Repeated(notice) => (notice, self.stores.facts.platform_head(id.platform).await?),
            NoticeWritten::KeyReused => return Ok(NoticeEdited::KeyReused),
            NoticeWritten::Expired => return Ok(NoticeEdited::Expired),
            NoticeWritten::Unknown => return Ok(NoticeEdited::Unknown),
        };
        self.show(&NoticeView::Head(id.platform, head)).await?;
        Ok(NoticeEdited::Stands(notice))
    }

    /// Removes notices. May be repeated.
    pub async fn remove(&self, ids: &[NoticeId]) -> Result<()> {
        let mut platforms: HashMap<Platform, Vec<Seq>> = HashMap::new();
        for id in ids {
            platforms.entry(id.platform).or_default().push(id.seq);
        }
        let removals = platforms.into_iter().map(|(platform, seqs)| self.remove_from(platform, seqs).boxed()).collect();
        // All removals end before a failure is returned, so none interrupts another between fact and view.
        in_parallel(removals).await.into_iter().collect()
    }

    async fn remove_from(&self, platform: Platform, seqs: Vec<Seq>) -> Result<()> {
        let head = self.stores.facts.remove_notices(platform, &seqs).await?;
        self.show(&NoticeView::Head(platform, head)).await.map(drop)
    }

    /// Marks one notice read or unread; returns `None` if it is not live.
    pub async fn mark(&self, user: UserId, id: NoticeId, read: bool) -> Result<Option<NoticesMarked>> {
        let is_live = |head: &PlatformHead, now| head.find(id.seq, now).is_some();
        let marked = self.change((id.platform, user), (None, false), is_live, |head, reads, now| {
            if let Some(notice) = head.find(id.seq, now) {
                reads.read.set(notice.slot, read);
            }
        });
        let (board, marked) = marked.await?;
        Ok(board.find(id.seq).map(|_| marked))
    }

    /// Marks everything up to a sequence number read (see [`NoticeReads::mark_through`]). With a key, an attempt covers
    /// the notices that the first one has found, with the slots that they had.
    pub async fn mark_through(
        &self,
        user: UserId,
        platform: Platform,
        seq: Seq,
        key: Option<&IdempotencyKey>,
    ) -> Result<Once<NoticesMarked>> {
        let is_given = |head: &PlatformHead, _| head.latest_seq >= seq;
        let bound = match key {
            None => vec![seq, Slot::MAX],
            Some(_) => {
                let (head, _) = self.state(platform, user, |head| is_given(head, Timestamp::default())).await?;
                vec![head.latest_seq.min(seq), head.latest_slot]
            }
        };
        let attempt = match self.stores.begin(user, "notice-reads", key, bound).await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Answered(answer) => return Ok(Once::Done(NoticesMarked::answered(&answer))),
            Begun::KeyReused => return Ok(Once::KeyReused),
        };
        let [seq, slot] = <[u64; 2]>::try_from(attempt.bound.clone()).unwrap_or_default();
        let marked = self.change((platform, user), (Some(&attempt), false), is_given, |head, reads, now| match key {
            None => reads.mark_through(head, seq, now),
            Some(_) => reads.mark_through(&head.as_of(seq, slot), seq, now),
        });
        Ok(Once::Done(marked.await?.1))
    }

    /// Merges slots that readers of one platform have read elsewhere into their read states. The merge is a union, so
    /// it may be repeated, interrupted, and run while the readers continue to read. Slots that belong to no notice are
    /// left out, and so are readers who have asked to leave, even while it runs. Returns the number of new slots for
    /// each reader, in order. After an error some readers may be done.
    pub async fn merge_reads(&self, platform: Platform, readers: &[(UserId, Vec<Slot>)]) -> Result<Vec<u64>> {
        let merges: Vec<_> = readers.iter().map(|(user, slots)| self.merge(platform, *user, slots).boxed()).collect();
        let merged: Vec<Result<u64>> = stream::iter(merges).buffered(PARALLEL).collect().await;
        merged.into_iter().collect()
    }

    async fn merge(&self, platform: Platform, user: UserId, slots: &[Slot]) -> Result<u64> {
        let are_given = |head: &PlatformHead, _| slots.iter().all(|&slot| slot <= head.latest_slot);
        let merged = self.change((platform, user), (None, true), are_given, |head, reads, _| {
            let live: SeqSet = head.live.iter().map(|notice| notice.slot).collect();
            let slots: SeqSet = slots.iter().copied().filter(|&slot| live.contains(slot)).collect();
            reads.read = reads.read.union(&slots);
        });
        merged.await.map(|(_, marked)| marked.changed)
    }

    /// Replaces the view of a head (`user` is `None`) or of a user's read state from the facts. May be repeated.
    pub async fn sync(&self, platform: Platform, user: Option<UserId>) -> Result<()> {
        let view = match user {
            None => NoticeView::Head(platform, self.stores.facts.platform_head(platform).await?),
            Some(user) => NoticeView::Reads(user, platform, self.stores.facts.notice_reads(platform, user).await?),
        };
        self.stores.views.replace_notices(&view).await
    }

    /// Applies `change` to a read state, again after each conflict. The head's view is used if it `suffices`. With a
    /// key, the answer is written with the state. With `unless_erased` it changes nothing of a user who has asked to
    /// leave.
    async fn change(
        &self,
        (platform, user): (Platform, UserId),
        (attempt, unless_erased): (Option<&Attempt>, bool),
        suffices: impl Fn(&PlatformHead, Timestamp) -> bool,
        change: impl Fn(&PlatformHead, &mut NoticeReads, Timestamp),
    ) -> Result<(Board, NoticesMarked)> {
        let mut attempts = self.stores.attempts("mark_notice");
        loop {
            attempts.next().await?;
            let now = self.stores.clock.now();
            let (head, before) = self.state(platform, user, |head| suffices(head, now)).await?;
            let mut after = before.clone();
            change(&head, &mut after, now);
            let changed = before.read.minus(&after.read).len() + after.read.minus(&before.read).len();
            let counts = head.counts(&after.read, now);
            let mut marked = NoticesMarked { changed, counts, degraded: false };
            let written = if after == before {
                if let Some(attempt) = attempt {
                    marked = NoticesMarked::answered(&self.stores.finish(attempt, marked.answer()).await?);
                }
                Some(before)
            } else {
                let record = attempt.and_then(|attempt| attempt.done(marked.answer()));
                self.stores.facts.replace_notice_reads(user, platform, &before, after, record.as_ref(), unless_erased).await?
            };
            let Some(reads) = written else {
                if unless_erased && self.stores.facts.erasure(user).await?.is_some() {
                    let board = Board { head, read: SeqSet::default(), now, degraded: false };
                    return Ok((board, NoticesMarked { changed: 0, ..marked }));
                }
                if let Some(attempt) = attempt
                    && let Some(answer) = self.stores.answer(attempt).await?
                {
                    let board = self.board(platform, user).await?;
                    return Ok((board, NoticesMarked::answered(&answer)));
                }
                continue;
            };
            let read = reads.read.clone();
            // The view is updated even if nothing changed, because the request that changed it may have ended first.
            let degraded = !self.show(&NoticeView::Reads(user, platform, reads)).await?;
            return Ok((Board { head, read, now, degraded }, NoticesMarked { degraded, ..marked }));
        }
    }

    /// Writes a fact to its view. Returns whether Redis accepted it. If not, the projector does it later.
    async fn show(&self, view: &NoticeView) -> Result<bool> {
        let Err(error) = self.stores.views.replace_notices(view).await else { return Ok(true) };
        self.outage.instead(&error).await?;
        Ok(false)
    }
}

/// Logs why the facts are read instead of the view. Returns whether Redis is unavailable.
fn is_degraded(platform: Platform, error: &StoreError) -> bool {
    warn!(%platform, error = error as &dyn std::error::Error, "view unavailable, responding from the facts");
    error.is_unavailable()
}
