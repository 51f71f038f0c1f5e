//! Repeated, late and reordered messages.

use rand::seq::SliceRandom;
use serde_json::{Value, json};
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

#[tokio::test]
async fn repeated_and_reordered_messages_change_nothing() {
    world(async |world| {
        world.follow(1..=12, 99).await;
        for reader in 1..=12 {
            world.user(reader).feed_ids().await;
        }
        world.stack.pause("fan-out").await.unwrap();
        for number in 0..10 {
            world.user(99).publish(&format!("{number}")).await;
        }
        world.user(99).delete("/v1/posts/99-4").await.ok();
        assert_eq!(resend(world, 2).await, 11);
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        let expected: Vec<String> = (1..=10).rev().filter(|seq| *seq != 4).map(|seq| format!("99-{seq}")).collect();
        for reader in 1..=12 {
            assert_eq!(world.user(reader).feed_ids().await, expected);
            assert_eq!(world.user(reader).unread_total().await, 9);
        }
        let delivery = world.user(99).get("/v1/posts/99-1/delivery").await.ok();
        assert_eq!((&delivery["state"], &delivery["delivered"]), (&json!("done"), &json!(12)), "counted once");
    })
    .await;
}

#[tokio::test]
async fn a_repeated_message_does_not_make_a_read_post_unread() {
    world(async |world| {
        let (reader, _, late) = held_delivery(world).await;
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        reader.put("/v1/posts/99-1/read").await.ok();
        deliver(world, &late).await;
        assert_eq!((reader.unread_total().await, reader.feed("all").await), (0, vec![("99-1".to_owned(), true)]));
    })
    .await;
}

#[tokio::test]
async fn a_delivery_after_an_unfollow_leaves_no_ghost() {
    world(async |world| {
        let (reader, _, late) = held_delivery(world).await;
        reader.delete("/v1/following/99").await.ok();
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        deliver(world, &late).await;
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
        // After another follow, the late delivery is older than this follow.
        reader.put("/v1/following/99").await.ok();
        deliver(world, &late).await;
        assert_eq!((reader.feed("all").await, reader.unread_total().await), (vec![("99-1".to_owned(), true)], 0));
    })
    .await;
}

#[tokio::test]
async fn a_delivery_after_a_deletion_does_not_show_the_post() {
    world(async |world| {
        let (reader, author, late) = held_delivery(world).await;
        author.delete("/v1/posts/99-1").await.ok();
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        deliver(world, &late).await;
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
    })
    .await;
}

#[tokio::test]
async fn repeated_and_late_stream_records_change_nothing() {
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
        world.stack.resume("relation-projector").unwrap();
        world.idle().await;
        let record = stream_record("1", json!({ "user": { "N": "1" }, "author": { "N": "99" } }));
        for _ in 0..3 {
            let response = world.stack.invoke("relation-projector", json!({ "Records": [record, record] })).await.unwrap();
            assert_eq!(response, json!({ "batchItemFailures": [] }));
        }
        assert_eq!(reader.feed("all").await, [("99-2".to_owned(), false), ("99-1".to_owned(), true)]);
        assert_eq!(reader.unread_total().await, 1);
    })
    .await;
}

/// A live reader, an author, and the messages of the author's new post. The worker is paused.
async fn held_delivery(world: &World) -> (User, User, Vec<String>) {
    let (reader, author) = (world.user(1), world.user(99));
    reader.put("/v1/following/99").await.ok();
    reader.feed_ids().await;
    world.stack.pause("fan-out").await.unwrap();
    author.publish("one").await;
    let late = capture(world).await;
    (reader, author, late)
}

/// The bodies of all messages in the queue. The messages stay there.
async fn capture(world: &World) -> Vec<String> {
    let (sqs, url) = (world.sqs().await, world.stack.queue("FanOutQueue").unwrap().url.clone());
    let received = sqs.receive_message().queue_url(&url).max_number_of_messages(10).visibility_timeout(0).send().await.unwrap();
    let bodies: Vec<String> = received.messages().iter().map(|message| message.body().unwrap().to_owned()).collect();
    assert!(!bodies.is_empty());
    bodies
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
