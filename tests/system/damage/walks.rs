//! Walks: changes that a walk must leave alone, interrupted walks, and repairs that have no effect.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{StreamExt, future::join_all, stream};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{NoticeId, PostId, Reaction, Timestamp},
    facts::{NoticesPublished, schema},
    views::{
        Rebuild, Seed,
        keys::{self, View},
    },
};
use tidemark_reconcile_lib::{
    Plan, Reconcile, Segment, StoredFacts,
    diff::{Correction, Counter, ListedRepost, Recount},
};
use tidemark_tests::{
    items::{n, s},
    parameter, world, world_with,
};

use super::{
    Scene, everything, fire, listed,
    views::{lose_entry, of_reader},
    walk,
};
use crate::notices::content;

fn plan(dry_run: bool, slice: usize) -> Plan {
    Plan { dry_run, share: 1.0, settle: Duration::ZERO, slice, ..Plan::default() }
}

/// Gives the reader of each scene a wrong followings count. Returns the expected differences.
async fn miscount(scenes: &[Scene<'_>]) -> BTreeSet<String> {
    let mut expected = BTreeSet::new();
    for scene in scenes {
        scene.set("CountersTable", schema::followings_counter(scene.reader), &[("count", n(9))]).await;
        let difference = json!({ "kind": "followings-count", "user": scene.reader, "seen": 9, "right": 2 });
        expected.insert(difference.to_string());
    }
    expected
}

#[test]
fn a_walk_continues_at_its_stored_position_also_by_the_minute_job_and_a_dry_run_from_its_own_response() {
    world(async |world| {
        let scenes = Scene::several(world, 6).await;
        let expected = miscount(&scenes).await;
        let reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
        for dry_run in [true, false] {
            let (mut found, mut repaired, mut at) = (BTreeSet::new(), 0, Vec::<String>::new());
            loop {
                let from = at.last().filter(|_| dry_run).map(|next| next.parse().unwrap());
                let continues = !dry_run && !at.is_empty();
                // Each invocation has time for one step.
                let report = reconcile.walk(&plan(dry_run, 10), from, continues, &|| true).await.unwrap().unwrap();
                found.extend(listed(&[json!(report)]));
                repaired += report.repaired.values().sum::<u64>();
                let stored = reconcile.facts.walk("users").await.unwrap();
                let noted = report.next.as_ref().filter(|_| !dry_run).map(|next| format!("1@{next}"));
                assert_eq!(stored, noted, "with its share, and never by a dry run");
                let Some(next) = report.next else { break };
                at.push(next);
            }
            assert_eq!((&found, repaired), (&expected, if dry_run { 0 } else { 6 }));
            assert!(at.len() > 4 && at.iter().collect::<BTreeSet<_>>().len() == at.len(), "{at:?}");
        }
        // No walk is under way: the minute job has nothing to continue, and the daily job begins a new walk.
        assert_eq!(fire(world, json!({ "job": "minute" })).await["users"], Value::Null);
        let report = fire(world, json!({ "job": "users", "share": 1.0 })).await;
        assert_eq!((&report["found"], &report["next"]), (&json!({}), &json!(null)));
        // The minute job continues a walk.
        miscount(&scenes).await;
        let begun = reconcile.walk(&plan(false, 5), None, false, &|| true).await.unwrap().unwrap();
        assert!(begun.next.is_some());
        let minute = fire(world, json!({ "job": "minute", "share": 1.0, "settle_ms": 0 })).await;
        assert_eq!(minute["users"]["next"], Value::Null);
        assert_eq!(listed(&[json!(begun), minute["users"].clone()]), expected);
    });
}

/// At share 0 no user is in the sample.
#[test]
fn edges_outside_the_sample_change_no_count_that_agrees_with_its_list() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let (author, ghost) = (scene.other, scene.stranger);
        let followers = async || scene.counters(author).await["followers"].clone();
        let before = followers().await;
        let walk = async |share: f64| fire(world, json!({ "job": "users", "share": share, "settle_ms": 0 })).await;
        // A listed follower without an edge: the count differs from the list, so the edges of the list are read.
        let since = s(schema::follower_since(ghost, scene.now()));
        scene.put("FollowersTable", schema::follower(author, ghost), &[("since", since)]).await;
        let report = walk(0.0).await;
        assert_eq!(report["repaired"], json!({ "follower-ghost": 1 }), "{report}");
        assert_eq!(followers().await, before);
        // An edge that the author does not list is found from its own side.
        scene.world.delete_item("FollowersTable", schema::follower(author, scene.reader)).await;
        let report = walk(1.0).await;
        assert_eq!(report["repaired"]["follower-missing"], 1, "{report}");
        assert_eq!(walk(1.0).await["found"], json!({}));
        assert_eq!(followers().await, before);
    });
}

