//! The events that leave: each type with its exact detail, the list of them on the local stack, and their schema.

use serde_json::{Value, json};
use tidemark_tests::{World, repository, text_of, until, world};

/// The events of this type, oldest first.
fn of(events: &[Value], name: &str) -> Vec<Value> {
    events.iter().filter(|event| event["detail-type"] == name).map(|event| event["detail"].clone()).collect()
}

/// The only event of this type.
fn only(events: &[Value], name: &str) -> Value {
    let found = of(events, name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0].clone()
}

/// Asserts that a detail has exactly these fields beside its revision, and the id that both give.
#[track_caller]
fn assert_detail(name: &str, subject: &str, mut detail: Value, expected: Value) {
    let revision = detail["revision"].as_u64().unwrap();
    assert_eq!(detail["id"], format!("{name}:{subject}:{revision}"));
    let fields = detail.as_object_mut().unwrap();
    fields.remove("id");
    fields.remove("revision");
    assert_eq!(detail, expected, "{name}");
}

#[test]
fn follows_send_events_when_they_begin_and_end() {
    world(async |world| {
        let (reader, other) = (world.user(1), world.user(2));
        let since = reader.put("/v1/following/2").await.ok()["since"].clone();
        // Neither is a change of the follow.
        reader.put_body("/v1/following/2", &json!({ "preference": 3 })).await.ok();
        reader.put("/v1/mutes/2").await.ok();
        let events = world.events().await;
        assert_eq!(events.len(), 1, "{events:?}");
        let began = only(&events, "follow.began");
        let revision = began["revision"].as_u64();
        assert_detail("follow.began", "1/2", began, json!({ "user": "1", "author": "2", "since": since }));
        reader.delete("/v1/following/2").await.ok();
        reader.delete("/v1/following/2").await.ok();
        let ended = only(&world.events().await, "follow.ended");
        assert!(ended["at"].as_str() > since.as_str() && ended["revision"].as_u64() > revision, "{ended}");
        assert_detail("follow.ended", "1/2", ended.clone(), json!({ "user": "1", "author": "2", "at": ended["at"] }));
        // A block ends both edges.
        reader.put("/v1/following/2").await.ok();
        other.put("/v1/following/1").await.ok();
        let last = world.events().await.last().unwrap()["id"].clone();
        reader.put("/v1/blocks/2").await.ok();
        world.idle().await;
        let ended = of(&world.events_after(last.as_str()).await, "follow.ended");
        let mut pairs: Vec<_> = ended.iter().map(|detail| (detail["user"].clone(), detail["author"].clone())).collect();
        pairs.sort_by_key(|(user, _)| user.to_string());
        assert_eq!(pairs, [(json!("1"), json!("2")), (json!("2"), json!("1"))]);
    });
}

#[test]
fn privacy_is_an_event_and_a_request_to_follow_when_it_is_accepted() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(2));
        for private in [true, false, false, true] {
            author.put_body("/v1/me/privacy", &json!({ "private": private })).await.ok();
        }
        let changes = of(&world.events().await, "privacy.changed");
        for ((revision, detail), private) in (1..).zip(&changes).zip([true, false, true]) {
            assert_eq!(detail["revision"], revision);
            assert_detail("privacy.changed", "2", detail.clone(), json!({ "user": "2", "private": private }));
        }
        reader.put("/v1/following/2").await.ok();
        assert_eq!((world.events().await.len(), changes.len()), (3, 3));
        author.put("/v1/follow-requests/1").await.ok();
        let began = only(&world.events().await, "follow.began");
        assert_eq!((&began["user"], &began["author"]), (&json!("1"), &json!("2")));
    });
}

#[test]
fn posts_send_events_with_their_texts() {
    world(async |world| {
        let author = world.user(2);
        let text = json!({ "title": "One", "body": "text", "data": { "a": [1] }, "weight": -3 });
        let post = author.post("/v1/posts", &text).await.ok();
        let published = only(&world.events().await, "post.published");
        assert_eq!(published["revision"], 1);
        let mut expected = json!({
            "post": "2-1", "author": "2", "title": "One", "body": "text", "data": { "a": [1] }, "weight": -3,
            "created_at": post["created_at"], "edited_at": null,
        });
        assert_detail("post.published", "2-1", published, expected.clone());
        let edited = author.put_body("/v1/posts/2-1", &json!({ "title": "Two" })).await.ok();
        author.put_body("/v1/posts/2-1", &json!({ "title": "Two" })).await.ok();
        let event = only(&world.events().await, "post.edited");
        assert_eq!(event["revision"], 2);
        let changes =
            [("title", json!("Two")), ("body", Value::Null), ("data", Value::Null), ("edited_at", edited["edited_at"].clone())];
        changes.into_iter().for_each(|(field, value)| expected[field] = value);
        assert_detail("post.edited", "2-1", event, expected);
        author.delete("/v1/posts/2-1").await;
        author.delete("/v1/posts/2-1").await;
        let deleted = only(&world.events().await, "post.deleted");
        assert_eq!(deleted["revision"], 3);
        assert_detail("post.deleted", "2-1", deleted, json!({ "post": "2-1", "author": "2" }));
    });
}

