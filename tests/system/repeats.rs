//! A request died between its fact and the views. A repetition changes no fact, and brings the views into agreement
//! with the facts.

use std::time::{Duration, Instant};

use futures::{FutureExt, future::join_all};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tidemark::domain::{ReadState, UserId};
use tidemark_tests::{User, World, deployed_timeouts, text_of, user_id, world};

use crate::{
    damage::proxy::{Fate, world_behind_a_proxy_with},
    publish_and_deliver_all,
};

/// A reader with a live view of two authors with ten posts each.
async fn prepared(world: &World) -> User {
    let reader = world.reader(1, [10, 20]).await;
    publish_and_deliver_all(world, [10, 20], 1..=10).await;
    assert_eq!(reader.unread_total().await, 20);
    reader
}

/// Changes the reader's fact of an author without any view.
async fn fact(world: &World, author: u64, change: impl FnOnce(&mut ReadState) -> bool) {
    let (user, author) = (UserId::MIN, user_id(author));
    let facts = &world.stack.app("mark-read").unwrap().stores.facts;
    let mut state = facts.reads(user, &[author]).await.unwrap().remove(&author).unwrap_or_default();
    assert!(change(&mut state));
    state.version += 1;
    assert!(facts.put_reads(user, author, &state).await.unwrap());
}

#[test]
fn every_form_of_mark_updates_a_view_that_an_earlier_request_missed() {
    world(async |world| {
        let reader = prepared(world).await;
        let total = |response: &Value| response["total"].as_u64().unwrap();

        fact(world, 10, |reads| reads.mark([3])).await;
        assert_eq!(reader.unread_total().await, 20, "the view is stale");
        assert_eq!(total(&reader.put("/v1/posts/10-3/read").await.ok()), 19);
        assert_eq!(reader.unread_total().await, 19);

        fact(world, 10, |reads| reads.unmark(3)).await;
        assert_eq!(total(&reader.delete("/v1/posts/10-3/read").await.ok()), 20);
        assert_eq!(reader.unread_total().await, 20);

        fact(world, 10, |reads| reads.mark([1, 2])).await;
        fact(world, 20, |reads| reads.mark([1])).await;
        let response = reader.post("/v1/reads", &json!({ "posts": ["10-1", "10-2", "20-1"] })).await.ok();
        assert_eq!((&response["changed"], total(&response)), (&json!(0), 17));
        assert_eq!(reader.unread_total().await, 17);

        fact(world, 10, |reads| reads.mark_through(6)).await;
        assert_eq!(total(&reader.post("/v1/reads", &json!({ "author": "10", "through": 6 })).await.ok()), 13);
        assert_eq!(reader.unread_total().await, 13);

        fact(world, 10, |reads| reads.mark_through(10)).await;
        fact(world, 20, |reads| reads.mark_through(10)).await;
        let response = reader.post("/v1/reads", &json!({ "all": true })).await.ok();
        assert_eq!((&response["changed"], total(&response)), (&json!(0), 0));
        assert_eq!((reader.unread_total().await, reader.feed("unread").await.len()), (0, 0));
    });
}

#[test]
fn a_mark_repeated_while_redis_is_unavailable_reaches_the_surviving_view() {
    world(async |world| {
        let reader = world.reader(1, [10, 20, 30, 40, 50]).await;
        publish_and_deliver_all(world, [10, 20, 30, 40, 50], ["one"]).await;
        reader.put("/v1/posts/20-1/read").await.ok();
        world.idle().await;
        assert_eq!(reader.unread_total().await, 4);

        fact(world, 10, |reads| reads.mark([1])).await;
        fact(world, 20, |reads| reads.unmark(1)).await;
        fact(world, 30, |reads| reads.mark([1])).await;
        fact(world, 40, |reads| reads.mark_through(1)).await;
        let refusal = world.refuse_redis().await;
        let response = reader.put("/v1/posts/10-1/read").await;
        assert_eq!((response.header("degraded"), &response.body["total"]), (Some("redis"), &json!(2)));
        reader.delete("/v1/posts/20-1/read").await.ok();
        reader.post("/v1/reads", &json!({ "posts": ["30-1"] })).await.ok();
        reader.post("/v1/reads", &json!({ "author": "40", "through": 1 })).await.ok();
        refusal.end().await;
        world.redis_recovers().await;
        let read = [(50, false), (40, true), (30, true), (20, false), (10, true)].map(|(id, read)| (format!("{id}-1"), read));
        assert_eq!((reader.feed("all").await, reader.unread_total().await), (read.into(), 2));

        fact(world, 20, |reads| reads.mark_through(1)).await;
        fact(world, 50, |reads| reads.mark_through(1)).await;
        let refusal = world.refuse_redis().await;
        let response = reader.post("/v1/reads", &json!({ "all": true })).await.ok();
        assert_eq!(response, json!({ "changed": 0, "total": 0 }));
        refusal.end().await;
        world.redis_recovers().await;
        assert_eq!((reader.unread_total().await, reader.feed("unread").await.len()), (0, 0));
    });
}

