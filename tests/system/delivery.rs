//! Deliveries whose messages are repeated, late, reordered, or fail in every attempt, and whose worker is killed. The
//! delivery lag of a burst, from the lines of the functions and from outside.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{NewPost, Post, Timestamp, UserId},
    facts::Published,
    queue::FanOut,
};
use tidemark_local::Options;
use tidemark_tests::{User, World, number_from, stream_record, world, world_with};

use crate::{at_once, fields};

/// Removes every message from the fan-out queue, and sends each distinct one `times` times in random order. Returns
/// the number of distinct messages. The queue's function must be paused.
pub(crate) async fn resend(world: &World, times: usize) -> usize {
    let (sqs, url) = (world.sqs().await, world.stack.queue("FanOutQueue").unwrap().url.clone());
    let mut bodies = BTreeSet::new();
    loop {
        let received = sqs.receive_message().queue_url(&url).max_number_of_messages(10).send().await.unwrap();
        if received.messages().is_empty() {
            break;
        }
        for message in received.messages() {
            bodies.insert(message.body().unwrap().to_owned());
            sqs.delete_message().queue_url(&url).receipt_handle(message.receipt_handle().unwrap()).send().await.unwrap();
        }
    }
    let mut all: Vec<&String> = bodies.iter().cycle().take(bodies.len() * times).collect();
    all.shuffle(&mut rand::rng());
    for body in all {
        sqs.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    }
    bodies.len()
}

/// The values of these fields of a post's delivery.
pub(crate) async fn delivery(world: &World, post: &str, names: &[&str]) -> Value {
    fields(&world.user(1).get(&format!("/v1/posts/{post}/delivery")).await.ok(), names)
}

/// Publishes a post in the facts, as a function does that dies after the transaction.
pub(crate) async fn publish_in_facts(app: &App, author: UserId, followers: u64, at: Timestamp) -> (Post, FanOut) {
    let published = app.stores.facts.publish_post(&NewPost::titled(author, "cut off"), followers, None, at).await.unwrap();
    let Published::Created(post, head) = published else { panic!("{published:?}") };
    let fan_out = FanOut::of(&post, &head);
    (post, fan_out)
}

/// Passes messages to the worker as its queue does.
pub(crate) async fn deliver(world: &World, bodies: &[String]) -> Value {
    let record = |(index, body): (usize, &String)| {
        json!({
            "messageId": format!("late-{index}"), "receiptHandle": "r", "body": body, "attributes": {}, "messageAttributes": {},
            "md5OfBody": "", "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:local:0:q", "awsRegion": "local",
        })
    };
    let records: Vec<Value> = bodies.iter().enumerate().map(record).collect();
    world.stack.invoke("fan-out", json!({ "Records": records })).await.unwrap()
}

/// Passes the stream record of an edge to the projector, `times` times in one batch.
pub(crate) async fn project(world: &World, user: u64, author: u64, times: usize) -> Value {
    let record = stream_record("1", json!({ "user": { "N": user.to_string() }, "author": { "N": author.to_string() } }));
    world.stack.invoke("projector", json!({ "Records": vec![record; times] })).await.unwrap()
}

#[test]
fn repeated_and_reordered_messages_change_nothing() {
    world(async |world| {
        world.follow(1..=12, 99).await;
        world.read_feeds(1..=12).await;
        world.stack.pause("fan-out").await.unwrap();
        world.user(99).publish_all(0..10).await;
        world.user(99).delete("/v1/posts/99-4").await.ok();
        assert_eq!(resend(world, 2).await, 11);
        world.resume("fan-out").await;
        let expected: Vec<String> = (1..=10).rev().filter(|seq| *seq != 4).map(|seq| format!("99-{seq}")).collect();
        for reader in 1..=12 {
            assert_eq!(world.user(reader).feed_ids().await, expected);
        }
        world.assert_unread(1..=12, 9).await;
        assert_eq!(delivery(world, "99-1", &["state", "delivered"]).await, json!(["done", 12]), "counted once");
    });
}

/// A live reader, and the messages of a new post. The worker is paused.
async fn held_delivery(world: &World) -> (User, Vec<String>) {
    let reader = world.live_reader(1, [99]).await;
    world.stack.pause("fan-out").await.unwrap();
    world.user(99).publish("one").await;
    let late = world.messages("FanOutQueue").await;
    assert!(!late.is_empty());
    (reader, late)
}

#[test]
fn a_repeated_message_does_not_make_a_read_post_unread() {
    world(async |world| {
        let (reader, late) = held_delivery(world).await;
        world.resume("fan-out").await;
        reader.put("/v1/posts/99-1/read").await.ok();
        deliver(world, &late).await;
        assert_eq!((reader.unread_total().await, reader.feed("all").await), (0, vec![("99-1".to_owned(), true)]));
    });
}

