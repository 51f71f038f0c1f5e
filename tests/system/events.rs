//! Every function accepts its sample events.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidemark_tests::{LegacyRedis, files, repository, world};

#[test]
fn every_function_accepts_its_sample_events() {
    world(async |world| {
        // The legacy server is empty.
        let legacy = LegacyRedis::start().await;
        world.live_reader(1, [2]).await;
        // So that the posts remain after the sample that erases their author.
        world.stack.pause("fan-out").await.unwrap();
        for author in [1, 2] {
            world.user(author).publish("for the samples").await;
        }
        for (path, function, mut event) in samples() {
            if function == "migrate" {
                event["source"] = json!(legacy.url());
            }
            let response = world.stack.invoke(&function, event).await.unwrap();
            match &*function {
                "fan-out" if path.ends_with("malformed.json") => {
                    assert_eq!(response["batchItemFailures"], json!([{ "itemIdentifier": "sample-0" }]));
                }
                "fan-out" | "relation-projector" => assert_eq!(response["batchItemFailures"], json!([]), "{path:?}"),
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
        for author in [1, 2] {
            world.user(author).publish("for the samples").await;
        }
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
