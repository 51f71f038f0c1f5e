//! Notices under disturbance: late, repeated and lost views, an unavailable Redis, races, interrupted and very large
//! changes, expiry.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use futures::future::join_all;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    App, Clock, Stores, SystemClock,
    domain::{LiveNotice, NoticeContent, NoticeId, NoticeReads, Platform, PlatformHead, Timestamp, notices::MAX_LIVE},
    facts::schema,
    notices::{NoticeBoard, NoticesEdited},
    once::Once,
    views::{NoticeRecord, NoticeView, RedisOptions, Views, keys},
};
use tidemark_tests::{
    Response, User, World,
    items::{n, with_attributes},
    user_id, while_leased, world, world_with,
};

use crate::{publish_notices, refusal};

/// The use cases alone, on a connection with long timeouts. So a read goes to the facts only when the test causes it.
pub(crate) fn patient(world: &World) -> App {
    let app = world.stack.app("notice").unwrap();
    App::new(app.settings.clone(), Arc::new(Stores { views: world.patient_redis(), ..(*app.stores).clone() }))
}

pub(crate) fn board(world: &World) -> NoticeBoard {
    patient(world).notices
}

pub(crate) fn content(title: &str, expires_at: Option<Timestamp>) -> NoticeContent {
    NoticeContent { title: title.to_owned(), body: None, expires_at }
}

pub(crate) fn platform(number: u16) -> Platform {
    Platform::new(number).unwrap()
}

/// The counts of one platform, without its entry among the platforms.
async fn counts(user: &User, platform: u16) -> Response {
    let mut response = user.get(&format!("/v1/notices/unread?platform={platform}")).await;
    response.body.as_object_mut().unwrap().remove("platforms");
    response
}

/// Writes a head without its notices. Publishing them would take thousands of requests.
async fn put_head(world: &World, platform: Platform, head: &PlatformHead) {
    let attributes = [
        ("version", n(head.version)),
        ("latest_seq", n(head.latest_seq)),
        ("latest_slot", n(head.latest_slot)),
        ("latest_at", n(head.latest_at.ms())),
        ("live", AttributeValue::B(Blob::new(head.encode_live()))),
    ];
    world.put_item("NoticesTable", with_attributes(schema::platform_head(platform), &attributes)).await;
}

#[test]
fn facts_read_before_a_change_or_a_loss_are_not_stored_after_it() {
    world(async |world| {
        let views = patient(world).stores.views.clone();
        let (reader, platform) = (user_id(7), platform(3));
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
        assert_eq!(stored().await, None, "a missing view is filled by a read");

        let second = while_leased(async || {
            world.flush_redis().await;
            assert_eq!(views.lease_notices(&[record], 1).await.unwrap(), [record]);
            views.lease_notices(&[record], 2).await.unwrap()
        });
        assert_eq!(second.await, [], "one caller at a time has the lease");
        views.fill_notices(&[state(9, &[9])], 2).await.unwrap();
        assert_eq!(stored().await, None, "another caller cannot store");
        views.replace_notices(&state(2, &[1, 2])).await.unwrap();
        views.fill_notices(&[state(1, &[1])], 1).await.unwrap();
        assert_eq!(stored().await, None, "a change takes the lease");

        assert_eq!(views.lease_notices(&[record], 3).await.unwrap(), [record]);
        world.flush_redis().await;
        views.fill_notices(&[state(1, &[1])], 3).await.unwrap();
        assert_eq!(stored().await, None, "a loss removes the lease");

        while_leased(async || {
            assert_eq!(views.lease_notices(&[record], 4).await.unwrap(), [record]);
            views.fill_notices(&[state(2, &[1, 2])], 4).await.unwrap();
        })
        .await;
        assert_eq!(stored().await, Some(vec![1, 2]));
        views.replace_notices(&state(1, &[1])).await.unwrap();
        assert_eq!(stored().await, Some(vec![1, 2]), "an older version is not stored");
        views.replace_notices(&state(3, &[2])).await.unwrap();
        assert_eq!(stored().await, Some(vec![2]));
    });
}

