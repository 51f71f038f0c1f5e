//! Notices against everything unlucky: late, repeated and lost views, Redis away, races, interrupted and very large changes, time passing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use tidemark::{
    SystemClock,
    domain::{
        LiveNotice, NoticeContent, NoticeId, NoticeReads, Platform, PlatformHead, Seq, Timestamp, UserId, notices::MAX_LIVE,
    },
    facts::schema,
    notices::NoticeBoard,
    ports::{Clock, NoticeRecord, NoticeView, NoticesPublished},
    views::keys,
};
use tidemark_local::RedisData;
use tidemark_tests::{Answer, User, World, world};

/// A clock that the test moves.
#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.load(Ordering::SeqCst))
    }
}

fn board(world: &World) -> NoticeBoard {
    world.stack.app("notice").unwrap().notices.clone()
}

fn administrator(world: &World) -> User {
    world.stranger(Some("900 notices:write"))
}

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

fn content(title: &str, expires_at: Option<Timestamp>) -> NoticeContent {
    NoticeContent { title: title.to_owned(), body: None, expires_at }
}

fn platform(number: u16) -> Platform {
    Platform::new(number).unwrap()
}

async fn counts(user: &User, platform: u16) -> Answer {
    user.get(&format!("/v1/notices/unread?platform={platform}")).await
}

/// A head as a fact, without a notice behind it: what would take thousands of requests.
async fn put_head(world: &World, platform: Platform, head: &PlatformHead) {
    let number = |value: u64| AttributeValue::N(value.to_string());
    let mut item = schema::platform_head(platform);
    item.extend([
        ("version".to_owned(), number(head.version)),
        ("latest_seq".to_owned(), number(head.latest_seq)),
        ("latest_slot".to_owned(), number(head.latest_slot)),
        ("latest_at".to_owned(), number(head.latest_at.ms())),
        ("live".to_owned(), AttributeValue::B(Blob::new(head.encode_live()))),
    ]);
    world.dynamodb().await.put_item().table_name("NoticesTable").set_item(Some(item)).send().await.unwrap();
}

// ---- random histories ------------------------------------------------------

#[derive(Clone)]
struct Live {
    expires_at: Option<u64>,
    /// The operation that published it or notified again.
    notified: usize,
    read_by: BTreeSet<u64>,
}

/// What one platform must answer.
#[derive(Default)]
struct Model {
    latest: Seq,
    notices: BTreeMap<Seq, Live>,
    /// How far each reader has marked, and in which operation.
    through: BTreeMap<u64, (Seq, usize)>,
}

impl Model {
    fn live(&self, now: u64) -> impl DoubleEndedIterator<Item = (Seq, &Live)> {
        let live = self.notices.iter().filter(move |(_, notice)| notice.expires_at.is_none_or(|at| at > now));
        live.map(|(&seq, notice)| (seq, notice))
    }

    fn is_live(&self, seq: Seq, now: u64) -> bool {
        self.live(now).any(|(live, _)| live == seq)
    }

    fn list(&self, user: u64, now: u64) -> Vec<(Seq, bool)> {
        self.live(now).rev().map(|(seq, notice)| (seq, notice.read_by.contains(&user))).collect()
    }

    fn mark(&mut self, user: u64, seq: Seq, read: bool, now: u64) {
        if !self.is_live(seq, now) {
            return;
        }
        let readers = &mut self.notices.get_mut(&seq).unwrap().read_by;
        if read {
            readers.insert(user)
        } else {
            readers.remove(&user)
        };
    }

