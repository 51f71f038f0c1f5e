//! Random histories of notices, compared with a model. Notices are published, changed and deleted, and expire.
//! Readers mark notices read, unread and through, on several devices at once. Time passes, and views are lost, late
//! and repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tidemark::{
    App, Clock, Stores, SystemClock,
    domain::{IdempotencyKey, NoticeContent, NoticeCounts, NoticeId, Platform, Seq, Timestamp},
    facts::{KeyedEdit, NoticesPublished},
    notices::{NoticeBoard, NoticeRange, NoticesEdited, NoticesMarked},
    once::Once,
    reader::Status,
    views::NoticeView,
};
use tidemark_reconcile_lib::{Plan, Reconcile};
use tidemark_tests::{World, user_id, world};

use crate::notices::{content, patient, platform};

#[derive(Clone)]
pub(crate) struct TestClock(pub Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}

#[derive(Default)]
pub(crate) struct Notice {
    expires_at: Option<u64>,
    /// The operation that published the notice or gave it a new slot.
    notified: usize,
    pub(crate) read_by: BTreeSet<u64>,
}

/// The expected state of the notices of one platform. Times are milliseconds.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) latest: Seq,
    /// Those that are not deleted.
    pub(crate) notices: BTreeMap<Seq, Notice>,
    /// For each reader, the highest marked notice, and the operation that marked it.
    through: BTreeMap<u64, (Seq, usize)>,
}

impl Model {
    fn live(&self, now: u64) -> impl DoubleEndedIterator<Item = (Seq, &Notice)> {
        let live = self.notices.iter().filter(move |(_, notice)| notice.expires_at.is_none_or(|at| at > now));
        live.map(|(&seq, notice)| (seq, notice))
    }

    pub(crate) fn is_live(&self, seq: Seq, now: u64) -> bool {
        self.live(now).any(|(live, _)| live == seq)
    }

    /// The live notices, newest first, and true for each that the user has read.
    pub(crate) fn list(&self, user: u64, now: u64) -> Vec<(Seq, bool)> {
        self.live(now).rev().map(|(seq, notice)| (seq, notice.read_by.contains(&user))).collect()
    }

    /// The unread and the read notices.
    pub(crate) fn counts(&self, user: u64, now: u64) -> (u64, u64) {
        let (read, unread): (Vec<_>, Vec<_>) = self.live(now).partition(|(_, notice)| notice.read_by.contains(&user));
        (unread.len() as u64, read.len() as u64)
    }

    pub(crate) fn publish(&mut self, expires_at: Option<u64>, step: usize) {
        self.latest += 1;
        self.notices.insert(self.latest, Notice { expires_at, notified: step, ..Notice::default() });
    }

    /// Edits a notice. With `renotified`, that operation gives it a new slot.
    pub(crate) fn edit(&mut self, seq: Seq, expires_at: Option<u64>, renotified: Option<usize>) {
        let Some(notice) = self.notices.get_mut(&seq) else { return };
        notice.expires_at = expires_at;
        if let Some(step) = renotified {
            *notice = Notice { expires_at, notified: step, ..Notice::default() };
        }
    }

    pub(crate) fn mark(&mut self, user: u64, seq: Seq, read: bool, now: u64) {
        if self.is_live(seq, now) {
            let readers = &mut self.notices.get_mut(&seq).unwrap().read_by;
            _ = if read { readers.insert(user) } else { readers.remove(&user) };
        }
    }

    pub(crate) fn mark_through(&mut self, user: u64, seq: Seq, step: usize, now: u64) {
        let seq = seq.min(self.latest);
        let (reached, when) = self.through.get(&user).copied().unwrap_or_default();
        for (_, notice) in self.notices.range_mut(..=seq).filter(|(_, notice)| notice.expires_at.is_none_or(|at| at > now)) {
            if seq >= reached || notice.notified > when {
                notice.read_by.insert(user);
            }
        }
        if seq >= reached {
            self.through.insert(user, (seq, step));
        }
    }
}

