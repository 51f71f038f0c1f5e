//! Requests for one author by many users at once, in the weather of AWS, and counters that are split.

mod minute;

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Instant,
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::join_all;
use serde_json::json;
use tidemark::{
    domain::Timestamp,
    facts::{
        item::encode,
        schema::{self, CounterItem, DraftItem},
    },
};
use tidemark_local::Weather;
use tidemark_tests::{
    Response, World,
    items::{n, s, with_attributes},
    number_from, user_id, world,
};

use crate::{
    at_once,
    damage::{
        fire,
        proxy::{CANCELLED, Fate, Proxy, world_behind_a_proxy},
    },
    delivery::delivery,
    operations::put_or_delete,
};

const CLIENTS: usize = 48;

const AUTHOR: u64 = 1_000_000;

/// Splits a shard of an author's follower count into 4 parts, as a busy counter is.
pub(crate) async fn split(dynamodb: &aws_sdk_dynamodb::Client, author: u64, shard: u16) {
    let update = dynamodb.update_item().table_name("CountersTable");
    let update = update.set_key(Some(schema::followers_counter(user_id(author), shard)));
    let update = update.update_expression("SET parts = :parts").expression_attribute_values(":parts", n(4));
    update.send().await.unwrap();
}

fn now(world: &World) -> Timestamp {
    world.stack.app("publish").unwrap().stores.clock.now()
}

/// Lets an author's head say, for a minute, that posts have to wait for it.
pub(crate) async fn set_contended(world: &World, author: u64) {
    let at = n(now(world).ms() + 60_000);
    world.update_item("PostsTable", schema::head(user_id(author)), &[("contended_at", at)], &[]).await;
}

async fn counts(world: &World, author: u64) -> u64 {
    let edges = &world.stack.app("follow").unwrap().stores.edges;
    edges.follower_counts(user_id(author)).await.unwrap().iter().sum()
}

async fn parts(world: &World, author: u64) -> Vec<CounterItem> {
    let parts = world.stack.app("follow").unwrap().facts.follower_parts(user_id(author)).await.unwrap();
    parts.into_iter().flatten().collect()
}

async fn reconcile(world: &World) -> serde_json::Value {
    fire(world, json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 100_000 })).await
}

/// Sends requests from this many clients at once. A client repeats a request that got a 503. Returns the number of
/// these.
async fn send(what: &str, clients: usize, requests: u64, request: impl AsyncFn(u64) -> Response) -> u64 {
    let (started, refused) = (Instant::now(), Cell::new(0));
    at_once(clients, 0..requests, async |number| {
        loop {
            match request(number).await.status {
                200 | 201 | 204 => break,
                503 => refused.set(refused.get() + 1),
                status => panic!("{status}"),
            }
        }
    })
    .await;
    let refused = refused.get();
    println!("{what}: {:.0} a second, {refused} of them refused at first", requests as f64 / started.elapsed().as_secs_f64());
    refused
}

/// Returns the number of transactions for each follow, and the number of refused requests.
async fn follow(world: &World, proxy: &Proxy, follows: u64, first: u64, author: impl Fn(u64) -> u64) -> (f64, u64) {
    proxy.meter();
    let follow = async |number| world.user(first + number).put(&format!("/v1/following/{}", author(number))).await;
    let refused = send("follows", CLIENTS, follows, follow).await;
    let transactions = proxy.meter().requests.get("TransactWriteItems").copied().unwrap_or(0);
    (transactions as f64 / follows as f64, refused)
}

