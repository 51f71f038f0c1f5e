//! Use cases around notices: what is live, what a reader has read of it, and the views of both.
//!
//! A head and a read state are facts with a version. Their views are copies that a count reads in one round trip: filled from the facts under a lease
//! when they are missing, replaced by whoever changes the fact, and by a worker when that was not possible.

use crate::Stores;
use crate::error::{Store, StoreError};
use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, StreamExt, future::join_all, stream};
use tracing::warn;

use crate::{
    outage::Later,
    ports::{IdempotencyKey, NoticeRecord, NoticeView, NoticesPublished, Task},
};
use tidemark_domain::{
    LiveNotice, Notice, NoticeContent, NoticeCounts, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet, Slot, Timestamp,
    UserId,
};

/// Readers whose states are merged, and platforms that are changed, side by side.
const PARALLEL: usize = 16;

/// Use cases of notices. Clones share the stores.
#[derive(Clone)]
pub struct NoticeBoard {
    /// The stores.
    pub stores: Arc<Stores>,
    /// Views that a worker brings in line later.
    pub later: Later,
}

/// A platform as one reader sees it at one moment.
#[derive(Debug, Clone)]
pub struct Board {
    /// What is live.
    pub head: PlatformHead,
    /// The slots that the reader has read.
    pub read: SeqSet,
    /// The moment: what expires by then is not there.
    pub now: Timestamp,
    /// Whether Redis was away and the facts answered.
    pub degraded: bool,
}

impl Board {
    /// The reader's counts.
    pub fn counts(&self) -> NoticeCounts {
        self.head.counts(&self.read, self.now)
    }

    /// The notice, if it is live.
    pub fn find(&self, seq: Seq) -> Option<&LiveNotice> {
        self.head.find(seq, self.now)
    }

    /// Whether the reader has read it.
    pub fn is_read(&self, notice: &LiveNotice) -> bool {
        self.read.contains(notice.slot)
    }
}

/// What lists show of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeItem {
    /// Platform and sequence number.
    pub id: NoticeId,
    /// 1 to 200 characters.
    pub title: String,
    /// When it was published.
    pub created_at: Timestamp,
    /// Whether the reader has read it since it was last notified.
    pub read: bool,
}

/// A page of a platform's notices.
#[derive(Debug, Clone)]
pub struct NoticePage {
    /// Newest first. One that was deleted in this very moment may be missing.
    pub items: Vec<NoticeItem>,
    /// Where the next page goes on, exclusive; `None` at the end.
    pub next: Option<Seq>,
    /// Whether Redis was away and the facts answered.
    pub degraded: bool,
}

/// What a change of a reader's state did.
#[derive(Debug, Clone)]
pub struct NoticesMarked {
    /// The board after it.
    pub board: Board,
    /// Notices that became read or unread by it.
    pub changed: u64,
}

impl NoticeBoard {
    /// A platform as a reader sees it: one round trip when the views are there.
    ///
    /// # Errors
    /// The facts are needed and do not answer.
    pub async fn board(&self, platform: Platform, user: UserId) -> Result<Board, StoreError> {
        let now = self.stores.clock.now();
        let (outage, state) = futures::join!(self.later.outage.check(), self.stores.notice_views.notice_state(platform, user));
        let degraded = match outage.and(state) {
            Ok((Some(head), Some(read))) => return Ok(Board { head, read, now, degraded: false }),
            Ok((head, read)) => {
                let mut missing = Vec::with_capacity(2);
                missing.extend(head.is_none().then_some(NoticeRecord::Head(platform)));
                missing.extend(read.is_none().then_some(NoticeRecord::Reads(user, platform)));
                match self.fill(platform, user, &missing).await {
                    Ok((head, read)) => return Ok(Board { head, read, now, degraded: false }),
                    Err(error) if error.store() == Store::Facts => return Err(error),
                    Err(error) => is_away(platform, &error),
                }
            }
            Err(error) => is_away(platform, &error),
        };
        let (head, reads) = self.stores.notices.state(platform, user).await?;
        Ok(Board { head, read: reads.read, now, degraded })
    }

