//! Redis is unavailable, and responses come from facts.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidemark_local::{Fault, FaultAction, RedisData, Weather};
use tidemark_tests::{User, World, parameter, until, world, world_with};

use crate::{delivery::delivery, fields, publish_and_deliver_all, publish_notices, refusal, request};

#[test]
fn without_redis_every_route_works_from_facts() {
    world(async |world| {
        let (reader, author) = (world.live_reader(1, [10]).await, world.user(10));
        publish_and_deliver_all(world, [10], ["one", "two"]).await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();

        let page = reader.get("/v1/feed").await;
        assert_eq!((page.header("degraded"), &page.body["unread_total"]), (Some("redis"), &json!(2)));
        let marked = reader.put("/v1/posts/10-1/read").await;
        assert_eq!((marked.header("degraded"), &marked.body["total"]), (Some("redis"), &json!(1)));
        // Routes that read only facts say it too.
        for path in ["/v1/relations/10", "/v1/relations?user=10", "/v1/mutes?profiles=false", "/v1/lists"] {
            assert_eq!(reader.get(path).await.header("degraded"), Some("redis"), "{path}");
        }
        author.publish("three").await;
        assert_eq!(reader.put("/v1/following/20").await.header("degraded"), Some("redis"));
        world.user(20).publish("twenty").await;
        let unread = reader.get("/v1/unread").await;
        assert_eq!((unread.header("degraded"), &unread.body["total"]), (Some("redis"), &json!(3)));
        assert_eq!(reader.feed_ids().await, ["20-1", "10-3", "10-2", "10-1"]);

        world.stack.start_redis().await.unwrap();
        world.redis_recovers().await;
        let page = reader.get("/v1/feed").await;
        assert_eq!((page.header("degraded"), &page.body["unread_total"]), (None, &json!(3)));
        assert_eq!(reader.feed("unread").await.len(), 3);
    });
}

/// `ReconcileFailuresAlarm` tells it by the counts. `FunctionErrorsAlarm` stays off.
#[test]
fn without_redis_reconcile_counts_what_it_could_not_look_at_and_is_no_error() {
    world_with(parameter("ReconcileConcurrency", 3), async |world| {
        world.publish_and_deliver(10, "one").await;
        let segments = world.reconcile(json!({ "job": "users" })).await["segments"].take();
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        let message = json!({ "job": "users", "segment": segments[0] }).to_string();
        let segment = world.reconcile(json!({ "Records": [{ "body": message }] })).await;
        assert_eq!(segment["failed"], 1, "{segment}");
        let minute = world.reconcile(json!({ "job": "minute", "overdue_ms": 0 })).await;
        assert_eq!(fields(&minute, &["job", "failed", "unfinished"]), json!(["minute", 1, 0]), "{minute}");
        assert_eq!(fields(&minute["marks"], &["job", "failed"]), json!(["marks", 1]), "{minute}");
        world.stack.start_redis().await.unwrap();
        world.redis_recovers().await;
        assert_eq!(world.reconcile(json!({ "job": "minute" })).await["failed"], 0);
    });
}