/// A text that changes before its event leaves is left out: the event of the change has the newer one.
#[test]
fn an_event_that_is_late_has_no_text_of_another_revision() {
    world(async |world| {
        let author = world.user(2);
        world.stack.pause("projector").await.unwrap();
        author.post("/v1/posts", &json!({ "title": "One", "body": "first" })).await.ok();
        author.put_body("/v1/posts/2-1", &json!({ "title": "Two", "body": "second" })).await.ok();
        author.post("/v1/posts", &json!({ "title": "gone", "body": "gone" })).await.ok();
        author.delete("/v1/posts/2-2").await;
        world.resume("projector").await;
        let events = world.events().await;
        let published = of(&events, "post.published");
        let texts: Vec<_> =
            published.iter().map(|detail| (detail["title"].clone(), detail.get("body"), detail.get("data"))).collect();
        assert_eq!(texts, [(json!("One"), None, None), (json!("gone"), None, None)]);
        assert_eq!(only(&events, "post.edited")["body"], "second");
        assert_eq!(only(&events, "post.deleted")["post"], "2-2");
    });
}

/// Each of its characters takes six bytes of JSON.
#[test]
fn a_text_that_is_too_large_for_an_event_is_left_out() {
    world(async |world| {
        let body = "\u{1}".repeat(41_000);
        world.user(2).post("/v1/posts", &json!({ "title": "One", "body": body })).await.ok();
        world.user(2).post("/v1/posts", &json!({ "title": "Two", "body": "\n".repeat(60_000) })).await.ok();
        let published = of(&world.events().await, "post.published");
        let bodies: Vec<_> = published.iter().map(|detail| detail.get("body").map(|body| body.as_str().unwrap().len())).collect();
        assert_eq!(bodies, [None, Some(60_000)]);
    });
}

#[test]
fn reactions_send_events_when_they_are_given_and_removed() {
    world(async |world| {
        let reader = world.user(1);
        world.user(2).publish("One").await;
        for (path, name) in [("like", "like"), ("favorite", "favorite")] {
            reader.put(&format!("/v1/posts/2-1/{path}")).await.ok();
            reader.put(&format!("/v1/posts/2-1/{path}")).await.ok();
            reader.delete(&format!("/v1/posts/2-1/{path}")).await.ok();
            let events = world.events().await;
            let (given, removed) = (of(&events, "reaction.given"), of(&events, "reaction.removed"));
            let (given, removed) = (given.last().unwrap().clone(), removed.last().unwrap().clone());
            assert_eq!(given["revision"].as_u64().unwrap() + 1, removed["revision"].as_u64().unwrap());
            let mut expected = json!({ "user": "1", "author": "2", "post": "2-1", "reaction": name });
            assert_detail("reaction.removed", &format!("1/2-1/{name}"), removed, expected.clone());
            expected["at"] = given["at"].clone();
            assert_detail("reaction.given", &format!("1/2-1/{name}"), given, expected);
        }
        reader.put("/v1/posts/2-1/like").await.ok();
        let given = of(&world.events().await, "reaction.given");
        assert_eq!(given.len(), 3, "a repeated request changes nothing");
        let like = reader.walk("/v1/me/export", 100).await.into_iter().find(|line| line["kind"] == "like").unwrap();
        assert_eq!(given[2]["at"], like["at"], "the time that the API returns");
        // A block changes the item that has the reactions, and none of them.
        let before = world.events().await.len();
        world.user(2).put("/v1/blocks/1").await.ok();
        assert_eq!(world.events().await.len(), before);
    });
}

#[test]
fn marks_send_the_state_after_them() {
    world(async |world| {
        let reader = world.user(1);
        world.user(2).publish_all(["a", "b", "c", "d", "e"]).await;
        reader.follow([2]).await;
        reader.post("/v1/reads", &json!({ "author": "2", "through": 2 })).await.ok();
        reader.post("/v1/reads", &json!({ "posts": ["2-4", "2-5"] })).await.ok();
        reader.delete("/v1/posts/2-1/read").await.ok();
        let changed = of(&world.events().await, "read.changed");
        let states: Vec<Value> =
            changed.iter().map(|detail| json!([detail["revision"], detail["through"], detail["ranges"]])).collect();
        let expected = [json!([1, 2, [[1, 2]]]), json!([2, 2, [[1, 2], [4, 5]]]), json!([3, 2, [[2, 2], [4, 5]]])];
        assert_eq!(states, expected);
        let last = json!({ "user": "1", "author": "2", "through": 2, "ranges": [[2, 2], [4, 5]] });
        assert_detail("read.changed", "1/2", changed[2].clone(), last);
    });
}

