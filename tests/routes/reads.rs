//! `PUT`, `DELETE /v1/posts/{post}/read` and `POST /v1/reads`.

use serde_json::{Value, json};
use tidemark_tests::{User, World, world};

async fn prepared(world: &World, posts: u64) -> User {
    let reader = world.reader(1, [10, 20]).await;
    for author in [10, 20] {
        world.user(author).publish_all(1..=posts).await;
    }
    world.idle().await;
    reader
}

async fn reads(reader: &User, body: Value) -> (u64, u64) {
    let response = reader.post("/v1/reads", &body).await.ok();
    (response["changed"].as_u64().unwrap(), response["unread"]["total"].as_u64().unwrap())
}

#[test]
fn one_post_is_read_and_unread_again() {
    world(async |world| {
        let reader = prepared(world, 3).await;
        for _ in 0..2 {
            let response = reader.put("/v1/posts/10-2/read").await.ok();
            assert_eq!(response, json!({ "read": true, "unread": { "author": 2, "total": 5 } }));
        }
        for _ in 0..2 {
            let response = reader.delete("/v1/posts/10-2/read").await.ok();
            assert_eq!(response, json!({ "read": false, "unread": { "author": 3, "total": 6 } }));
        }
        assert_eq!(reader.put("/v1/posts/10-4/read").await.problem(), (404, "/problems/not-found"));
        assert_eq!(reader.put("/v1/posts/ten/read").await.field(), "post");
    });
}

#[test]
fn a_list_of_posts_is_marked_and_missing_posts_do_not_count() {
    world(async |world| {
        let reader = prepared(world, 5).await;
        world.user(10).delete("/v1/posts/10-5").await.ok();
        let posts = json!({ "posts": ["10-1", "10-1", "20-2", "10-5", "10-99", "77-1"] });
        assert_eq!(reads(&reader, posts.clone()).await, (2, 7));
        assert_eq!(reads(&reader, posts).await, (0, 7));
    });
}

#[test]
fn through_never_goes_back_and_never_covers_later_posts() {
    world(async |world| {
        let reader = prepared(world, 10).await;
        assert_eq!(reads(&reader, json!({ "author": "10", "through": 6 })).await, (6, 14));
        assert_eq!(reader.delete("/v1/posts/10-2/read").await.ok()["unread"]["total"], 15);
        assert_eq!(reads(&reader, json!({ "author": "10", "through": "4" })).await, (0, 15), "a lower number changes nothing");
        assert_eq!(reads(&reader, json!({ "author": "10", "through": 8 })).await, (3, 12));
        assert_eq!(reads(&reader, json!({ "author": "10", "through": 1000.0 })).await, (2, 10));
        world.publish_and_deliver(10, "later").await;
        assert_eq!(reader.unread_total().await, 11);
    });
}

#[test]
fn a_mark_of_everything_covers_only_existing_posts() {
    world(async |world| {
        let reader = prepared(world, 4).await;
        let timeline = reader.get("/v1/authors/20/posts").await.ok();
        let before = timeline["items"][1]["created_at"].clone();
        let later =
            timeline["items"].as_array().unwrap().iter().filter(|post| post["created_at"].as_str() > before.as_str()).count()
                as u64;
        assert_eq!(reads(&reader, json!({ "all": true, "before": before })).await, (8 - later, later));
        assert_eq!(reads(&reader, json!({ "all": true })).await, (later, 0));
        assert_eq!(reads(&reader, json!({ "all": true })).await, (0, 0));
        world.publish_and_deliver(10, "later").await;
        assert_eq!(reader.unread_total().await, 1);
        for before in ["2020-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"] {
            assert_eq!(reads(&reader, json!({ "all": true, "before": before })).await, (0, 1));
        }
    });
}

#[test]
fn a_request_must_have_exactly_one_of_the_three_forms() {
    world(async |world| {
        let reader = world.user(1);
        let cases = [
            json!({}),
            json!({ "posts": ["1-1"], "all": true }),
            json!({ "author": "10", "through": 1, "all": true }),
            json!({ "posts": [] }),
            json!({ "posts": ["x"] }),
            json!({ "posts": vec!["1-1"; 501] }),
            json!({ "author": "10" }),
            json!({ "through": 1 }),
            json!({ "author": "0", "through": 1 }),
            json!({ "author": "10", "through": -1 }),
            json!({ "all": false }),
            json!({ "all": true, "before": "yesterday" }),
            json!({ "before": "2026-11-20T08:00:00Z" }),
            json!({ "posts": ["1-1"], "before": "2026-11-20T08:00:00Z" }),
            json!({ "author": "10", "through": 1, "before": "2026-11-20T08:00:00Z" }),
        ];
        for body in cases {
            assert!(!reader.post("/v1/reads", &body).await.field().is_empty(), "{body}");
        }
    });
}

#[test]
fn older_posts_and_own_posts_do_not_become_unread() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        author.publish("old").await;
        reader.put("/v1/following/10").await.ok();
        let response = reader.delete("/v1/posts/10-1/read").await.ok();
        assert_eq!(response, json!({ "read": true, "unread": { "author": 0, "total": 0 } }));
        assert_eq!(author.delete("/v1/posts/10-1/read").await.ok()["read"], true);
    });
}

#[test]
fn a_mark_before_the_delivery_stays() {
    world(async |world| {
        let (reader, author) = (world.live_reader(1, [10]).await, world.user(10));
        world.stack.pause("fan-out").await.unwrap();
        let first = author.publish("one").await;
        author.publish("two").await;
        reader.put(&format!("/v1/posts/{first}/read")).await.ok();
        assert_eq!(reader.unread_total().await, 0, "no post is delivered yet");
        world.resume("fan-out").await;
        assert_eq!(reader.feed("all").await, [("10-2".to_owned(), false), ("10-1".to_owned(), true)]);
        assert_eq!(reader.unread_total().await, 1);
    });
}

#[test]
fn marks_of_two_devices_leave_a_view_that_agrees_with_the_facts() {
    world(async |world| {
        let reader = prepared(world, 20).await;
        let marks = (1..=20).flat_map(|seq| [(seq, true), (seq, seq % 2 == 0)]);
        futures::future::join_all(marks.map(|(seq, read)| {
            let reader = reader.clone();
            async move {
                let path = format!("/v1/posts/10-{seq}/read");
                if read { reader.put(&path).await.ok() } else { reader.delete(&path).await.ok() }
            }
        }))
        .await;
        let before = (reader.feed("all").await, reader.unread_total().await);
        world.idle().await;
        world.flush_redis().await;
        assert_eq!((reader.feed("all").await, reader.unread_total().await), before, "the view agreed with the facts");
    });
}
