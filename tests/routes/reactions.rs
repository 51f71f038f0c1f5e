//! `/v1/posts/{post}/like` and `…/favorite`, and the responses that show them, `GET /v1/me/likes` among them.

use std::time::Duration;

use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::facts::schema;
use tidemark_local::Options;
use tidemark_tests::{User, ids, world, world_with};

/// Flags and counts of post 10-1 from its own route, and the likes and favorites that its author has received.
async fn seen(user: &User) -> Value {
    let (post, author) = (user.get("/v1/posts/10-1").await.ok(), user.get("/v1/users/10/counters").await.ok());
    let received = json!([author["likes_received"], author["favorites_received"]]);
    json!([post["liked"], post["favorited"], post["likes"], post["favorites"], received])
}

async fn flags(user: &User, path: &str) -> Vec<(String, bool, bool)> {
    let items = user.walk(path, 2).await;
    items.iter().map(|item| (item["id"].as_str().unwrap().to_owned(), item["liked"] == true, item["favorited"] == true)).collect()
}

#[test]
fn a_repeated_reaction_counts_once() {
    world(async |world| {
        let (reader, other) = (world.user(1), world.user(u64::MAX));
        world.user(10).publish("one").await;
        assert_eq!(seen(&reader).await, json!([false, false, 0, 0, [0, 0]]));
        for _ in 0..3 {
            assert_eq!(reader.put("/v1/posts/10-1/like").await.ok(), json!({ "liked": true, "likes": 1 }));
            assert_eq!(seen(&reader).await, json!([true, false, 1, 0, [1, 0]]));
        }
        assert_eq!(other.put("/v1/posts/10-1/favorite").await.ok(), json!({ "favorited": true, "favorites": 1 }));
        assert_eq!(other.put("/v1/posts/10-1/like").await.ok(), json!({ "liked": true, "likes": 2 }));
        assert_eq!(seen(&reader).await, json!([true, false, 2, 1, [2, 1]]));
        assert_eq!(seen(&other).await, json!([true, true, 2, 1, [2, 1]]));
        for _ in 0..3 {
            assert_eq!(reader.delete("/v1/posts/10-1/like").await.ok(), json!({ "liked": false, "likes": 1 }));
            let removed = reader.delete("/v1/posts/10-1/favorite").await.ok();
            assert_eq!(removed, json!({ "favorited": false, "favorites": 1 }), "the post was not a favorite");
            assert_eq!(seen(&reader).await, json!([false, false, 1, 1, [1, 1]]));
        }
        // A reaction to the user's own post counts like any other.
        for _ in 0..2 {
            world.user(10).put("/v1/posts/10-1/like").await.ok();
        }
        assert_eq!(seen(&reader).await, json!([false, false, 2, 1, [2, 1]]));
    });
}

#[test]
fn the_callers_next_page_shows_the_reaction_on_every_route() {
    world(async |world| {
        let reader = world.reader(1, [10, 20]).await;
        world.deliver_posts([10], 2).await;
        world.deliver_posts([20], 2).await;
        // The workers are paused: the handler alone must prepare the next page.
        world.pause_workers().await;
        let etag = async || reader.get("/v1/feed").await.header("etag").unwrap().to_owned();
        let expected = |liked: &[&str], favorited: &[&str]| {
            let flags = |id: &str| (id.to_owned(), liked.contains(&id), favorited.contains(&id));
            ["20-2", "20-1", "10-2", "10-1"].map(flags).to_vec()
        };
        assert_eq!(flags(&reader, "/v1/feed").await, expected(&[], &[]));
        let before = etag().await;
        let steps: [(&str, &[&str], &[&str]); 5] = [
            ("PUT /v1/posts/10-1/like", &["10-1"], &[]),
            ("PUT /v1/posts/20-2/favorite", &["10-1"], &["20-2"]),
            ("PUT /v1/posts/20-2/like", &["10-1", "20-2"], &["20-2"]),
            ("DELETE /v1/posts/10-1/like", &["20-2"], &["20-2"]),
            ("PUT /v1/posts/10-2/favorite", &["20-2"], &["20-2", "10-2"]),
        ];
        for (request, liked, favorited) in steps {
            reader.request(request).await.ok();
            let expected = expected(liked, favorited);
            for status in ["all", "unread"] {
                assert_eq!(flags(&reader, &format!("/v1/feed?status={status}")).await, expected, "after {request}");
                for author in ["10", "20"] {
                    let of_author: Vec<_> = expected.iter().filter(|(id, ..)| id.starts_with(author)).cloned().collect();
                    assert_eq!(flags(&reader, &format!("/v1/authors/{author}/posts?status={status}")).await, of_author);
                }
            }
        }
        assert_ne!(etag().await, before, "a page with another flag has another etag");
        // Other users' pages do not show the reaction.
        assert!(flags(&world.user(2), "/v1/authors/20/posts").await.iter().all(|(_, liked, favorited)| !liked && !favorited));
        world.resume_workers();
    });
}