#[test]
fn profiles_are_as_the_api_returns_them_and_an_erasure_is_the_last_event_of_a_user() {
    world(async |world| {
        let user = world.user(1);
        let content =
            json!({ "name": "Ada", "handle": "ada", "picture": "https://example.org/a.png", "bio": "b", "data": { "x": 1 } });
        user.put_body("/v1/me/profile", &content).await.ok();
        user.put_body("/v1/me/profile", &content).await.ok();
        let profile = user.get("/v1/me").await.ok()["profile"].clone();
        let changed = only(&world.events().await, "profile.changed");
        assert_detail("profile.changed", "1", changed, json!({ "user": "1", "profile": profile }));
        user.follow([2]).await;
        world.user(3).follow([1]).await;
        user.publish("One").await;
        world.idle().await;
        user.delete("/v1/me").await.ok();
        until("the erasure is told", async || !of(&world.events_after(None).await, "user.erased").is_empty()).await;
        let events = world.events().await;
        let (last, erased) = (events.last().unwrap(), only(&events, "user.erased"));
        assert_eq!(last["detail-type"], "user.erased", "no later event names the user: {events:?}");
        assert!(erased["revision"].as_u64() > only(&events, "profile.changed")["revision"].as_u64());
        assert_detail("user.erased", "1", erased, json!({ "user": "1" }));
        user.get("/v1/me/erasure").await.has(json!({ "state": "done" }));
    });
}

#[test]
fn events_are_listed_after_an_id_and_outlive_a_restart() {
    tidemark_tests::in_one_thread(async {
        let world = World::start(|_| {}).await;
        world.user(2).publish_all(["One", "Two", "Three"]).await;
        let events = world.events().await;
        let ids: Vec<&str> = events.iter().map(|event| event["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["post.published:2-1:1", "post.published:2-2:1", "post.published:2-3:1"]);
        assert_eq!(world.events_after(Some(ids[0])).await, events[1..]);
        assert_eq!(world.events_after(Some(ids[2])).await, [] as [Value; 0]);
        let get = async |query: &str| {
            let response = reqwest::get(format!("{}/_local/events{query}", world.stack.base_url())).await.unwrap();
            response.status().as_u16()
        };
        assert_eq!((get("?after=nothing").await, get("?before=1").await, get("").await), (400, 400, 200));
        let world = world.restart().await;
        world.user(2).publish("Four").await;
        let later = world.events().await;
        assert_eq!((&later[..3], later.len()), (&events[..], 4));
        world.finish().await;
    });
}

/// The example of docs/events.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_index_of_events_finds_what_a_user_may_see() {
    World::run(async |world| {
        let mut command = tokio::process::Command::new("python3");
        command.arg("-B").arg(repository().join("local/events/test_search_index.py")).env("URL", world.stack.base_url());
        let output = command.output().await.expect("python3 runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("Ran 3 tests") && !text.contains("skipped"), "{text}");
    })
    .await;
}

#[test]
fn without_a_bus_no_event_leaves() {
    tidemark_tests::world_with(tidemark_tests::parameter("EventBus", ""), async |world| {
        world.user(2).publish("One").await;
        assert_eq!(world.events().await, [] as [Value; 0]);
    });
}

#[test]
fn the_schema_of_the_events_is_what_the_code_generates() {
    const FILE: &str = "docs/events.schema.json";
    let generated = serde_json::to_string_pretty(&tidemark::queue::schemas()).unwrap() + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(repository().join(FILE), generated).unwrap();
    } else {
        assert_eq!(text_of(FILE), generated, "run `make openapi`");
    }
    let (text, schemas) = (text_of(FILE), serde_json::from_str::<Value>(&text_of(FILE)).unwrap());
    for reference in text.split("\"$ref\": \"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(schemas.pointer(reference).is_some(), "{reference}");
    }
    let (types, document) = (schemas["properties"].as_object().unwrap(), text_of("docs/events.md"));
    assert_eq!(types.len(), 13);
    for (name, reference) in types {
        assert!(document.contains(&format!("| `{name}` |")), "docs/events.md does not list {name}");
        let pointer = reference["$ref"].as_str().unwrap().strip_prefix('#').unwrap();
        let fields = schemas.pointer(pointer).unwrap()["properties"].as_object().unwrap();
        let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        for field in fields.keys().filter(|field| !["id", "revision"].contains(&field.as_str())) {
            assert!(row.contains(&format!("`{field}`")), "docs/events.md does not list {field} of {name}");
        }
    }
}
