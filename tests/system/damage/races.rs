//! Repairs beside traffic, and writes whose answer is lost: each race is driven request by request.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use futures::FutureExt;
use serde_json::{Value, json};
use tidemark::{domain::UserId, facts::schema};
use tidemark_tests::{User, World, world};

use super::{
    Scene, fire, listed,
    proxy::{Asked, Fate, Proxy, world_behind_a_proxy},
    scene::{n, s},
};

/// Follows while the list is read, and unfollows before the count is read and before it is repaired: list and count never agree, and the count is the same each time.
async fn churn(world: &World, proxy: &Proxy, listing: &'static str, counter: String) {
    let (follower, author) = (world.user(1), "/v1/following/50");
    let counted = Arc::new(AtomicBool::new(false));
    proxy.rule(move |asked: Asked| {
        let (follower, counter, counted) = (follower.clone(), counter.clone(), Arc::clone(&counted));
        async move {
            if asked.is("reconcile", "BatchGetItem", &counter) {
                // A look begins: the count is read without the edge.
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
        fire(world, json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 100_000 })).await;
    }
    proxy.forward_all();
}

#[tokio::test]
async fn a_count_that_is_right_is_not_repaired_while_the_follower_comes_and_goes() {
    world_behind_a_proxy(async |world, proxy| {
        world.user(1).put("/v1/following/60").await.ok();
        world.user(2).put("/v1/following/50").await.ok();
        for user in [1, 50] {
            world.user(user).get(&format!("/v1/users/{user}/counters")).await.ok();
        }
        world.idle().await;
        let shard = UserId::new(1).unwrap().shard();
        let listing = Box::leak(format!("50#{shard:02}").into_boxed_str());
        for (listing, counter) in [("\"1\"", "u#1".to_owned()), (&*listing, format!("f#50#{shard:02}"))] {
            churn(world, proxy, listing, counter).await;
            world.user(1).delete("/v1/following/50").await.ok();
            world.idle().await;
            let edges = &world.stack.app("follow").unwrap().edges;
            let counts = edges.follower_counts(UserId::new(50).unwrap()).await.unwrap();
            assert_eq!(counts.iter().sum::<u64>(), 1, "one follower is left");
            assert_eq!(edges.followings(UserId::new(1).unwrap()).await.unwrap(), 1, "one author is left");
        }
    })
    .await;
}

/// Everything that counts the author of a scene.
async fn with_counts(scene: &Scene<'_>, count: aws_sdk_dynamodb::types::AttributeValue) {
    let (reader, author, shard) = (scene.reader(), scene.author(), scene.reader().shard());
    scene.update("CountersTable", schema::followings_counter(author), &[("count", count.clone())], &[]).await;
    scene.update("CountersTable", schema::followings_counter(reader), &[("count", count.clone())], &[]).await;
    scene.update("CountersTable", schema::followers_counter(author, shard), &[("count", count.clone())], &[]).await;
    scene.update("PostsTable", schema::head(author), &[("posts", count.clone())], &[]).await;
    let likes = [("likes", count.clone()), ("favorites", count)];
    scene.update("ReactionsTable", schema::author_reactions(author, shard), &likes, &[]).await;
    scene.update("ReactionsTable", schema::post_reactions(scene.post(2), shard), &likes, &[]).await;
}

#[tokio::test]
async fn a_count_below_zero_is_no_error_and_hides_no_follower_and_is_repaired() {
    world(async |world| {
        let scenes = [Scene::new(world, 1_000).await, Scene::new(world, 2_000).await];
        world.idle().await;
        let reconcile = json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 100_000 });
        fire(world, reconcile.clone()).await;
        let counters: Vec<Value> = futures::future::join_all(scenes.iter().map(counters)).await;
        with_counts(&scenes[0], aws_sdk_dynamodb::types::AttributeValue::N("-1".to_owned())).await;
        with_counts(&scenes[1], n(0)).await;
        for scene in &scenes {
            let author = scene.caller(scene.author());
            scene.app.relations.forget_counters(scene.author(), None).await.unwrap();
            author.get(&format!("/v1/users/{}/counters", scene.author())).await.ok();
            author.get(&format!("/v1/posts/{}", scene.post(2))).await.ok();
            let post = author.publish("to real followers").await;
            world.idle().await;
            let delivery = author.get(&format!("/v1/posts/{post}/delivery")).await.ok();
            assert_eq!((&delivery["state"], &delivery["delivered"]), (&json!("done"), &json!(2)));
            assert!(scene.caller(scene.reader()).feed_ids().await.contains(&post));
            author.delete(&format!("/v1/posts/{post}")).await.ok();
            world.idle().await;
        }
        let report = fire(world, reconcile.clone()).await;
        assert_eq!(report["repaired"], report["found"], "{report}");
        assert!(report["found"]["followers-count"].as_u64() == Some(2), "{report}");
        assert_eq!(futures::future::join_all(scenes.iter().map(self::counters)).await, counters);
        assert_eq!(fire(world, reconcile).await["differences"], json!([]));
    })
    .await;
}

