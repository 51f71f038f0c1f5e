//! Repairs during traffic, and writes whose response is lost. The test controls each race request by request.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::{FutureExt, future::join_all};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark::facts::schema;
use tidemark_tests::{
    World,
    items::{n, s},
    number_from, user_id, world,
};

use super::{
    Scene, fire, listed,
    proxy::{Fate, Proxy, Request, world_behind_a_proxy},
    repair,
};

/// Follows while the list is read, and unfollows before the count is read and before it is repaired. List and count
/// differ in every look, and the count is the same each time.
async fn churn(world: &World, proxy: &Proxy, listing: &'static str, counter: String) {
    let (follower, author) = (world.user(1), "/v1/following/50");
    let counted = Arc::new(AtomicBool::new(false));
    proxy.rule(move |asked: Request| {
        let (follower, counter, counted) = (follower.clone(), counter.clone(), Arc::clone(&counted));
        async move {
            if asked.is("reconcile", "BatchGetItem", &counter) {
                // The look begins and reads the count without the edge.
                follower.delete(author).await.ok();
                counted.store(true, Ordering::SeqCst);
            } else if asked.is("reconcile", "Query", listing) && counted.swap(false, Ordering::SeqCst) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                follower.put(author).await.ok();
            } else if asked.is("reconcile", "UpdateItem", &counter) {
                follower.delete(author).await.ok();
            }
            Fate::Forwarded
        }
        .boxed()
    });
    for _ in 0..3 {
        repair(world).await;
    }
    proxy.forward_all();
}

#[test]
fn a_right_count_is_not_repaired_during_follows_and_unfollows() {
    world_behind_a_proxy(async |world, proxy| {
        world.user(1).put("/v1/following/60").await.ok();
        world.user(2).put("/v1/following/50").await.ok();
        for user in [1, 50] {
            world.user(user).get(&format!("/v1/users/{user}/counters")).await.ok();
        }
        world.idle().await;
        let shard = user_id(1).shard();
        let listing = Box::leak(format!("50#{shard:02}").into_boxed_str());
        for (listing, counter) in [("\"1\"", "u#1".to_owned()), (&*listing, format!("f#50#{shard:02}"))] {
            churn(world, proxy, listing, counter).await;
            world.user(1).delete("/v1/following/50").await.ok();
            world.idle().await;
            assert_eq!(world.follower_count(50).await, 1, "one follower is left");
            let facts = &world.stack.app("follow").unwrap().stores.facts;
            assert_eq!(facts.followings(user_id(1)).await.unwrap(), 1, "one author is left");
        }
    });
}

/// All counters of the author of a scene.
async fn with_counts(scene: &Scene<'_>, count: AttributeValue) {
    let (reader, author, shard) = (scene.reader, scene.author, scene.reader.shard());
    for (table, key, attributes) in [
        ("CountersTable", schema::followings_counter(author), &["count"] as &[_]),
        ("CountersTable", schema::followings_counter(reader), &["count"]),
        ("CountersTable", schema::followers_counter(author, shard), &["count"]),
        ("PostsTable", schema::head(author), &["posts"]),
        ("ReactionsTable", schema::author_reactions(author, shard), &["likes", "favorites"]),
        ("ReactionsTable", schema::post_reactions(scene.post(2), 0), &["likes", "favorites"]),
    ] {
        let set: Vec<_> = attributes.iter().map(|attribute| (*attribute, count.clone())).collect();
        scene.set(table, key, &set).await;
    }
}