    fn mark_through(&mut self, user: u64, seq: Seq, step: usize, now: u64) {
        let seq = seq.min(self.latest);
        let (reached, when) = self.through.get(&user).copied().unwrap_or_default();
        let live: Vec<Seq> = self.live(now).map(|(seq, _)| seq).filter(|&live| live <= seq).collect();
        for live in live {
            let notice = self.notices.get_mut(&live).unwrap();
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
    clock: TestClock,
    platform: Platform,
    users: Vec<u64>,
    rng: StdRng,
    model: Model,
    /// Views as they once were.
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
                let published = self.board.publish(user(id), &[self.platform], &content, None).await.unwrap();
                let NoticesPublished::Created(created) = published else { panic!("{published:?}") };
                self.model.latest += 1;
                assert_eq!(created[0].0.id.seq, self.model.latest);
                let notice = Live { expires_at: expires_at.map(Timestamp::ms), notified: step, read_by: BTreeSet::new() };
                self.model.notices.insert(self.model.latest, notice);
            }
            22..32 => {
                let (expires_at, renotify, now) = (self.expiry(), self.rng.random(), self.now());
                let edited = self.board.edit(self.id(seq), &content("edited", expires_at), renotify).await.unwrap();
                assert_eq!(edited.is_some(), self.model.is_live(seq, now), "seq {seq}");
                if edited.is_some() {
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
                let marked = self.board.mark(user(id), self.id(seq), read).await.unwrap();
                assert_eq!(marked.is_some(), self.model.is_live(seq, now), "seq {seq}");
                self.model.mark(id, seq, read, now);
            }
            57..64 => {
                self.board.mark_through(user(id), self.platform, seq).await.unwrap();
                let now = self.now();
                self.model.mark_through(id, seq, step, now);
            }
            64..70 => self.burst(id).await,
            70..76 => {
                self.clock.0.fetch_add(self.rng.random_range(1..20_000), Ordering::SeqCst);
            }
            76..80 => world.flush_redis().await,
            80..90 => {
                let (head, reads) = self.board.facts.state(self.platform, user(id)).await.unwrap();
                self.old.push(NoticeView::Head(self.platform, head));
                self.old.push(NoticeView::Reads(user(id), self.platform, reads));
            }
            _ => self.late().await,
        }
    }

    /// Several devices of one reader at once.
    async fn burst(&mut self, id: u64) {
        let seqs: Vec<Seq> = (0..6).map(|_| self.rng.random_range(1..=self.model.latest + 1)).collect();
        join_all(seqs.iter().map(|&seq| self.board.mark(user(id), self.id(seq), true)))
            .await
            .into_iter()
            .for_each(|marked| drop(marked.unwrap()));
        let now = self.now();
        seqs.into_iter().for_each(|seq| self.model.mark(id, seq, true, now));
    }

    /// What was true once comes late, from a handler that was slow or a worker: it changes nothing.
    async fn late(&mut self) {
        let Some(view) = self.old.choose(&mut self.rng).cloned() else { return };
        match self.rng.random_range(0..3) {
            0 => self.board.views.replace_notices(&view).await.unwrap(),
            // Without the lease, which it had, and which was taken from it since.
            1 => self.board.views.fill_notices(&[view], self.rng.random()).await.unwrap(),
            _ => {
                let reader = user(self.users[self.rng.random_range(0..self.users.len())]);
                self.board.sync(self.platform, self.rng.random::<bool>().then_some(reader)).await.unwrap();
            }
        }
    }