/// Posts by one author from many clients, then marks of these posts by many readers: `TIDEMARK_POSTS`,
/// `TIDEMARK_MARKS`.
#[test]
fn posts_and_marks_of_one_author_stay_exact_in_the_weather_of_aws() {
    world_behind_a_proxy(async |world, proxy| {
        const READERS: u64 = 40;
        let (posts, marks) = (number_from("TIDEMARK_POSTS", 200), number_from("TIDEMARK_MARKS", 800));
        world.follow(1..=READERS, AUTHOR).await;
        world.read_feeds(1..=READERS).await;
        world.stack.set_weather(Weather::Aws, 4);
        proxy.meter();
        let publish = async |number| {
            let body = json!({ "title": format!("post {number}") });
            world.user(AUTHOR).post_with_key("/v1/posts", &format!("post-{number}"), &body).await
        };
        send("posts of one author", 16, posts, publish).await;
        let written = proxy.meter().requests;
        println!("{written:?}");
        // Each reader marks posts 1, 2, 3 …
        let mark = async |number: u64| {
            let post = (number / READERS) % posts + 1;
            world.user(number % READERS + 1).put(&format!("/v1/posts/{AUTHOR}-{post}/read")).await
        };
        let refused = send("marks on one author", CLIENTS, marks, mark).await;
        world.calm_down().await;
        assert_eq!(refused, 0, "readers share no item");
        for reader in 1..=READERS {
            let marked = (marks / READERS + u64::from(reader <= marks % READERS)).min(posts);
            assert_eq!(world.user(reader).unread_total().await, posts - marked, "reader {reader}");
        }
        assert_numbered(world, posts).await;
        assert!(written["TransactWriteItems"] < posts, "one transaction writes several posts: {written:?}");
        assert_eq!(reconcile(world).await["differences"], json!([]));
    });
}

/// The titles of the author's posts, the newest first.
async fn titles(world: &World) -> Vec<String> {
    let posts = world.user(AUTHOR).walk(&format!("/v1/authors/{AUTHOR}/posts"), 100).await;
    posts.iter().map(|post| post["title"].as_str().unwrap().to_owned()).collect()
}

/// Asserts that the author has posts 0, 1, 2 … once each, in any order.
async fn assert_numbered(world: &World, posts: u64) {
    let titles = titles(world).await;
    let found: BTreeSet<&String> = titles.iter().collect();
    let missing: Vec<u64> = (0..posts).filter(|number| !found.contains(&format!("post {number}"))).collect();
    assert!(missing.is_empty() && titles.len() as u64 == posts, "{} of {posts}, without {missing:?}", titles.len());
}

#[test]
fn a_draft_that_was_left_behind_is_written_once_or_never() {
    world(async |world| {
        let author = world.user(AUTHOR);
        let keyed = async |key: &str| {
            author.post_with_key("/v1/posts", key, &json!({ "title": "keyed", "body": "text" })).await.ok()["id"].clone()
        };
        let first = keyed("answered").await;
        let now = now(world);
        let stored = async |key: String| world.item("IdempotencyTable", schema::record(&key)).await;
        let answered = stored(schema::publish_record(user_id(AUTHOR), "answered")).await.unwrap();
        let fingerprint = answered["fingerprint"].as_s().unwrap();
        for (place, (key, expires_in)) in [("killed", 12), ("too old", -1), ("answered", 12)].into_iter().enumerate() {
            let draft = DraftItem {
                key: schema::draft(user_id(AUTHOR), place as u64),
                fingerprint: fingerprint.clone(),
                expires_at: now.seconds().checked_add_signed(expires_in).unwrap(),
                record: schema::publish_record(user_id(AUTHOR), key),
                token: place as u64,
                at: now.ms() - 1_000,
                followers: 0,
                title: "keyed".to_owned(),
                body: Some("text".to_owned()),
                data: None,
                weight: None,
            };
            world.put_item("IdempotencyTable", encode(&draft)).await;
        }
        // Those that cannot be read hide no other.
        for (place, attributes) in [(3, ["record", "title"]), (4, ["fingerprint", "post"])] {
            let attributes = [(attributes[0], s("x")), (attributes[1], s("x")), ("expires_at", n(i64::MAX))];
            let key = schema::record(&schema::draft(user_id(AUTHOR), place));
            world.put_item("IdempotencyTable", with_attributes(key, &attributes)).await;
        }
        set_contended(world, AUTHOR).await;
        author.publish("mine").await;
        assert_eq!(titles(world).await, ["mine", "keyed", "keyed"]);
        assert_eq!(author.get(&format!("/v1/posts/{AUTHOR}-2")).await.ok()["body"], "text");
        assert_eq!(author.get(&format!("/v1/users/{AUTHOR}/counters")).await.ok()["posts"], 3);
        assert_eq!((keyed("killed").await, keyed("answered").await), (json!(format!("{AUTHOR}-2")), first));
        author.publish("mine again").await;
        assert_eq!(titles(world).await, ["mine again", "mine", "keyed", "keyed"]);
        for (place, is_left) in [(0, false), (2, false), (3, true), (4, true)] {
            let draft = stored(schema::draft(user_id(AUTHOR), place)).await;
            assert_eq!(draft.is_some(), is_left, "draft {place}: an old draft's place may be used again");
        }
        assert_eq!(reconcile(world).await["differences"], json!([]));
    });
}