#[test]
fn segments_of_a_walk_are_continued_in_parallel() {
    world_with(parameter("ReconcileConcurrency", 5), async |world| {
        let scenes = Scene::several(world, 12).await;
        miscount(&scenes).await;
        let reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
        let in_progress = async || reconcile.in_progress(Segment::all(4)).await.unwrap();
        let run = async |job: &str| world.reconcile(json!({ "job": job, "share": 1.0, "settle_ms": 0, "slice": 5 })).await;
        assert_eq!(run("users").await["segments"], json!(["0/4", "1/4", "2/4", "3/4"]));
        // The messages of the first minute are lost. The next minute sends them again.
        world.stack.pause("reconcile").await.unwrap();
        run("minute").await;
        world.empty_queue("WalkQueue").await;
        assert_eq!(in_progress().await.len(), 4);
        // Each of the segments has a part of the users.
        let looked_at = async |segment| {
            let plan = Plan { segment, ..plan(true, 5) };
            reconcile.walk(&plan, None, false, &|| false).await.unwrap().unwrap().looked_at
        };
        let of_segments: Vec<u64> = stream::iter(Segment::all(4)).then(looked_at).collect().await;
        let whole = looked_at(Segment::WHOLE).await;
        assert!(of_segments.iter().all(|part| (1..whole).contains(part)), "{of_segments:?} of {whole}");
        assert!(of_segments.iter().sum::<u64>() >= whole, "{of_segments:?} of {whole}");
        world.stack.resume("reconcile").unwrap();
        // Twice, as SQS may deliver a message twice.
        for _ in 0..2 {
            run("minute").await;
        }
        world.idle().await;
        for _ in 0..10 {
            if !in_progress().await.is_empty() {
                run("minute").await;
                world.idle().await;
            }
        }
        assert_eq!(in_progress().await, []);
        for scene in scenes {
            assert_eq!(scene.counters(scene.reader).await["followings"], 2);
        }
        assert_eq!(walk(world, true, 0).await["differences"], json!([]));
        assert_eq!(fire(world, json!({ "job": "minute" })).await["users"], Value::Null);
    });
}

#[test]
fn one_of_two_concurrent_walks_stops() {
    world(async |world| {
        let expected = miscount(&Scene::several(world, 3).await).await;
        let reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
        let never = || false;
        let (plan, slow) = (plan(false, 10), Plan { settle: Duration::from_millis(50), ..plan(false, 10) });
        let (one, two) = futures::join!(reconcile.walk(&plan, None, false, &never), reconcile.walk(&slow, None, false, &never));
        let done: Vec<_> = [one, two].into_iter().filter_map(Result::ok).flatten().collect();
        assert!(!done.is_empty());
        let found: BTreeSet<String> = done.iter().flat_map(|report| listed(&[json!(report)])).collect();
        assert!(found.is_subset(&expected));
        assert_eq!(fire(world, json!({ "job": "users", "share": 1.0 })).await["failed"], 0);
    });
}