    /// Stores what is missing. Leases come before the facts are read: whatever changes or is lost after that keeps an older answer from being stored.
    async fn fill(
        &self,
        platform: Platform,
        user: UserId,
        missing: &[NoticeRecord],
    ) -> Result<(PlatformHead, SeqSet), StoreError> {
        let token = (self.stores.random)();
        let leased = self.stores.notice_views.lease_notices(missing, token).await?;
        let (head, reads) = self.stores.notices.state(platform, user).await?;
        let views: Vec<NoticeView> = leased
            .into_iter()
            .map(|record| match record {
                NoticeRecord::Head(platform) => NoticeView::Head(platform, head.clone()),
                NoticeRecord::Reads(user, platform) => NoticeView::Reads(user, platform, reads.clone()),
            })
            .collect();
        if !views.is_empty() {
            self.stores.notice_views.fill_notices(&views, token).await?;
        }
        Ok((head, reads.read))
    }

    /// One page of what is live, below `before`.
    ///
    /// # Errors
    /// The facts are needed and do not answer.
    pub async fn page(
        &self,
        platform: Platform,
        user: UserId,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<NoticePage, StoreError> {
        let board = self.board(platform, user).await?;
        let below = board.head.live_at(board.now).filter(|notice| before.is_none_or(|before| notice.seq < before));
        // One more than asked for tells whether there is a next page.
        let mut notices: Vec<LiveNotice> = below.take(limit + 1).copied().collect();
        let more = notices.len() > limit;
        notices.truncate(limit);
        let (mut titles, degraded) = self.titles(platform, &notices).await?;
        let next = notices.last().filter(|_| more).map(|notice| notice.seq);
        let items = notices.iter().filter_map(|notice| {
            let id = NoticeId { platform, seq: notice.seq };
            let (title, created_at) = titles.remove(&id)?;
            Some(NoticeItem { id, title, created_at, read: board.is_read(notice) })
        });
        Ok(NoticePage { items: items.collect(), next, degraded: board.degraded || degraded })
    }

    /// Titles and times, from the facts where Redis does not know them; whether it was away.
    async fn titles(
        &self,
        platform: Platform,
        notices: &[LiveNotice],
    ) -> Result<(HashMap<NoticeId, (String, Timestamp)>, bool), StoreError> {
        let wanted: Vec<(NoticeId, u64)> =
            notices.iter().map(|notice| (NoticeId { platform, seq: notice.seq }, notice.revision)).collect();
        let (mut titles, mut degraded) = match self.stores.notice_views.notice_titles(&wanted).await {
            Ok(titles) => (titles, false),
            Err(error) => (HashMap::new(), is_away(platform, &error)),
        };
        let missing: Vec<NoticeId> = wanted.iter().map(|(id, _)| *id).filter(|id| !titles.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok((titles, degraded));
        }
        let found: Vec<Notice> = self.stores.notices.notices(&missing).await?.into_values().collect();
        if !degraded && let Err(error) = self.stores.notice_views.remember_titles(&found).await {
            degraded = is_away(platform, &error);
        }
        titles.extend(found.into_iter().map(|notice| (notice.id, (notice.content.title, notice.created_at))));
        Ok((titles, degraded))
    }

    /// A live notice with its text, as a reader sees it, from the facts; `None` when it is not live.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn notice(&self, user: UserId, id: NoticeId) -> Result<Option<(Notice, LiveNotice, bool)>, StoreError> {
        let wanted = [id];
        let ((head, reads), mut found) =
            futures::try_join!(self.stores.notices.state(id.platform, user), self.stores.notices.notices(&wanted))?;
        let live = head.find(id.seq, self.stores.clock.now()).copied();
        let Some((live, notice)) = live.zip(found.remove(&id)) else { return Ok(None) };
        Ok(Some((notice, live, reads.read.contains(live.slot))))
    }

