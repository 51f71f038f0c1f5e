//! Requests for one author by many users at once, in the weather of AWS, and counters that are split.

mod minute;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures::{StreamExt, future::join_all, stream};
use serde_json::json;
use tidemark::facts::schema::{self, CounterItem};
use tidemark_local::Weather;
use tidemark_tests::{
    Response, World,
    items::{n, s},
    number_from, texts, user_id, world,
};

use crate::damage::{
    proxy::{Proxy, world_behind_a_proxy},
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

async fn parts(world: &World, author: u64) -> Vec<CounterItem> {
    let parts = world.stack.app("follow").unwrap().stores.facts.follower_parts(user_id(author)).await.unwrap();
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
    world(async |world| {
        const READERS: u64 = 40;
        let (posts, marks) = (number_from("TIDEMARK_POSTS", 200), number_from("TIDEMARK_MARKS", 800));
        world.follow(1..=READERS, AUTHOR).await;
        world.read_feeds(1..=READERS).await;
        world.stack.set_weather(Weather::Aws, 4);
        send("posts of one author", 16, posts, async |number| publish(world, number, None).await).await;
        let readers = Readers { world, first: 1, number: READERS, posts };
        let refused = send("marks on one author", CLIENTS, marks, async |number| readers.mark(number).await).await;
        world.calm_down().await;
        assert_eq!(refused, 0, "readers share no item");
        readers.have_marked(marks).await;
        are_all_published(world, posts).await;
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

/// Comments on one post from many clients and users: `TIDEMARK_COMMENTS`.
#[test]
fn a_post_takes_many_comments_at_once_in_the_weather_of_aws() {
    world_behind_a_proxy(async |world, proxy| {
        let comments = number_from("TIDEMARK_COMMENTS", 600);
        world.user(AUTHOR).publish("before").await;
        world.idle().await;
        world.stack.set_weather(Weather::Aws, 5);
        proxy.meter();
        let refused = send("comments on one post", CLIENTS, comments, async |number| comment(world, number).await).await;
        let metered = proxy.meter();
        let each = |request: &str| metered.requests.get(request).copied().unwrap_or(0) as f64 / comments as f64;
        println!("transactions {:.2}, updates {:.2} of each", each("TransactWriteItems"), each("UpdateItem"));
        let throttled = world.stack.consumption().throttled;
        world.calm_down().await;
        assert_eq!((refused, throttled), (0, 0));
        assert!(each("TransactWriteItems") < 1.2, "transactions of comments meet each other");
        are_all_commented(world, comments).await;
        assert_eq!(repair(world).await["differences"], json!([]));
    });
}

async fn comment(world: &World, number: u64) -> Response {
    let path = format!("/v1/posts/{AUTHOR}-1/comments");
    world.user(2_000_000 + number).post(&path, &json!({ "text": format!("comment {number}") })).await
}

/// Asserts that the comments on the author's first post are these, numbered without gaps and doubles, and counted.
async fn are_all_commented(world: &World, comments: u64) {
    let path = format!("/v1/posts/{AUTHOR}-1/comments");
    let reader = world.user(1);
    let items = reader.walk(&format!("{path}?order=oldest"), 100).await;
    let ids: Vec<String> = (1..=comments).map(|number| format!("{AUTHOR}-1-{number}")).collect();
    assert_eq!(texts(&items, "id"), ids);
    let mut found = texts(&items, "text");
    found.sort_unstable();
    let mut expected: Vec<String> = (0..comments).map(|number| format!("comment {number}")).collect();
    expected.sort_unstable();
    assert!(found == expected, "{} of {comments}", found.len());
    assert_eq!(reader.get(&format!("{path}?limit=1")).await.ok()["total"], comments);
    assert_eq!(reader.get(&format!("/v1/posts/{AUTHOR}-1")).await.ok()["comments"], comments);
}

/// The titles of an author's posts, the newest first.
async fn titles(world: &World, author: u64) -> Vec<String> {
    texts(&world.user(author).walk(&format!("/v1/authors/{author}/posts"), 100).await, "title")
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
        let views = &world.stack.app("follow").unwrap().stores.views;
        for damage in damages {
            for (part, attribute, value) in damage {
                let part = schema::followers_part(user_id(AUTHOR), shard, *part);
                world.update_item("CountersTable", part, &[(*attribute, value.clone())], &[]).await;
            }
            views.forget_counters(user_id(AUTHOR), None).await.unwrap();
            world.user(AUTHOR).get(&format!("/v1/users/{AUTHOR}/counters")).await.ok();
            world.publish_and_deliver(AUTHOR, "to real followers").await;
            // A part has both counts, of followers and of requests. One run repairs one of them.
            for _ in 0..2 {
                repair(world).await;
            }
            assert_eq!(world.follower_count(AUTHOR).await, 5, "{damage:?}");
            assert_eq!(repair(world).await["differences"], json!([]), "{damage:?}");
            world.follow(users.clone(), AUTHOR).await;
        }
    });
}
