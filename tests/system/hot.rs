//! Requests for one author by many users at once, in the weather of AWS, and counters that are split.

mod minute;

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::{StreamExt, future::join_all, stream};
use serde_json::json;
use tidemark::facts::{
    item::encode,
    schema::{self, CounterItem, DraftItem},
};
use tidemark_local::Weather;
use tidemark_tests::{
    Response, World,
    items::{n, s, with_attributes},
    number_from, texts, user_id, world,
};

use crate::damage::{
    proxy::{CANCELLED, Fate, Proxy, world_behind_a_proxy},
    repair,
};

const AUTHOR: u64 = 1_000_000;

/// Clients that send requests at once.
const CLIENTS: usize = 48;

/// Splits a shard of an author's follower count into 4 parts, as a busy counter is.
pub(crate) async fn split(dynamodb: &aws_sdk_dynamodb::Client, author: u64, shard: u16) {
    let key = schema::followers_counter(user_id(author), shard);
    let update = dynamodb.update_item().table_name("CountersTable").set_key(Some(key));
    let update = update.update_expression("SET parts = :parts").expression_attribute_values(":parts", n(4));
    update.send().await.unwrap();
}

/// Lets an author's head say, for a minute, that posts have to wait for it.
pub(crate) async fn set_contended(world: &World, author: u64) {
    let at = n(world.stack.app("publish").unwrap().stores.clock.now().ms() + 60_000);
    world.update_item("PostsTable", schema::head(user_id(author)), &[("contended_at", at)], &[]).await;
}

async fn parts(world: &World, author: u64) -> Vec<CounterItem> {
    let parts = world.stack.app("follow").unwrap().facts.follower_parts(user_id(author)).await.unwrap();
    parts.into_iter().flatten().collect()
}

/// The cost of follows of one author.
#[derive(Debug)]
struct Measured {
    transactions_each: f64,
    refused: u64,
}

/// Sends this many requests from this many clients at once. A client repeats a request that got a 503. Returns the
/// number of these.
async fn send(what: &str, clients: usize, requests: u64, request: impl AsyncFn(u64) -> Response) -> u64 {
    let refused = AtomicU64::new(0);
    let started = Instant::now();
    let send_all = stream::iter(0..requests).for_each_concurrent(clients, async |number| {
        loop {
            match request(number).await.status {
                200 | 201 | 204 => break,
                503 => refused.fetch_add(1, Relaxed),
                status => panic!("{status}"),
            };
        }
    });
    send_all.await;
    let refused = refused.into_inner();
    println!("{what}: {:.0} a second, {refused} of them refused at first", requests as f64 / started.elapsed().as_secs_f64());
    refused
}

async fn follow(world: &World, proxy: &Proxy, follows: u64, first: u64, author: impl Fn(u64) -> u64) -> Measured {
    proxy.meter();
    let follow = async |number| world.user(first + number).put(&format!("/v1/following/{}", author(number))).await;
    let refused = send("follows", CLIENTS, follows, follow).await;
    let transactions = proxy.meter().requests.get("TransactWriteItems").copied().unwrap_or(0);
    Measured { transactions_each: transactions as f64 / follows as f64, refused }
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
        send("posts of one author", 16, posts, async |number| publish(world, number, None).await).await;
        let written = proxy.meter().requests;
        println!("{written:?}");
        let readers = Readers { world, first: 1, number: READERS, posts };
        let refused = send("marks on one author", CLIENTS, marks, async |number| readers.mark(number).await).await;
        world.calm_down().await;
        assert_eq!(refused, 0, "readers share no item");
        readers.have_marked(marks).await;
        are_all_published(world, posts).await;
        assert!(written["TransactWriteItems"] < posts, "one transaction writes several posts: {written:?}");
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

/// Publishes the author's post of this number, with a key and a text.
async fn publish(world: &World, number: u64, text: Option<&str>) -> Response {
    let body = json!({ "title": format!("post {number}"), "body": text });
    world.user(AUTHOR).post_with_key("/v1/posts", &format!("post-{number}"), &body).await
}

/// Asserts that the author has each of this number of posts once.
async fn are_all_published(world: &World, posts: u64) {
    let mut found = titles(world, AUTHOR).await;
    found.sort_unstable();
    let mut expected: Vec<String> = (0..posts).map(|number| format!("post {number}")).collect();
    expected.sort_unstable();
    assert!(found == expected, "{} of {posts}: {found:?}", found.len());
}

/// Readers of the author who mark posts 1, 2, 3 …, all of them the same one before the next.
struct Readers<'a> {
    world: &'a World,
    first: u64,
    number: u64,
    posts: u64,
}