#[test]
fn a_negative_count_is_not_an_error_hides_no_follower_and_is_repaired() {
    world(async |world| {
        let scenes = Scene::several(world, 2).await;
        repair(world).await;
        let before = join_all(scenes.iter().map(|scene| scene.counters(scene.author))).await;
        with_counts(&scenes[0], n(-1)).await;
        with_counts(&scenes[1], n(0)).await;
        for scene in &scenes {
            let author = scene.caller(scene.author);
            scene.app.stores.views.forget_counters(scene.author, None).await.unwrap();
            scene.counters(scene.author).await;
            author.get(&format!("/v1/posts/{}", scene.post(2))).await.ok();
            let post = world.publish_and_deliver(scene.author.get(), "to real followers").await;
            let delivery = author.get(&format!("/v1/posts/{post}/delivery")).await.ok();
            assert_eq!((&delivery["state"], &delivery["delivered"]), (&json!("done"), &json!(2)));
            assert!(scene.caller(scene.reader).feed_ids().await.contains(&post));
            author.delete(&format!("/v1/posts/{post}")).await.ok();
            world.idle().await;
        }
        let report = repair(world).await;
        assert_eq!(report["repaired"], report["found"], "{report}");
        assert_eq!(report["found"]["followers-count"], 2, "{report}");
        assert_eq!(join_all(scenes.iter().map(|scene| scene.counters(scene.author))).await, before);
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

#[test]
fn a_count_that_is_not_a_number_is_not_an_error_and_is_repaired() {
    world(async |world| {
        let scene = Scene::settled(world).await;
        with_counts(&scene, s("many")).await;
        scene.app.stores.views.forget_counters(scene.author, None).await.unwrap();
        scene.counters(scene.author).await;
        scene.caller(scene.author).get(&format!("/v1/posts/{}", scene.post(2))).await.ok();
        let report = repair(world).await;
        assert_eq!(report["repaired"], report["found"], "{report}");
        scene.caller(scene.author).publish("counted again").await;
        assert_eq!(scene.counters(scene.author).await["posts"], 6);
        world.idle().await;
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

/// Lets the first transaction of a function succeed and returns an error for it. Transactions with the same token get
/// the same error.
fn lose(proxy: &Proxy, function: &'static str, code: &'static str) {
    let lost = OnceLock::new();
    proxy.decide(move |asked| {
        if !asked.is(function, "TransactWriteItems", "") {
            return Fate::Forwarded;
        }
        let token = &asked.body["ClientRequestToken"];
        match lost.set(token.clone()) {
            Ok(()) => Fate::ResponseLost(code),
            Err(_) if lost.get() == Some(token) => Fate::Refused(code),
            Err(_) => Fate::Forwarded,
        }
    });
}

const UNSURE: [&str; 2] = ["TransactionInProgressException", "InternalServerError"];

async fn assert_finished(world: &World) {
    let report = fire(world, json!({ "job": "fan-outs", "dry_run": true, "overdue_ms": 0 })).await;
    assert_eq!(report["unfinished"], 0, "{report}");
}

#[test]
fn a_publish_and_a_deletion_with_a_lost_response_are_done_once() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=2, 99).await;
        let (reader, author) = (world.user(1), world.user(99));
        reader.feed_ids().await;
        for (code, expected) in UNSURE.into_iter().zip(["99-1", "99-2"]) {
            lose(proxy, "publish", code);
            assert_eq!(author.publish("once").await, expected);
            proxy.forward_all();
            world.idle().await;
            let delivery = author.get(&format!("/v1/posts/{expected}/delivery")).await.ok();
            assert_eq!(delivery["state"], "done", "its fan-out has begun");
        }
        assert_eq!(reader.feed_ids().await, ["99-2", "99-1"]);
        assert_eq!(author.walk("/v1/authors/99/posts", 10).await.len(), 2);
        for (code, post) in UNSURE.into_iter().zip(["99-1", "99-2"]) {
            lose(proxy, "publish", code);
            author.delete(&format!("/v1/posts/{post}")).await.ok();
            proxy.forward_all();
            world.idle().await;
            assert_finished(world).await;
        }
    });
}

#[test]
fn a_publish_whose_transaction_stays_in_progress_beyond_its_time_is_not_refused() {
    world_behind_a_proxy(async |world, proxy| {
        for code in UNSURE {
            let token = Arc::new(OnceLock::new());
            proxy.rule(move |asked: Request| {
                let token = Arc::clone(&token);
                async move {
                    if !asked.is("publish", "TransactWriteItems", "") {
                        return Fate::Forwarded;
                    }
                    match token.set(asked.body["ClientRequestToken"].clone()) {
                        Ok(()) => Fate::ResponseLost(code),
                        Err(_) => {
                            tokio::time::sleep(std::time::Duration::from_secs(7)).await;
                            Fate::Refused(code)
                        }
                    }
                }
                .boxed()
            });
            let response = world.user(99).post("/v1/posts", &json!({ "title": code, "body": "" })).await;
            assert_eq!(response.status, 201, "{code}: it is written: {}", response.body);
            proxy.forward_all();
        }
        assert_eq!(world.user(99).walk("/v1/authors/99/posts", 10).await.len(), UNSURE.len());
    });
}

#[test]
fn follows_with_a_lost_response_return_created_up_to_the_limit_and_an_unfollow_is_visible() {
    world_behind_a_proxy(async |world, proxy| {
        world.user(99).publish("one").await;
        let reader = world.user(1);
        reader.feed_ids().await;
        world.idle().await;
        world.stack.pause("projector").await.unwrap();
        for code in UNSURE {
            lose(proxy, "follow", code);
            assert_eq!(reader.put("/v1/following/99").await.ok()["created"], true);
            assert_eq!(reader.feed_ids().await, ["99-1"]);
            lose(proxy, "follow", code);
            reader.delete("/v1/following/99").await.ok();
            proxy.forward_all();
            assert_eq!(reader.feed_ids().await, [""; 0], "the request itself updates the view");
        }
        world.resume("projector").await;
        let app = world.stack.app("follow").unwrap();
        let (limit, user) = (app.settings.following_limit, user_id(2));
        world.follow([2], 50).await;
        world.update_item("CountersTable", schema::followings_counter(user), &[("count", n(limit - 1))], &[]).await;
        lose(proxy, "follow", "TransactionInProgressException");
        assert_eq!(world.user(2).put("/v1/following/51").await.ok()["created"], true);
        proxy.forward_all();
        assert_eq!(app.stores.facts.followings(user).await.unwrap(), limit);
        assert_eq!(world.user(2).put("/v1/following/52").await.status, 422);
    });
}

#[test]
fn a_fan_out_waits_for_the_transaction_that_holds_its_post() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=2, 99).await;
        let conflict = Fate::Refused("TransactionConflictException");
        let held = proxy.decide_about(["fan-out", "UpdateItem", "post#"], move |before| match before % 10 {
            0..9 => conflict,
            _ => Fate::Forwarded,
        });
        let post = world.publish_and_deliver(99, "liked by everybody").await;
        world.user(99).delete(&format!("/v1/posts/{post}")).await.ok();
        world.idle().await;
        proxy.forward_all();
        assert_eq!(held.load(Ordering::SeqCst), 20, "done at the tenth attempt, twice");
        assert_finished(world).await;
    });
}