#[test]
fn a_mark_reads_a_platforms_head_from_redis_if_that_has_the_notice() {
    world(async |world| {
        let reader = world.user(7);
        let through = async |seq: u64| reader.post("/v1/notices/reads", &json!({ "platform": 3, "through": seq })).await.ok();
        publish_notices(world, &[3], ["x", "x"]).await;
        counts(&reader, 3).await.ok();
        let read_of_facts = world.stack.faults().add(refusal("BatchGetItem").on("NoticesTable"));
        assert_eq!(reader.put("/v1/notices/3-1/read").await.ok()["unread"], 1);
        assert_eq!(through(2).await["unread"], 0);
        assert_eq!(read_of_facts.fired(), 0);
        world.stack.faults().clear();

        // A head that lacks a notice that the facts have, as after a publish that was not acknowledged.
        let mut redis = world.redis().await;
        let [head, _] = keys::notice_record(NoticeRecord::Head(platform(3)));
        let older: Vec<u8> = redis.get(&head).await.unwrap();
        for seq in [3, 4] {
            publish_notices(world, &[3], ["x"]).await;
            redis.set::<_, _, ()>(&head, &older).await.unwrap();
            let mark = if seq == 3 { reader.put("/v1/notices/3-3/read").await.ok() } else { through(seq).await };
            assert_eq!(mark["unread"], 0);
            redis.del::<_, ()>(&head).await.unwrap();
            assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 0, "read": seq }));
        }
    });
}

#[test]
fn damaged_views_are_read_from_the_facts_and_repaired() {
    world(async |world| {
        let (reader, mut redis) = (world.user(7), world.redis().await);
        publish_notices(world, &[3], ["x"; 3]).await;
        reader.put("/v1/notices/3-2/read").await.ok();
        let keys = [NoticeRecord::Head(platform(3)), NoticeRecord::Reads(user_id(7), platform(3))].map(keys::notice_record);
        for garbage in ["", "x", "\u{1}\0\0\0\0\0\u{2}nonsense"] {
            for [key, _] in &keys {
                redis.set::<_, _, ()>(key, garbage).await.unwrap();
                assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 2, "read": 1 }), "{key}: {garbage:?}");
                let stored: Vec<u8> = redis.get(key).await.unwrap();
                assert_ne!(stored, garbage.as_bytes(), "repaired");
            }
        }
    });
}

#[test]
fn a_repeated_mark_updates_the_view_that_an_interrupted_mark_missed() {
    world(async |world| {
        let (admin, reader) = (world.administrator(), world.user(7));
        publish_notices(world, &[3], ["x"]).await;
        world.idle().await;
        assert_eq!(counts(&reader, 3).await.ok()["unread"], 1);
        let facts = patient(world).stores.facts.clone();
        let (head, before) = facts.notice_state(platform(3), user_id(7)).await.unwrap();
        let mut after = before.clone();
        after.read.insert(head.live[0].slot);
        world.stack.pause("projector").await.unwrap();
        assert!(facts.replace_notice_reads(user_id(7), platform(3), &before, after, None, false).await.unwrap().is_some());
        assert_eq!(counts(&reader, 3).await.ok()["unread"], 1, "the function died before it updated the view");
        assert_eq!(reader.put("/v1/notices/3-1/read").await.ok(), json!({ "read": true, "unread": 0 }));
        assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 0, "read": 1 }));
        assert_eq!(admin.get("/v1/notices/3-1").await.ok()["readers"], 1, "counted once");
        world.stack.resume("projector").unwrap();
    });
}

async fn list(user: &User) -> (bool, Vec<(Value, bool)>) {
    let page = user.get("/v1/notices?platform=3").await;
    let degraded = page.header("degraded") == Some("redis");
    (degraded, page.items().iter().map(|item| (item["title"].clone(), item["read"] == true)).collect())
}

#[test]
fn without_redis_notices_come_from_facts_and_surviving_views_are_updated() {
    for views_survive in [true, false] {
        // Redis is available again before a message is received five times.
        let patient = |options: &mut tidemark_local::Options| options.retry_delay = Duration::from_secs(4);
        world_with(patient, async |world| {
            let (admin, reader, idle) = (world.administrator(), world.user(7), world.user(8));
            publish_notices(world, &[3], ["a", "b", "c"]).await;
            reader.put("/v1/notices/3-1/read").await.ok();
            for user in [&reader, &idle] {
                counts(user, 3).await.ok();
                assert!(!list(user).await.0);
            }
            let outage = world.redis_outage(views_survive).await;
            let response = counts(&reader, 3).await;
            assert_eq!((response.header("degraded"), response.clone().ok()), (Some("redis"), json!({ "unread": 2, "read": 1 })));
            let response = reader.put("/v1/notices/3-2/read").await;
            assert_eq!(response.header("degraded"), Some("redis"));
            assert_eq!(response.ok(), json!({ "read": true, "unread": 1 }));
            publish_notices(world, &[3], ["d"]).await;
            admin.put_body("/v1/notices/3-1", &json!({ "title": "A", "renotify": true })).await.ok();
            admin.delete("/v1/notices/3-3").await.ok();
            let expected = vec![(json!("d"), false), (json!("b"), true), (json!("A"), false)];
            assert_eq!(list(&reader).await, (true, expected.clone()));
            assert_eq!(reader.get("/v1/notices/3-2").await.ok()["read"], true);

            outage.end(world).await;
            world.redis_recovers().await;
            assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 2, "read": 1 }));
            assert_eq!(list(&reader).await, (false, expected));
            assert_eq!(counts(&idle, 3).await.ok(), json!({ "unread": 3, "read": 0 }));
        });
    }
}