#[test]
fn changes_in_flight_do_not_count_as_differences() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        world.stack.pause("fan-out").await.unwrap();
        let author = scene.caller(scene.author);
        author.publish("not delivered yet").await;
        author.delete(&format!("/v1/posts/{}", scene.post(3))).await.ok();
        assert_eq!(walk(world, true, 0).await["differences"], json!([]));
        world.resume("fan-out").await;

        // Traffic during the walk causes no difference either.
        let over = AtomicBool::new(false);
        let traffic = join_all((0..4).map(async |lane| {
            let (reader, mut round) = (world.user(5_000 + lane), 0);
            while !over.load(Ordering::Relaxed) {
                round += 1;
                reader.follow([scene.author, scene.other]).await;
                reader.feed_ids().await;
                let post = author.publish("in the middle of it").await;
                reader.put(&format!("/v1/posts/{post}/like")).await.ok();
                reader.put(&format!("/v1/posts/{post}/read")).await.ok();
                let (board, platform) = (&scene.app.notices, scene.platform);
                let published = board.publish(scene.author, &[platform], &content("news", None), None).await.unwrap();
                let NoticesPublished::Created(created) = published else { panic!("{published:?}") };
                let notice = created[0].0.id;
                reader.get(&format!("/v1/notices?platform={platform}")).await.ok();
                reader.put(&format!("/v1/notices/{notice}/read")).await.ok();
                match round % 3 {
                    0 => drop(board.edit(&[notice], &content("again", None), true, None).await.unwrap()),
                    1 => board.remove(&[notice]).await.unwrap(),
                    _ => {}
                }
                reader.get(&format!("/v1/users/{}/counters", scene.author)).await.ok();
                if round % 3 == 0 {
                    author.delete(&format!("/v1/posts/{post}")).await.ok();
                    reader.delete(&format!("/v1/following/{}", scene.other)).await.ok();
                }
            }
        }));
        // The task that changes a post's step waits for a second.
        let look = async {
            for _ in 0..3 {
                assert_eq!(walk(world, true, 4_000).await["differences"], json!([]));
            }
            over.store(true, Ordering::Relaxed);
        };
        futures::join!(traffic, look);
    });
}

#[test]
fn a_repair_does_nothing_if_the_data_has_changed() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let facts = StoredFacts(scene.app.stores.facts.clone());
        let (reader, author, shard) = (scene.reader, scene.author, scene.reader.shard());
        let edge = scene.app.stores.facts.edges(reader, &[author]).await.unwrap().remove(&author).unwrap();
        assert_eq!(facts.record("nothing").await.unwrap(), None);
        // The count has its old value again after other changes.
        let (seen, right, changes) = (Some(2), 4, Some(0));
        let followings = Recount { of: Counter::Followings { user: reader }, seen, right, changes };
        let of = |of: Counter| Recount { of, seen: Some(1), ..followings };
        let (post, reaction, since, rev, platform) = (scene.post(2), Reaction::Like, edge.since, edge.rev, scene.platform);
        let notice = scene.notice(1);
        scene.app.notices.publish(author, &[platform], &content("one", None), None).await.unwrap();
        scene.app.notices.mark(reader, notice, true).await.unwrap().unwrap();
        let before = everything(world).await;
        for stale in [
            Correction::SetCount(followings),
            Correction::SetCount(Recount { changes: None, ..followings }),
            Correction::SetCount(Recount { seen: None, ..followings }),
            Correction::SetCount(of(Counter::Followers { author, shard })),
            Correction::SetCount(of(Counter::PostReactions { post, reaction })),
            Correction::SetCount(of(Counter::AuthorReactions { author, shard, reaction })),
            Correction::SetPosts { author, right, latest: 4, deletions: None },
            Correction::SetPosts { author, right, latest: 5, deletions: Some(1) },
            Correction::MirrorEdge { user: reader, author, edge: Some((since, rev + 1)) },
            Correction::MirrorEdge { user: reader, author, edge: None },
            Correction::SetDeleted { post, deleted: true },
            Correction::SetUnfinished { post, unfinished: true },
            Correction::DeleteTombstone { user: reader, author, rev },
            Correction::ListRepost(ListedRepost { repost: PostId::new(reader, 1), original: post, at: since }),
            Correction::UnlistNotice(notice),
            Correction::UnlistNotice(NoticeId { seq: 9, ..notice }),
            Correction::DeleteNotice(notice),
            Correction::RaiseSlot { platform, given: 1 },
            Correction::CutNoticeReads { user: reader, platform },
        ] {
            assert!(!facts.correct(&stale).await.unwrap(), "{stale:?}");
        }
        let after = everything(world).await;
        let changed: Vec<_> = before.iter().filter(|(key, value)| after.get(*key) != Some(*value)).collect();
        assert!(changed.is_empty(), "{changed:?}");
    });
}

