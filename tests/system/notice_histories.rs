//! Random histories of notices, compared with a model. Notices are published, changed and deleted, and expire.
//! Readers mark notices read, unread and through, on several devices at once. Time passes, and views are lost, late
//! and repeated.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tidemark::{
    Stores, SystemClock,
    domain::{NoticeId, Platform, Seq, Timestamp},
    notices::{NoticeBoard, NoticeEdited},
    ports::{Clock, NoticeView, NoticesPublished},
};
use tidemark_reconcile::{Plan, Reconcile, Segment};
use tidemark_tests::{World, user_id, world};

use crate::{
    notice_model::{Live, Model},
    notices::{board, content, platform},
};

#[derive(Clone)]
pub(crate) struct TestClock(pub Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}

struct History {
    board: NoticeBoard,
    clock: TestClock,
    platform: Platform,
    users: Vec<u64>,
    rng: StdRng,
    model: Model,
    /// Copies of earlier views.
    old: Vec<NoticeView>,
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

    async fn operate(&mut self, world: &World, step: usize) {
        let id = self.users[self.rng.random_range(0..self.users.len())];
        let seq = self.rng.random_range(1..=self.model.latest + 1);
        match self.rng.random_range(0..100) {
            0..22 => {
                let expires_at = self.expiry();
                let content = content(&format!("{step}"), expires_at);
                let published = self.board.publish(user_id(id), &[self.platform], &content, None).await.unwrap();
                let NoticesPublished::Created(created) = published else { panic!("{published:?}") };
                self.model.latest += 1;
                assert_eq!(created[0].0.id.seq, self.model.latest);
                let notice = Live { expires_at: expires_at.map(Timestamp::ms), notified: step, read_by: BTreeSet::new() };
                self.model.notices.insert(self.model.latest, notice);
            }
            22..32 => {
                let (expires_at, renotify, now) = (self.expiry(), self.rng.random(), self.now());
                let edited = self.board.edit(self.id(seq), &content("edited", expires_at), renotify).await.unwrap();
                let stands = matches!(edited, NoticeEdited::Stands(_));
                assert_eq!(stands, self.model.is_live(seq, now), "seq {seq}: {edited:?}");
                if stands {
                    let notice = self.model.notices.get_mut(&seq).unwrap();
                    notice.expires_at = expires_at.map(Timestamp::ms);
                    if renotify {
                        *notice = Live { notified: step, read_by: BTreeSet::new(), ..notice.clone() };
                    }
                }
            }
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
                self.board.mark_through(user_id(id), self.platform, seq).await.unwrap();
                let now = self.now();
                self.model.mark_through(id, seq, step, now);
            }
            64..70 => self.burst(id).await,
            70..76 => {
                self.clock.0.fetch_add(self.rng.random_range(1..20_000), Ordering::SeqCst);
            }
            76..80 => world.flush_redis().await,
            80..90 => {
                let (head, reads) = self.board.stores.notices.state(self.platform, user_id(id)).await.unwrap();
                self.old.push(NoticeView::Head(self.platform, head));
                self.old.push(NoticeView::Reads(user_id(id), self.platform, reads));
            }
            _ => self.late().await,
        }
    }

    /// Several devices of one reader at once.
    async fn burst(&mut self, id: u64) {
        let seqs: Vec<Seq> = (0..6).map(|_| self.rng.random_range(1..=self.model.latest + 1)).collect();
        join_all(seqs.iter().map(|&seq| self.board.mark(user_id(id), self.id(seq), true)))
            .await
            .into_iter()
            .for_each(|marked| drop(marked.unwrap()));
        let now = self.now();
        seqs.into_iter().for_each(|seq| self.model.mark(id, seq, true, now));
    }

    /// Stores an old view late, as a slow handler or worker would. It must change nothing.
    async fn late(&mut self) {
        let Some(view) = self.old.choose(&mut self.rng).cloned() else { return };
        match self.rng.random_range(0..3) {
            0 => self.board.stores.notice_views.replace_notices(&view).await.unwrap(),
            // Without the lease: the writer held it, and a change took it away.
            1 => self.board.stores.notice_views.fill_notices(&[view], self.rng.random()).await.unwrap(),
            _ => {
                let reader = user_id(self.users[self.rng.random_range(0..self.users.len())]);
                self.board.sync(self.platform, self.rng.random::<bool>().then_some(reader)).await.unwrap();
            }
        }
    }

    async fn compare(&mut self, seed: u64, step: usize) {
        let id = self.users[self.rng.random_range(0..self.users.len())];
        let (mut listed, mut before) = (Vec::new(), None);
        loop {
            let page = self.board.page(self.platform, user_id(id), before, 4).await.unwrap();
            assert!(!page.degraded);
            listed.extend(page.items.iter().map(|item| (item.id.seq, item.read)));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let expected = self.model.list(id, self.now());
        assert_eq!(listed, expected, "seed {seed}, after operation {step}, user {id}");
        let counts = self.board.board(self.platform, user_id(id)).await.unwrap().counts();
        let read = expected.iter().filter(|(_, read)| *read).count() as u64;
        assert_eq!((counts.unread, counts.read), (expected.len() as u64 - read, read), "seed {seed}, after operation {step}");
    }
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
            let board = board(world);
            let stores = Stores { clock: Arc::new(clock.clone()), ..(*board.stores).clone() };
            let board = NoticeBoard { stores: Arc::new(stores), ..board };
            let users = (0..4).map(|index| if index % 2 == 0 { u64::MAX - seed * 10 - index } else { seed * 10 + index + 1 });
            let mut history = History {
                board,
                clock,
                platform: platform(100 + seed as u16),
                users: users.collect(),
                rng: StdRng::seed_from_u64(seed),
                model: Model::default(),
                old: Vec::new(),
            };
            for step in 1..=OPERATIONS {
                history.operate(world, step).await;
                history.compare(seed, step).await;
            }
            let head = history.board.stores.notices.head(history.platform).await.unwrap();
            for (seq, notice) in history.model.live(history.now()) {
                let live = head.find(seq, history.clock.now()).unwrap();
                let readers = history.board.stores.notices.readers(history.platform, live.slot).await.unwrap();
                assert_eq!(readers, notice.read_by.len() as u64, "seed {seed}: readers of {seq}");
            }
            history
        }))
        .await;
        for history in &histories {
            for &id in &history.users {
                history.board.page(history.platform, user_id(id), None, 100).await.unwrap();
            }
        }
        // Histories have different clocks. A notice that one history has pruned has expired when the last history
        // ends.
        let clock = histories.into_iter().map(|history| history.clock).max_by_key(Clock::now).unwrap();
        let mut reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
        reconcile.app.stores = Arc::new(Stores { clock: Arc::new(clock), ..(*reconcile.app.stores).clone() });
        let plan = Plan { dry_run: true, share: 1.0, settle: Duration::ZERO, slice: 100_000, segment: Segment::WHOLE };
        let report = reconcile.walk(&plan, None, false, &|| false).await.unwrap().unwrap();
        assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0));
        assert!(report.looked_at >= TOGETHER * 9, "{}", report.looked_at);
    });
}