    async fn compare(&mut self, seed: u64, step: usize) {
        let id = self.users[self.rng.random_range(0..self.users.len())];
        let (mut listed, mut before) = (Vec::new(), None);
        loop {
            let page = self.board.page(self.platform, user(id), before, 4).await.unwrap();
            assert!(!page.degraded);
            listed.extend(page.items.iter().map(|item| (item.id.seq, item.read)));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        let expected = self.model.list(id, self.now());
        assert_eq!(listed, expected, "seed {seed}, after operation {step}, user {id}");
        let counts = self.board.board(self.platform, user(id)).await.unwrap().counts();
        let read = expected.iter().filter(|(_, read)| *read).count() as u64;
        assert_eq!((counts.unread, counts.read), (expected.len() as u64 - read, read), "seed {seed}, after operation {step}");
    }
}

#[tokio::test]
async fn random_histories_of_notices_end_as_the_model_says() {
    const TOGETHER: u64 = 12;
    const OPERATIONS: usize = 150;
    world(async |world| {
        println!("histories with seeds 0 to {}", TOGETHER - 1);
        join_all((0..TOGETHER).map(async |seed| {
            let clock = TestClock(Arc::new(AtomicU64::new(SystemClock.now().ms())));
            let board = NoticeBoard { clock: Arc::new(clock.clone()), ..board(world) };
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
            let head = history.board.facts.head(history.platform).await.unwrap();
            for (seq, notice) in history.model.live(history.now()) {
                let live = head.find(seq, history.clock.now()).unwrap();
                let readers = history.board.readers(history.platform, live).await.unwrap();
                assert_eq!(readers, notice.read_by.len() as u64, "seed {seed}: readers of {seq}");
            }
        }))
        .await;
    })
    .await;
}

// ---- views -----------------------------------------------------------------

#[tokio::test]
async fn facts_read_before_a_change_or_a_loss_are_not_stored_after_it() {
    world(async |world| {
        let views = board(world).views;
        let (reader, platform) = (user(7), platform(3));
        let record = NoticeRecord::Reads(reader, platform);
        let state = |version, slots: &[u64]| {
            let reads = NoticeReads { version, read: slots.iter().copied().collect(), ..NoticeReads::default() };
            NoticeView::Reads(reader, platform, reads)
        };
        let stored = async || {
            let read = views.notice_state(platform, reader).await.unwrap().1;
            read.map(|read| read.iter().collect::<Vec<_>>())
        };
        views.replace_notices(&state(1, &[1])).await.unwrap();
        assert_eq!(stored().await, None, "what is not there is filled when it is asked for");

        assert_eq!(views.lease_notices(&[record], 1).await.unwrap(), [record]);
        assert_eq!(views.lease_notices(&[record], 2).await.unwrap(), [], "one fills at a time");
        views.fill_notices(&[state(9, &[9])], 2).await.unwrap();
        assert_eq!(stored().await, None, "and nobody else");
        views.replace_notices(&state(2, &[1, 2])).await.unwrap();
        views.fill_notices(&[state(1, &[1])], 1).await.unwrap();
        assert_eq!(stored().await, None, "something changed since the lease was taken");

        assert_eq!(views.lease_notices(&[record], 3).await.unwrap(), [record]);
        world.flush_redis().await;
        views.fill_notices(&[state(1, &[1])], 3).await.unwrap();
        assert_eq!(stored().await, None, "everything was lost since");

        assert_eq!(views.lease_notices(&[record], 4).await.unwrap(), [record]);
        views.fill_notices(&[state(2, &[1, 2])], 4).await.unwrap();
        assert_eq!(stored().await, Some(vec![1, 2]));
        views.replace_notices(&state(1, &[1])).await.unwrap();
        assert_eq!(stored().await, Some(vec![1, 2]), "an older version");
        views.replace_notices(&state(3, &[2])).await.unwrap();
        assert_eq!(stored().await, Some(vec![2]));
    })
    .await;
}

#[tokio::test]
async fn damaged_views_are_read_from_the_facts_and_repaired() {
    world(async |world| {
        let (admin, reader) = (administrator(world), world.user(7));
        for _ in 0..3 {
            admin.post("/v1/notices", &json!({ "platforms": [3], "title": "x" })).await.ok();
        }
        reader.put("/v1/notices/3-2/read").await.ok();
        let keys = [
            keys::notice_record(NoticeRecord::Head(platform(3))),
            keys::notice_record(NoticeRecord::Reads(user(7), platform(3))),
        ];
        for garbage in ["", "x", "\u{1}\0\0\0\0\0\u{2}nonsense"] {
            for [key, _] in &keys {
                let mut redis = world.redis().await;
                redis::cmd("SET").arg(key).arg(garbage).query_async::<()>(&mut redis).await.unwrap();
                assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 2, "read": 1 }), "{key}: {garbage:?}");
                let stored: Vec<u8> = redis::cmd("GET").arg(key).query_async(&mut redis).await.unwrap();
                assert_ne!(stored, garbage.as_bytes(), "repaired");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn repeating_a_mark_shows_what_one_that_was_cut_off_did_not() {
    world(async |world| {
        let (admin, reader) = (administrator(world), world.user(7));
        admin.post("/v1/notices", &json!({ "platforms": [3], "title": "x" })).await.ok();
        assert_eq!(counts(&reader, 3).await.ok()["unread"], 1);
        let facts = board(world).facts;
        let (head, before) = facts.state(platform(3), user(7)).await.unwrap();
        let mut after = before.clone();
        after.read.insert(head.live[0].slot);
        assert!(facts.put_reads(user(7), platform(3), &before, after).await.unwrap().is_some());
        assert_eq!(counts(&reader, 3).await.ok()["unread"], 1, "the function died before it told the view");
        assert_eq!(reader.put("/v1/notices/3-1/read").await.ok(), json!({ "read": true, "unread": 0 }));
        assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 0, "read": 1 }));
        assert_eq!(admin.get("/v1/notices/3-1").await.ok()["readers"], 1, "counted once");
    })
    .await;
}