#[test]
fn a_page_reads_flags_and_titles_in_one_round_trip() {
    world(async |world| {
        let reader = world.reader(1, 10..30).await;
        for author in 10..30 {
            world.user(author).publish("one").await;
            reader.put(&format!("/v1/posts/{author}-1/like")).await.ok();
        }
        world.idle().await;
        let liked = async || flags(&reader, "/v1/feed").await.iter().filter(|(_, liked, _)| *liked).count();
        assert_eq!(liked().await, 20);
        let mut redis = world.redis().await;
        world.forget_redis_calls().await;
        reader.get("/v1/feed?limit=100").await.ok();
        let calls = world.redis_calls().await;
        // On a cluster, titles are one MGET for each slot.
        let titles = if world.is_one_node() { 1 } else { 20 };
        assert_eq!((calls.get("mget"), calls.get("hmget")), (Some(&titles), Some(&1)));
        assert_eq!(calls.get("fcall"), Some(&1), "one function lets the caller in; all flags were in Redis");

        // Lost or damaged data is read from the facts again.
        let key = redis.keys::<_, Vec<String>>("*:x:1").await.unwrap().remove(0);
        redis.del::<_, ()>(&key).await.unwrap();
        assert_eq!(liked().await, 20, "lost");
        for (field, damage) in [("12", "xxxxxxxx"), ("@", "of another layout")] {
            redis.hset::<_, _, _, ()>(&key, field, damage).await.unwrap();
            assert_eq!(liked().await, 20, "{damage}");
        }
    });
}

#[test]
fn a_reaction_to_a_missing_post_is_refused_and_changes_nothing() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        author.publish_all(["kept", "deleted"]).await;
        for kind in ["like", "favorite"] {
            reader.put(&format!("/v1/posts/10-2/{kind}")).await.ok();
        }
        author.delete("/v1/posts/10-2").await.ok();
        for kind in ["like", "favorite"] {
            for (method, id) in [("PUT", "10-2"), ("PUT", "10-3"), ("DELETE", "10-3"), ("PUT", "11-1"), ("DELETE", "11-1")] {
                let response = reader.request(&format!("{method} /v1/posts/{id}/{kind}")).await;
                assert_eq!(response.problem(), (404, "/problems/not-found"), "{method} {id}");
            }
            let stranger = world.stranger(None).put(&format!("/v1/posts/10-1/{kind}")).await;
            assert_eq!(stranger.refusal(), (401, "Unauthorized"));
        }
        assert_eq!(seen(&reader).await, json!([false, false, 0, 0, [1, 1]]), "received reactions stay counted");
        for (method, id) in [("DELETE", "10-2"), ("PUT", "10-2"), ("DELETE", "10-3")] {
            let response = reader.request(&format!("{method} /v1/posts/{id}/read")).await;
            assert_eq!(response.problem(), (404, "/problems/not-found"), "a deleted post counts in no unread count");
        }
    });
}

#[test]
fn a_reaction_to_a_deleted_post_can_be_taken_back() {
    world(async |world| {
        let (author, other, erased) = (world.user(10), world.user(3), world.user(4));
        author.publish_all(["kept", "deleted"]).await;
        other.publish_all(["deleted by a block's author", "of an author who leaves"]).await;
        erased.publish("of an author who leaves").await;
        let reader = world.live_reader(1, [10, 3]).await;
        for id in ["10-1", "10-2", "3-1", "3-2", "4-1"] {
            for kind in ["like", "favorite"] {
                reader.put(&format!("/v1/posts/{id}/{kind}")).await.ok();
            }
        }
        author.delete("/v1/posts/10-2").await.ok();
        world.idle().await;
        let received = async |of: u64| {
            let counters = reader.get(&format!("/v1/users/{of}/counters")).await.ok();
            json!([counters["likes_received"], counters["favorites_received"]])
        };
        assert_eq!(received(10).await, json!([2, 2]));
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/posts/10-2/like").await.ok()["liked"], false);
            assert_eq!(received(10).await, json!([1, 2]), "a repetition takes nothing more");
        }
        assert_eq!(reader.delete("/v1/posts/10-2/favorite").await.ok(), json!({ "favorited": false, "favorites": 0 }));
        assert_eq!(received(10).await, json!([1, 1]));
        assert_eq!(world.user(2).delete("/v1/posts/10-2/like").await.ok()["liked"], false, "it never liked the post");
        assert_eq!(reader.put("/v1/posts/10-2/like").await.problem(), (404, "/problems/not-found"));
        assert_eq!(ids(&reader.walk("/v1/me/likes", 2).await), ["4-1", "3-2", "3-1", "10-1"]);
        let exported = reader.walk("/v1/me/export", 100).await;
        assert!(exported.iter().all(|item| item["post"] != "10-2"), "{exported:?}");

        // The deletion of a post while a block stands, which keeps the reaction until it ends.
        other.put("/v1/blocks/1").await.ok();
        other.delete("/v1/posts/3-1").await.ok();
        assert_eq!(reader.delete("/v1/posts/3-1/like").await.problem(), (403, "/problems/blocked"));
        other.delete("/v1/blocks/1").await.ok();
        assert_eq!(reader.delete("/v1/posts/3-1/like").await.ok()["liked"], false);
        assert_eq!(received(3).await, json!([1, 2]));
        world.idle().await;
        let differences = world.walk_over_all_users(true, Duration::ZERO).await.differences;
        assert!(differences.is_empty(), "{differences:?}");
        // A post that an erasure has removed before the reactions to it.
        world.delete_item("PostsTable", schema::post("3-2".parse().unwrap())).await;
        for expected in [200, 404] {
            assert_eq!(reader.delete("/v1/posts/3-2/like").await.status, expected, "then nothing is left of both");
        }
        assert_eq!(received(3).await, json!([0, 2]));
        // An author who has left took the reactions along.
        erased.delete("/v1/me").await.ok();
        world.idle().await;
        assert_eq!(reader.delete("/v1/posts/4-1/like").await.problem(), (404, "/problems/not-found"));
        assert_eq!(ids(&reader.walk("/v1/me/likes", 2).await), ["10-1"]);
    });
}