#[test]
fn without_redis_profiles_texts_and_reactions_work_from_facts_and_reach_the_surviving_views() {
    world(async |world| {
        let (reader, author) = (world.reader(1, [10]).await, world.user(10));
        world.publish_and_deliver(10, "one").await;
        let paths = ["/v1/posts/10-1", "/v1/posts?post=10-1", "/v1/authors/10/posts?include=body", "/v1/feed?include=body"];
        for path in paths {
            reader.get(path).await.ok();
        }
        let refusal = world.refuse_redis().await;
        author.put_body("/v1/me/profile", &json!({ "name": "Ada", "handle": "ada" })).await.ok();
        author.put_body("/v1/posts/10-1", &json!({ "title": "edited", "body": "text" })).await.ok();
        reader.put("/v1/posts/10-1/like").await.ok();
        let seen = async |degraded: Option<&str>| {
            let card = json!({ "10": { "name": "Ada", "handle": "ada", "picture": null } });
            for path in paths {
                let response = reader.get(path).await;
                assert_eq!(response.header("degraded"), degraded, "{path}");
                let body = response.ok();
                let post = if path == "/v1/posts/10-1" { &body } else { &body["items"][0] };
                let seen = fields(post, &["title", "body", "revision", "liked", "likes"]);
                assert_eq!(seen, json!(["edited", "text", 2, true, 1]), "{path}");
                assert_eq!(body["profiles"], card, "{path}");
            }
            let likes = reader.get("/v1/me/likes").await;
            assert_eq!((likes.header("degraded"), &likes.body["items"][0]["id"]), (degraded, &json!("10-1")));
            assert_eq!(reader.get("/v1/handles/ada").await.ok()["id"], "10");
            assert_eq!(reader.get("/v1/users/10/followers").await.ok()["items"][0]["user"], "1");
        };
        seen(Some("redis")).await;
        refusal.end().await;
        world.redis_recovers().await;
        seen(None).await;
    });
}

#[test]
fn a_change_during_an_outage_of_redis_reaches_a_surviving_view() {
    // The attempts of the task last longer than the outage of Redis.
    let patient = |options: &mut tidemark_local::Options| options.retry_delay = Duration::from_secs(3);
    world_with(patient, async |world| {
        let reader = world.reader(1, [10]).await;
        world.publish_and_deliver(10, "one").await;
        assert_eq!(reader.unread_total().await, 1);
        let refusal = world.refuse_redis().await;
        reader.put("/v1/posts/10-1/read").await.ok();
        reader.put("/v1/following/20").await.ok();
        refusal.end().await;
        world.redis_recovers().await;
        assert_eq!(reader.feed("all").await, [("10-1".to_owned(), true)]);
        world.publish_and_deliver(20, "seen").await;
        assert_eq!(reader.unread_total().await, 1);
    });
}

/// The facts accept them, and the streams show them later.
#[test]
fn without_redis_and_the_queue_every_change_is_accepted_and_reaches_its_view() {
    world(async |world| {
        let reader = posts_and_notices(world).await;
        let refused = world.refuse_redis().await;
        world.stack.faults().add(refusal("SendMessageBatch"));
        for change in CHANGES {
            let response = request(world, change, &[]).await;
            assert!(response.status < 300, "{change}: {} {}", response.status, response.body);
        }
        world.stack.faults().clear();
        refused.end().await;
        world.idle().await;
        world.redis_recovers().await;
        assert_changed(&reader).await;
    });
}

/// Other processes would use the stale view until the projector has updated it.
#[test]
fn a_change_that_misses_its_view_is_not_acknowledged_if_the_outage_cannot_be_noted() {
    world(async |world| {
        let reader = posts_and_notices(world).await;
        let refused = world.refuse_redis().await;
        world.stack.faults().add(refusal("UpdateItem").containing("\"outage\""));
        for change in CHANGES {
            assert_eq!(request(world, change, &[]).await.problem(), (503, "/problems/unavailable"), "{change}");
        }
        world.stack.faults().clear();
        refused.end().await;
        world.idle().await;
        world.redis_recovers().await;
        assert_changed(&reader).await;
    });
}

const CHANGES: [&str; 11] = [
    "1: PUT /v1/posts/10-1/read",
    "1: DELETE /v1/posts/40-1/read",
    r#"1: POST /v1/reads {"posts": ["10-2"]}"#,
    r#"1: POST /v1/reads {"author": "20", "through": 1}"#,
    "1: PUT /v1/posts/10-2/like",
    "1: DELETE /v1/posts/40-2/favorite",
    "1: PUT /v1/following/50",
    "1: DELETE /v1/following/30",
    "1: PUT /v1/notices/3-1/read",
    r#"9 notices:write: PUT /v1/notices/3-2 {"title": "B"}"#,
    "9 notices:write: DELETE /v1/notices/3-3",
];

