//! Repeated, late and reordered messages.

use rand::seq::SliceRandom;
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{NewPost, Post, Timestamp, UserId},
    ports::{FanOut, Published},
};
use tidemark_tests::{User, World, stream_record, world};

/// Removes every message from the fan-out queue, and sends each distinct one `times` times in random order. The
/// queue's function must be paused.
pub(crate) async fn resend(world: &World, times: usize) -> usize {
    let (sqs, url) = (world.sqs().await, world.stack.queue("FanOutQueue").unwrap().url.clone());
    let mut bodies = Vec::new();
    loop {
        let received = sqs.receive_message().queue_url(&url).max_number_of_messages(10).send().await.unwrap();
        if received.messages().is_empty() {
            break;
        }
        for message in received.messages() {
            bodies.push(message.body().unwrap().to_owned());
            sqs.delete_message().queue_url(&url).receipt_handle(message.receipt_handle().unwrap()).send().await.unwrap();
        }
    }
    // A message that was already duplicated is not duplicated again.
    bodies.sort_unstable();
    bodies.dedup();
    let count = bodies.len();
    let mut all: Vec<String> = bodies.iter().cycle().take(count * times).cloned().collect();
    all.shuffle(&mut rand::rng());
    for body in all {
        sqs.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    }
    count
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
            assert_eq!(world.user(reader).unread_total().await, 9);
        }
        let delivery = world.user(99).get("/v1/posts/99-1/delivery").await.ok();
        assert_eq!((&delivery["state"], &delivery["delivered"]), (&json!("done"), &json!(12)), "counted once");
    });
}

#[test]
fn a_repeated_message_does_not_make_a_read_post_unread() {
    world(async |world| {
        let (reader, _, late) = held_delivery(world).await;
        world.resume("fan-out").await;
        reader.put("/v1/posts/99-1/read").await.ok();
        deliver(world, &late).await;
        assert_eq!((reader.unread_total().await, reader.feed("all").await), (0, vec![("99-1".to_owned(), true)]));
    });
}

#[test]
fn a_delivery_after_an_unfollow_leaves_no_ghost() {
    world(async |world| {
        let (reader, _, late) = held_delivery(world).await;
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
fn a_delivery_after_a_deletion_does_not_show_the_post() {
    world(async |world| {
        let (reader, author, late) = held_delivery(world).await;
        author.delete("/v1/posts/99-1").await.ok();
        world.resume("fan-out").await;
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
        world.stack.pause("relation-projector").await.unwrap();
        for _ in 0..5 {
            reader.put("/v1/following/99").await.ok();
            reader.delete("/v1/following/99").await.ok();
        }
        reader.put("/v1/following/99").await.ok();
        world.user(99).publish("new").await;
        world.resume("relation-projector").await;
        let record = stream_record("1", json!({ "user": { "N": "1" }, "author": { "N": "99" } }));
        for _ in 0..3 {
            let response = world.stack.invoke("relation-projector", json!({ "Records": [record, record] })).await.unwrap();
            assert_eq!(response, json!({ "batchItemFailures": [] }));
        }
        assert_eq!(reader.feed("all").await, [("99-2".to_owned(), false), ("99-1".to_owned(), true)]);
        assert_eq!(reader.unread_total().await, 1);
    });
}

/// Publishes a post in the facts, as a function does that dies after the transaction.
pub(crate) async fn publish_in_facts(app: &App, author: UserId, followers: u64, at: Timestamp) -> (Post, FanOut) {
    let published = app.stores.posts.publish(&NewPost::titled(author, "cut off"), followers, None, at).await.unwrap();
    let Published::Created(post, head) = published else { panic!("{published:?}") };
    let fan_out = FanOut::of(&post, &head);
    (post, fan_out)
}

/// A live reader, an author, and the messages of the author's new post. The worker is paused.
async fn held_delivery(world: &World) -> (User, User, Vec<String>) {
    let (reader, author) = (world.live_reader(1, [99]).await, world.user(99));
    world.stack.pause("fan-out").await.unwrap();
    author.publish("one").await;
    let late = world.messages("FanOutQueue").await;
    assert!(!late.is_empty());
    (reader, author, late)
}

/// Passes messages to the worker as its queue does.
pub(crate) async fn deliver(world: &World, bodies: &[String]) -> Value {
    let records: Vec<Value> = bodies
        .iter()
        .enumerate()
        .map(|(index, body)| {
            json!({
                "messageId": format!("late-{index}"), "receiptHandle": "r", "body": body, "attributes": {}, "messageAttributes": {},
                "md5OfBody": "", "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:local:0:q", "awsRegion": "local",
            })
        })
        .collect();
    world.stack.invoke("fan-out", json!({ "Records": records })).await.unwrap()
}
