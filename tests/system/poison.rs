//! Messages that fail in every attempt.

use serde_json::json;
use tidemark_tests::{stream_record, world};

use crate::delivery::deliver;

#[tokio::test]
async fn a_malformed_message_becomes_a_dead_letter_alone() {
    world(async |world| {
        let (reader, sqs) = (world.user(1), world.sqs().await);
        let url = world.stack.queue("FanOutQueue").unwrap().url.clone();
        reader.put("/v1/following/99").await.ok();
        reader.feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        world.user(99).publish("good").await;
        for body in ["nonsense", r#"{"v":9,"type":"sync","user":"1","author":"2"}"#] {
            sqs.send_message().queue_url(&url).message_body(body).send().await.unwrap();
        }
        world.stack.resume("fan-out").unwrap();
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["99-1"], "the rest of the batch is done");
        let dead = world.stack.queue("FanOutDeadLetters").unwrap().url.clone();
        let dead = sqs.receive_message().queue_url(&dead).max_number_of_messages(10).send().await.unwrap();
        let mut bodies: Vec<&str> = dead.messages().iter().map(|message| message.body().unwrap()).collect();
        bodies.sort_unstable();
        assert_eq!(
            bodies,
            ["nonsense", r#"{"v":9,"type":"sync","user":"1","author":"2"}"#]
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
    })
    .await;
}

#[tokio::test]
async fn a_task_that_always_fails_becomes_a_dead_letter_unchanged() {
    world(async |world| {
        let queue = world.stack.queue("FanOutQueue").unwrap();
        // Pages that the fan-out does not have.
        let fan_out = json!({ "kind": "deliver", "post": "99-1", "at": "2026-01-01T00:00:00.000Z", "pages": 2, "deletions": 0 });
        let body = json!({ "v": 1, "type": "list", "fan_out": fan_out, "from": 5, "to": 9 }).to_string();
        let sqs = world.sqs().await;
        sqs.send_message().queue_url(&queue.url).message_body(&body).send().await.unwrap();
        world.idle().await;
        let dead = world.stack.queue("FanOutDeadLetters").unwrap().url.clone();
        let dead = sqs.receive_message().queue_url(&dead).max_number_of_messages(10).send().await.unwrap();
        let [message] = dead.messages() else { panic!("{} messages", dead.messages().len()) };
        assert_eq!(message.body(), Some(body.as_str()), "the dead letter is the original message");
    })
    .await;
}

#[tokio::test]
async fn only_failed_messages_are_reported() {
    world(async |world| {
        let bodies = ["nonsense".to_owned(), r#"{"v":1,"type":"sync","user":"1","author":"2"}"#.to_owned(), "{}".to_owned()];
        let response = deliver(world, &bodies).await;
        assert_eq!(response["batchItemFailures"], json!([{ "itemIdentifier": "late-0" }, { "itemIdentifier": "late-2" }]));
    })
    .await;
}

#[tokio::test]
async fn a_failed_record_is_reported_and_reconcile_counts_abandoned_records() {
    world(async |world| {
        let good = json!({ "user": { "N": "1" }, "author": { "N": "2" } });
        let records = json!({ "Records": [stream_record("1", good.clone()), stream_record("2", json!({ "other": { "S": "x" } })), stream_record("3", good)] });
        let response = world.stack.invoke("relation-projector", records).await.unwrap();
        assert_eq!(response, json!({ "batchItemFailures": [{ "itemIdentifier": "2" }] }));

        let (sqs, url) = (world.sqs().await, world.stack.queue("ProjectorFailuresQueue").unwrap().url.clone());
        assert_eq!(world.stack.fire("reconcile", None).await.unwrap()["stuck_records"], 0);
        sqs.send_message().queue_url(&url).message_body("{}").send().await.unwrap();
        assert_eq!(world.stack.fire("reconcile", None).await.unwrap()["stuck_records"], 1);
    })
    .await;
}