/// Two steps of a walk may work at the same time. One counted an author's list without an entry that the other adds.
#[test]
fn a_count_is_not_set_after_an_entry_that_its_look_has_not_seen_was_added() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let app = &scene.app.stores.facts;
        let (facts, private, shard) = (StoredFacts(app.clone()), scene.stranger, scene.reader.shard());
        scene.caller(private).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        scene.caller(scene.reader).put(&format!("/v1/following/{private}")).await.ok();
        world.idle().await;
        for (author, is_request) in [(scene.author, false), (private, true)] {
            let edge = app.edges(scene.reader, &[author]).await.unwrap().remove(&author).unwrap();
            let counter = schema::followers_counter(author, shard);
            let changes = world.item("CountersTable", counter).await.unwrap()["changes"].as_n().unwrap().parse().ok();
            let (of, mirror) = if is_request {
                let request = Some((edge.requested.unwrap(), edge.rev));
                let mirror = Correction::MirrorRequest { user: scene.reader, author, request };
                (Counter::RequestsReceived { author, shard }, mirror)
            } else {
                let mirror = Correction::MirrorEdge { user: scene.reader, author, edge: Some((edge.since, edge.rev)) };
                (Counter::Followers { author, shard }, mirror)
            };
            let without = Correction::SetCount(Recount { of, seen: Some(1), right: 0, changes });
            assert!(facts.correct(&mirror).await.unwrap(), "{mirror:?}");
            assert!(!facts.correct(&without).await.unwrap(), "{without:?}");
        }
    });
}

#[test]
fn a_repair_without_effect_does_not_count() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        // Another user has the handle by now.
        let profile = json!({ "name": "Author", "handle": "shared" });
        scene.caller(scene.author).put_body("/v1/me/profile", &profile).await.ok();
        scene.world.delete_item("HandlesTable", schema::handle(&"shared".parse().unwrap())).await;
        scene.caller(scene.stranger).put_body("/v1/me/profile", &profile).await.ok();
        world.idle().await;
        for _ in 0..2 {
            let report = fire(world, json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 10_000 })).await;
            let lost = json!([{ "kind": "handle-lost", "user": scene.author, "handle": "shared" }]);
            assert_eq!((&report["differences"], &report["repaired"]), (&lost, &json!({})), "{report}");
        }
    });
}

/// A delivery to the view could not bring it in line, because there is no such post.
#[test]
fn a_view_that_lacks_a_post_which_does_not_exist_is_forgotten() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        lose_entry(&scene, 5).await;
        scene.field(|field| field.through = 4).await;
        scene.world.delete_item("PostsTable", schema::post(scene.post(5))).await;
        let report = walk(world, false, 0).await;
        assert_eq!((&report["found"], &report["repaired"]), (&json!({ "view-differs": 1 }), &json!({ "view-differs": 1 })));
        let listed: BTreeSet<String> = scene.caller(scene.reader).feed_ids().await.into_iter().collect();
        let others = [format!("{}-1", scene.other)];
        assert_eq!(listed, (1..=4).map(|seq| scene.post(seq).to_string()).chain(others).collect());
        assert_eq!(walk(world, true, 0).await["differences"], json!([]));
    });
}

#[test]
fn a_run_forgets_the_views_of_a_bounded_number_of_readers_and_the_next_one_goes_on() {
    world(async |world| {
        let scenes = Scene::several(world, 3).await;
        for scene in &scenes {
            scene.field(|field| field.floor = 2).await;
        }
        let reconcile = Reconcile::new(world.stack.app("reconcile").unwrap());
        let plan = Plan { most_forgotten: 2, ..plan(false, 10_000) };
        let (mut forgotten, mut runs) = (0, 0);
        loop {
            let report = json!(reconcile.walk(&plan, None, runs > 0, &|| false).await.unwrap().unwrap());
            let count = report["repaired"]["view-differs"].as_u64().unwrap_or(0);
            assert!(count <= 2, "{report}");
            (forgotten, runs) = (forgotten + count, runs + 1);
            if report["next"].is_null() {
                break;
            }
        }
        assert_eq!((forgotten, runs), (3, 2), "the second run repeats the step of the first");
        for scene in &scenes {
            scene.agrees("a floor that hides posts of the feed").await;
        }
        assert_eq!(walk(world, true, 0).await["differences"], json!([]));
    });
}