async fn counters(scene: &Scene<'_>) -> Value {
    scene.caller(scene.author()).get(&format!("/v1/users/{}/counters", scene.author())).await.ok()
}

#[tokio::test]
async fn a_count_that_is_no_number_is_no_error_and_is_repaired() {
    world(async |world| {
        let scene = Scene::new(world, 1_000).await;
        world.idle().await;
        with_counts(&scene, s("many")).await;
        scene.app.relations.forget_counters(scene.author(), None).await.unwrap();
        counters(&scene).await;
        scene.caller(scene.author()).get(&format!("/v1/posts/{}", scene.post(2))).await.ok();
        let reconcile = json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 100_000 });
        let report = fire(world, reconcile.clone()).await;
        assert_eq!(report["repaired"], report["found"], "{report}");
        scene.caller(scene.author()).publish("counted again").await;
        assert_eq!(counters(&scene).await["posts"], 6);
        world.idle().await;
        assert_eq!(fire(world, reconcile).await["differences"], json!([]));
    })
    .await;
}

/// The first transaction of a function is done, and all that its sender hears of it is an error. Transactions that carry the same token are refused with the same.
fn lose(proxy: &Proxy, function: &'static str, code: &'static str) {
    let token = Arc::new(Mutex::new(None::<Value>));
    proxy.rule(move |asked: Asked| {
        let mut fate = Fate::Forwarded;
        if asked.function == function && asked.operation == "TransactWriteItems" {
            let mut lost = token.lock().unwrap();
            let known = lost.clone();
            let this = asked.body["ClientRequestToken"].clone();
            match known {
                None => {
                    *lost = Some(this);
                    fate = Fate::AnswerLost(code);
                }
                Some(known) if known == this => fate = Fate::Refused(code),
                Some(_) => {}
            }
        }
        async move { fate }.boxed()
    });
}

const UNSURE: [&str; 2] = ["TransactionInProgressException", "InternalServerError"];