// ---- Redis away ------------------------------------------------------------

async fn redis_is_asked_again(user: &User) {
    let started = std::time::Instant::now();
    while counts(user, 3).await.header("degraded").is_some() {
        assert!(started.elapsed() < Duration::from_secs(10), "Redis is back and not asked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn list(user: &User) -> (bool, Vec<(Value, bool)>) {
    let page = user.get("/v1/notices?platform=3").await;
    let degraded = page.header("degraded") == Some("redis");
    let items = page.ok()["items"].as_array().unwrap().clone();
    (degraded, items.iter().map(|item| (item["title"].clone(), item["read"] == true)).collect())
}

#[tokio::test]
async fn without_redis_notices_go_on_from_the_facts_and_views_that_survive_hear_of_it() {
    for data in [RedisData::Keep, RedisData::Lose] {
        world(async |world| {
            let (admin, reader, idle) = (administrator(world), world.user(7), world.user(8));
            for title in ["a", "b", "c"] {
                admin.post("/v1/notices", &json!({ "platforms": [3], "title": title })).await.ok();
            }
            reader.put("/v1/notices/3-1/read").await.ok();
            for user in [&reader, &idle] {
                counts(user, 3).await.ok();
                assert!(!list(user).await.0);
            }
            world.stack.stop_redis(data).await.unwrap();
            let answer = counts(&reader, 3).await;
            assert_eq!((answer.header("degraded"), answer.clone().ok()), (Some("redis"), json!({ "unread": 2, "read": 1 })));
            let answer = reader.put("/v1/notices/3-2/read").await;
            assert_eq!((answer.header("degraded"), answer.clone().ok()), (Some("redis"), json!({ "read": true, "unread": 1 })));
            admin.post("/v1/notices", &json!({ "platforms": [3], "title": "d" })).await.ok();
            let body = json!({ "title": "A", "renotify": true }).to_string();
            admin.send(reqwest::Method::PUT, "/v1/notices/3-1", &[], Some(body)).await.ok();
            admin.delete("/v1/notices/3-3").await.ok();
            let expected = vec![(json!("d"), false), (json!("b"), true), (json!("A"), false)];
            assert_eq!(list(&reader).await, (true, expected.clone()));
            assert_eq!(reader.get("/v1/notices/3-2").await.ok()["read"], true);

            world.stack.start_redis().await.unwrap();
            world.idle().await;
            redis_is_asked_again(&reader).await;
            assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 2, "read": 1 }));
            assert_eq!(list(&reader).await, (false, expected));
            assert_eq!(counts(&idle, 3).await.ok(), json!({ "unread": 3, "read": 0 }));
        })
        .await;
    }
}