    /// Publishes one notice a platform.
    ///
    /// # Errors
    /// The facts do not answer, or neither Redis nor the queue does.
    pub async fn publish(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<NoticesPublished, StoreError> {
        let published = self.stores.notices.publish(user, platforms, content, idempotency, self.stores.clock.now()).await?;
        match &published {
            NoticesPublished::Created(created) => {
                let heads: Vec<NoticeView> =
                    created.iter().map(|(notice, head)| NoticeView::Head(notice.id.platform, head.clone())).collect();
                let shown = join_all(heads.iter().map(|head| self.show(head).boxed())).await;
                shown.into_iter().collect::<Result<Vec<bool>, _>>()?;
            }
            NoticesPublished::Repeated(notices) => {
                // The first request may have ended before it showed them.
                let shown = notices.iter().map(async |notice| {
                    let platform = notice.id.platform;
                    self.show(&NoticeView::Head(platform, self.stores.notices.head(platform).await?)).await?;
                    Ok::<(), StoreError>(())
                });
                join_all(shown.map(FutureExt::boxed)).await.into_iter().collect::<Result<(), _>>()?;
            }
            _ => {}
        }
        Ok(published)
    }

    /// Replaces a notice; `None` when it is not live.
    ///
    /// # Errors
    /// The facts do not answer, or neither Redis nor the queue does.
    pub async fn edit(&self, id: NoticeId, content: &NoticeContent, renotify: bool) -> Result<Option<Notice>, StoreError> {
        let Some((notice, head)) = self.stores.notices.edit(id, content, renotify, self.stores.clock.now()).await? else {
            return Ok(None);
        };
        self.show(&NoticeView::Head(id.platform, head)).await?;
        Ok(Some(notice))
    }

    /// Takes notices away. Repeatable.
    ///
    /// # Errors
    /// The facts do not answer, or neither Redis nor the queue does; some may be gone.
    pub async fn remove(&self, ids: &[NoticeId]) -> Result<(), StoreError> {
        let mut platforms: HashMap<Platform, Vec<Seq>> = HashMap::new();
        for id in ids {
            platforms.entry(id.platform).or_default().push(id.seq);
        }
        let removals: Vec<_> = platforms.into_iter().map(|(platform, seqs)| self.remove_from(platform, seqs).boxed()).collect();
        // All of them end before a failure is returned: none is cut off between its fact and the view.
        let removed: Vec<Result<(), StoreError>> = stream::iter(removals).buffer_unordered(PARALLEL).collect().await;
        removed.into_iter().collect()
    }

    async fn remove_from(&self, platform: Platform, seqs: Vec<Seq>) -> Result<(), StoreError> {
        let head = self.stores.notices.remove(platform, &seqs).await?;
        self.show(&NoticeView::Head(platform, head)).await?;
        Ok(())
    }

    /// Marks one notice read, or unread again; `None` when it is not live.
    ///
    /// # Errors
    /// The facts do not answer, or neither Redis nor the queue does.
    pub async fn mark(&self, user: UserId, id: NoticeId, read: bool) -> Result<Option<NoticesMarked>, StoreError> {
        let marked = self.change(id.platform, user, |head, reads, now| {
            if let Some(notice) = head.find(id.seq, now) {
                reads.read.set(notice.slot, read);
            }
        });
        let marked = marked.await?;
        Ok(marked.board.find(id.seq).is_some().then_some(marked))
    }

    /// Marks everything up to a sequence number read (see [`NoticeReads::mark_through`]).
    ///
    /// # Errors
    /// The facts do not answer, or neither Redis nor the queue does.
    pub async fn mark_through(&self, user: UserId, platform: Platform, seq: Seq) -> Result<NoticesMarked, StoreError> {
        self.change(platform, user, |head, reads, now| reads.mark_through(head, seq, now)).await
    }

    /// Merges slots that readers of one platform have read elsewhere into their states: a union, so that it may be repeated, interrupted, and run while they
    /// read on. Slots of no live notice are left out. Answers how many were new, reader by reader, in order.
    ///
    /// # Errors
    /// The facts do not answer, or neither Redis nor the queue does; some readers may be done.
    pub async fn merge_reads(&self, platform: Platform, readers: &[(UserId, Vec<Slot>)]) -> Result<Vec<u64>, StoreError> {
        let merges: Vec<_> = readers.iter().map(|(user, slots)| self.merge(platform, *user, slots).boxed()).collect();
        let merged: Vec<Result<u64, StoreError>> = stream::iter(merges).buffered(PARALLEL).collect().await;
        merged.into_iter().collect()
    }

    async fn merge(&self, platform: Platform, user: UserId, slots: &[Slot]) -> Result<u64, StoreError> {
        let merged = self.change(platform, user, |head, reads, _| {
            let live: SeqSet = head.live.iter().map(|notice| notice.slot).collect();
            let slots: SeqSet = slots.iter().copied().filter(|&slot| live.contains(slot)).collect();
            reads.read = reads.read.union(&slots);
        });
        merged.await.map(|marked| marked.changed)
    }

    /// How many users have read a notice since it was last notified.
    ///
    /// # Errors
    /// The facts do not answer.
    pub async fn readers(&self, platform: Platform, notice: &LiveNotice) -> Result<u64, StoreError> {
        self.stores.notices.readers(platform, notice.slot).await
    }

    /// Makes the view of a head, or of what a user has read, agree with the facts.
    ///
    /// # Errors
    /// Facts or Redis do not answer; to be repeated.
    pub async fn sync(&self, platform: Platform, user: Option<UserId>) -> Result<(), StoreError> {
        let view = match user {
            None => NoticeView::Head(platform, self.stores.notices.head(platform).await?),
            Some(user) => NoticeView::Reads(user, platform, self.stores.notices.state(platform, user).await?.1),
        };
        self.stores.notice_views.replace_notices(&view).await
    }

    /// Applies `change` to what a user has read, as often as others come in between. Nothing is written when it changes nothing.
    async fn change(
        &self,
        platform: Platform,
        user: UserId,
        change: impl Fn(&PlatformHead, &mut NoticeReads, Timestamp),
    ) -> Result<NoticesMarked, StoreError> {
        let mut retries = self.stores.retries();
        loop {
            let now = self.stores.clock.now();
            let (head, stored) = self.stores.notices.state(platform, user).await?;
            // Of slots that nobody has any more no count is kept, and no trace in what is written.
            let before = stored.without_dead(&head);
            let mut after = before.clone();
            change(&head, &mut after, now);
            let changed = before.read.minus(&after.read).len() + after.read.minus(&before.read).len();
            let written = if after == before {
                Some(before)
            } else {
                self.stores.notices.put_reads(user, platform, &before, after).await?
            };
            let Some(reads) = written else {
                if retries.again().await {
                    continue;
                }
                return Err(StoreError::Contention { operation: "mark_notice" });
            };
            let read = reads.read.clone();
            // Also when nothing changed: whoever changed it may have been cut off before this.
            let shown = self.show(&NoticeView::Reads(user, platform, reads)).await?;
            return Ok(NoticesMarked { board: Board { head, read, now, degraded: !shown }, changed });
        }
    }

    /// Shows a fact in its view; whether Redis took it. If Redis is unavailable, a task does it later.
    async fn show(&self, view: &NoticeView) -> Result<bool, StoreError> {
        let Err(error) = self.stores.notice_views.replace_notices(view).await else { return Ok(true) };
        let (platform, user) = match view.record() {
            NoticeRecord::Head(platform) => (platform, None),
            NoticeRecord::Reads(user, platform) => (platform, Some(user)),
        };
        self.later.instead(&error, &[Task::Notices { platform, user, tries: 0 }]).await?;
        Ok(false)
    }
}

/// Logs why the facts answer instead of the view; whether Redis is away.
fn is_away(platform: Platform, error: &StoreError) -> bool {
    warn!(%platform, error = error as &dyn std::error::Error, "view unavailable, answering from the facts");
    error.is_unavailable()
}