#[test]
fn reactions_work_without_redis_and_reach_a_surviving_view() {
    // Long enough that Redis is available again before a task is given up.
    let patient = |options: &mut Options| options.retry_delay = Duration::from_secs(4);
    world_with(patient, async |world| {
        let reader = world.reader(1, [10]).await;
        world.user(10).publish_all(["one", "two"]).await;
        reader.put("/v1/posts/10-1/like").await.ok();
        world.idle().await;
        assert!(flags(&reader, "/v1/feed").await[1].1);
        assert_eq!(seen(&reader).await, json!([true, false, 1, 0, [1, 0]]));

        let outage = world.redis_outage(true).await;
        assert_eq!(reader.put("/v1/posts/10-2/like").await.ok(), json!({ "liked": true, "likes": 1 }));
        reader.delete("/v1/posts/10-1/like").await.ok();
        reader.put("/v1/posts/10-1/favorite").await.ok();
        let expected = vec![("10-2".to_owned(), true, false), ("10-1".to_owned(), false, true)];
        assert_eq!(reader.get("/v1/feed").await.header("degraded"), Some("redis"));
        for path in ["/v1/feed", "/v1/authors/10/posts"] {
            assert_eq!(flags(&reader, path).await, expected);
        }
        let changed = json!([false, true, 0, 1, [1, 1]]);
        assert_eq!(seen(&reader).await, changed);

        outage.end(world).await;
        world.redis_recovers().await;
        assert_eq!((flags(&reader, "/v1/feed").await, seen(&reader).await), (expected, changed));
    });
}

#[test]
fn reactions_are_listed_newest_first() {
    world(async |world| {
        let reader = world.user(7);
        world.deliver_posts(1..=3, 2).await;
        let liked = ["1-1", "3-2", "2-1", "1-2"];
        for post in liked {
            reader.put(&format!("/v1/posts/{post}/like")).await.ok();
        }
        reader.put("/v1/posts/3-1/favorite").await.ok();
        let ids = async |kind: &str, limit| ids(&reader.walk(&format!("/v1/me/{kind}"), limit).await);
        for limit in [1, 2, 100] {
            assert_eq!(ids("likes", limit).await, ["1-2", "2-1", "3-2", "1-1"]);
        }
        assert_eq!(ids("favorites", 100).await, ["3-1"]);
        let item = reader.get("/v1/me/likes").await.ok()["items"][0].take();
        assert_eq!(json!([item["liked"], item["favorited"], item["read"]]), json!([true, false, false]));

        reader.put("/v1/posts/1-1/like").await.ok();
        assert_eq!(ids("likes", 100).await, ["1-2", "2-1", "3-2", "1-1"], "a repeated like keeps its place");
        reader.delete("/v1/posts/2-1/like").await.ok();
        world.user(3).delete("/v1/posts/3-2").await.ok();
        assert_eq!(ids("likes", 1).await, ["1-2", "1-1"]);
        reader.put("/v1/posts/2-1/like").await.ok();
        assert_eq!(ids("likes", 100).await, ["2-1", "1-2", "1-1"], "a new like is the newest");
        assert_eq!(world.user(8).get("/v1/me/likes").await.ok()["items"], json!([]));
    });
}