#[test]
fn only_the_view_is_forgotten_and_the_reader_stays_connected() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let (reader, mut redis) = (scene.reader, scene.redis());
        let mut live = world.live(reader.get()).await;
        scene.until_cached("/v1/feed?order=ranked", &keys::ranked(reader)[0]).await;
        redis.hset::<_, _, _, ()>(keys::limits(reader), "reads", 1).await.unwrap();
        redis.expire::<_, ()>(keys::limits(reader), 3_600).await.unwrap();
        let kept = [keys::connections(reader), keys::limits(reader), keys::access(reader)];
        let views: Vec<String> = keys::of_view(&View::Reader(reader)).into_iter().map(|(key, _)| key).collect();
        let mut count = async |keys: &[String]| -> usize { redis.exists(keys).await.unwrap() };
        assert_eq!((count(&views).await, count(&kept).await), (4, 3));
        scene.field(|field| field.floor = 2).await;
        assert_eq!(walk(world, false, 0).await["repaired"], json!({ "view-differs": 1 }));
        assert_eq!((count(&views).await, count(&kept).await), (0, 3));
        scene.agrees("a floor that hides posts of the feed").await;
        let total = scene.caller(reader).unread_total().await;
        scene.caller(scene.author).publish("to a connection").await;
        live.total(total + 1).await;
        live.close().await;
    });
}

#[test]
fn a_view_that_is_forgotten_during_its_rebuild_takes_nothing_from_it() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let (views, reader, token) = (&scene.app.stores.views, scene.reader, 7);
        views.begin_rebuild(reader, token, scene.now(), Rebuild::Anew).await.unwrap();
        scene.app.stores.views.clear(&[View::Reader(reader)]).await.unwrap();
        let seed = Seed { token: Some(token), ..Seed::default() };
        assert_eq!(views.seed(reader, &seed).await.unwrap(), None);
        views.finish_rebuild(reader, token, scene.now()).await.unwrap();
        assert!(views.reader_view(reader, 0).await.unwrap().is_none());
        scene.agrees("a view that was forgotten during its rebuild").await;
    });
}

#[test]
fn a_feed_that_outlives_its_state_for_its_last_hour_is_no_difference() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        scene.redis().del::<_, ()>(&scene.state_key).await.unwrap();
        let orphan = of_reader(&scene, "view-orphan", "state");
        assert_eq!(walk(world, true, 0).await["differences"], json!([orphan]));
        scene.redis().expire::<_, ()>(&scene.feed_key, 3_600).await.unwrap();
        assert_eq!(walk(world, true, 0).await["differences"], json!([]));
    });
}

#[test]
fn an_unlisted_edge_is_repaired_in_any_order_of_the_walk() {
    world(async |world| {
        let scenes = Scene::several(world, 16).await;
        for scene in &scenes {
            scene.world.delete_item("FollowersTable", schema::follower(scene.other, scene.reader)).await;
        }
        // A step covers a few keys, so readers and authors are in different steps.
        let walk = json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 1 });
        let report = fire(world, walk.clone()).await;
        assert_eq!(report["repaired"]["follower-missing"], 16, "{report}");
        assert_eq!(report["repaired"], report["found"], "{report}");
        let again = fire(world, walk).await;
        assert_eq!(again["differences"], json!([]), "the walk repaired the counts too");
    });
}