#[test]
fn a_delivery_after_an_unfollow_leaves_no_ghost() {
    world(async |world| {
        let (reader, late) = held_delivery(world).await;
        reader.delete("/v1/following/99").await.ok();
        world.resume("fan-out").await;
        deliver(world, &late).await;
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
        // After another follow, the late delivery is older than this follow.
        reader.put("/v1/following/99").await.ok();
        deliver(world, &late).await;
        assert_eq!((reader.feed("all").await, reader.unread_total().await), (vec![("99-1".to_owned(), true)], 0));
    });
}

#[test]
fn a_delivery_after_a_deletion_is_cancelled_and_does_not_show_the_post() {
    world(async |world| {
        let (reader, late) = held_delivery(world).await;
        world.user(99).delete("/v1/posts/99-1").await.ok();
        world.resume("fan-out").await;
        assert_eq!(delivery(world, "99-1", &["state"]).await, json!(["cancelled"]));
        deliver(world, &late).await;
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
    });
}

#[test]
fn repeated_and_late_stream_records_change_nothing() {
    world(async |world| {
        let reader = world.user(1);
        world.user(99).publish("old").await;
        reader.feed_ids().await;
        world.stack.pause("projector").await.unwrap();
        for _ in 0..5 {
            reader.put("/v1/following/99").await.ok();
            reader.delete("/v1/following/99").await.ok();
        }
        reader.put("/v1/following/99").await.ok();
        world.user(99).publish("new").await;
        world.resume("projector").await;
        for _ in 0..3 {
            assert_eq!(project(world, 1, 99, 2).await, json!({ "batchItemFailures": [] }));
        }
        assert_eq!(reader.feed("all").await, [("99-2".to_owned(), false), ("99-1".to_owned(), true)]);
        assert_eq!(reader.unread_total().await, 1);
    });
}