impl Readers<'_> {
    async fn mark(&self, mark: u64) -> Response {
        let post = mark / self.number % self.posts + 1;
        self.world.user(self.first + mark % self.number).put(&format!("/v1/posts/{AUTHOR}-{post}/read")).await
    }

    /// Asserts that this number of marks, and no other, was made.
    async fn have_marked(&self, marks: u64) {
        let check = async |reader: u64| {
            let marked = (marks / self.number + u64::from(reader < marks % self.number)).min(self.posts);
            let reader = self.first + reader;
            assert_eq!(self.world.user(reader).unread_total().await, self.posts - marked, "reader {reader}");
        };
        stream::iter(0..self.number).for_each_concurrent(16, check).await;
    }
}

/// The titles of an author's posts, the newest first.
async fn titles(world: &World, author: u64) -> Vec<String> {
    texts(&world.user(author).walk(&format!("/v1/authors/{author}/posts"), 100).await, "title")
}

#[test]
fn a_draft_that_was_left_behind_is_written_once_or_never() {
    world(async |world| {
        let author = world.user(AUTHOR);
        let keyed = async |key: &str| {
            author.post_with_key("/v1/posts", key, &json!({ "title": "keyed", "body": "text" })).await.ok()["id"].clone()
        };
        let first = keyed("answered").await;
        let now = world.stack.app("publish").unwrap().stores.clock.now();
        let stored = async |key: &str| world.item("IdempotencyTable", schema::record(key)).await;
        let record = stored(&schema::publish_record(user_id(AUTHOR), "answered")).await.unwrap();
        let fingerprint = record["fingerprint"].as_s().unwrap();
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
        assert_eq!(titles(world, AUTHOR).await, ["mine", "keyed", "keyed"]);
        assert_eq!(author.get(&format!("/v1/posts/{AUTHOR}-2")).await.ok()["body"], "text");
        assert_eq!(author.get(&format!("/v1/users/{AUTHOR}/counters")).await.ok()["posts"], 3);
        assert_eq!((keyed("killed").await, keyed("answered").await), (json!(format!("{AUTHOR}-2")), first));
        author.publish("mine again").await;
        assert_eq!(titles(world, AUTHOR).await, ["mine again", "mine", "keyed", "keyed"]);
        for (place, is_left) in [(0, false), (2, false), (3, true), (4, true)] {
            let draft = stored(&schema::draft(user_id(AUTHOR), place)).await;
            assert_eq!(draft.is_some(), is_left, "an old draft's place may be used again: {place}");
        }
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

#[test]
fn a_publish_that_gives_up_leaves_no_draft_and_one_whose_draft_is_gone_is_published() {
    world_behind_a_proxy(async |world, proxy| {
        let author = world.user(AUTHOR);
        author.publish("first").await;
        set_contended(world, AUTHOR).await;
        let fates = [
            (Fate::Refused(CANCELLED), 503),
            (Fate::Refused("ThrottlingException"), 503),
            (Fate::ResponseLost(CANCELLED), 201),
            (Fate::ResponseLost("TransactionInProgressException"), 201),
        ];
        for (title, (fate, expected)) in fates.into_iter().enumerate() {
            proxy.decide_about(["publish", "TransactWriteItems", "#draft#"], move |_| fate);
            let response = author.post("/v1/posts", &json!({ "title": title.to_string() })).await;
            assert_eq!(response.status, expected, "{fate:?}");
        }
        proxy.forward_all();
        author.publish("last").await;
        assert_eq!(titles(world, AUTHOR).await, ["last", "3", "2", "first"]);
    });
}

/// A first write whose outcome is unknown is followed by one that another request's transaction cancels.
#[test]
fn a_publish_that_may_be_written_already_does_not_wait_for_a_group() {
    world_behind_a_proxy(async |world, proxy| {
        let (author, sent) = (world.user(AUTHOR), Arc::new(Mutex::new(HashSet::new())));
        author.publish("first").await;
        let seen = Arc::clone(&sent);
        proxy.decide(move |asked| {
            if !asked.is("publish", "TransactWriteItems", "PostsTable") {
                return Fate::Forwarded;
            }
            assert!(!asked.body.to_string().contains("#draft#"), "the first write may still be done");
            let mut seen = seen.lock().unwrap();
            seen.insert(asked.body["ClientRequestToken"].to_string());
            // The first one is in flight and arrives later; it holds the head.
            match seen.len() {
                1 => Fate::Refused("TransactionInProgressException"),
                2 => Fate::Refused(CANCELLED),
                _ => Fate::Forwarded,
            }
        });
        author.publish("once").await;
        proxy.forward_all();
        assert_eq!(titles(world, AUTHOR).await, ["once", "first"]);
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
        crate::migration::imports(world).begin_import(user_id(HEAD)).await.unwrap();
        world.stack.set_weather(Weather::Aws, 1);
        let spread = follow(world, proxy, follows, 1, |number| SPREAD + number).await;
        let first = follow(world, proxy, follows, 100_000, |_| BUSY).await;
        let busy = follow(world, proxy, follows, 200_000, |_| BUSY).await;
        let head = follow(world, proxy, follows, 300_000, |_| HEAD).await;
        println!("spread {spread:?}\nfirst {first:?}\nbusy {busy:?}\nthrough the head {head:?}");
        world.calm_down().await;
        assert_eq!((world.follower_count(HEAD).await, world.follower_count(BUSY).await), (follows, 2 * follows));
        assert_eq!((spread.refused, first.refused, busy.refused), (0, 0, 0));
        assert!(busy.transactions_each < 1.5, "{busy:?}");
        // A slow machine has fewer conflicts at the head. Repeated transactions show the difference at any rate.
        let repeated = |measured: &Measured| measured.transactions_each - 1.0;
        assert!(repeated(&busy) * 4.0 < repeated(&head), "{busy:?}, through the head {head:?}");
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
        let lanes = users.chunks(users.len().div_ceil(CLIENTS)).enumerate();
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
        assert_eq!(world.follower_count(AUTHOR).await, left);
        let parts = parts(world, AUTHOR).await;
        assert!(parts.len() > 1, "the counter was not split: {parts:?}");
        let counters = world.user(1).get(&format!("/v1/users/{AUTHOR}/counters")).await.ok();
        assert_eq!(counters["followers"], left);
        let post = world.publish_and_deliver(AUTHOR, "to all parts").await;
        assert_eq!(world.user(AUTHOR).get(&format!("/v1/posts/{post}/delivery")).await.ok()["delivered"], left);
        assert_eq!(repair(world).await["differences"], json!([]));
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
                let path = "/v1/following/50";
                drop(if turn % 2 == 0 { user.put(path).await } else { user.delete(path).await });
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
        const AUTHOR: u64 = 50;
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
        let views = &world.stack.app("follow").unwrap().stores.relation_views;
        for damage in damages {
            for (part, attribute, value) in damage {
                let part = schema::followers_part(user_id(AUTHOR), shard, *part);
                world.update_item("CountersTable", part, &[(*attribute, value.clone())], &[]).await;
            }
            views.forget_counters(user_id(AUTHOR), None).await.unwrap();
            world.user(AUTHOR).get(&format!("/v1/users/{AUTHOR}/counters")).await.ok();
            world.publish_and_deliver(AUTHOR, "to real followers").await;
            for _ in 0..2 {
                let report = repair(world).await;
                assert_eq!(report["repaired"], report["found"], "{damage:?}: {report}");
            }
            assert_eq!(world.follower_count(AUTHOR).await, 5, "{damage:?}");
            assert_eq!(repair(world).await["differences"], json!([]), "{damage:?}");
            world.follow(users.clone(), AUTHOR).await;
        }
    });
}