struct History {
    board: NoticeBoard,
    stores: Arc<Stores>,
    clock: TestClock,
    platform: Platform,
    users: Vec<u64>,
    rng: StdRng,
    model: Model,
    /// Copies of earlier views.
    old: Vec<NoticeView>,
    /// Requests with idempotency keys.
    keyed: Vec<Keyed>,
}

/// A request with an idempotency key, and the outcome that the model knows of.
#[derive(Clone)]
struct Keyed {
    user: u64,
    key: IdempotencyKey,
    request: Request,
}

#[derive(Clone)]
enum Request {
    Edit { id: NoticeId, content: NoticeContent, renotify: bool },
    Through { seq: Seq, changed: u64, counts: NoticeCounts },
}

impl History {
    fn now(&self) -> u64 {
        self.clock.now().ms()
    }

    fn id(&self, seq: Seq) -> NoticeId {
        NoticeId { platform: self.platform, seq }
    }

    fn expiry(&mut self) -> Option<Timestamp> {
        let after = self.rng.random_range(1..40_000);
        self.rng.random_bool(0.4).then(|| Timestamp::from_ms(self.now() + after))
    }

    /// A new key for every second request.
    fn key(&mut self) -> Option<IdempotencyKey> {
        let key = format!("{:x}", self.rng.random::<u64>());
        self.rng.random::<bool>().then(|| IdempotencyKey { fingerprint: key.clone(), key })
    }

    async fn operate(&mut self, world: &World, step: usize) {
        let id = self.users[self.rng.random_range(0..self.users.len())];
        let seq = self.rng.random_range(1..=self.model.latest + 1);
        match self.rng.random_range(0..100) {
            0..22 => {
                let expires_at = self.expiry();
                let content = content(&format!("{step}"), expires_at);
                let published = self.board.publish(user_id(id), &[self.platform], &content, None).await.unwrap();
                let NoticesPublished::Created(created) = published else { panic!("{published:?}") };
                self.model.publish(expires_at.map(Timestamp::ms), step);
                assert_eq!(created[0].0.id.seq, self.model.latest);
            }
            22..28 => self.edit(id, seq, step).await,
            28..32 => self.edit_several(step).await,
            32..37 => {
                self.board.remove(&[self.id(seq), self.id(seq + 3)]).await.unwrap();
                self.model.notices.remove(&seq);
                self.model.notices.remove(&(seq + 3));
            }
            37..57 => {
                let (read, now) = (self.rng.random_bool(0.7), self.now());
                let marked = self.board.mark(user_id(id), self.id(seq), read).await.unwrap();
                assert_eq!(marked.is_some(), self.model.is_live(seq, now), "seq {seq}");
                self.model.mark(id, seq, read, now);
            }
            57..64 => {
                let key = self.key();
                let marked = self.board.mark_through(user_id(id), self.platform, seq, key.as_ref()).await.unwrap();
                let Once::Done(NoticesMarked { changed, counts, .. }) = marked else { panic!("{marked:?}") };
                self.model.mark_through(id, seq, step, self.now());
                self.keyed.extend(key.map(|key| Keyed { user: id, key, request: Request::Through { seq, changed, counts } }));
            }
            64..70 => self.burst(id).await,
            70..76 => {
                self.clock.0.fetch_add(self.rng.random_range(1..20_000), Ordering::SeqCst);
            }
            76..80 => world.flush_redis().await,
            80..85 => self.repeat().await,
            85..90 => {
                let (head, reads) = self.stores.facts.notice_state(self.platform, user_id(id)).await.unwrap();
                self.old.push(NoticeView::Head(self.platform, head));
                self.old.push(NoticeView::Reads(user_id(id), self.platform, reads));
            }
            _ => self.late().await,
        }
    }

