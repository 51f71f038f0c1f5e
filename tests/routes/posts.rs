//! `/v1/posts` and `GET /v1/authors/{author}/posts`: texts, edits, deletions, deliveries, and how fresh responses are.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::facts::schema;
use tidemark_local::RedisData;
use tidemark_tests::{Response, User, ids, ids_and_flags, items::s, texts, world};

async fn edit(user: &User, post: &str, body: Value) -> Response {
    user.put_body(&format!("/v1/posts/{post}"), &body).await
}

#[test]
fn a_post_is_published_read_and_deleted_by_its_author_or_a_moderator() {
    world(async |world| {
        let (author, other) = (world.user(1042), world.user(7));
        let response = author.post("/v1/posts", &json!({ "title": "First", "body": "Long" })).await;
        assert_eq!((response.status, response.header("location")), (201, Some("/v1/posts/1042-1")));
        let post = response.has(json!({ "id": "1042-1", "author": "1042", "seq": 1, "delivery": { "mode": "push" } }));

        let content = json!({ "title": "First", "body": "Long", "created_at": post["created_at"] });
        let seen = other.get("/v1/posts/1042-1").await.has(content);
        assert_eq!(json!([seen["read"], seen["liked"], seen["favorited"]]), json!([false, false, false]));
        assert_eq!(author.get("/v1/posts/1042-1").await.ok()["read"], true, "the author's own post is read");

        assert_eq!(other.delete("/v1/posts/1042-1").await.problem(), (403, "/problems/forbidden"));
        for _ in 0..2 {
            assert_eq!(author.delete("/v1/posts/1042-1").await.status, 204);
        }
        assert_eq!(other.get("/v1/posts/1042-1").await.problem(), (404, "/problems/not-found"));
        assert_eq!(author.delete("/v1/posts/1042-2").await.problem(), (404, "/problems/not-found"));
        assert_eq!(author.publish("Second").await, "1042-2", "a number is never reused");

        let moderator = world.stranger(Some("7 posts:moderate"));
        for _ in 0..2 {
            assert_eq!(moderator.delete("/v1/posts/1042-2").await.status, 204);
        }
        assert_eq!(author.get("/v1/posts/1042-2").await.problem(), (404, "/problems/not-found"));
        author.get("/v1/users/1042/counters").await.has(json!({ "posts": 0 }));
        assert_eq!(moderator.delete("/v1/posts/1042-3").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn requests_with_the_same_key_make_one_post_one_notice_for_each_platform_and_one_list() {
    world(async |world| {
        let caller = world.stranger(Some("1 notices:write"));
        let edit = r#"PUT /v1/notices/1-2 {"title": "changed"}"#;
        let notice = |title: &str| json!({ "platforms": [1, 2], "title": title, "expires_at": "2099-01-01T00:00:00Z" });
        for (path, same, other, at_once, changes) in [
            ("/v1/posts", json!({ "title": "Same" }), json!({ "title": "Other" }), 8, &["DELETE /v1/posts/1-1"][..]),
            ("/v1/notices", notice("Same"), notice("Other"), 8, &["DELETE /v1/notices?id=1-1&id=2-1", edit]),
            ("/v1/lists", json!({ "name": "Same" }), json!({ "name": "Other" }), 1, &[]),
        ] {
            let send = async |key: &str, body: &Value| caller.post_with_key(path, key, body).await;
            let responses = join_all((0..at_once).map(|_| send("k", &same))).await;
            let made = |seq: u64| match path {
                "/v1/notices" => json!({ "items": [{ "id": format!("1-{seq}") }, { "id": format!("2-{seq}") }] }),
                _ => json!({ "id": format!("1-{seq}") }),
            };
            let first = responses[0].clone().has(made(1));
            assert!(responses.iter().all(|response| response.status == 201 && response.body == first), "{responses:?}");
            assert_eq!(send("k", &other).await.problem(), (422, "/problems/idempotency-key-reused"));
            send("l", &other).await.has(made(2));
            for bad in ["", "ü", &"x".repeat(129)] {
                assert_eq!(send(bad, &other).await.field(), "Idempotency-Key");
            }
            for change in changes {
                caller.request(change).await.ok();
            }
            assert_eq!(send("k", &same).await.ok(), first, "the first response, although what it made is deleted");
        }
        let listed = caller.walk("/v1/lists", 20).await;
        assert_eq!(ids(&listed), ["1-2", "1-1"]);
        assert_eq!(listed[1], caller.post_with_key("/v1/lists", "k", &json!({ "name": "Same" })).await.ok());
    });
}

#[test]
fn concurrent_publishes_leave_no_gap_and_a_timeline_of_more_than_a_thousand_posts_shows_each_once() {
    world(async |world| {
        let author = world.user(1);
        let mut published = BTreeSet::new();
        for at_once in std::iter::once(20).chain([5; 206]) {
            published.extend(join_all((0..at_once).map(|_| author.publish("x"))).await);
        }
        assert_eq!(published.len(), 1_050, "each response has another id");
        let walked = world.user(7).walk("/v1/authors/1/posts", 100).await;
        let seqs: Vec<u64> = walked.iter().map(|item| item["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (1..=1_050).rev().collect::<Vec<_>>());
        assert_eq!(published, ids(&walked).into_iter().collect());
        assert!(texts(&walked, "created_at").is_sorted_by(|newer, older| newer >= older));
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
fn posts_have_data_and_weights_and_come_in_the_order_of_a_request() {
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
        author.publish("z").await;
        author.delete("/v1/posts/1-2").await.ok();
        let found = world.user(2).get("/v1/posts?post=1-3&post=1-2&post=9-9&post=1-1").await;
        found.has(json!({ "items": [{ "id": "1-3", "title": "z" }, { "id": "1-1" }] }));
    });
}

#[test]
fn an_edit_reaches_every_page_and_moves_nothing() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.reader(7, [1]).await);
        author.post("/v1/posts", &json!({ "title": "First", "body": "Long", "data": { "a": 1 } })).await.ok();
        world.publish_and_deliver(1, "Second").await;
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
fn a_hot_post_is_stale_for_nobody() {
    world(async |world| {
        let (author, reader, stranger) = (world.user(1), world.user(7), world.user(8));
        author.publish("a").await;
        let path = "/v1/posts/1-1";
        let heat = async || {
            for _ in 0..30 {
                stranger.get(path).await.ok();
            }
        };
        heat().await;
        reader.put("/v1/posts/1-1/like").await.ok();
        reader.get(path).await.has(json!({ "liked": true, "likes": 1 }));
        heat().await;
        reader.put("/v1/posts/1-1/read").await.ok();
        reader.get(path).await.has(json!({ "read": true }));
        edit(&author, "1-1", json!({ "title": "b" })).await.ok();
        for user in [&author, &reader, &stranger] {
            user.get(path).await.has(json!({ "title": "b" }));
        }
        heat().await;
        let moderator = world.stranger(Some("9 posts:moderate"));
        assert_eq!(moderator.delete(path).await.status, 204);
        for user in [&moderator, &author, &reader, &stranger] {
            assert_eq!(user.get(path).await.status, 404);
        }
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

#[test]
fn an_author_timeline_has_flags_and_totals_and_only_followed_authors_have_unread_posts() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        world.user(11).publish("one").await;
        reader.get("/v1/authors/11/posts?status=unread").await.has(json!({ "items": [], "total": 0 }));
        world.user(11).get("/v1/authors/11/posts").await.has(json!({ "items": [{ "read": true }] }));
        reader.get("/v1/authors/12/posts").await.has(json!({ "items": [], "next_cursor": null, "total": 0 }));
        author.publish("before").await;
        reader.follow([10]).await;
        author.publish_all(2..=12).await;
        author.delete("/v1/posts/10-11").await.ok();
        reader.put("/v1/posts/10-5/read").await.ok();
        world.idle().await;

        let flags = ids_and_flags(&reader.walk("/v1/authors/10/posts", 4).await);
        let expected = (1..=12).rev().filter(|seq| *seq != 11).map(|seq| (format!("10-{seq}"), seq == 1 || seq == 5));
        assert_eq!(flags, expected.collect::<Vec<_>>());
        reader.get("/v1/authors/10/posts").await.has(json!({ "total": 11 }));

        let unread = reader.walk("/v1/authors/10/posts?status=unread", 4).await;
        let seqs: Vec<u64> = unread.iter().map(|post| post["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, [12, 10, 9, 8, 7, 6, 4, 3, 2]);
        let page = reader.get("/v1/authors/10/posts?status=unread&limit=9").await;
        page.has(json!({ "total": 9, "next_cursor": null }));
    });
}

#[test]
fn a_post_deleted_during_a_read_is_left_out_and_the_next_cursor_stays_the_same() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.deliver_posts([10], 6).await;
        // The tombstone of a deletion that happens after the page has read the author's head.
        let tombstone = [("tombstone", AttributeValue::Bool(true)), ("state", s("cancelled"))];
        for seq in [5, 2, 1] {
            let post = schema::post(format!("10-{seq}").parse().unwrap());
            world.update_item("PostsTable", post, &tombstone, &["title"]).await;
        }
        for status in ["all", "unread"] {
            let pages = reader.pages(&format!("/v1/authors/10/posts?status={status}"), 2).await;
            let pages = pages.iter().map(|page| page["items"].as_array().unwrap());
            assert!(pages.clone().flatten().all(|post| post["title"] == "x"), "{status}");
            assert_eq!(pages.map(ids).collect::<Vec<_>>(), [vec!["10-6"], vec!["10-4", "10-3"], vec![]], "{status}");
        }
    });
}