#[test]
fn a_mark_after_a_renotification_that_missed_its_view_marks_the_new_slot() {
    world(async |world| {
        publish_notices(world, &[3], ["x"]).await;
        let (app, id) = (patient(world), NoticeId { platform: platform(3), seq: 1 });
        world.stack.pause("projector").await.unwrap();
        // One process cannot reach Redis. Another one has just seen that there is no outage.
        let closed = RedisOptions { url: "redis://127.0.0.1:1".to_owned(), ..world.stack.redis_options().clone() };
        let process = |stores: Arc<Stores>| App::new(app.settings.clone(), stores).notices;
        let views = Views::new(&closed).unwrap();
        let without_redis = process(Arc::new(Stores { views, ..(*app.stores).clone() }));
        let other = process(Arc::clone(&app.stores));
        let before = *other.board(id.platform, user_id(7)).await.unwrap().find(1).unwrap();
        let edited = without_redis.edit(&[id], &content("y", None), true, None).await.unwrap();
        assert!(matches!(edited, NoticesEdited::Stand(_)));
        other.mark(user_id(7), id, true).await.unwrap().unwrap();
        let (head, reads) = app.stores.facts.notice_state(id.platform, user_id(7)).await.unwrap();
        let after = head.live[0];
        assert!(after.slot > before.slot && reads.read.contains(after.slot), "{before:?}, {after:?}: {reads:?}");
        world.stack.resume("projector").unwrap();
    });
}

/// More notices than one transaction takes: three on each of 32 platforms.
async fn many_notices(world: &World) -> Vec<NoticeId> {
    let platforms: Vec<u16> = (1..=32).collect();
    publish_notices(world, &platforms, ["old"; 3]).await;
    platforms.iter().flat_map(|&number| (1..=3).map(move |seq| NoticeId { platform: platform(number), seq })).collect()
}