// ---- time ------------------------------------------------------------------

#[tokio::test]
async fn an_expired_notice_is_gone_at_once_everywhere() {
    world(async |world| {
        let (admin, reader) = (administrator(world), world.user(7));
        let expires_at = SystemClock.now().plus_ms(1_500);
        admin.post("/v1/notices", &json!({ "platforms": [3], "title": "stays" })).await.ok();
        let short = json!({ "platforms": [3], "title": "goes", "expires_at": expires_at }).to_string();
        let publish =
            async || admin.send(reqwest::Method::POST, "/v1/notices", &[("idempotency-key", "k")], Some(short.clone())).await;
        let first = publish().await.ok();
        reader.put("/v1/notices/3-2/read").await.ok();
        assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 1, "read": 1 }));
        assert_eq!(list(&reader).await.1.len(), 2);
        while SystemClock.now() < expires_at {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 1, "read": 0 }));
        assert_eq!(list(&reader).await.1, [(json!("stays"), false)]);
        assert_eq!(reader.get("/v1/notices/3-2").await.status, 404);
        assert_eq!(reader.put("/v1/notices/3-2/read").await.status, 404);
        let body = json!({ "title": "back", "expires_at": "2099-01-01T00:00:00Z" }).to_string();
        assert_eq!(admin.send(reqwest::Method::PUT, "/v1/notices/3-2", &[], Some(body)).await.status, 404, "it stays gone");
        assert_eq!(publish().await.ok(), first, "the first answer, though it would be refused now");
        assert_eq!(world.user(8).post("/v1/notices/reads", &json!({ "platform": 3, "through": 2 })).await.ok()["changed"], 1);
    })
    .await;
}

// ---- large -----------------------------------------------------------------

#[tokio::test]
async fn a_full_platform_refuses_and_nothing_is_published_on_the_others() {
    world(async |world| {
        let admin = administrator(world);
        let mut head = PlatformHead::default();
        while head.publish(Timestamp::from_ms(1), None).is_some() {}
        assert_eq!(head.live.len(), MAX_LIVE);
        put_head(world, platform(4), &head).await;
        let both = json!({ "platforms": [3, 4], "title": "x" });
        assert_eq!(admin.post("/v1/notices", &both).await.problem(), (422, "/problems/notice-limit"));
        assert_eq!(counts(&admin, 3).await.ok(), json!({ "unread": 0, "read": 0 }));
        assert_eq!(counts(&admin, 4).await.ok()["unread"], MAX_LIVE);
        let cleared = admin.post("/v1/notices/reads", &json!({ "platform": 4, "through": MAX_LIVE })).await.ok();
        assert_eq!(cleared, json!({ "changed": MAX_LIVE, "unread": 0, "read": MAX_LIVE }));
        admin.delete("/v1/notices/4-1").await.ok();
        let items = admin.post("/v1/notices", &both).await.ok();
        assert_eq!((&items["items"][0]["id"], &items["items"][1]["id"]), (&json!("3-1"), &json!("4-2001")));
        let big = json!({ "platforms": (1..=32).map(|number| number + 100).collect::<Vec<u16>>(), "title": "x", "body": "y".repeat(65_536) });
        assert_eq!(admin.post("/v1/notices", &big).await.ok()["items"].as_array().unwrap().len(), 32);
    })
    .await;
}

