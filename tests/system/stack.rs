//! The local stack: planted faults, and the sample events that every function accepts.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction, RedisData};
use tidemark_tests::{LegacyRedis, World, files, repository, until, world};

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
        assert_eq!(planted.fired(), 1);
    });
}

/// User 2 has asked to follow user 1, who has become public again.
async fn request_to_follow(world: &World) {
    let author = world.user(1);
    author.put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
    world.user(2).put("/v1/following/1").await.has(json!({ "requested": true }));
    author.put_body("/v1/me/privacy", &json!({ "private": false })).await.ok();
}

/// User 1 has a group in the inbox.
async fn like_of_the_samples(world: &World) {
    world.user(2).put("/v1/posts/1-1/like").await.ok();
    until("the act is in the inbox", async || {
        world.user(1).get("/v1/inbox").await.items().iter().any(|group| group["id"] == "like-1")
    })
    .await;
}

#[test]
fn every_function_accepts_its_sample_events() {
    world(async |world| {
        // The legacy server is empty.
        let legacy = LegacyRedis::start().await;
        world.live_reader(1, [2]).await;
        request_to_follow(world).await;
        // So that the posts remain after the sample that erases their author.
        world.stack.pause("fan-out").await.unwrap();
        for author in [1, 2] {
            world.user(author).publish("for the samples").await;
        }
        like_of_the_samples(world).await;
        for (path, function, mut event) in samples() {
            if function == "migrate" {
                event["source"] = json!(legacy.url());
            }
            let response = world.stack.invoke(&function, event).await.unwrap();
            match &*function {
                "fan-out" if path.ends_with("malformed.json") => {
                    assert_eq!(response["batchItemFailures"], json!([{ "itemIdentifier": "sample-0" }]));
                }
                "fan-out" | "projector" => assert_eq!(response["batchItemFailures"], json!([]), "{path:?}"),
                "migrate" => assert_eq!(response["done"], true, "{path:?}"),
                "live-authorizer" | "live-sender" => {}
                "live" if path.ends_with("changed.json") => assert_eq!(response["batchItemFailures"], json!([]), "{path:?}"),
                "reconcile" => assert_eq!(response["failed"], 0, "{path:?}"),
                _ => assert!((200..300).contains(&response["statusCode"].as_u64().unwrap()), "{path:?}: {response}"),
            }
        }
        world.stack.resume("fan-out").unwrap();
    });
}

/// Lambda shows the type of an error to operators. It must not be the path of a Rust type.
#[test]
fn a_failed_invocation_has_a_stable_type() {
    world(async |world| {
        let failed = async |function: &str, event: Value| -> Value {
            let error = world.stack.invoke(function, event).await.unwrap_err();
            serde_json::from_str(&error.to_string()).unwrap()
        };
        assert_eq!(failed("reconcile", json!({ "job": "everything" })).await["errorType"], "InvalidEvent");
        assert_eq!(failed("migrate", json!({ "sauce": "redis://127.0.0.1:1" })).await["errorType"], "InvalidEvent");
        assert_eq!(failed("migrate", json!({ "source": "redis://127.0.0.1:1" })).await["errorType"], "SourceUnavailable");
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        for job in ["users", "marks", "forget"] {
            let failed = failed("reconcile", json!({ "job": job })).await;
            assert_eq!(failed["errorType"], "StoreUnavailable", "{job}: {failed}");
        }
        // A minute without Redis is no error. Its failures are counted.
        assert!(world.reconcile(json!({ "job": "minute" })).await["failed"].as_u64() > Some(0));
        world.stack.start_redis().await.unwrap();
        world.redis_is_asked_again().await;
    });
}

#[test]
fn a_retraction_of_a_live_post_changes_nothing() {
    world(async |world| {
        let reader = world.reader(1, [2]).await;
        world.publish_and_deliver(2, "alive").await;
        let sample = std::fs::read_to_string(repository().join("events/fan-out/retract.json")).unwrap();
        let response = world.stack.invoke("fan-out", serde_json::from_str(&sample).unwrap()).await.unwrap();
        assert_eq!(response["batchItemFailures"], json!([]));
        for reader in [1, 2, 3] {
            assert_eq!(world.user(reader).get("/v1/posts/2-1").await.ok()["title"], "alive");
        }
        assert_eq!((reader.feed("all").await, reader.unread_total().await), (vec![("2-1".to_owned(), false)], 1));
    });
}

/// `cargo lambda watch` and `invoke` send every request to one route.
#[test]
fn every_function_finds_the_route_of_an_event_that_has_none() {
    world(async |world| {
        world.user(1).put("/v1/following/2").await.ok();
        request_to_follow(world).await;
        for author in [1, 2] {
            world.user(author).publish("for the samples").await;
        }
        like_of_the_samples(world).await;
        let mut found = 0;
        for (path, function, mut event) in samples() {
            if event.get("routeKey").is_none() {
                continue;
            }
            event["routeKey"] = json!("$default");
            event["requestContext"]["routeKey"] = json!("$default");
            event.as_object_mut().unwrap().remove("pathParameters");
            let response = world.stack.invoke(&function, event.clone()).await.unwrap();
            assert!((200..300).contains(&response["statusCode"].as_u64().unwrap()), "{path:?}: {response}");
            let other = if function == "profile" { "follow" } else { "profile" };
            let response = world.stack.invoke(other, event).await.unwrap();
            assert_eq!(response["statusCode"], 404, "{path:?}: {response}");
            assert!(response["body"].as_str().unwrap().contains("another function"), "{path:?}: {response}");
            found += 1;
        }
        assert!(found > 50, "{found}");
    });
}

/// The path, the function and the event of all samples. Those that publish notices, set a profile or make a list come
/// first, those that delete posts and notices come last.
fn samples() -> Vec<(PathBuf, String, Value)> {
    let mut samples = files(&repository().join("events"), "json");
    let deletes = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("delete");
    let first = ["notice/publish.json", "profile/set.json", "follow/make-list.json"];
    let prepares = |path: &Path| first.iter().any(|sample| path.ends_with(sample));
    samples.sort_by_key(|path| (deletes(path), !prepares(path), path.clone()));
    let read = |path: PathBuf| {
        let function = path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let event = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        (path, function, event)
    };
    samples.into_iter().map(read).collect()
}