#[test]
fn a_publish_that_gives_up_leaves_no_draft_and_one_whose_draft_is_gone_is_published() {
    world_behind_a_proxy(async |world, proxy| {
        let author = world.user(AUTHOR);
        author.publish("first").await;
        set_contended(world, AUTHOR).await;
        for (title, fate, expected) in [
            ("second", Fate::Refused(CANCELLED), 503),
            ("third", Fate::Refused("ThrottlingException"), 503),
            ("fourth", Fate::ResponseLost(CANCELLED), 201),
            ("fifth", Fate::ResponseLost("TransactionInProgressException"), 201),
        ] {
            proxy.decide(move |asked| {
                let is_group = asked.is("publish", "TransactWriteItems", "#draft#");
                if is_group { fate } else { Fate::Forwarded }
            });
            let response = author.post("/v1/posts", &json!({ "title": title })).await;
            assert_eq!(response.status, expected, "{fate:?}");
        }
        proxy.forward_all();
        author.publish("last").await;
        assert_eq!(titles(world).await, ["last", "fifth", "fourth", "first"]);
    });
}

/// A first write whose outcome is unknown is followed by one that another request's transaction cancels.
#[test]
fn a_publish_that_may_be_written_already_does_not_wait_for_a_group() {
    world_behind_a_proxy(async |world, proxy| {
        let (author, sent) = (world.user(AUTHOR), Arc::new(Mutex::new(Vec::new())));
        author.publish("first").await;
        let seen = Arc::clone(&sent);
        proxy.decide(move |asked| {
            let mut fate = Fate::Forwarded;
            if asked.is("publish", "TransactWriteItems", "PostsTable") {
                let (token, mut seen) = (asked.body["ClientRequestToken"].clone(), seen.lock().unwrap());
                if !seen.contains(&token) {
                    seen.push(token);
                }
                // The first one is in flight and arrives later; it holds the head.
                fate = match seen.len() {
                    1 => Fate::Refused("TransactionInProgressException"),
                    2 => Fate::Refused(CANCELLED),
                    _ => Fate::Forwarded,
                };
                assert!(!asked.body.to_string().contains("#draft#"), "the first write may still be done");
            }
            fate
        });
        author.publish("once").await;
        proxy.forward_all();
        assert_eq!(titles(world).await, ["once", "first"]);
        assert_eq!(sent.lock().unwrap().len(), 3);
    });
}

/// While an import is open, follows check the head: all of them name one item, as all follows of an author without
/// posts did before the counters were the fence.
#[test]
fn follows_of_an_author_without_posts_share_no_item() {
    world_behind_a_proxy(async |world, proxy| {
        let follows = number_from("TIDEMARK_FOLLOWS", 960);
        const HEAD: u64 = 1_000_001;
        const BUSY: u64 = 1_000_002;
        const SPREAD: u64 = 2_000_000;
        let imports = tidemark_migrate::Imports(world.stack.app("migrate").unwrap().facts.clone());
        imports.begin_import(user_id(HEAD)).await.unwrap();
        world.stack.set_weather(Weather::Aws, 1);
        let spread = follow(world, proxy, follows, 1, |number| SPREAD + number).await;
        let first = follow(world, proxy, follows, 100_000, |_| BUSY).await;
        let busy = follow(world, proxy, follows, 200_000, |_| BUSY).await;
        let head = follow(world, proxy, follows, 300_000, |_| HEAD).await;
        println!("spread {spread:?}\nfirst {first:?}\nbusy {busy:?}\nthrough the head {head:?}");
        world.calm_down().await;
        assert_eq!((counts(world, HEAD).await, counts(world, BUSY).await), (follows, 2 * follows));
        assert_eq!((spread.1, first.1, busy.1), (0, 0, 0));
        assert!(busy.0 < 1.5, "{busy:?}");
        // A slow machine has fewer conflicts at the head. Repeated transactions show the difference at any rate.
        assert!((busy.0 - 1.0) * 4.0 < head.0 - 1.0, "{busy:?}, through the head {head:?}");
    });
}