/// Every notice in a counter item of its own: marking all of them takes several transactions, between which others come.
#[tokio::test]
async fn a_change_too_large_for_one_transaction_is_exact_whoever_comes_between() {
    const NOTICES: u64 = 300;
    world(async |world| {
        let (board, platform) = (board(world), platform(5));
        let live = (1..=NOTICES).map(|seq| LiveNotice { seq, slot: seq * 40, revision: seq, expires_at: None }).collect();
        let latest_at = Timestamp::from_ms(1);
        let head = PlatformHead { version: NOTICES, latest_seq: NOTICES, latest_slot: NOTICES * 40, latest_at, live };
        put_head(world, platform, &head).await;
        let readers =
            async || join_all(head.live.iter().map(async |notice| board.readers(platform, notice).await.unwrap())).await;

        let devices = (0..4).map(async |device| match device {
            0 => drop(board.mark(user(7), NoticeId { platform, seq: 150 }, true).await.unwrap()),
            _ => drop(board.mark_through(user(7), platform, NOTICES).await.unwrap()),
        });
        let others = [8, u64::MAX].map(|id| board.mark_through(user(id), platform, 200));
        let (_, others) = futures::join!(join_all(devices), join_all(others));
        assert!(others.iter().all(|marked| marked.as_ref().unwrap().board.counts().unread == 100));
        assert_eq!(board.board(platform, user(7)).await.unwrap().counts().unread, 0);
        assert!(board.facts.state(platform, user(7)).await.unwrap().1.version >= 4, "several transactions");
        let expected: Vec<u64> = (1..=NOTICES).map(|seq| if seq <= 200 { 3 } else { 1 }).collect();
        assert_eq!(readers().await, expected);

        let seqs = [1, 100, 299].map(|seq| NoticeId { platform, seq });
        for id in seqs {
            board.mark(user(7), id, false).await.unwrap();
        }
        assert_eq!(readers().await[0], 2);
        // Half of the way, as if the function had died there: whoever comes next goes on from it.
        let (_, before) = board.facts.state(platform, user(9)).await.unwrap();
        let half = NoticeReads { read: (1..=150).map(|seq| seq * 40).collect(), ..before.clone() };
        board.facts.put_reads(user(9), platform, &before, half.clone()).await.unwrap().unwrap();
        assert_eq!(board.facts.put_reads(user(9), platform, &before, half).await.unwrap(), None, "nothing twice");
        assert_eq!(board.mark_through(user(9), platform, NOTICES).await.unwrap().changed, 150);
        let after = readers().await;
        assert_eq!([after[0], after[1], after[199], after[298], after[299]], [3, 4, 4, 1, 2]);
    })
    .await;
}

// ---- reads from elsewhere --------------------------------------------------

#[tokio::test]
async fn merged_reads_are_a_union_however_often_and_with_whom_they_race() {
    world(async |world| {
        let (admin, board, platform) = (administrator(world), board(world), platform(3));
        for _ in 0..10 {
            admin.post("/v1/notices", &json!({ "platforms": [3], "title": "x" })).await.ok();
        }
        admin.delete("/v1/notices/3-4").await.ok();
        let reader = world.user(u64::MAX);
        reader.put("/v1/notices/3-1/read").await.ok();
        let batch: Vec<_> = (1..=40).map(|id| (user(id), vec![1, 2, 3, 4, 99])).chain([(user(u64::MAX), vec![1, 2])]).collect();
        let (first, second, marked) = futures::join!(
            board.merge_reads(platform, &batch),
            board.merge_reads(platform, &batch),
            reader.put("/v1/notices/3-9/read")
        );
        marked.ok();
        let new: Vec<u64> = first.unwrap().iter().zip(second.unwrap()).map(|(first, second)| first + second).collect();
        assert_eq!(new, [vec![3; 40], vec![1]].concat(), "each slot of a live notice is new once");
        assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 6, "read": 3 }));
        assert_eq!(counts(&world.user(40), 3).await.ok(), json!({ "unread": 6, "read": 3 }));
        assert_eq!(admin.get("/v1/notices/3-2").await.ok()["readers"], 41);
        assert_eq!(board.merge_reads(platform, &batch).await.unwrap(), [0; 41]);
    })
    .await;
}
