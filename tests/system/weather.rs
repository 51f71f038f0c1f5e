//! Tests of planted faults in the local stack.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::json;
use tidemark_local::{Fault, FaultAction};
use tidemark_tests::{
    items::{Item, s},
    world,
};

#[test]
fn a_lost_response_means_a_done_write_and_a_repeated_request() {
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
    });
}

#[test]
fn planted_errors_happen_before_or_after_the_write() {
    world(async |world| {
        let (table, dynamodb) = ("ReadsTable", world.dynamodb().await);
        assert!(world.stack.template().tables.contains_key(table));
        world.follow([1], 99).await;
        world.publish_and_deliver(99, "one").await;
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
    });
}

#[test]
fn an_invocation_killed_after_its_write_returns_nothing_and_the_write_stays() {
    world(async |world| {
        let killed = world.stack.faults().add(Fault::new("TransactWriteItems", FaultAction::Kill).of("follow"));
        let response = world.user(1).put("/v1/following/99").await;
        assert_eq!((response.status, killed.fired()), (500, 1), "{}", response.body);
        world.idle().await;
        assert_eq!(world.user(1).get("/v1/relations/99").await.ok()["following"], true);
        world.user(1).put("/v1/following/99").await.ok();
    });
}

#[test]
fn a_late_write_happens_without_its_caller_and_keeps_the_stack_busy() {
    world(async |world| {
        let test = Item::from([("counter".to_owned(), s("test#late"))]);
        let late = Fault::new("PutItem", FaultAction::DoLate(Duration::from_millis(800))).on("CountersTable");
        let late = world.stack.faults().add(late);
        let put = world.put_item("CountersTable", test.clone());
        let given_up = tokio::time::timeout(Duration::from_millis(200), put).await;
        assert!(given_up.is_err());
        assert_eq!(late.fired(), 1);
        assert!(!world.stack.status().await.unwrap().idle, "the write has not happened yet");
        world.idle().await;
        assert!(world.item("CountersTable", test.clone()).await.is_some());
        world.delete_item("CountersTable", test).await;
    });
}

#[test]
fn messages_with_a_lost_response_are_sent_and_refused_ones_are_not() {
    world(async |world| {
        world.follow(1..=3, 99).await;
        world.stack.pause("fan-out").await.unwrap();
        let lost = Fault::new("SendMessageBatch", FaultAction::LoseResponse).on("FanOutQueue");
        let lost = world.stack.faults().add(lost);
        world.user(99).publish("twice").await;
        assert_eq!((lost.fired(), world.waiting("FanOutQueue").await), (1, 2), "sent twice, because the sender got no response");
        world.stack.faults().add(Fault::new("SendMessageBatch", FaultAction::LeaveUnprocessed).times(20));
        world.user(99).post("/v1/posts", &json!({ "title": "unsent" })).await;
        assert_eq!(world.waiting("FanOutQueue").await, 2);
        world.stack.faults().clear();
        world.resume("fan-out").await;
        world.resume_fan_outs().await;
        world.idle().await;
        world.assert_unread(1..=3, 2).await;
    });
}

#[test]
fn a_test_can_act_during_a_request() {
    world(async |world| {
        let (other, seen) = (world.user(2), Arc::new(OnceLock::new()));
        let noted = Arc::clone(&seen);
        let middle = FaultAction::run_then(move || {
            let (other, noted) = (other.clone(), Arc::clone(&noted));
            async move { noted.set(other.get("/v1/users/99/followers").await.ok()).unwrap() }
        });
        let planted = world.stack.faults().add(Fault::new("TransactWriteItems", middle).of("follow"));
        world.user(1).put("/v1/following/99").await.ok();
        assert_eq!(seen.get().unwrap()["items"][0]["user"], "1", "the write was done before its response");
        planted.has_fired(1).await;
    });
}