#[test]
fn counters_that_are_split_under_load_stay_exact() {
    world(async |world| {
        const USERS: u64 = 300;
        // All in one shard, so that they meet.
        let users: Vec<u64> = (1..).filter(|user| user_id(*user).shard() == 5).take(USERS as usize).collect();
        world.stack.set_weather(Weather::Aws, 2);
        let path = format!("/v1/following/{AUTHOR}");
        let lanes = users.chunks((USERS as usize).div_ceil(CLIENTS)).enumerate();
        join_all(lanes.map(async |(lane, users)| {
            for &user in users {
                let user = world.user(user);
                while user.put(&path).await.status == 503 {}
                // A part of an unfollow is another one than that of its follow.
                if lane % 2 == 0 {
                    while user.delete(&path).await.status == 503 {}
                }
            }
        }))
        .await;
        world.calm_down().await;
        let left = world.user(1).walk(&format!("/v1/users/{AUTHOR}/followers"), 100).await.len() as u64;
        assert!(left > USERS / 3 && left < USERS, "{left}");
        assert_eq!(counts(world, AUTHOR).await, left);
        let parts = parts(world, AUTHOR).await;
        assert!(parts.len() > 1, "the counter was not split: {parts:?}");
        assert_eq!(world.user(1).get(&format!("/v1/users/{AUTHOR}/counters")).await.ok()["followers"], left);
        let post = world.publish_and_deliver(AUTHOR, "to all parts").await;
        assert_eq!(delivery(world, &post, &["delivered"]).await, json!([left]));
        assert_eq!(reconcile(world).await["differences"], json!([]));
    });
}

/// Follows by one user that meet each other split nothing, and neither do two users who meet by chance.
#[test]
fn a_quiet_authors_counter_has_one_part() {
    world(async |world| {
        world.stack.set_weather(Weather::Aws, 3);
        let user = world.user(1);
        join_all((0..8).map(async |turn| {
            for _ in 0..5 {
                put_or_delete(&user, "/v1/following/50", turn % 2 == 0).await;
            }
        }))
        .await;
        world.calm_down().await;
        let parts = parts(world, 50).await;
        assert!(parts.len() <= 1 && parts.iter().all(|part| part.parts.is_none()), "{parts:?}");
    });
}

/// The parts of a split shard are damaged in every way. No request fails, and one walk or two make the count right.
#[test]
fn a_split_count_that_is_wrong_is_no_error_and_is_repaired_as_a_whole() {
    world(async |world| {
        let shard = user_id(1).shard();
        let users: Vec<u64> = (1..).filter(|user| user_id(*user).shard() == shard && *user != AUTHOR).take(5).collect();
        split(&world.dynamodb().await, AUTHOR, shard).await;
        world.follow(users.clone(), AUTHOR).await;
        world.idle().await;
        let damages: [&[(u16, &str, AttributeValue)]; 7] = [
            &[(0, "count", n(40))],
            &[(2, "count", n(-9))],
            &[(3, "count", s("many"))],
            &[(0, "count", s("many")), (1, "count", s("many"))],
            &[(1, "changes", s("many")), (0, "count", n(7))],
            &[(0, "changes", s("many"))],
            &[(0, "parts", s("many")), (0, "count", n(3))],
        ];
        for damage in damages {
            for (part, attribute, value) in damage {
                let part = schema::followers_part(user_id(AUTHOR), shard, *part);
                world.update_item("CountersTable", part, &[(*attribute, value.clone())], &[]).await;
            }
            let views = &world.stack.app("follow").unwrap().stores.relation_views;
            views.forget_counters(user_id(AUTHOR), None).await.unwrap();
            world.user(AUTHOR).get(&format!("/v1/users/{AUTHOR}/counters")).await.ok();
            world.publish_and_deliver(AUTHOR, "to real followers").await;
            for _ in 0..2 {
                let report = reconcile(world).await;
                assert_eq!(report["repaired"], report["found"], "{damage:?}: {report}");
            }
            assert_eq!(counts(world, AUTHOR).await, 5, "{damage:?}");
            assert_eq!(reconcile(world).await["differences"], json!([]), "{damage:?}");
            world.follow(users.clone(), AUTHOR).await;
        }
    });
}