    async fn edit(&mut self, user: u64, seq: Seq, step: usize) {
        let (id, expires_at, renotify, now) = (self.id(seq), self.expiry(), self.rng.random::<bool>(), self.now());
        let (key, content) = (self.key(), content(&format!("edited in {step}"), expires_at));
        let once = key.as_ref().map(|key| once(user, key));
        let edited = self.board.edit(&[id], &content, renotify, once).await.unwrap();
        let stands = matches!(edited, NoticesEdited::Stand(_));
        assert_eq!(stands, self.model.is_live(seq, now), "seq {seq}: {edited:?}");
        if stands {
            self.model.edit(seq, expires_at.map(Timestamp::ms), renotify.then_some(step));
            self.keyed.extend(key.map(|key| Keyed { user, key, request: Request::Edit { id, content, renotify } }));
        }
    }

    /// Edits several notices, all of them or none.
    async fn edit_several(&mut self, step: usize) {
        let (expires_at, renotify, now) = (self.expiry(), self.rng.random::<bool>(), self.now());
        let seqs: BTreeSet<Seq> = (0..3).map(|_| self.rng.random_range(1..=self.model.latest + 1)).collect();
        let ids: Vec<NoticeId> = seqs.iter().rev().map(|&seq| self.id(seq)).collect();
        let content = content(&format!("edited in {step}"), expires_at);
        let edited = self.board.edit(&ids, &content, renotify, None).await.unwrap();
        let all_live = seqs.iter().all(|&seq| self.model.is_live(seq, now));
        match edited {
            NoticesEdited::Stand(notices) => assert!(all_live && notices.iter().map(|notice| notice.id).eq(ids)),
            edited => assert!(!all_live && matches!(edited, NoticesEdited::Unknown(_)), "{seqs:?}: {edited:?}"),
        }
        for seq in seqs.into_iter().filter(|_| all_live) {
            self.model.edit(seq, expires_at.map(Timestamp::ms), renotify.then_some(step));
        }
    }

    /// Sends an earlier request again. It gets the first response, and changes nothing.
    async fn repeat(&mut self) {
        let Some(Keyed { user, key, request }) = self.keyed.choose(&mut self.rng).cloned() else { return };
        match request {
            Request::Edit { id, content, renotify } => {
                let edited = self.board.edit(&[id], &content, renotify, Some(once(user, &key))).await.unwrap();
                let is_first =
                    matches!(&edited, NoticesEdited::Stand(notices) if notices[0].id == id && notices[0].content == content);
                assert!(is_first, "{id}, again: {edited:?}");
            }
            Request::Through { seq, changed, counts } => {
                let marked = self.board.mark_through(user_id(user), self.platform, seq, Some(&key)).await.unwrap();
                let Once::Done(marked) = marked else { panic!("{marked:?}") };
                assert_eq!((marked.changed, marked.counts), (changed, counts), "through {seq}, again");
            }
        }
    }

    /// Several devices of one reader at once.
    async fn burst(&mut self, id: u64) {
        let seqs: Vec<Seq> = (0..6).map(|_| self.rng.random_range(1..=self.model.latest + 1)).collect();
        let marked = join_all(seqs.iter().map(|&seq| self.board.mark(user_id(id), self.id(seq), true))).await;
        assert!(marked.iter().all(Result::is_ok), "{marked:?}");
        let now = self.now();
        seqs.into_iter().for_each(|seq| self.model.mark(id, seq, true, now));
    }

    /// Stores an old view late, as a slow handler or worker would. It must change nothing.
    async fn late(&mut self) {
        let Some(view) = self.old.choose(&mut self.rng).cloned() else { return };
        match self.rng.random_range(0..3) {
            0 => self.stores.views.replace_notices(&view).await.unwrap(),
            // Without the lease: the writer held it, and a change took it away.
            1 => self.stores.views.fill_notices(&[view], self.rng.random()).await.unwrap(),
            _ => {
                let reader = user_id(self.users[self.rng.random_range(0..self.users.len())]);
                self.board.sync(self.platform, self.rng.random::<bool>().then_some(reader)).await.unwrap();
            }
        }
    }

