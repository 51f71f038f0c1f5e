//! SQS refuses an entry of a batch once, as it does with `InternalError`. The sender sends the entry again, so nobody
//! waits for reconcile.

use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{World, parameter, world, world_with};

/// Plants the refusal of each entry in the next batch of a function for a queue. Returns what `send` returns, after
/// the refusal has happened.
async fn refused_once<T>(world: &World, function: &str, queue: &str, send: impl AsyncFnOnce() -> T) -> T {
    let fault = Fault::new("SendMessageBatch", FaultAction::LeaveUnprocessed).of(function).on(queue);
    let planted = world.stack.faults().add(fault);
    let sent = send().await;
    world.idle().await;
    assert_eq!(planted.fired(), 1, "{function} sends to {queue}");
    sent
}

#[test]
fn a_post_and_its_retraction_are_delivered_although_sqs_refuses_an_entry_once() {
    world(async |world| {
        let reader = world.live_reader(7, [1]).await;
        let post = refused_once(world, "publish", "FanOutQueue", async || world.user(1).publish("one").await).await;
        world.user(1).get(&format!("/v1/posts/{post}/delivery")).await.has(json!({ "state": "done", "delivered": 1 }));
        assert_eq!(reader.unread_total().await, 1);
        let path = format!("/v1/posts/{post}");
        refused_once(world, "publish", "FanOutQueue", async || world.user(1).delete(&path).await.ok()).await;
        assert_eq!((reader.unread_total().await, reader.feed_ids().await), (0, Vec::new()));
    });
}

/// A post of more pages than a request sends itself: the list tasks, and the pages that they send.
#[test]
fn the_pages_of_a_big_author_are_sent_although_sqs_refuses_an_entry_once() {
    world(async |world| {
        let reader = world.live_reader(7, [1]).await;
        world.follow_at_once(8..40, 1).await;
        // The counts say that there are more followers, so that there are more pages.
        let counter = tidemark::facts::schema::followers_counter(tidemark_tests::user_id(1), 0);
        world.update_item("CountersTable", counter, &[("count", tidemark_tests::items::n(7_000))], &[]).await;
        world.stack.faults().add(Fault::new("SendMessageBatch", FaultAction::LeaveUnprocessed).of("fan-out"));
        let post = refused_once(world, "publish", "FanOutQueue", async || world.user(1).publish("one").await).await;
        world.user(1).get(&format!("/v1/posts/{post}/delivery")).await.has(json!({ "state": "done", "delivered": 33 }));
        assert_eq!(reader.unread_total().await, 1);
    });
}

#[test]
fn a_message_to_a_live_connection_is_sent_although_sqs_refuses_an_entry_once() {
    world(async |world| {
        let reader = world.live_reader(7, [1]).await;
        let mut connection = world.live(7).await;
        connection.ping().await;
        world.publish_and_deliver(1, "one").await;
        connection.total(1).await;
        refused_once(world, "mark-read", "LiveQueue", async || reader.put("/v1/posts/1-1/read").await.ok()).await;
        connection.total(0).await;
        refused_once(world, "live", "LivePostsQueue", async || reader.delete("/v1/posts/1-1/read").await.ok()).await;
        connection.total(1).await;
    });
}

#[test]
fn a_walk_goes_on_in_segments_although_sqs_refuses_an_entry_once() {
    world_with(parameter("ReconcileConcurrency", 5), async |world| {
        world.live_reader(7, [1]).await;
        let event = json!({ "job": "users", "share": 1.0, "settle_ms": 0, "slice": 5 });
        world.reconcile(event).await;
        let minute = json!({ "job": "minute", "share": 1.0, "settle_ms": 0, "slice": 5 });
        refused_once(world, "reconcile", "WalkQueue", async || world.reconcile(minute.clone()).await).await;
        assert_eq!(world.reconcile(minute).await["users"], Value::Null);
    });
}