#[test]
fn a_request_waits_for_an_item_that_is_held_or_whose_partition_is_at_its_limit() {
    world_behind_a_proxy(async |world, proxy| {
        let path = format!("/v1/posts/{}/comments", world.publish_and_deliver(99, "hot").await);
        let comment = format!(r#"POST {path} {{"text": "hot"}}"#);
        for (operation, of, code, request) in [
            ("UpdateItem", "c#99-1", "TransactionConflictException", &comment),
            ("UpdateItem", "c#99-1", "ThrottlingException", &comment),
            ("BatchGetItem", "c#99-1", "ThrottlingException", &format!("GET {path}")),
            ("Query", "99#1#comments#0", "ThrottlingException", &format!("GET {path}")),
        ] {
            // The SDK gives up after three attempts.
            let held = proxy.decide_about(["publish", operation, of], move |before| match before {
                0..4 => Fate::Refused(code),
                _ => Fate::Forwarded,
            });
            world.user(1).request(request).await.ok();
            proxy.forward_all();
            assert!(held.load(Ordering::SeqCst) > 4, "{operation} {code}");
        }
        assert_eq!(world.user(1).get(&path).await.ok()["total"], 2);
    });
}

/// Runs random operations of one client until the time is over. Returns their number.
async fn churning_client(world: &World, client: u64, over: &AtomicBool) -> u64 {
    let (mut rng, mut done) = (StdRng::seed_from_u64(client), 0);
    while !over.load(Ordering::Relaxed) {
        let (user, author) = (rng.random_range(1..=20), rng.random_range(1..=20));
        let author = if author == user { author % 20 + 1 } else { author };
        let caller = world.user(user);
        let (following, post) = (format!("/v1/following/{author}"), format!("/v1/posts/{author}-1"));
        match rng.random_range(0..100) {
            0..35 => drop(caller.put(&following).await.ok()),
            35..65 => drop(caller.delete(&following).await.ok()),
            65..75 => drop(caller.put(&format!("{post}/like")).await.ok()),
            75..82 => drop(caller.delete(&format!("{post}/like")).await.ok()),
            82..90 => drop(caller.put(&format!("{post}/read")).await.ok()),
            90..94 => drop(caller.publish("again").await),
            _ => drop(caller.feed_ids().await),
        }
        done += 1;
    }
    done
}

/// Runs for `TIDEMARK_CHURN_SECONDS`. `make churn` sets a longer time.
#[tokio::test(flavor = "multi_thread")]
async fn reconcile_repairs_nothing_beside_traffic() {
    World::run(async |world| {
        let lasts = std::time::Duration::from_secs(number_from("TIDEMARK_CHURN_SECONDS", 8));
        let (started, over) = (std::time::Instant::now(), AtomicBool::new(false));
        for user in 1..=20 {
            world.user(user).publish("first").await;
        }
        let clients = join_all((0..8).map(|client| churning_client(world, client, &over)));
        // A difference must last as long as in a deployment: the task that changes a step waits for a second itself.
        let job = json!({ "job": "users", "share": 1.0, "slice": 100_000 });
        let look = async {
            let (mut looks, mut repaired, mut found) = (0, Vec::new(), BTreeSet::new());
            while started.elapsed() < lasts {
                // On a busy machine Redis may be too slow. Then a look fails, and its object is not repaired.
                let report = world.reconcile(job.clone()).await;
                looks += 1;
                if report["repaired"] != json!({}) {
                    repaired.push(report["repaired"].clone());
                }
                found.extend(listed(&[report]));
            }
            over.store(true, Ordering::Relaxed);
            (looks, repaired, found)
        };
        let (clients, (looks, repaired, found)) = futures::join!(clients, look);
        println!("{} requests by 8 clients on 20 users", clients.into_iter().sum::<u64>());
        println!("{looks} looks at the same time: repaired {repaired:?}, found {found:?}");
        assert!(repaired.is_empty(), "{repaired:?}: {found:?}");
        world.idle().await;
        let differences = fire(world, job).await["differences"].clone();
        println!("differences at idle: {differences}");
        assert_eq!(differences, json!([]), "at idle");
    })
    .await;
}