#[test]
fn the_minute_job_finds_an_abandoned_rebuild() {
    world(async |world| {
        let scenes = Scene::several(world, 2).await;
        let now = scenes[0].app.stores.clock.now().ms();
        for (scene, began) in scenes.iter().zip([now - 60_000, now]) {
            scene.app.stores.views.begin_rebuild(scene.reader, 7, Timestamp::from_ms(began), Rebuild::Anew).await.unwrap();
        }
        let abandoned = json!([of_reader(&scenes[0], "view-orphan", "rebuild")]);
        let step = async |job: &str, dry_run: bool| {
            fire(world, json!({ "job": job, "dry_run": dry_run, "settle_ms": 0, "slice": 10_000 })).await
        };
        // A step looks at one master.
        for nothing_here in 0.. {
            let dry_run = step("marks", true).await;
            let mut minute = step("minute", false).await["marks"].take();
            assert_eq!(dry_run["differences"], minute["differences"]);
            if minute["differences"] == json!([]) {
                assert!(!world.is_one_node() && nothing_here < 2, "no invocation has found it");
                continue;
            }
            assert_eq!(minute["differences"].take(), abandoned, "the other rebuild is in progress");
            assert_eq!(minute["repaired"], json!({ "view-orphan": 1 }));
            break;
        }
        let views = &scenes[0].app.stores.views;
        assert!(views.reader_view(scenes[1].reader, 0).await.unwrap().unwrap().state.meta.building);
        assert!(views.reader_view(scenes[0].reader, 0).await.unwrap().is_none());
        scenes[0].agrees("a rebuild that was abandoned").await;
        assert!(views.reader_view(scenes[0].reader, 0).await.unwrap().unwrap().state.is_complete());
    });
}

#[test]
fn expired_items_that_dynamodb_left_are_removed() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        let (now, day) = (scene.now().seconds(), 24 * 3_600);
        let record = |key: &str| schema::record(&format!("{}#publish#{key}", scene.author));
        for (key, expires_at) in [("long ago", now - 10 * day), ("yesterday", now - day), ("tomorrow", now + day)] {
            let says = [("fingerprint", s("f")), ("post", s(scene.post(1).to_string())), ("expires_at", n(expires_at))];
            scene.put("IdempotencyTable", record(key), &says).await;
        }
        scene.app.notices.publish(scene.author, &[scene.platform], &content("one", None), None).await.unwrap();
        let notices = ("notices", s(format!("{}-1", scene.platform)));
        let of_notices = schema::record(&format!("{}#notices#long ago", scene.author));
        let says = [("fingerprint", s("f")), notices, ("at", n(1)), ("expires_at", n(now - 10 * day))];
        scene.put("IdempotencyTable", of_notices, &says).await;
        let report = fire(world, json!({ "job": "users", "share": 1.0, "settle_ms": 0 })).await;
        let expired = |of| json!({ "kind": "record-expired", "record": format!("{}#{of}#long ago", scene.author) });
        let expected = ["notices", "publish"].map(expired);
        assert_eq!((&report["differences"], &report["repaired"]), (&json!(expected), &json!({ "record-expired": 2 })));
        assert_eq!(fire(world, json!({ "job": "users", "dry_run": true })).await["differences"], json!([]));
    });
}

#[test]
fn counters_and_facts_of_an_active_user_outside_the_sample_are_checked() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        scene.field(|field| field.floor = 2).await;
        for user in [scene.reader, scene.follower] {
            scene.set("CountersTable", schema::followings_counter(user), &[("count", n(9))]).await;
        }
        let (mut redis, reader, follower) = (scene.redis(), scene.reader, scene.follower);
        redis.del::<_, ()>([keys::changed(follower), keys::access(follower)].to_vec()).await.unwrap();
        let job = |share: f64| json!({ "job": "users", "dry_run": true, "share": share, "settle_ms": 0 });
        let kinds = async |share| fire(world, job(share)).await["found"].clone();
        assert_eq!(kinds(0.0).await, json!({ "followings-count": 1 }), "only the reader has a view");
        assert_eq!(kinds(1.0).await, json!({ "followings-count": 2, "view-differs": 1 }));
        // A reader without a key in Redis is found by an edge.
        redis.del::<_, ()>([keys::reactions(reader), keys::changed(reader), keys::access(reader)].to_vec()).await.unwrap();
        scene.without_view().await;
        assert_eq!(kinds(1.0).await, json!({ "followings-count": 2 }));
    });
}
