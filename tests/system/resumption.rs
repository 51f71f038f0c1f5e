//! Fan-outs cut off: lost messages, lost progress, a publish that died after its transaction.

use serde_json::{Value, json};
use tidemark::{domain::NewPost, ports::Published};
use tidemark_tests::{World, world};

use crate::delivery::resend;

async fn reconcile(world: &World) -> Value {
    world.stack.fire("reconcile", Some(json!({ "job": "fan-outs", "overdue_ms": 0 }))).await.unwrap()
}

async fn state(world: &World, post: &str) -> (Value, Value) {
    let delivery = world.user(1).get(&format!("/v1/posts/{post}/delivery")).await.ok();
    (delivery["state"].clone(), delivery["delivered"].clone())
}

#[tokio::test]
async fn lost_messages_are_sent_again_and_only_those() {
    world(async |world| {
        world.follow(1..=9, 99).await;
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("lost").await;
        let gone = world.user(99).publish("lost and deleted").await;
        world.user(99).delete(&format!("/v1/posts/{gone}")).await.ok();
        assert_eq!(resend(world, 0).await, 3, "all messages are lost");
        world.stack.resume("fan-out").unwrap();
        assert_eq!(world.user(1).feed_ids().await.len(), 0);

        let report = reconcile(world).await;
        assert_eq!((&report["unfinished"], &report["pages_sent"], &report["failed"]), (&json!(2), &json!(2), &json!(0)));
        world.idle().await;
        assert_eq!(state(world, &post).await, (json!("done"), json!(9)));
        assert_eq!(state(world, &gone).await.0, "cancelled");
        assert_eq!((world.user(1).feed_ids().await, world.user(1).unread_total().await), (vec![post], 1));
        assert_eq!(reconcile(world).await["unfinished"], 0);
    })
    .await;
}

#[tokio::test]
async fn a_publish_that_died_after_its_transaction_is_resumed() {
    world(async |world| {
        world.follow(1..=4, 99).await;
        world.user(1).feed_ids().await;
        let app = world.stack.app("publish").unwrap();
        let post = NewPost { author: "99".parse().unwrap(), title: "orphan".to_owned(), body: None };
        let Published::Created(post, _) = app.posts.publish(&post, 4, None, app.clock.now()).await.unwrap() else { panic!() };
        assert_eq!(world.user(1).unread_total().await, 0);
        assert_eq!(reconcile(world).await["pages_sent"], 1);
        world.idle().await;
        assert_eq!(world.user(1).unread_total().await, 1);
        assert_eq!(state(world, &post.id.to_string()).await, (json!("done"), json!(4)));
    })
    .await;
}

#[tokio::test]
async fn progress_lost_with_redis_is_made_again() {
    world(async |world| {
        world.follow(1..=4, 99).await;
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("one").await;
        // The page is done, the fact not yet: its worker died in between, and Redis forgot.
        let app = world.stack.app("fan-out").unwrap();
        app.progress.page_done(tidemark::ports::FanOutKind::Deliver, post.parse().unwrap(), 0, 4).await.unwrap();
        assert_eq!(state(world, &post).await, (json!("running"), json!(4)));
        world.flush_redis().await;
        resend(world, 0).await;
        world.stack.resume("fan-out").unwrap();
        assert_eq!(reconcile(world).await["pages_sent"], 1);
        world.idle().await;
        assert_eq!(state(world, &post).await, (json!("done"), json!(4)));
        for reader in 1..=4 {
            assert_eq!(world.user(reader).unread_total().await, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn attempts_are_bounded_and_visible() {
    world(async |world| {
        world.follow(1..=4, 99).await;
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let post = world.user(99).publish("again and again").await;
        let look = async |most: u32| {
            resend(world, 0).await;
            let input = json!({ "job": "fan-outs", "overdue_ms": 0, "most_attempts": most });
            let report = world.stack.fire("reconcile", Some(input)).await.unwrap();
            (report["pages_sent"].as_u64().unwrap(), report["given_up"].as_u64().unwrap())
        };
        for _ in 0..2 {
            assert_eq!(look(2).await, (1, 0));
        }
        assert_eq!(look(2).await, (0, 1));
        let delivery = world.user(1).get(&format!("/v1/posts/{post}/delivery")).await.ok();
        assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("pending"), &json!(2)));
        // Whoever has found the cause lets it go on.
        assert_eq!(look(1000).await, (1, 0));
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        assert_eq!(state(world, &post).await, (json!("done"), json!(4)));
    })
    .await;
}

#[tokio::test]
async fn a_fan_out_that_moves_is_left_to_its_workers() {
    world(async |world| {
        world.follow(1..=4, 99).await;
        let app = world.stack.app("publish").unwrap();
        let post = NewPost { author: "99".parse().unwrap(), title: "three pages".to_owned(), body: None };
        let Published::Created(post, _) = app.posts.publish(&post, 2500, None, app.clock.now()).await.unwrap() else { panic!() };
        let deliver = tidemark::ports::FanOutKind::Deliver;
        app.progress.page_done(deliver, post.id, 1, 2).await.unwrap();
        let report = reconcile(world).await;
        assert_eq!((&report["moving"], &report["pages_sent"]), (&json!(1), &json!(0)));
        // Nothing has moved since: what is missing is sent, and nothing else.
        let report = reconcile(world).await;
        assert_eq!((&report["moving"], &report["pages_sent"]), (&json!(0), &json!(2)));
        world.idle().await;
        let delivery = world.user(1).get(&format!("/v1/posts/{}/delivery", post.id)).await.ok();
        assert_eq!((&delivery["state"], &delivery["pages_done"]), (&json!("done"), &json!(3)));
    })
    .await;
}

#[tokio::test]
async fn an_unknown_job_is_refused() {
    world(async |world| {
        assert!(world.stack.fire("reconcile", Some(json!({ "job": "everything" }))).await.is_err());
    })
    .await;
}
