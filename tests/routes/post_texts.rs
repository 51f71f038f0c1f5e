//! Texts, edits, many posts at once, moderation, and how fresh posts, timelines and counts are.

use serde_json::{Value, json};
use tidemark_local::RedisData;
use tidemark_tests::{Response, User, ids, until, world};

async fn edit(user: &User, post: &str, body: Value) -> Response {
    user.put_body(&format!("/v1/posts/{post}"), &body).await
}

#[test]
fn a_post_has_data_and_a_weight() {
    world(async |world| {
        let author = world.user(1);
        let data = json!({ "b": 1, "a": { "big": 18_446_744_073_709_551_615_u64 } });
        let post = author.post("/v1/posts", &json!({ "title": "x", "data": data, "weight": -100 })).await;
        assert_eq!(post.has(json!({ "weight": -100, "body": null }))["data"], data);
        author.post("/v1/posts", &json!({ "title": "y" })).await.has(json!({ "data": null, "weight": 0 }));
        for _ in 0..2 {
            let seen = world.user(2).get("/v1/posts/1-1").await;
            assert_eq!(seen.has(json!({ "revision": 1 }))["data"], data);
        }
    });
}

#[test]
fn an_edit_reaches_every_page_and_moves_nothing() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.reader(7, [1]).await);
        author.post("/v1/posts", &json!({ "title": "First", "body": "Long", "data": { "a": 1 } })).await.ok();
        author.publish("Second").await;
        world.idle().await;
        reader.put("/v1/posts/1-1/read").await.ok();
        // Fills the views.
        for path in ["/v1/feed?include=body", "/v1/authors/1/posts?include=body", "/v1/posts/1-1"] {
            reader.get(path).await.ok();
        }
        let changed = json!({ "id": "1-1", "title": "Changed", "body": null, "data": null, "revision": 2 });
        let edited = edit(&author, "1-1", json!({ "title": "Changed" })).await.has(changed.clone());
        assert!(edited["edited_at"].is_string());
        assert_eq!(edit(&author, "1-1", json!({ "title": "Changed" })).await.ok(), edited, "the same request changes nothing");
        for path in ["/v1/feed?include=body", "/v1/authors/1/posts?include=body"] {
            let page = reader.get(path).await.has(json!({ "items": [{ "id": "1-2" }, changed] }));
            let item = &page["items"][1];
            assert_eq!(json!([item["read"], item["likes"], item["favorites"]]), json!([true, 0, 0]), "{path}");
        }
        reader.get("/v1/posts/1-1").await.has(changed);
        assert_eq!(reader.unread_total().await, 1);
        assert_eq!(reader.get("/v1/feed").await.ok()["items"][0].get("body"), None);

        assert_eq!(edit(&reader, "1-1", json!({ "title": "x" })).await.problem(), (403, "/problems/forbidden"));
        assert_eq!(edit(&author, "1-3", json!({ "title": "x" })).await.problem(), (404, "/problems/not-found"));
        assert_eq!(edit(&author, "1-1", json!({})).await.field(), "title");
        author.delete("/v1/posts/1-1").await.ok();
        assert_eq!(edit(&author, "1-1", json!({ "title": "x" })).await.problem(), (404, "/problems/not-found"));
        assert_eq!(reader.get("/v1/posts/1-1").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn many_posts_come_in_the_order_of_the_request() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.user(7));
        author.publish_all(["a", "b", "c"]).await;
        author.delete("/v1/posts/1-2").await.ok();
        let found = reader.get("/v1/posts?post=1-3&post=1-2&post=9-9&post=1-1").await;
        found.has(json!({ "items": [{ "id": "1-3", "title": "c" }, { "id": "1-1" }] }));
    });
}

