//! `GET /v1/me/likes` and `GET /v1/me/favorites`.

use serde_json::json;
use tidemark_tests::world;

#[test]
fn reactions_are_listed_newest_first() {
    world(async |world| {
        let reader = world.user(7);
        for author in [1, 2, 3] {
            world.user(author).publish("x").await;
            world.user(author).publish("y").await;
        }
        let liked = ["1-1", "3-2", "2-1", "1-2"];
        for post in liked {
            reader.put(&format!("/v1/posts/{post}/like")).await.ok();
        }
        reader.put("/v1/posts/3-1/favorite").await.ok();
        let ids = async |kind: &str, limit| {
            let walked = reader.walk(&format!("/v1/me/{kind}"), limit).await;
            walked.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
        };
        for limit in [1, 2, 100] {
            assert_eq!(ids("likes", limit).await, ["1-2", "2-1", "3-2", "1-1"]);
        }
        assert_eq!(ids("favorites", 100).await, ["3-1"]);
        let item = reader.get("/v1/me/likes").await.ok()["items"][0].clone();
        assert_eq!((&item["liked"], &item["favorited"], &item["read"]), (&json!(true), &json!(false), &json!(false)));

        reader.put("/v1/posts/1-1/like").await.ok();
        assert_eq!(ids("likes", 100).await, ["1-2", "2-1", "3-2", "1-1"], "a repeated like keeps its place");
        reader.delete("/v1/posts/2-1/like").await.ok();
        world.user(3).delete("/v1/posts/3-2").await.ok();
        assert_eq!(ids("likes", 1).await, ["1-2", "1-1"]);
        reader.put("/v1/posts/2-1/like").await.ok();
        assert_eq!(ids("likes", 100).await, ["2-1", "1-2", "1-1"], "a new like is the newest");
        assert_eq!(world.user(8).get("/v1/me/likes").await.ok()["items"], json!([]));
        let feed = reader.get("/v1/authors/1/posts?limit=1").await.ok()["next_cursor"].as_str().unwrap().to_owned();
        assert_eq!(reader.get(&format!("/v1/me/likes?cursor={feed}")).await.field(), "cursor");
    });
}