#[test]
fn follow_and_unfollow_update_a_view_that_an_earlier_request_missed() {
    world(async |world| {
        let reader = prepared(world).await;
        world.user(30).publish("of thirty").await;
        reader.get("/v1/users/1/following").await.ok();
        // The projector is paused, so the repetition must update the view.
        world.stack.pause("projector").await.unwrap();
        let app = world.stack.app("follow").unwrap();
        let (user, author) = (UserId::MIN, user_id(30));
        app.stores.facts.follow(user, &[author], app.stores.clock.now()).await.unwrap();
        assert_eq!(reader.feed_ids().await.len(), 20, "the view is stale");
        assert_eq!(reader.put("/v1/following/30").await.ok()["created"], false);
        assert_eq!(reader.feed_ids().await.len(), 21);
        assert_eq!(reader.walk("/v1/users/1/following", 10).await.len(), 3);

        app.stores.facts.unfollow(user, author, app.stores.clock.now()).await.unwrap().unwrap();
        assert_eq!(reader.feed_ids().await.len(), 21, "the view is stale");
        assert_eq!(reader.delete("/v1/following/30").await.ok()["following"], false);
        assert_eq!(reader.feed_ids().await.len(), 20);
        assert_eq!(reader.walk("/v1/users/1/following", 10).await.len(), 2);
        world.stack.resume("projector").unwrap();
    });
}

#[test]
fn all_covers_posts_that_were_made_unread_below_the_watermark() {
    world(async |world| {
        let reader = prepared(world).await;
        let posts = reader.get("/v1/authors/10/posts").await.ok();
        let of_five = posts["items"][5]["created_at"].clone();
        reader.post("/v1/reads", &json!({ "author": "10", "through": 10 })).await.ok();
        reader.delete("/v1/posts/10-2/read").await.ok();
        reader.post("/v1/reads", &json!({ "author": "20", "through": 10 })).await.ok();
        let response = reader.post("/v1/reads", &json!({ "all": true, "before": of_five })).await.ok();
        assert_eq!((&response["changed"], &response["total"]), (&json!(1), &json!(0)));
        assert_eq!(reader.unread_total().await, 0);
    });
}

#[test]
fn two_hundred_concurrent_marks_of_one_reader_all_succeed() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        publish_and_deliver_all(world, [10], 1..=200).await;
        let marks = join_all((1..=200).map(async |seq| reader.put(&format!("/v1/posts/10-{seq}/read")).await.status)).await;
        assert!(marks.iter().all(|status| *status == 200), "{marks:?}");
        assert_eq!(reader.unread_total().await, 0);
    });
}

/// Each request to DynamoDB takes nearly as long as a function waits for it, so several take longer than the function
/// may run.
#[test]
fn a_request_that_takes_too_long_gets_503_in_time_and_may_be_repeated() {
    world_behind_a_proxy_with(deployed_timeouts, async |world, proxy| {
        let author = world.user(10);
        let publish = async || author.post_with_key("/v1/posts", "slow", &json!({ "title": "slow" })).await;
        proxy.rule(|_| {
            async {
                tokio::time::sleep(Duration::from_millis(2_700)).await;
                Fate::Forwarded
            }
            .boxed()
        });
        let response = publish().await;
        assert_eq!(response.problem(), (503, "/problems/unavailable"));
        assert!(response.header("retry-after").is_some());
        assert!(response.body["detail"].as_str().unwrap().contains("took too long"), "{}", response.body);
        proxy.forward_all();
        assert_eq!(publish().await.ok()["id"], "10-1");
        assert_eq!(world.user(2).get("/v1/authors/10/posts").await.ok()["total"], 1);
    });
}

/// The time of a function, and the time for which its process does not run. Each request to DynamoDB takes long enough
/// that the function would need more time.
const FUNCTION_MS: u64 = 4_000;
const STALL: Duration = Duration::from_millis(1_500);

/// At its deadline, a function is stopped, and API Gateway responds with 500.
#[test]
fn a_request_of_a_late_process_gets_503_before_its_function_is_stopped() {
    world_behind_a_proxy_with(deployed_timeouts, async |world, proxy| {
        world.reader(7, [1]).await;
        let app = world.stack.app("read-feed").unwrap();
        proxy.rule(|_| {
            async {
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                Fate::Forwarded
            }
            .boxed()
        });
        let event: Value = serde_json::from_str(&text_of("events/read-feed/unread.json")).unwrap();
        for stalls_at in [500, 1_500, 3_000] {
            world.flush_redis().await;
            let (started, mut context) = (Instant::now(), Context::default());
            context.deadline = app.stores.clock.now().ms() + FUNCTION_MS;
            let mut event = event.clone();
            event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = json!("7");
            let event = LambdaEvent::new(serde_json::from_value(event).unwrap(), context);
            let request = async {
                let response = tidemark_read_feed::handle(app, event).await.unwrap();
                (response, started.elapsed())
            };
            let stall = async {
                tokio::time::sleep(Duration::from_millis(stalls_at)).await;
                std::thread::sleep(STALL);
            };
            let ((response, took), ()) = futures::join!(request, stall);
            assert_eq!(response.status_code, 503, "stalled at {stalls_at} ms");
            assert!(response.headers.contains_key("retry-after"), "stalled at {stalls_at} ms");
            assert!(took < Duration::from_millis(FUNCTION_MS), "stalled at {stalls_at} ms, it took {took:?}");
        }
        proxy.forward_all();
    });
}