#[test]
fn a_pending_edit_is_read_until_it_is_written_to_the_notices_that_have_no_later_one() {
    world(async |world| {
        let (app, admin, reader) = (patient(world), world.administrator(), world.user(7));
        let ids = many_notices(world).await;
        let id = |seq| NoticeId { platform: platform(5), seq };
        let facts = &app.stores.facts;
        world.idle().await;
        world.stack.pause("projector").await.unwrap();
        let new = NoticeContent { body: Some("text".to_owned()), ..content("new", None) };
        let edited = app.notices.edit(&ids, &new, true, None).await.unwrap();
        assert!(matches!(edited, NoticesEdited::Stand(notices) if notices.len() == 96));
        let stored = facts.notices(&[id(1)]).await.unwrap();
        assert_eq!(stored[&id(1)].content.title, "old", "the notice itself is not written yet");
        let title = async |seq: u64| admin.get(&format!("/v1/notices/5-{seq}")).await.ok()["title"].clone();
        assert_eq!([title(1).await, title(2).await], ["new", "new"]);
        let listed = async || {
            let items = reader.get("/v1/notices?platform=5&include=body").await.items();
            items.into_iter().map(|item| (item["title"].clone(), item["body"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(listed().await, vec![(json!("new"), json!("text")); 3]);

        // One notice is edited again, one is deleted, and one keeps the pending edit.
        admin.put_body("/v1/notices/5-2", &json!({ "title": "later" })).await.ok();
        admin.delete("/v1/notices/5-3").await.ok();
        let expected = vec![(json!("later"), Value::Null), (json!("new"), json!("text"))];
        assert_eq!(listed().await, expected);
        world.flush_redis().await;
        assert_eq!(listed().await, expected, "from the facts");

        // Several processes apply it, and one has died halfway.
        let revision = facts.platform_head(platform(5)).await.unwrap().find(1, Timestamp::default()).unwrap().revision;
        let applied = (0..3).map(|_| facts.apply_pending_edit(platform(5), revision));
        assert!(join_all(applied).await.into_iter().all(|applied| applied.is_ok()));
        let stored = facts.notices(&[id(1), id(2), id(3)]).await.unwrap();
        let titles: Vec<&str> = [id(1), id(2)].iter().map(|id| stored[id].content.title.as_str()).collect();
        assert_eq!((titles, stored.len(), stored[&id(1)].revision), (vec!["new", "later"], 2, revision));
        world.flush_redis().await;
        assert_eq!(listed().await, expected);
        world.stack.resume("projector").unwrap();
        world.idle().await;
        let stored = facts.notices(&ids).await.unwrap();
        assert_eq!(stored.values().filter(|notice| notice.content == new).count(), 94, "the projector writes the others");
    });
}

#[test]
fn concurrent_edits_of_many_notices_leave_one_of_them_on_every_notice() {
    world(async |world| {
        let (app, reader) = (patient(world), world.user(7));
        let ids = many_notices(world).await;
        let contents = [content("one", None), content("two", None), content("three", None)];
        let edits = contents.iter().map(|content| app.notices.edit(&ids, content, false, None));
        let deleted = [NoticeId { platform: platform(9), seq: 2 }];
        let deletes = app.notices.remove(&deleted);
        let (edited, deleted) = futures::join!(join_all(edits), deletes);
        deleted.unwrap();
        for edited in edited {
            let is_known = matches!(edited.unwrap(), NoticesEdited::Stand(_) | NoticesEdited::Unknown(_));
            assert!(is_known, "all, or none because one is deleted");
        }
        let titles = async || {
            let mut titles = Vec::new();
            for platform in 1..=32 {
                let items = reader.get(&format!("/v1/notices?platform={platform}")).await.items();
                titles.extend(items.into_iter().map(|item| item["title"].clone()));
            }
            titles
        };
        let before = titles().await;
        assert!(before.len() == 95 && before.iter().all(|title| *title == before[0]), "{before:?}");
        world.idle().await;
        world.flush_redis().await;
        assert_eq!(titles().await, before);
    });
}

#[test]
fn counts_of_several_platforms_come_from_facts_without_redis() {
    world(async |world| {
        let reader = world.user(7);
        publish_notices(world, &[3, 4], ["a", "b"]).await;
        reader.put("/v1/notices/4-1/read").await.ok();
        let path = "/v1/notices/unread?platform=4&platform=3";
        let expected = reader.get(path).await.ok();
        assert_eq!((&expected["unread"], &expected["read"]), (&json!(3), &json!(1)));
        let page = "/v1/notices?platform=4&status=unread&include=body";
        let items = reader.get(page).await.items();
        let outage = world.redis_outage(false).await;
        let response = reader.get(path).await;
        assert_eq!((response.header("degraded"), response.clone().ok()), (Some("redis"), expected.clone()));
        let response = reader.get(page).await;
        assert_eq!((response.header("degraded"), response.clone().items()), (Some("redis"), items));
        outage.end(world).await;
        world.redis_recovers().await;
        assert_eq!(reader.get(path).await.ok(), expected);
    });
}

#[test]
fn an_expired_notice_disappears_at_once_from_every_response() {
    // On a slow machine the notice may expire before its first read. Then the test repeats with a longer lifetime.
    for lifetime_ms in [1_500, 6_000, 24_000, 96_000] {
        let mut in_time = false;
        world(async |world| in_time = expires_in_front_of_a_reader(world, lifetime_ms).await);
        if in_time {
            return;
        }
    }
    panic!("96 s are not enough for five requests");
}

/// Returns false if the notice expired before its first read.
async fn expires_in_front_of_a_reader(world: &World, lifetime_ms: u64) -> bool {
    let (admin, reader) = (world.administrator(), world.user(7));
    publish_notices(world, &[3], ["stays"]).await;
    let expires_at = SystemClock.now().plus_ms(lifetime_ms);
    let short = json!({ "platforms": [3], "title": "goes", "expires_at": expires_at });
    let publish = async || admin.post_with_key("/v1/notices", "k", &short).await;
    let first = publish().await;
    reader.put("/v1/notices/3-2/read").await;
    let before = (counts(&reader, 3).await, list(&reader).await.1.len());
    if SystemClock.now() >= expires_at {
        return false;
    }
    let first = first.ok();
    assert_eq!((before.0.ok(), before.1), (json!({ "unread": 1, "read": 1 }), 2));
    while SystemClock.now() < expires_at {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(counts(&reader, 3).await.ok(), json!({ "unread": 1, "read": 0 }));
    assert_eq!(list(&reader).await.1, [(json!("stays"), false)]);
    assert_eq!(reader.get("/v1/notices/3-2").await.status, 404);
    assert_eq!(reader.put("/v1/notices/3-2/read").await.status, 404);
    let back = json!({ "title": "back", "expires_at": "2099-01-01T00:00:00Z" });
    assert_eq!(admin.put_body("/v1/notices/3-2", &back).await.status, 404, "an expired notice stays expired");
    assert_eq!(publish().await.ok(), first, "the first response, although a new request would be refused");
    assert_eq!(world.user(8).post("/v1/notices/reads", &json!({ "platform": 3, "through": 2 })).await.ok()["changed"], 1);
    true
}

#[test]
fn a_full_platform_refuses_a_notice_and_no_other_platform_gets_it() {
    world(async |world| {
        let admin = world.administrator();
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
    });
}

/// Every notice has a counter item of its own. A mark of all notices needs several transactions, and another caller's
/// transactions come in between.
#[test]
fn a_change_of_several_transactions_is_exact_although_another_caller_interferes() {
    const NOTICES: u64 = 300;
    world(async |world| {
        let App { notices: board, stores, .. } = patient(world);
        let platform = platform(5);
        let live = (1..=NOTICES).map(|seq| LiveNotice { seq, slot: seq * 40, revision: seq, expires_at: None }).collect();
        let latest_at = Timestamp::from_ms(1);
        let head = PlatformHead { version: NOTICES, latest_seq: NOTICES, latest_slot: NOTICES * 40, latest_at, live };
        put_head(world, platform, &head).await;
        let readers = async || {
            join_all(head.live.iter().map(async |notice| stores.facts.notice_readers(platform, notice.slot).await.unwrap())).await
        };

        let devices = (0..4).map(async |device| match device {
            0 => drop(board.mark(user_id(7), NoticeId { platform, seq: 150 }, true).await.unwrap()),
            _ => drop(board.mark_through(user_id(7), platform, NOTICES, None).await.unwrap()),
        });
        let others = [8, u64::MAX].map(|id| board.mark_through(user_id(id), platform, 200, None));
        let (_, others) = futures::join!(join_all(devices), join_all(others));
        assert!(others.iter().all(|marked| matches!(marked, Ok(Once::Done(marked)) if marked.counts.unread == 100)));
        assert_eq!(board.board(platform, user_id(7)).await.unwrap().counts().unread, 0);
        assert!(stores.facts.notice_reads(platform, user_id(7)).await.unwrap().version >= 4, "several transactions");
        let expected: Vec<u64> = (1..=NOTICES).map(|seq| if seq <= 200 { 3 } else { 1 }).collect();
        assert_eq!(readers().await, expected);

        for seq in [1, 100, 299] {
            board.mark(user_id(7), NoticeId { platform, seq }, false).await.unwrap();
        }
        assert_eq!(readers().await[0], 2);
        // Half of the change is done, as after the death of the function. The next caller resumes it.
        let before = stores.facts.notice_reads(platform, user_id(9)).await.unwrap();
        let half = NoticeReads { read: (1..=150).map(|seq| seq * 40).collect(), ..before.clone() };
        stores.facts.replace_notice_reads(user_id(9), platform, &before, half.clone(), None, false).await.unwrap().unwrap();
        let again = stores.facts.replace_notice_reads(user_id(9), platform, &before, half, None, false).await.unwrap();
        assert_eq!(again, None, "nothing twice");
        let marked = board.mark_through(user_id(9), platform, NOTICES, None).await.unwrap();
        assert!(matches!(marked, Once::Done(marked) if marked.changed == 150));
        let after = readers().await;
        assert_eq!([after[0], after[1], after[199], after[298], after[299]], [3, 4, 4, 1, 2]);
    });
}

#[test]
fn merged_reads_are_a_union_under_repetition_and_races() {
    world(async |world| {
        let (admin, board, platform) = (world.administrator(), board(world), platform(3));
        publish_notices(world, &[3], ["x"; 10]).await;
        admin.delete("/v1/notices/3-4").await.ok();
        let reader = world.user(u64::MAX);
        reader.put("/v1/notices/3-1/read").await.ok();
        let batch: Vec<_> =
            (1..=40).map(|id| (user_id(id), vec![1, 2, 3, 4, 99])).chain([(user_id(u64::MAX), vec![1, 2])]).collect();
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
    });
}
