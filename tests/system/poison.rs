//! Messages that fail in every attempt.

use serde_json::json;
use tidemark_tests::{stream_record, world};

use crate::delivery::deliver;

#[test]
fn a_malformed_message_becomes_a_dead_letter_alone() {
    world(async |world| {
        let reader = world.live_reader(1, [99]).await;
        world.stack.pause("fan-out").await.unwrap();
        world.user(99).publish("good").await;
        let bad = ["nonsense", r#"{"v":9,"type":"sync","user":"1","author":"2"}"#];
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
        let bodies = ["nonsense".to_owned(), r#"{"v":1,"type":"sync","user":"1","author":"2"}"#.to_owned(), "{}".to_owned()];
        let response = deliver(world, &bodies).await;
        assert_eq!(response["batchItemFailures"], json!([{ "itemIdentifier": "late-0" }, { "itemIdentifier": "late-2" }]));
    });
}

#[test]
fn a_failed_record_is_reported_and_reconcile_counts_abandoned_records() {
    world(async |world| {
        let good = json!({ "user": { "N": "1" }, "author": { "N": "2" } });
        let records = json!({ "Records": [stream_record("1", good.clone()), stream_record("2", json!({ "other": { "S": "x" } })), stream_record("3", good)] });
        let response = world.stack.invoke("relation-projector", records).await.unwrap();
        assert_eq!(response, json!({ "batchItemFailures": [{ "itemIdentifier": "2" }] }));

        assert_eq!(world.stack.fire("reconcile", None).await.unwrap()["stuck_records"], 0);
        world.send_message("ProjectorFailuresQueue", "{}").await;
        assert_eq!(world.stack.fire("reconcile", None).await.unwrap()["stuck_records"], 1);
    });
}
