//! Tests of planted faults in the local stack.

use std::time::Duration;

use serde_json::json;
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::world;

#[tokio::test]
async fn a_lost_response_means_a_done_write_and_a_repeated_request() {
    world(async |world| {
        let lost = world.stack.faults().add(Fault::new("TransactWriteItems", FaultAction::LoseResponse).of("publish"));
        let other = world.stack.faults().add(Fault::new("TransactWriteItems", FaultAction::LoseResponse).of("nobody"));
        world.follow([1], 99).await;
        assert_eq!(lost.fired(), 0, "the fault does not match follow");
        let post = world.user(99).publish("once").await;
        assert_eq!((lost.fired(), other.fired(), post.as_str()), (1, 0, "99-1"), "the SDK repeated the request with its token");
        world.idle().await;
        assert_eq!(world.user(1).feed_ids().await, ["99-1"]);
        assert!(!world.stack.faults().is_empty());
        world.stack.faults().clear();
        assert!(world.stack.faults().is_empty());
    })
    .await;
}

#[tokio::test]
async fn planted_errors_happen_before_or_after_the_write() {
    world(async |world| {
        let (table, dynamodb) = ("ReadsTable", world.dynamodb().await);
        assert!(world.stack.template().tables.contains_key(table));
        world.follow([1], 99).await;
        world.user(99).publish("one").await;
        world.idle().await;
        let items = async || dynamodb.scan().table_name(table).send().await.unwrap().count;
        let before = items().await;
        let throttled = Fault::new("UpdateItem", FaultAction::FailBefore("ThrottlingException".to_owned())).on(table);
        let throttled = world.stack.faults().add(throttled.times(20));
        let response = world.user(1).put("/v1/posts/99-1/read").await;
        assert_eq!(response.problem().0, 503, "{}", response.body);
        assert!(throttled.fired() > 1, "the SDK repeated the request");
        assert_eq!(items().await, before, "nothing was written");
        world.stack.faults().clear();
        let done = Fault::new("UpdateItem", FaultAction::FailAfter("InternalServerError".to_owned())).on(table).times(20);
        world.stack.faults().add(done);
        let response = world.user(1).put("/v1/posts/99-1/read").await;
        assert!(matches!(response.status, 200 | 503), "{} {}", response.status, response.body);
        assert_eq!(items().await, before + 1, "it was written");
        world.stack.faults().clear();
    })
    .await;
}

#[tokio::test]
async fn an_invocation_killed_after_its_write_returns_nothing_and_the_write_stays() {
    world(async |world| {
        let killed = world.stack.faults().add(Fault::new("TransactWriteItems", FaultAction::Kill).of("follow"));
        let response = world.user(1).put("/v1/following/99").await;
        assert_eq!((response.status, killed.fired()), (500, 1), "{}", response.body);
        world.idle().await;
        assert_eq!(world.user(1).get("/v1/relations/99").await.ok()["following"], true);
        world.user(1).put("/v1/following/99").await.ok();
    })
    .await;
}

#[tokio::test]
async fn a_late_write_happens_without_its_caller_and_keeps_the_stack_busy() {
    world(async |world| {
        let dynamodb = world.dynamodb().await;
        let late = Fault::new("PutItem", FaultAction::DoLate(Duration::from_millis(800))).on("CountersTable");
        let late = world.stack.faults().add(late);
        let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
        let put = dynamodb.put_item().table_name("CountersTable").item("counter", text("test#late"));
        let given_up = tokio::time::timeout(Duration::from_millis(200), put.send()).await;
        assert!(given_up.is_err());
        assert_eq!(late.fired(), 1);
        assert!(!world.stack.status().await.unwrap().idle, "the write has not happened yet");
        world.idle().await;
        let get = dynamodb.get_item().table_name("CountersTable").key("counter", text("test#late"));
        assert!(get.send().await.unwrap().item.is_some());
        let delete = dynamodb.delete_item().table_name("CountersTable").key("counter", text("test#late"));
        delete.send().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn messages_with_a_lost_response_are_sent_and_refused_ones_are_not() {
    world(async |world| {
        world.follow(1..=3, 99).await;
        world.stack.pause("fan-out").await.unwrap();
        let waiting = async || world.stack.status().await.unwrap().queues["FanOutQueue"].visible;
        let lost = Fault::new("SendMessageBatch", FaultAction::LoseResponse).on("FanOutQueue");
        let lost = world.stack.faults().add(lost);
        world.user(99).publish("twice").await;
        assert_eq!((lost.fired(), waiting().await), (1, 2), "sent twice, because the sender got no response");
        world.stack.faults().add(Fault::new("SendMessageBatch", FaultAction::LeaveUnprocessed).times(20));
        world.user(99).send(reqwest::Method::POST, "/v1/posts", &[], Some(json!({ "title": "unsent" }).to_string())).await;
        assert_eq!(waiting().await, 2);
        world.stack.faults().clear();
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        world.stack.fire("reconcile", Some(json!({ "job": "fan-outs", "overdue_ms": 0 }))).await.unwrap();
        world.idle().await;
        for reader in 1..=3 {
            assert_eq!(world.user(reader).unread_total().await, 2);
        }
    })
    .await;
}

#[tokio::test]
async fn a_test_can_act_during_a_request() {
    world(async |world| {
        let (reached, go) = (std::sync::Arc::new(tokio::sync::Notify::new()), std::sync::Arc::new(tokio::sync::Notify::new()));
        let signals = (reached.clone(), go.clone());
        let middle = FaultAction::run_then(move || {
            let (reached, go) = signals.clone();
            async move {
                reached.notify_one();
                go.notified().await;
            }
        });
        let planted = world.stack.faults().add(Fault::new("TransactWriteItems", middle).of("follow"));
        let user = world.user(1);
        let follow = user.put("/v1/following/99");
        let meanwhile = async {
            reached.notified().await;
            let seen = world.user(2).get("/v1/users/99/followers").await.ok();
            go.notify_one();
            seen
        };
        let (response, seen) = futures::join!(follow, meanwhile);
        response.ok();
        assert_eq!(seen["items"][0]["user"], "1", "the write was done before its response");
        planted.has_fired(1).await;
    })
    .await;
}
