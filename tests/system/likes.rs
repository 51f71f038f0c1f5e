//! The cost of a like, and counts of a post that are split under load.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, atomic::Ordering},
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::{domain::PostId, facts::schema};
use tidemark_local::Weather;
use tidemark_tests::{
    World,
    items::{n, s},
    user_id, world,
};

use crate::{
    damage::{
        proxy::{CANCELLED, Fate, Proxy, world_behind_a_proxy},
        repair,
    },
    fields,
};

const AUTHOR: u64 = 1_000_000;

/// Clients that send requests at once.
const CLIENTS: usize = 48;

fn id(post: &str) -> PostId {
    post.parse().unwrap()
}

/// The number of parts of a post's counts.
async fn parts(world: &World, post: &str) -> u16 {
    let first = world.item("ReactionsTable", schema::post_reactions(id(post), 0)).await.unwrap_or_default();
    first.get("parts").map_or(1, |parts| parts.as_n().unwrap().parse().unwrap())
}

/// Many users like a post at once, in the weather of AWS. The users of every second client take it back.
async fn like_at_once(world: &World, post: &str, users: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    let users: Vec<u64> = users.collect();
    let path = format!("/v1/posts/{post}/like");
    world.stack.set_weather(Weather::Aws, 2);
    let lanes = users.chunks(users.len().div_ceil(CLIENTS)).enumerate();
    let left = join_all(lanes.map(async |(lane, users)| {
        for &user in users {
            let user = world.user(user);
            while user.put(&path).await.status == 503 {}
            if lane % 2 == 0 {
                while user.delete(&path).await.status == 503 {}
            }
        }
        if lane % 2 == 0 { Vec::new() } else { users.to_vec() }
    }))
    .await;
    world.calm_down().await;
    left.concat().into_iter().collect()
}