#[tokio::test]
async fn a_publish_whose_answer_is_lost_publishes_once() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=2, 99).await;
        world.user(1).feed_ids().await;
        for (code, expected) in UNSURE.into_iter().zip(["99-1", "99-2"]) {
            lose(proxy, "publish", code);
            assert_eq!(world.user(99).publish("once").await, expected);
            proxy.forward_all();
            world.idle().await;
            let delivery = world.user(99).get(&format!("/v1/posts/{expected}/delivery")).await.ok();
            assert_eq!(delivery["state"], "done", "its fan-out has begun");
        }
        assert_eq!(world.user(1).feed_ids().await, ["99-2", "99-1"]);
        let author = world.user(99).walk("/v1/authors/99/posts", 10).await;
        assert_eq!(author.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_follow_whose_answer_is_lost_says_created_and_an_unfollow_is_shown() {
    world_behind_a_proxy(async |world, proxy| {
        world.user(99).publish("one").await;
        let reader = world.user(1);
        reader.feed_ids().await;
        world.idle().await;
        world.stack.pause("relation-projector").await.unwrap();
        for code in UNSURE {
            lose(proxy, "follow", code);
            assert_eq!(reader.put("/v1/following/99").await.ok()["created"], true);
            assert_eq!(reader.feed_ids().await, ["99-1"]);
            lose(proxy, "follow", code);
            reader.delete("/v1/following/99").await.ok();
            proxy.forward_all();
            assert_eq!(reader.feed_ids().await, [""; 0], "shown by the request itself");
        }
        world.stack.resume("relation-projector").unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_last_follow_that_the_limit_allows_is_created_though_its_answer_is_lost() {
    world_behind_a_proxy(async |world, proxy| {
        let (edges, user) = (&world.stack.app("follow").unwrap().edges, UserId::new(1).unwrap());
        let limit = world.stack.app("follow").unwrap().settings.following_limit;
        world.user(1).put("/v1/following/50").await.ok();
        let dynamodb = world.dynamodb().await;
        let update = dynamodb.update_item().table_name("CountersTable").set_key(Some(schema::followings_counter(user)));
        let update = update.update_expression("SET #count = :count").expression_attribute_names("#count", "count");
        update.expression_attribute_values(":count", n(limit - 1)).send().await.unwrap();
        lose(proxy, "follow", "TransactionInProgressException");
        assert_eq!(world.user(1).put("/v1/following/51").await.ok()["created"], true);
        proxy.forward_all();
        assert_eq!(edges.followings(user).await.unwrap(), limit);
        assert_eq!(world.user(1).put("/v1/following/52").await.status, 422);
    })
    .await;
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_is_retracted() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=2, 99).await;
        world.user(1).feed_ids().await;
        for code in UNSURE {
            let post = world.user(99).publish("short").await;
            world.idle().await;
            lose(proxy, "publish", code);
            world.user(99).delete(&format!("/v1/posts/{post}")).await.ok();
            proxy.forward_all();
            world.idle().await;
            let report = fire(world, json!({ "job": "fan-outs", "dry_run": true, "overdue_ms": 0 })).await;
            assert_eq!(report["unfinished"], 0, "{report}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_fan_out_waits_for_the_transaction_that_holds_its_post() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=2, 99).await;
        let held = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&held);
        proxy.rule(move |asked: Asked| {
            let conflict = asked.is("fan-out", "UpdateItem", "post#") && count.fetch_add(1, Ordering::SeqCst) % 10 < 9;
            async move { if conflict { Fate::Refused("TransactionConflictException") } else { Fate::Forwarded } }.boxed()
        });
        let post = world.user(99).publish("liked by everybody").await;
        world.idle().await;
        world.user(99).delete(&format!("/v1/posts/{post}")).await.ok();
        world.idle().await;
        proxy.forward_all();
        assert_eq!(held.load(Ordering::SeqCst), 20, "done at the tenth attempt, twice");
        let report = fire(world, json!({ "job": "fan-outs", "dry_run": true, "overdue_ms": 0 })).await;
        assert_eq!(report["unfinished"], 0, "{report}");
    })
    .await;
}

/// Seconds of traffic; `TIDEMARK_CHURN_SECONDS` of the tests' own build asks for more.
const CHURN_SECONDS: &str = match option_env!("TIDEMARK_CHURN_SECONDS") {
    Some(seconds) => seconds,
    None => "8",
};

#[tokio::test]
async fn reconcile_repairs_nothing_beside_traffic() {
    world(async |world| {
        let lasts = std::time::Duration::from_secs(CHURN_SECONDS.parse().unwrap());
        let (started, over) = (std::time::Instant::now(), AtomicBool::new(false));
        for user in 1..=20 {
            world.user(user).publish("first").await;
        }
        let clients = futures::future::join_all((0..8_u64).map(async |client| {
            let mut random = client * 7_919 + 1;
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below
            };
            let mut requests = 0_u64;
            while !over.load(Ordering::Relaxed) {
                let (user, author, what) = (next(20) + 1, next(20) + 1, next(100));
                let author = if author == user { author % 20 + 1 } else { author };
                let caller: User = world.user(user);
                match what {
                    0..35 => drop(caller.put(&format!("/v1/following/{author}")).await),
                    35..65 => drop(caller.delete(&format!("/v1/following/{author}")).await),
                    65..75 => drop(caller.put(&format!("/v1/posts/{author}-1/like")).await),
                    75..82 => drop(caller.delete(&format!("/v1/posts/{author}-1/like")).await),
                    82..90 => drop(caller.put(&format!("/v1/posts/{author}-1/read")).await),
                    90..94 => drop(caller.publish("again").await),
                    _ => drop(caller.feed_ids().await),
                }
                requests += 1;
            }
            requests
        }));
        let job = json!({ "job": "users", "share": 1.0, "settle_ms": 1_000, "slice": 100_000 });
        let look = async {
            let (mut looks, mut repaired, mut found) = (0, Vec::new(), BTreeSet::new());
            while started.elapsed() < lasts {
                // On a busy machine Redis may not answer in time; what cannot be looked at is not repaired.
                let report = world.stack.fire("reconcile", Some(job.clone())).await.unwrap();
                looks += 1;
                if report["repaired"] != json!({}) {
                    repaired.push(report["repaired"].clone());
                }
                found.extend(listed(&[report]));
            }
            over.store(true, Ordering::Relaxed);
            (looks, repaired, found)
        };
        let (requests, (looks, repaired, found)) = futures::join!(clients, look);
        println!("{looks} looks beside {} requests: repaired {repaired:?}, found {found:?}", requests.iter().sum::<u64>());
        assert!(repaired.is_empty(), "{repaired:?}: {found:?}");
        world.idle().await;
        assert_eq!(fire(world, job).await["differences"], json!([]), "at idle");
    })
    .await;
}