#[test]
fn a_moderator_deletes_any_post() {
    world(async |world| {
        world.user(1).publish("spam").await;
        let moderator = world.stranger(Some("9 posts:moderate"));
        assert_eq!(world.user(9).delete("/v1/posts/1-1").await.problem(), (403, "/problems/forbidden"));
        for _ in 0..2 {
            assert_eq!(moderator.delete("/v1/posts/1-1").await.status, 204);
        }
        assert_eq!(world.user(1).get("/v1/posts/1-1").await.problem(), (404, "/problems/not-found"));
        world.user(1).get("/v1/users/1/counters").await.has(json!({ "posts": 0 }));
        assert_eq!(moderator.delete("/v1/posts/1-2").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn a_warm_post_and_timeline_are_fresh_for_the_user_who_changed_them() {
    world(async |world| {
        let (author, reader, stranger) = (world.user(1), world.user(7), world.user(8));
        reader.follow([1]).await;
        world.publish_and_deliver(1, "a").await;
        for user in [&author, &reader, &stranger] {
            for path in ["/v1/posts/1-1", "/v1/authors/1/posts"] {
                user.get(path).await.ok();
            }
        }
        for (user, likes) in [(&reader, 1), (&stranger, 2)] {
            user.put("/v1/posts/1-1/like").await.ok();
            user.get("/v1/posts/1-1").await.has(json!({ "liked": true, "likes": likes }));
        }
        reader.delete("/v1/posts/1-1/like").await.ok();
        reader.get("/v1/posts/1-1").await.has(json!({ "likes": 1 }));
        for user in [&reader, &stranger] {
            user.get("/v1/posts/1-1").await.has(json!({ "read": false }));
            user.put("/v1/posts/1-1/read").await.ok();
            for _ in 0..2 {
                user.get("/v1/posts/1-1").await.has(json!({ "read": true }));
                user.get("/v1/authors/1/posts").await.has(json!({ "items": [{ "read": true }] }));
            }
            user.delete("/v1/posts/1-1/read").await.ok();
            user.get("/v1/posts/1-1").await.has(json!({ "read": false }));
        }
        author.publish("b").await;
        author.get("/v1/authors/1/posts").await.has(json!({ "total": 2 }));
        author.delete("/v1/posts/1-1").await.ok();
        author.get("/v1/authors/1/posts").await.has(json!({ "total": 1, "items": [{ "id": "1-2" }] }));
        assert_eq!(author.get("/v1/posts/1-1").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn marks_of_an_author_are_right_after_a_follow_and_an_unfollow() {
    world(async |world| {
        let reader = world.user(7);
        world.user(1).publish("a").await;
        // The reader's marks of the author are cached, before the reader follows.
        reader.get("/v1/posts/1-1").await.has(json!({ "read": false }));
        reader.follow([1]).await;
        world.publish_and_deliver(1, "b").await;
        reader.put("/v1/posts/1-2/read").await.ok();
        reader.delete("/v1/following/1").await.ok();
        world.idle().await;
        reader.get("/v1/authors/1/posts").await.has(json!({ "items": [{ "id": "1-2", "read": true }, { "id": "1-1" }] }));
        reader.get("/v1/posts/1-2").await.has(json!({ "read": true }));
    });
}

#[test]
fn a_hot_post_is_cached_in_the_process_and_never_stale_for_the_user_who_changed_it() {
    world(async |world| {
        let (author, reader, stranger) = (world.user(1), world.user(7), world.user(8));
        author.publish("a").await;
        let path = "/v1/posts/1-1";
        let heat = async || {
            // Without the memory, each request reads five records.
            let gets = async || world.redis_calls().await["get"];
            until("Redis is not called for the post", async || {
                let before = gets().await;
                for _ in 0..30 {
                    stranger.get(path).await.ok();
                }
                gets().await - before < 30 * 4
            })
            .await;
        };
        heat().await;
        reader.put("/v1/posts/1-1/like").await.ok();
        reader.get(path).await.has(json!({ "liked": true, "likes": 1 }));
        heat().await;
        reader.put("/v1/posts/1-1/read").await.ok();
        reader.get(path).await.has(json!({ "read": true }));
        edit(&author, "1-1", json!({ "title": "b" })).await.ok();
        author.get(path).await.has(json!({ "title": "b" }));
        until("others see the edit", async || reader.get(path).await.ok()["title"] == "b").await;
        heat().await;
        let moderator = world.stranger(Some("9 posts:moderate"));
        assert_eq!(moderator.delete(path).await.status, 204);
        assert_eq!(moderator.get(path).await.status, 404);
        until("others see the deletion", async || stranger.get(path).await.status == 404).await;
    });
}

#[test]
fn a_timeline_of_more_than_a_thousand_posts_shows_each_once() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.user(7));
        for _ in 0..210 {
            futures::future::join_all((0..5).map(|_| author.publish("x"))).await;
        }
        let walked = reader.walk("/v1/authors/1/posts", 100).await;
        let seqs: Vec<u64> = walked.iter().map(|item| item["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (1..=1_050).rev().collect::<Vec<_>>());
    });
}

#[test]
fn long_texts_make_pages_short_and_no_response_exceeds_six_megabytes() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.reader(7, [1]).await);
        // JSON inside JSON makes four bytes of a quotation mark.
        let long = "\"".repeat(65_536);
        for seq in 1..=30 {
            author.post("/v1/posts", &json!({ "title": format!("Post {seq}"), "body": long })).await.ok();
            author.put(&format!("/v1/posts/1-{seq}/like")).await.ok();
        }
        world.idle().await;
        let wanted: Vec<String> = (1..=30).rev().map(|seq| format!("1-{seq}")).collect();
        let walks = [(&reader, "/v1/feed"), (&reader, "/v1/authors/1/posts"), (&author, "/v1/me/likes")];
        for without_redis in [false, true] {
            if without_redis {
                world.stack.stop_redis(RedisData::Lose).await.unwrap();
            }
            for (caller, path) in walks {
                let pages = caller.pages(&format!("{path}?include=body"), 100).await;
                for page in &pages {
                    let payload = json!({ "body": page.to_string() }).to_string();
                    assert!(payload.len() < 6_000_000, "{path}: {} bytes", payload.len());
                }
                let items = pages.iter().flat_map(|page| page["items"].as_array().unwrap());
                assert!(items.clone().all(|item| item["body"] == long.as_str()), "{path}");
                assert_eq!((ids(items), pages.len()), (wanted.clone(), 3), "{path}, without Redis: {without_redis}");
            }
            let many = |posts: &[String]| format!("/v1/posts?post={}", posts.join("&post="));
            let refused = reader.get(&many(&wanted)).await;
            assert_eq!(refused.problem(), (422, "/problems/too-much-text"));
            assert_eq!(reader.get(&many(&wanted[..12])).await.items().len(), 12);
        }
    });
}