/// Count, list, group and the author's counter have exactly these users.
async fn assert_likers(world: &World, post: &str, likers: &BTreeSet<u64>) {
    let seen = world.user(1).get(&format!("/v1/posts/{post}")).await.ok();
    assert_eq!(seen["likes"], likers.len());
    let listed = world.user(1).walk(&format!("/v1/posts/{post}/likes"), 100).await;
    let listed: BTreeSet<u64> = listed.iter().map(|liker| liker["user"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(listed, *likers);
    let author = world.user(id(post).author.get());
    assert_eq!(author.get(&format!("/v1/users/{AUTHOR}/counters")).await.ok()["likes_received"], likers.len());
    let inbox = author.get("/v1/inbox").await.items();
    assert_eq!(fields(&inbox[0], &["kind", "count"]), json!(["like", likers.len()]));
}

#[test]
fn counts_of_a_post_that_are_split_under_load_stay_exact() {
    world(async |world| {
        let post = world.publish_and_deliver(AUTHOR, "liked by many").await;
        let likers = like_at_once(world, &post, 1..=400).await;
        assert!(parts(world, &post).await > 1, "the counts were not split");
        assert_likers(world, &post, &likers).await;
        assert_eq!(repair(world).await["differences"], json!([]));
        // Any part may lose more than it got.
        for user in &likers {
            world.user(*user).delete(&format!("/v1/posts/{post}/like")).await.ok();
        }
        let again = world.user(5).put(&format!("/v1/posts/{post}/like")).await.ok();
        assert_eq!(again["likes"], 1);
        world.idle().await;
        assert_likers(world, &post, &[5].into()).await;
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

#[test]
fn reposts_of_a_post_that_split_its_counts_stay_exact() {
    world(async |world| {
        let post = world.publish_and_deliver(AUTHOR, "reposted by many").await;
        let path = format!("/v1/posts/{post}/repost");
        world.stack.set_weather(Weather::Aws, 4);
        let lanes: Vec<u64> = (0..CLIENTS as u64).collect();
        join_all(lanes.iter().map(async |lane| {
            for turn in 0..6 {
                let user = world.user(1 + lane * 6 + turn);
                while user.put(&path).await.status == 503 {}
                if turn % 2 == 0 {
                    while user.delete(&path).await.status == 503 {}
                }
            }
        }))
        .await;
        world.calm_down().await;
        assert!(parts(world, &post).await > 1, "the counts were not split");
        let seen = world.user(1).get(&format!("/v1/posts/{post}")).await.ok();
        let listed = world.user(1).walk(&format!("/v1/posts/{post}/reposts"), 100).await.len();
        assert_eq!((&seen["reposts"], listed), (&json!(CLIENTS * 3), CLIENTS * 3));
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

/// Reactions of one user that meet each other split nothing.
#[test]
fn the_counts_of_a_quiet_post_have_one_part_and_few_shards() {
    world(async |world| {
        let post = world.publish_and_deliver(AUTHOR, "liked by one").await;
        world.stack.set_weather(Weather::Aws, 3);
        join_all((0..8).map(async |turn| {
            for _ in 0..5 {
                let (user, path) = (world.user(1), format!("/v1/posts/{post}/like"));
                drop(if turn % 2 == 0 { user.put(&path).await } else { user.delete(&path).await });
            }
        }))
        .await;
        world.user(1).put(&format!("/v1/posts/{post}/like")).await.ok();
        world.calm_down().await;
        assert_eq!(parts(world, &post).await, 1);
        let first = world.item("ReactionsTable", schema::post_reactions(id(&post), 0)).await.unwrap();
        assert_eq!(first["listed"].as_ns().unwrap(), &[user_id(1).shard().to_string()]);
        assert_likers(world, &post, &[1].into()).await;
    });
}

/// One partition has all posts of an author, and takes 3,000 read units a second.
#[test]
fn a_like_that_is_held_up_reads_its_post_once() {
    world_behind_a_proxy(async |world, proxy| {
        let post = world.publish_and_deliver(AUTHOR, "liked").await;
        let counted = Arc::new(Mutex::new((0, 0)));
        let seen = Arc::clone(&counted);
        proxy.decide(move |request| {
            let (reads, tries) = &mut *seen.lock().unwrap();
            *reads += usize::from(request.function == "publish" && request.body.to_string().contains("PostsTable"));
            *tries += usize::from(request.is("publish", "TransactWriteItems", "#likes"));
            if request.operation == "TransactWriteItems" && *tries <= 3 { Fate::Refused(CANCELLED) } else { Fate::Forwarded }
        });
        world.user(1).put(&format!("/v1/posts/{post}/like")).await.ok();
        assert_eq!(*counted.lock().unwrap(), (1, 4), "reads of the post, and transactions");
    });
}

/// A process may end before or after the one write of a split. The change that wanted it goes on.
#[test]
fn a_split_that_fails_or_whose_answer_is_lost_changes_no_count() {
    world_behind_a_proxy(async |world, proxy| {
        let post = world.publish_and_deliver(AUTHOR, "liked by many").await;
        let splits = proxy.decide_about(["publish", "UpdateItem", "#parts"], |before| match before % 3 {
            0 => Fate::Refused("InternalServerError"),
            1 => Fate::ResponseLost("InternalServerError"),
            _ => Fate::Forwarded,
        });
        let likers = like_at_once(world, &post, 1..=400).await;
        assert!(splits.load(Ordering::SeqCst) > 1, "{splits:?}");
        proxy.forward_all();
        assert!(parts(world, &post).await > 1, "the counts were not split");
        assert_likers(world, &post, &likers).await;
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

/// A part that is split while a change holds what it has read before.
#[test]
fn a_change_that_has_read_fewer_parts_is_counted() {
    world_behind_a_proxy(async |world, proxy| {
        let post = world.publish_and_deliver(AUTHOR, "one").await;
        let path = format!("/v1/posts/{post}/like");
        world.user(1).put(&path).await.ok();
        let (dynamodb, key) = (world.dynamodb().await, schema::post_reactions(id(&post), 0));
        proxy.rule(move |asked| {
            let is_like = asked.is("publish", "TransactWriteItems", "#likes");
            let update = dynamodb.update_item().table_name("ReactionsTable").set_key(Some(key.clone()));
            let split = update.update_expression("SET parts = :parts").expression_attribute_values(":parts", n(16));
            Box::pin(async move {
                if is_like {
                    split.send().await.unwrap();
                }
                Fate::Forwarded
            })
        });
        world.user(2).put(&path).await.ok();
        proxy.forward_all();
        world.user(3).put(&path).await.ok();
        world.user(1).delete(&path).await.ok();
        world.idle().await;
        assert_likers(world, &post, &[2, 3].into()).await;
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

/// The parts of split counts are damaged in every way. No request fails, and one walk or two make the counts right.
#[test]
fn split_counts_that_are_wrong_are_no_error_and_are_repaired_as_a_whole() {
    world(async |world| {
        let post = world.publish_and_deliver(AUTHOR, "liked").await;
        let key = |part| schema::post_reactions(id(&post), part);
        world.update_item("ReactionsTable", key(0), &[("parts", n(4))], &[]).await;
        let like = async || {
            for user in 1..=5 {
                world.user(user).put(&format!("/v1/posts/{post}/like")).await.ok();
            }
        };
        like().await;
        world.idle().await;
        let damages: [&[(u16, &str, AttributeValue)]; 8] = [
            &[(0, "likes", n(40))],
            &[(2, "likes", n(-9))],
            &[(3, "likes", s("many"))],
            &[(0, "likes", s("many")), (1, "likes", s("many"))],
            &[(1, "changes", s("many")), (0, "likes", n(7))],
            &[(0, "changes", s("many"))],
            &[(0, "parts", s("many")), (0, "likes", n(3))],
            &[(0, "parts", n(1)), (0, "listed", s("none"))],
        ];
        for damage in damages {
            for (part, attribute, value) in damage {
                world.update_item("ReactionsTable", key(*part), &[(*attribute, value.clone())], &[]).await;
            }
            world.user(9).get(&format!("/v1/posts/{post}")).await.ok();
            // A part has three counts. One run repairs one of them.
            for _ in 0..3 {
                repair(world).await;
            }
            let facts = &world.stack.app("publish").unwrap().stores.facts;
            assert_eq!(facts.reaction_counts(id(&post)).await.unwrap().counts.likes, 5, "{damage:?}");
            assert_eq!(repair(world).await["differences"], json!([]), "{damage:?}");
            let listed = world.user(9).walk(&format!("/v1/posts/{post}/likes"), 100).await.len();
            assert_eq!(listed, 5, "{damage:?}");
            like().await;
            world.idle().await;
        }
    });
}

/// Read units, write units and requests of one like with all that follows from it.
async fn cost(world: &World, proxy: &Proxy, post: &str, user: u64) -> (f64, f64, Value) {
    world.idle().await;
    proxy.meter();
    world.user(user).put(&format!("/v1/posts/{post}/like")).await.ok();
    world.idle().await;
    let meter = proxy.meter();
    (meter.units - meter.written, meter.written, json!(meter.requests))
}

/// The most read units of a like with the workers that it starts, of a post with so many likes (docs/limits.md).
const LIKE_UNITS: [(u64, f64); 4] = [(0, 48.0), (1, 35.0), (10, 65.0), (100, 80.0)];

#[test]
fn a_like_of_a_post_with_few_likes_costs_few_units() {
    world_behind_a_proxy(async |world, proxy| {
        for (likes, most) in LIKE_UNITS {
            let author = AUTHOR + likes;
            let post = world.publish_and_deliver(author, "liked").await;
            for user in 1..=likes {
                world.user(user).put(&format!("/v1/posts/{post}/like")).await.ok();
            }
            let (read, written, requests) = cost(world, proxy, &post, 5_000).await;
            println!("a like of a post with {likes} likes: {read:.1} read units, {written:.1} write units: {requests}");
            assert!(read <= most, "{read} read units for a like of a post with {likes} likes");
            world.flush_redis().await;
            world.user(5_001).get("/v1/unread").await.ok();
            world.idle().await;
            proxy.meter();
            world.user(5_001).get(&format!("/v1/posts/{post}")).await.ok();
            let meter = proxy.meter();
            println!("a cold read of it: {:.1} read units", meter.units - meter.written);
        }
    });
}
