//! Use cases of notices: the live notices of a platform, the read state of a reader, and the views of both.
//!
//! A head and a read state are facts with a version, and their views are copies. A missing view is filled from the
//! facts under a lease. The request that changes a fact replaces its view, or a worker does.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::join_all, stream};
use tidemark_domain::{
    IdempotencyKey, LiveNotice, Notice, NoticeContent, NoticeCounts, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet,
    Slot, Store, StoreError, Timestamp, UserId, store::Result,
};
use tidemark_facts::{KeyedEdit, NoticesPublished, NoticesWritten};
use tidemark_views::{NoticeRecord, NoticeView, Notified};
use tracing::warn;

use crate::{
    PARALLEL, Stores, cut, in_parallel, live,
    once::{Attempt, Begun, Once},
    outage::Outage,
    reader::{Status, shorten},
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

/// A page of the live notices of a platform.
#[derive(Debug, Clone, Copy)]
pub struct NoticeRange {
    pub status: Status,
    /// The page begins below this number.
    pub before: Option<Seq>,
    pub limit: usize,
    /// Whether the items have their texts. The page then ends before these are longer than
    /// [`MOST_TEXT`](crate::reader::MOST_TEXT) together.
    pub with_bodies: bool,
}

/// A notice as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeItem {
    pub id: NoticeId,
    pub title: String,
    pub created_at: Timestamp,
    /// Whether the reader has read the notice's current slot.
    pub read: bool,
    pub expires_at: Option<Timestamp>,
    /// The text; `None` if the page has no texts.
    pub body: Option<Option<String>>,
}

/// What a page shows of a notice in one revision.
struct NoticeText {
    title: String,
    created_at: Timestamp,
    body: Option<Option<String>>,
}

#[derive(Debug, Clone)]
pub struct NoticePage {
    /// Newest first. A notice that is deleted during the read may be missing.
    pub items: Vec<NoticeItem>,
    /// The next page begins below this number; `None` at the end.
    pub next: Option<Seq>,
    pub degraded: bool,
}

/// The outcome of a request to replace notices.
#[derive(Debug, Clone, PartialEq)]
pub enum NoticesEdited {
    /// The notices, in the order of the request.
    Stand(Vec<Notice>),
    /// An earlier request with the same key edited something else.
    KeyReused,
    /// The notices would expire before they are replaced. Nothing is changed.
    Expired,
    /// This notice is not live. Nothing is changed.
    Unknown(NoticeId),
}

#[derive(Debug, Clone, Copy)]
pub struct NoticesMarked {
    /// The number of notices that the change made read or unread.
    pub changed: u64,
    pub counts: NoticeCounts,
    pub degraded: bool,
}

impl NoticeText {
    fn bytes(&self) -> usize {
        self.body.iter().flatten().map(String::len).sum()
    }
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

    /// Returns a user's counts on several platforms, in their order, and whether any of them came from the facts.
    pub async fn counts(&self, platforms: &[Platform], user: UserId) -> Result<(Vec<NoticeCounts>, bool)> {
        let boards = platforms.iter().map(|&platform| self.board(platform, user).boxed()).collect::<Vec<_>>();
        let boards: Vec<Result<Board>> = stream::iter(boards).buffered(PARALLEL).collect().await;
        let boards = boards.into_iter().collect::<Result<Vec<Board>>>()?;
        Ok((boards.iter().map(Board::counts).collect(), boards.iter().any(|board| board.degraded)))
    }

    /// Returns one page of live notices.
    pub async fn page(&self, platform: Platform, user: UserId, range: &NoticeRange) -> Result<NoticePage> {
        let &NoticeRange { status, before, limit, with_bodies } = range;
        let board = self.board(platform, user).await?;
        let is_wanted = |notice: &&LiveNotice| {
            let is_shown = status == Status::All || !board.read.contains(notice.slot);
            is_shown && before.is_none_or(|before| notice.seq < before)
        };
        // One more than requested shows whether there is a next page.
        let mut notices: Vec<LiveNotice> = board.head.live_at(board.now).filter(is_wanted).take(limit + 1).copied().collect();
        let mut next = cut(&mut notices, limit).map(|last| last.seq);
        let (mut texts, degraded) = self.texts(platform, &notices, with_bodies).await?;
        if shorten(&mut notices, |notice| texts.get(&NoticeId { platform, seq: notice.seq }).map_or(0, NoticeText::bytes)) {
            next = notices.last().map(|last| last.seq);
        }
        let items = notices.iter().filter_map(|notice| {
            let id = NoticeId { platform, seq: notice.seq };
            let NoticeText { title, created_at, body } = texts.remove(&id)?;
            let read = board.read.contains(notice.slot);
            Some(NoticeItem { id, title, created_at, read, expires_at: notice.expires_at, body })
        });
        Ok(NoticePage { items: items.collect(), next, degraded: board.degraded || degraded })
    }