/// The views have all of [`CHANGES`].
async fn assert_changed(reader: &User) {
    let page = reader.get("/v1/feed").await;
    assert_eq!((page.status, page.header("degraded")), (200, None));
    let items = |items: Vec<Value>, names: &[&str]| items.iter().map(|item| fields(item, names)).collect::<Value>();
    let expected = json!([
        ["40-2", false, false, false],
        ["40-1", false, false, false],
        ["20-2", false, false, false],
        ["20-1", true, false, false],
        ["10-2", true, true, false],
        ["10-1", true, false, false],
    ]);
    assert_eq!(items(reader.walk("/v1/feed", 7).await, &["id", "read", "liked", "favorited"]), expected);
    let notices = reader.get("/v1/notices?platform=3").await.items();
    assert_eq!(items(notices, &["title", "read"]), json!([["B", false], ["a", true]]));
}

/// The reader follows four authors with two posts each. Three notices are on a platform. All of it is in views.
async fn posts_and_notices(world: &World) -> User {
    let reader = world.reader(1, [10, 20, 30, 40]).await;
    publish_and_deliver_all(world, [10, 20, 30, 40], ["one", "two"]).await;
    reader.put("/v1/posts/40-1/read").await.ok();
    reader.put("/v1/posts/40-2/favorite").await.ok();
    publish_notices(world, &[3], ["a", "b", "c"]).await;
    world.idle().await;
    reader.get("/v1/feed").await.ok();
    reader.get("/v1/notices?platform=3").await.ok();
    reader
}

#[test]
fn a_like_that_missed_redis_moves_the_post() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.publish_and_deliver(10, "one").await;
        let score = async || reader.get("/v1/feed?order=ranked").await.ok()["items"][0]["score"].as_f64().unwrap();
        let before = score().await;
        let refusal = world.refuse_redis().await;
        world.user(2).put("/v1/posts/10-1/like").await.ok();
        refusal.end().await;
        world.idle().await;
        world.redis_is_asked_again().await;
        assert!((score().await - before - 1.0).abs() < 1e-9);
    });
}

/// A request of this operation that nothing befalls.
fn noticed(operation: &str) -> Fault {
    Fault::new(operation, FaultAction::run_then(async || ()))
}

/// The time that an outage note stands without a projector that extends it.
const NOTE_STANDS: Duration = Duration::from_secs(3);

/// Makes Redis available right after `change` is acknowledged, before the projector runs. Returns the response of the
/// function that `reads` at that moment. Repeats until an attempt is fast enough.
async fn right_after_an_outage(world: &World, (function, reads): (&str, &str), change: impl AsyncFn()) -> Value {
    loop {
        // The reading function has just looked for an outage note and found none.
        world.redis_is_asked_again().await;
        let look = noticed("BatchGetItem").of(function).containing("\"outage\"");
        let looks = world.stack.faults().add(look);
        until("the reading function looks for the note", async || {
            world.user(1).get(reads).await.ok();
            looks.fired() > 0
        })
        .await;
        world.stack.pause("projector").await.unwrap();
        let refusal = world.refuse_redis().await;
        let started = Instant::now();
        change().await;
        refusal.end().await;
        let seen = world.user(1).get(reads).await.ok();
        let took = started.elapsed();
        world.resume("projector").await;
        if took < NOTE_STANDS {
            return seen;
        }
    }
}

#[test]
fn a_mark_that_missed_its_view_is_visible_when_it_is_acknowledged() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.publish_and_deliver(10, "one").await;
        assert_eq!(reader.unread_total().await, 1);
        let mark = async || {
            reader.delete("/v1/posts/10-1/read").await.ok();
            reader.put("/v1/posts/10-1/read").await.ok();
        };
        assert_eq!(right_after_an_outage(world, ("read-feed", "/v1/unread"), mark).await["total"], 0);
    });
}