    async fn compare(&mut self, seed: u64, step: usize) {
        let id = self.users[self.rng.random_range(0..self.users.len())];
        for status in [Status::All, Status::Unread] {
            let (mut listed, mut before) = (Vec::new(), None);
            loop {
                let range = NoticeRange { status, with_bodies: status == Status::Unread, ..all(before, 4) };
                let page = self.board.page(self.platform, user_id(id), &range).await.unwrap();
                assert!(!page.degraded);
                listed.extend(page.items.iter().map(|item| (item.id.seq, item.read)));
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            let mut expected = self.model.list(id, self.now());
            expected.retain(|(_, read)| status == Status::All || !read);
            assert_eq!(listed, expected, "seed {seed}, after operation {step}, user {id}, {status:?}");
        }
        let counts = self.board.board(self.platform, user_id(id)).await.unwrap().counts();
        let expected = self.model.counts(id, self.now());
        assert_eq!((counts.unread, counts.read), expected, "seed {seed}, after operation {step}");
    }
}

fn once(user: u64, key: &IdempotencyKey) -> KeyedEdit<'_> {
    KeyedEdit { user: user_id(user), operation: "notice-edit", key }
}

/// A page of all notices, without their texts.
fn all(before: Option<Seq>, limit: usize) -> NoticeRange {
    NoticeRange { status: Status::All, before, limit, with_bodies: false }
}

#[test]
fn random_histories_of_notices_end_in_agreement_with_the_model() {
    const TOGETHER: u64 = 12;
    const OPERATIONS: usize = 150;
    world(async |world| {
        println!("histories with seeds 0 to {}", TOGETHER - 1);
        let histories = join_all((0..TOGETHER).map(async |seed| {
            // Ahead of the real time, so that DynamoDB removes no item that has not expired by this clock.
            let clock = TestClock(Arc::new(AtomicU64::new(SystemClock.now().ms() + 3_600_000)));
            let app = patient(world);
            let stores = Arc::new(Stores { clock: Arc::new(clock.clone()), ..(*app.stores).clone() });
            let board = App::new(app.settings, stores.clone()).notices;
            let users = (0..4).map(|index| if index % 2 == 0 { u64::MAX - seed * 10 - index } else { seed * 10 + index + 1 });
            let mut history = History {
                board,
                stores,
                clock,
                platform: platform(100 + seed as u16),
                users: users.collect(),
                rng: StdRng::seed_from_u64(seed),
                model: Model::default(),
                old: Vec::new(),
                keyed: Vec::new(),
            };
            for step in 1..=OPERATIONS {
                history.operate(world, step).await;
                history.compare(seed, step).await;
            }
            let head = history.stores.facts.platform_head(history.platform).await.unwrap();
            for (seq, notice) in history.model.live(history.now()) {
                let live = head.find(seq, history.clock.now()).unwrap();
                let readers = history.stores.facts.notice_readers(history.platform, live.slot).await.unwrap();
                assert_eq!(readers, notice.read_by.len() as u64, "seed {seed}: readers of {seq}");
            }
            history
        }))
        .await;
        for history in &histories {
            for &id in &history.users {
                history.board.page(history.platform, user_id(id), &all(None, 100)).await.unwrap();
            }
        }
        // Histories have different clocks. A notice that one history has pruned has expired when the last history
        // ends.
        let clock = histories.into_iter().map(|history| history.clock).max_by_key(Clock::now).unwrap();
        let mut reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
        reconcile.app.stores = Arc::new(Stores { clock: Arc::new(clock), ..(*reconcile.app.stores).clone() });
        let plan = Plan { dry_run: true, share: 1.0, settle: Duration::ZERO, slice: 100_000, ..Plan::default() };
        let report = reconcile.walk(&plan, None, false, &|| false).await.unwrap().unwrap();
        assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0));
        assert!(report.looked_at >= TOGETHER * 9, "{}", report.looked_at);
    });
}