    /// Returns titles, times and, if wanted, texts, from the facts if Redis does not have them, and whether Redis was
    /// unavailable.
    async fn texts(
        &self,
        platform: Platform,
        notices: &[LiveNotice],
        with_bodies: bool,
    ) -> Result<(HashMap<NoticeId, NoticeText>, bool)> {
        let wanted: Vec<(NoticeId, u64)> =
            notices.iter().map(|notice| (NoticeId { platform, seq: notice.seq }, notice.revision)).collect();
        let (mut texts, mut degraded) = match self.known_texts(&wanted, with_bodies).await {
            Ok(texts) => (texts, false),
            Err(error) => (HashMap::new(), is_degraded(platform, &error)),
        };
        let missing: Vec<(NoticeId, u64)> = wanted.into_iter().filter(|(id, _)| !texts.contains_key(id)).collect();
        if missing.is_empty() {
            return Ok((texts, degraded));
        }
        let found: Vec<Notice> = self.stores.facts.notices_at(&missing).await?.into_values().collect();
        if !degraded && let Err(error) = self.remember(&found, with_bodies).await {
            degraded = is_degraded(platform, &error);
        }
        texts.extend(found.into_iter().map(|Notice { id, created_at, content, .. }| {
            (id, NoticeText { title: content.title, created_at, body: with_bodies.then_some(content.body) })
        }));
        Ok((texts, degraded))
    }

    /// Returns what Redis has of these notices. Those that lack a title, or a text that is wanted, are left out.
    async fn known_texts(&self, wanted: &[(NoticeId, u64)], with_bodies: bool) -> Result<HashMap<NoticeId, NoticeText>> {
        let bodies = async { if with_bodies { self.stores.views.notice_bodies(wanted).await } else { Ok(HashMap::new()) } };
        let (titles, mut bodies) = futures::try_join!(self.stores.views.notice_titles(wanted), bodies)?;
        let known = titles.into_iter().filter_map(|(id, (title, created_at))| {
            let body = bodies.remove(&id);
            (body.is_some() || !with_bodies).then_some((id, NoticeText { title, created_at, body }))
        });
        Ok(known.collect())
    }

    async fn remember(&self, notices: &[Notice], with_bodies: bool) -> Result<()> {
        let bodies = async { if with_bodies { self.stores.views.remember_notice_bodies(notices).await } else { Ok(()) } };
        futures::try_join!(self.stores.views.remember_titles(notices), bodies).map(drop)
    }

    /// Returns a live notice with its text, and whether the reader has read it; `None` if it is not live.
    pub async fn notice(&self, user: UserId, id: NoticeId) -> Result<Option<(Notice, LiveNotice, bool)>> {
        let (wanted, now) = ([id], self.stores.clock.now());
        let state = self.state(id.platform, user, |head| head.find(id.seq, now).is_some());
        let ((head, reads), mut found) = futures::try_join!(state, self.stores.facts.notices(&wanted))?;
        let live = head.find(id.seq, now).copied();
        if let Some(live) = live {
            self.stores.facts.read_pending_edits(&mut found, &[(id, live.revision)]).await?;
        }
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
        let heads = match &published {
            NoticesPublished::Created(created) => {
                created.iter().map(|(notice, head)| (notice.id.platform, head.clone())).collect()
            }
            // The first request may have ended before it updated the views.
            NoticesPublished::Repeated(_) => self.stores.facts.platform_heads(platforms).await?,
            NoticesPublished::KeyReused | NoticesPublished::Expired | NoticesPublished::Full(_) => HashMap::new(),
        };
        self.show_heads(heads).await?;
        Ok(published)
    }

    /// Replaces live notices of at most 32 platforms, all of them or none, with a key once.
    pub async fn edit(
        &self,
        ids: &[NoticeId],
        content: &NoticeContent,
        renotify: bool,
        once: Option<KeyedEdit<'_>>,
    ) -> Result<NoticesEdited> {
        let now = self.stores.clock.now();
        let (notices, heads) = match self.stores.facts.edit_notices(ids, content, renotify, once, now).await? {
            NoticesWritten::Edited(notices, heads) => (notices, heads.into_iter().collect()),
            NoticesWritten::Repeated(notices) => {
                // The first request may have ended before it updated the views.
                let platforms: BTreeSet<Platform> = ids.iter().map(|id| id.platform).collect();
                let platforms: Vec<Platform> = platforms.into_iter().collect();
                (notices, self.stores.facts.platform_heads(&platforms).await?)
            }
            NoticesWritten::KeyReused => return Ok(NoticesEdited::KeyReused),
            NoticesWritten::Expired => return Ok(NoticesEdited::Expired),
            NoticesWritten::Unknown(id) => return Ok(NoticesEdited::Unknown(id)),
        };
        self.show_heads(heads).await?;
        let by_id: HashMap<NoticeId, &Notice> = notices.iter().map(|notice| (notice.id, notice)).collect();
        Ok(NoticesEdited::Stand(ids.iter().filter_map(|id| by_id.get(id).map(|&notice| notice.clone())).collect()))
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
        self.tell(user).await;
        Ok(board.find(id.seq).map(|_| marked))
    }

    /// Has the user's live connections told of the user's own mark. It does not fail: the next ping tells them too.
    async fn tell(&self, user: UserId) {
        let notified = async {
            if self.stores.views.names_platforms(user).await? {
                self.stores.views.notify(&[user], None).await
            } else {
                Ok(Notified::default())
            }
        };
        let notified = logged!(notified.await, "connections are told of a mark after the next ping", %user);
        if let Some(notified) = notified {
            live::announce(&self.stores, notified).await;
        }
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
        let (_, marked) = marked.await?;
        self.tell(user).await;
        Ok(Once::Done(marked))
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

    /// Writes heads to their views. All of them are tried, even if one fails.
    async fn show_heads(&self, heads: HashMap<Platform, PlatformHead>) -> Result<()> {
        let heads: Vec<NoticeView> = heads.into_iter().map(|(platform, head)| NoticeView::Head(platform, head)).collect();
        let shown = join_all(heads.iter().map(|head| self.show(head).boxed())).await;
        shown.into_iter().try_for_each(|shown| shown.map(drop))
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