#[test]
fn a_publish_that_missed_the_counters_counts_when_it_is_acknowledged() {
    world(async |world| {
        let posts = async || world.user(1).get("/v1/users/1/counters").await.ok()["posts"].as_u64().unwrap();
        world.follow([2], 1).await;
        world.publish_and_deliver(1, "one").await;
        assert_eq!(posts().await, 1);
        let reads = ("follow", "/v1/users/1/counters");
        let seen = right_after_an_outage(world, reads, async || drop(world.user(1).publish("more").await)).await;
        world.redis_is_asked_again().await;
        assert_eq!(seen["posts"], posts().await, "the counter stays the same afterwards");
        assert_eq!(seen["posts"], world.user(2).get("/v1/feed").await.ok()["items"].as_array().unwrap().len());
    });
}

/// The end of a fan-out without pages is a fact. No view is stale without it.
#[test]
fn a_pulled_post_whose_fan_out_cannot_be_ended_is_no_outage() {
    world_with(parameter("PullThreshold", 2), async |world| {
        world.follow([1, 2], 30).await;
        world.publish_and_deliver(30, "one").await;
        world.read_feeds([1, 2]).await;
        // It would end the fan-out.
        world.stack.pause("projector").await.unwrap();
        let refused = world.stack.faults().add(refusal("UpdateItem").of("publish").on("PostsTable"));
        let post = world.user(30).publish("two").await;
        assert!(refused.fired() > 0, "the end was refused");
        world.stack.faults().clear();
        let stores = &world.stack.app("read-feed").unwrap().stores;
        let noted = stores.facts.outage_until().await.unwrap();
        assert!(noted < stores.clock.now(), "{noted:?}");
        assert_eq!(world.user(1).feed_ids().await, ["30-2", "30-1"]);
        assert_eq!(delivery(world, &post, &["state"]).await, json!(["pending"]));
        world.resume_fan_outs().await;
        assert_eq!(delivery(world, &post, &["state"]).await, json!(["done"]));
        world.stack.resume("projector").unwrap();
    });
}

#[test]
fn deliveries_that_failed_during_an_outage_succeed_seconds_after_it() {
    // The third author's posts are pulled, the fourth author has no followers.
    world_with(parameter("PullThreshold", 2), async |world| {
        world.follow([1], 10).await;
        world.follow([1, 2], 30).await;
        publish_and_deliver_all(world, [10, 30, 40], ["one", "two"]).await;
        world.read_feeds([1, 2]).await;
        // A failed message returns after the queue's visibility timeout.
        world.stack.set_weather(Weather::Aws, 1);
        let refusal = world.refuse_redis().await;
        let again = world.stack.faults().add(noticed("SendMessageBatch").of("fan-out"));
        for author in [10, 30, 40] {
            world.user(author).publish("three").await;
            world.user(author).delete(&format!("/v1/posts/{author}-1")).await;
        }
        until("a worker has failed and sends a page again", async || again.fired() > 0).await;
        refusal.end().await;
        let back = Instant::now();
        world.redis_is_asked_again().await;
        world.stack.idle_within(Duration::from_secs(60)).await.unwrap();
        println!("delivered {:.1} s after the outage", back.elapsed().as_secs_f64());
        world.redis_is_asked_again().await;
        for author in [10, 30, 40] {
            let delivery = world.user(author).get(&format!("/v1/posts/{author}-3/delivery")).await;
            assert_eq!((delivery.header("degraded"), &delivery.body["state"]), (None, &json!("done")), "{author}");
            let counters = world.user(author).get(&format!("/v1/users/{author}/counters")).await.ok();
            assert_eq!(counters["posts"], 2);
        }
        for (reader, feed) in [(1, &["10-2", "10-3", "30-2", "30-3"][..]), (2, &["30-2", "30-3"])] {
            let reader = world.user(reader);
            assert_eq!(reader.get("/v1/feed?limit=100").await.header("degraded"), None);
            let mut ids = reader.feed_ids().await;
            ids.sort();
            assert_eq!(ids, feed);
            assert_eq!(reader.unread_total().await, ids.len() as u64);
        }
        world.stack.set_weather(Weather::Calm, 1);
    });
}
