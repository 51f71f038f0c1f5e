//! `/v1/posts`.

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::world;

#[test]
fn a_post_is_published_read_and_deleted() {
    world(async |world| {
        let (author, other) = (world.user(1042), world.user(7));
        let response = author.post("/v1/posts", &json!({ "title": "First", "body": "Long" })).await;
        assert_eq!((response.status, response.header("location")), (201, Some("/v1/posts/1042-1")));
        let post = response.ok();
        assert_eq!((&post["id"], &post["author"], &post["seq"]), (&json!("1042-1"), &json!("1042"), &json!(1)));
        assert_eq!(post["delivery"]["mode"], "push");

        let seen = other.get("/v1/posts/1042-1").await.ok();
        assert_eq!((&seen["title"], &seen["body"], &seen["created_at"]), (&json!("First"), &json!("Long"), &post["created_at"]));
        assert_eq!((&seen["read"], &seen["liked"], &seen["favorited"]), (&json!(false), &json!(false), &json!(false)));
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
fn titles_and_bodies_have_size_limits() {
    world(async |world| {
        let author = world.user(1);
        let cases = [
            (json!({}), "title"),
            (json!({ "title": "" }), "title"),
            (json!({ "title": "x".repeat(201) }), "title"),
            (json!({ "title": 5 }), "title"),
            (json!({ "title": "x", "body": 5 }), "body"),
            (json!({ "title": "x", "body": "y".repeat(65_537) }), "body"),
            (json!({ "title": "x", "body": "ü".repeat(40_000) }), "body"),
            (json!([1]), "body"),
        ];
        for (body, field) in cases {
            assert_eq!(author.post("/v1/posts", &body).await.field(), field, "{body:.60}");
        }
        let most = json!({ "title": "ü".repeat(200), "body": "y".repeat(65_536) });
        assert_eq!(author.post("/v1/posts", &most).await.ok()["id"], "1-1", "a refused request changes nothing");
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
        let ids = join_all((0..20).map(|index| {
            let author = author.clone();
            async move { author.publish(&format!("post {index}")).await }
        }))
        .await;
        let mut seqs: Vec<u64> = ids.iter().map(|id| id.split_once('-').unwrap().1.parse().unwrap()).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, (1..=20).collect::<Vec<_>>());
        let timeline = author.walk("/v1/authors/1/posts", 7).await;
        let times: Vec<&str> = timeline.iter().map(|post| post["created_at"].as_str().unwrap()).collect();
        assert!(times.is_sorted_by(|newer, older| newer >= older));
    });
}

#[test]
fn the_delivery_status_counts_every_follower() {
    world(async |world| {
        world.follow(1..=23, 99).await;
        let author = world.user(99);
        world.stack.pause("fan-out").await.unwrap();
        let id = author.publish("Hello").await;
        let path = format!("/v1/posts/{id}/delivery");
        let pending = author.get(&path).await.ok();
        assert_eq!((&pending["state"], &pending["followers"], &pending["delivered"]), (&json!("pending"), &json!(23), &json!(0)));
        world.resume("fan-out").await;
        let done = author.get(&path).await.ok();
        assert_eq!(json!([done["state"], done["delivered"], done["pages"], done["pages_done"]]), json!(["done", 23, 1, 1]));
        assert!(done["finished_at"].as_str() >= done["started_at"].as_str());
        assert_eq!(author.get("/v1/posts/99-9/delivery").await.problem(), (404, "/problems/not-found"));

        let lonely = world.user(5).publish("Nobody reads this").await;
        let done = author.get(&format!("/v1/posts/{lonely}/delivery")).await.ok();
        assert_eq!((&done["state"], &done["followers"]), (&json!("done"), &json!(0)));
    });
}

#[test]
fn a_deletion_cancels_the_remaining_delivery() {
    world(async |world| {
        world.follow(1..=5, 99).await;
        world.user(1).feed_ids().await;
        world.stack.pause("fan-out").await.unwrap();
        let id = world.user(99).publish("Regretted").await;
        world.user(99).delete(&format!("/v1/posts/{id}")).await.ok();
        world.resume("fan-out").await;
        assert_eq!(world.user(99).get(&format!("/v1/posts/{id}/delivery")).await.ok()["state"], "cancelled");
        assert_eq!((world.user(1).feed_ids().await, world.user(1).unread_total().await), (vec![], 0));
    });
}