#[test]
fn a_malformed_message_becomes_a_dead_letter_alone() {
    world(async |world| {
        let reader = world.live_reader(1, [99]).await;
        world.stack.pause("fan-out").await.unwrap();
        world.user(99).publish("good").await;
        let bad = ["nonsense", r#"{"v":9,"type":"rescore","author":"2","life":1}"#];
        for body in bad {
            world.send_message("FanOutQueue", body).await;
        }
        world.resume("fan-out").await;
        assert_eq!(reader.feed_ids().await, ["99-1"], "the rest of the batch is done");
        let mut dead = world.messages("FanOutDeadLetters").await;
        dead.sort_unstable();
        assert_eq!(dead, bad);
    });
}

#[test]
fn a_task_that_always_fails_becomes_a_dead_letter_unchanged() {
    world(async |world| {
        // Pages that the fan-out does not have.
        let fan_out = json!({ "kind": "deliver", "post": "99-1", "at": "2026-01-01T00:00:00.000Z", "pages": 2, "deletions": 0 });
        let body = json!({ "v": 1, "type": "list", "fan_out": fan_out, "from": 5, "to": 9 }).to_string();
        world.send_message("FanOutQueue", &body).await;
        world.idle().await;
        assert_eq!(world.messages("FanOutDeadLetters").await, [body], "the dead letter is the original message");
    });
}

#[test]
fn only_failed_messages_are_reported() {
    world(async |world| {
        let bodies = ["nonsense", r#"{"v":1,"type":"rescore","author":"2","life":1}"#, "{}"].map(str::to_owned);
        let response = deliver(world, &bodies).await;
        assert_eq!(response["batchItemFailures"], json!([{ "itemIdentifier": "late-0" }, { "itemIdentifier": "late-2" }]));
    });
}

#[test]
fn a_record_that_cannot_be_projected_holds_up_no_other_and_reconcile_counts_it() {
    world(async |world| {
        let good = json!({ "user": { "N": "1" }, "author": { "N": "2" } });
        let records = [("1", good.clone()), ("2", json!({ "other": { "S": "x" } })), ("3", good)];
        let records = records.map(|(number, keys)| stream_record(number, keys));
        let response = world.stack.invoke("projector", json!({ "Records": records })).await.unwrap();
        assert_eq!(response, json!({ "batchItemFailures": [] }));
        assert_eq!(world.stack.fire("reconcile", None).await.unwrap()["stuck_records"], 1);
    });
}

#[test]
fn posts_are_delivered_exactly_once_when_a_worker_is_killed() {
    let configure = |options: &mut Options| {
        options.process_functions.insert("fan-out".to_owned());
        options.bin_dir = Some(binaries());
        options.processes = 2;
    };
    world_with(configure, async |world| {
        let (readers, author) = (1..=40, world.user(99));
        world.follow(readers.clone(), 99).await;
        world.read_feeds(readers.clone()).await;
        let mut killed = 0;
        let kill = async {
            let until = Instant::now() + Duration::from_secs(20);
            while killed < 4 && Instant::now() < until {
                if let Some(pid) = world.stack.process_ids("fan-out").first()
                    && !world.stack.status().await.unwrap().idle
                {
                    let done = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
                    killed += u32::from(done.success());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let (posts, ()) = futures::join!(author.publish_all(0..30), kill);
        assert!(killed > 0);
        world.idle().await;
        world.assert_unread(readers.clone(), 30).await;
        for reader in readers {
            assert_eq!(world.user(reader).feed_ids().await.len(), 30);
        }
        for post in posts {
            assert_eq!(delivery(world, &post, &["state", "delivered"]).await, json!(["done", 40]));
        }
    });
}

/// The folder of the functions' binaries. `make test` builds them before this test runs.
pub(crate) fn binaries() -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    let dir = test.parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    assert!(dir.join("fan-out").is_file(), "build the function first: cargo build -p tidemark-fan-out");
    dir
}

/// The author of a burst.
const BURSTING: u64 = 1;

/// The percentile as CloudWatch computes it from single values: the smallest value that so many values do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

/// Publishes posts. Returns the milliseconds until a client sees each of them delivered.
async fn lags_of_a_client(world: &World, posts: u64) -> Vec<f64> {
    let author = world.user(BURSTING);
    let started = Instant::now();
    let (open, published) = (RefCell::new(BTreeMap::<String, Instant>::new()), Cell::new(false));
    let publish = async {
        for number in 0..posts {
            let sent = Instant::now();
            let post = author.publish(&format!("{number}")).await;
            open.borrow_mut().insert(post, sent);
        }
        println!("{posts} posts published in {:?}", started.elapsed());
        published.set(true);
    };
    let watch = async {
        let mut seen: Vec<f64> = Vec::new();
        loop {
            let looks = open.borrow().clone();
            if published.get() && looks.is_empty() {
                return seen;
            }
            let look = async |(post, sent): (String, Instant)| {
                let delivery = author.get(&format!("/v1/posts/{post}/delivery")).await.ok();
                (delivery["state"] == "done").then(|| (post, sent.elapsed().as_secs_f64() * 1_000.0))
            };
            let looks: Vec<_> = stream::iter(looks).map(look).buffer_unordered(8).collect().await;
            for (post, lag) in looks.into_iter().flatten() {
                open.borrow_mut().remove(&post);
                seen.push(lag);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ((), seen) = futures::join!(publish, watch);
    println!("all delivered after {:?}", started.elapsed());
    seen
}

/// A burst of 100 posts by an author with 10,000 followers, one in ten of whom has a live view. `FOLLOWERS` and `POSTS`
/// change the numbers: `cargo test -p tidemark-tests --test system -- --ignored --exact --nocapture
/// delivery::percentiles_of_the_lag_from_the_lines_are_those_that_a_client_sees`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; it measures"]
async fn percentiles_of_the_lag_from_the_lines_are_those_that_a_client_sees() {
    let (followers, posts) = (number_from("FOLLOWERS", 10_000), number_from("POSTS", 100));
    let (sender, lines) = channel();
    let configure = |options: &mut Options| options.lines = Some(sender);
    World::run_with(configure, async |world| {
        at_once(16, BURSTING + 1..=BURSTING + followers, async |follower| {
            let reader = world.reader(follower, [BURSTING]).await;
            if follower % 10 == 0 {
                reader.feed_ids().await;
            }
        })
        .await;
        world.idle().await;
        lines.try_iter().for_each(drop);

        let mut seen = lags_of_a_client(world, posts).await;
        world.idle().await;

        let lines: Vec<Value> = lines.try_iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
        let of_metric = |name: &str| -> Vec<f64> {
            let of_line = |line: &Value| match &line[name] {
                Value::Array(values) => values.iter().filter_map(Value::as_f64).collect::<Vec<_>>(),
                value => value.as_f64().into_iter().collect(),
            };
            lines.iter().flat_map(of_line).collect()
        };
        let mut measured = of_metric("DeliveryLag");
        assert_eq!((measured.len(), seen.len()), (posts as usize, posts as usize));
        measured.sort_by(f64::total_cmp);
        seen.sort_by(f64::total_cmp);
        let [delivered, worked] = ["FollowersDelivered", "PageDeliveryTime"].map(|name| of_metric(name).iter().sum::<f64>());
        println!("{delivered} followers, {:.0} a second while one page is delivered", 1_000.0 * delivered / worked);
        assert_eq!(delivered, (followers * posts) as f64);
        for percent in [50, 90, 99] {
            let [inside, outside] = [&measured, &seen].map(|lags| percentile(lags, percent));
            println!("p{percent}: {inside:.0} ms from the lines, {outside:.0} ms at the client");
            assert!((inside / outside - 1.0).abs() <= 0.1, "p{percent}");
        }
    })
    .await;
}
