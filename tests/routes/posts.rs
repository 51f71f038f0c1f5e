//! `/v1/posts`.

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::{texts, world};

#[test]
fn a_post_is_published_read_and_deleted() {
    world(async |world| {
        let (author, other) = (world.user(1042), world.user(7));
        let response = author.post("/v1/posts", &json!({ "title": "First", "body": "Long" })).await;
        assert_eq!((response.status, response.header("location")), (201, Some("/v1/posts/1042-1")));
        let post = response.has(json!({ "id": "1042-1", "author": "1042", "seq": 1, "delivery": { "mode": "push" } }));

        let seen = other.get("/v1/posts/1042-1").await;
        let seen = seen.has(json!({ "title": "First", "body": "Long", "created_at": post["created_at"] }));
        assert_eq!(json!([seen["read"], seen["liked"], seen["favorited"]]), json!([false, false, false]));
        assert_eq!(author.get("/v1/posts/1042-1").await.ok()["read"], true, "the author's own post is read");

        assert_eq!(other.delete("/v1/posts/1042-1").await.problem(), (403, "/problems/forbidden"));
        for _ in 0..2 {
            assert_eq!(author.delete("/v1/posts/1042-1").await.status, 204);
        }
        assert_eq!(other.get("/v1/posts/1042-1").await.problem(), (404, "/problems/not-found"));
        assert_eq!(author.delete("/v1/posts/1042-2").await.problem(), (404, "/problems/not-found"));
        assert_eq!(author.publish("Second").await, "1042-2", "a number is never reused");
    });
}

#[test]
fn requests_with_the_same_key_make_one_post() {
    world(async |world| {
        let author = world.user(1);
        let publish = async |key: &str, title: &str| author.post_with_key("/v1/posts", key, &json!({ "title": title })).await;
        let responses = join_all((0..8).map(|_| publish("k", "Same"))).await;
        let first = responses[0].clone().ok();
        assert!(responses.iter().all(|response| response.status == 201 && response.body == first), "{responses:?}");
        assert_eq!(publish("k", "Other").await.problem(), (422, "/problems/idempotency-key-reused"));
        assert_eq!(publish("l", "Other").await.ok()["id"], "1-2");
        for bad in ["", "ü", &"x".repeat(129)] {
            assert_eq!(publish(bad, "x").await.field(), "Idempotency-Key");
        }
        author.delete("/v1/posts/1-1").await.ok();
        assert_eq!(publish("k", "Same").await.ok(), first, "the first response, although the post is deleted");
    });
}

#[test]
fn concurrent_publishes_of_one_author_leave_no_gap() {
    world(async |world| {
        let author = world.user(1);
        let ids = join_all((0..20).map(async |index| author.publish(&format!("post {index}")).await)).await;
        let mut seqs: Vec<u64> = ids.iter().map(|id| id.split_once('-').unwrap().1.parse().unwrap()).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
        let times = texts(&author.walk("/v1/authors/1/posts", 7).await, "created_at");
        assert!(times.is_sorted_by(|newer, older| newer >= older));
    });
}

#[test]
fn the_delivery_status_counts_every_follower() {
    world(async |world| {
        world.follow(1..=23, 99).await;
        let author = world.user(99);
        world.stack.pause("fan-out").await.unwrap();
        let path = format!("/v1/posts/{}/delivery", author.publish("Hello").await);
        author.get(&path).await.has(json!({ "state": "pending", "followers": 23, "delivered": 0 }));
        world.resume("fan-out").await;
        let done = author.get(&path).await.has(json!({ "state": "done", "delivered": 23, "pages": 1, "pages_done": 1 }));
        assert!(done["finished_at"].as_str() >= done["started_at"].as_str());
        assert_eq!(author.get("/v1/posts/99-9/delivery").await.problem(), (404, "/problems/not-found"));

        let lonely = world.user(5).publish("Nobody reads this").await;
        author.get(&format!("/v1/posts/{lonely}/delivery")).await.has(json!({ "state": "done", "followers": 0 }));
    });
}

#[test]
fn a_deletion_cancels_the_remaining_delivery() {
    world(async |world| {
        world.follow(1..=5, 99).await;
        let (reader, author) = (world.user(1), world.user(99));
        reader.feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let id = author.publish("Regretted").await;
        author.delete(&format!("/v1/posts/{id}")).await.ok();
        world.resume("fan-out").await;
        author.get(&format!("/v1/posts/{id}/delivery")).await.has(json!({ "state": "cancelled" }));
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
    });
}
