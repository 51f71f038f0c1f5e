//! Reposts and quotes: `PUT` and `DELETE /v1/posts/{post}/repost`, `GET /v1/posts/{post}/reposts`, `of` in a publish
//! and in items.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tidemark_local::RedisData;
use tidemark_tests::{User, World, has, ids, parameter, texts, until, world, world_with};

const REPOST: &str = "/v1/posts/10-1/repost";
const REPOSTS: &str = "/v1/posts/10-1/reposts";

/// These users send a request, some at once.
async fn each(world: &World, users: impl IntoIterator<Item = u64>, request: &str) {
    let send = async |user| drop(world.user(user).request(request).await.ok());
    stream::iter(users).map(send).buffer_unordered(8).collect::<Vec<()>>().await;
}

async fn reposters(caller: &User, limit: usize) -> Vec<u64> {
    texts(&caller.walk(REPOSTS, limit).await, "user").iter().map(|user| user.parse().unwrap()).collect()
}

async fn quote(caller: &User, title: &str, of: &str) -> Value {
    caller.post("/v1/posts", &json!({ "title": title, "of": of })).await.ok()
}

/// What items show of the original `10-1` with this title.
fn of(title: &str, revision: u64) -> Value {
    json!({ "id": "10-1", "author": "10", "title": title, "revision": revision })
}

fn unavailable(id: &str) -> Value {
    json!({ "id": id, "unavailable": true })
}

/// Asserts that every list that has these posts shows the same original in each, and so does each post.
async fn assert_of(caller: &User, paths: &[&str], posts: &[&str], expected: &Value) {
    let check = |item: &Value, place: &str| {
        let found = &item["of"];
        assert!(has(found, expected), "{place}: {item}\nhas not {expected}");
        let fields = found.as_object().unwrap().len();
        assert_eq!(fields, if expected["unavailable"] == true { 2 } else { 5 }, "{place}: {found}");
    };
    for path in paths {
        let items = caller.walk(path, 100).await;
        for post in posts {
            let item = items.iter().find(|item| item["id"] == *post).unwrap_or_else(|| panic!("{path} has no {post}: {items:?}"));
            check(item, path);
        }
    }
    for post in posts {
        check(&caller.get(&format!("/v1/posts/{post}")).await.ok(), post);
    }
    for item in caller.get(&format!("/v1/posts?post={}", posts.join("&post="))).await.items() {
        check(&item, "posts");
    }
}

const FEEDS: [&str; 5] =
    ["/v1/feed", "/v1/feed?order=ranked", "/v1/feed?order=oldest", "/v1/feed?include=body", "/v1/feed?include=counts"];

#[test]
fn a_repost_is_a_post_of_its_own_without_a_title() {
    world(async |world| {
        let (author, user, reader) = (world.user(10), world.user(2), world.reader(5, [2]).await);
        author.publish("one").await;
        author.put_body("/v1/me/profile", &json!({ "name": "Ada" })).await.ok();
        user.publish("own").await;
        let expected = json!({ "reposted": true, "post": "2-2", "reposts": 1 });
        for _ in 0..3 {
            assert_eq!(user.put(REPOST).await.ok(), expected);
        }
        world.idle().await;
        assert_eq!(reader.feed("all").await, [("2-2".to_owned(), false), ("2-1".to_owned(), false)]);
        assert_of(&reader, &FEEDS, &["2-2"], &of("one", 1)).await;
        assert_of(&reader, &["/v1/authors/2/posts", "/v1/authors/2/posts?include=counts"], &["2-2"], &of("one", 1)).await;
        let page = reader.get("/v1/feed?include=body").await.ok();
        let item = &page["items"][0];
        assert!(item["title"].is_null() && item["body"].is_null() && item.get("body").is_some(), "{item}");
        assert_eq!(json!([item["likes"], item["favorites"], item["reposts"]]), json!([0, 0, 1]));
        assert_eq!(page["items"][1].get("of"), None);
        assert_eq!(page["profiles"], json!({ "10": { "name": "Ada", "handle": null, "picture": null } }));
        assert_eq!(reader.get("/v1/posts/2-2").await.ok()["profiles"]["10"]["name"], "Ada");
        // It has read states, counters and a delivery of its own.
        assert_eq!(reader.unread_total().await, 2);
        reader.put("/v1/posts/2-2/read").await.has(json!({ "unread": 1, "total": 1 }));
        reader.get("/v1/users/2/counters").await.has(json!({ "posts": 2 }));
        reader.get("/v1/posts/2-2/delivery").await.has(json!({ "state": "done", "followers": 1 }));
        assert_eq!(user.put_body("/v1/posts/2-2", &json!({ "title": "x" })).await.problem(), (422, "/problems/repost-text"));
        // The author reposts the own post, and the original has the counts.
        author.put(REPOST).await.has(json!({ "post": "10-2", "reposts": 2 }));
        assert_eq!(reader.get("/v1/posts/10-1").await.ok()["reposts"], 2);
        for request in ["PUT /v1/posts/10-9/repost", "PUT /v1/posts/11-1/repost", "DELETE /v1/posts/10-9/repost"] {
            assert_eq!(user.request(request).await.problem(), (404, "/problems/not-found"), "{request}");
        }
        assert_eq!(user.put("/v1/posts/10/repost").await.field(), "post");
        assert_eq!(world.stranger(None).put(REPOST).await.refusal(), (401, "Unauthorized"));
    });
}

#[test]
fn a_withdrawn_repost_is_gone_and_another_one_has_a_new_number() {
    world(async |world| {
        let (user, reader) = (world.user(2), world.reader(5, [2]).await);
        world.user(10).publish("one").await;
        world.user(3).put(REPOST).await.ok();
        user.put(REPOST).await.has(json!({ "post": "2-1", "reposts": 2 }));
        world.idle().await;
        for path in [REPOST, REPOST, "/v1/posts/2-1/repost", "/v1/posts/3-1/repost"] {
            assert_eq!(user.delete(path).await.ok(), json!({ "reposted": false, "post": null, "reposts": 1 }), "{path}");
        }
        world.idle().await;
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
        assert_eq!(reader.get("/v1/posts/2-1").await.problem(), (404, "/problems/not-found"));
        assert_eq!(reposters(&reader, 10).await, [3]);
        user.put(REPOST).await.has(json!({ "post": "2-2", "reposts": 2 }));
        // A deletion of the post, by its author or a moderator, withdraws it too.
        user.delete("/v1/posts/2-2").await.ok();
        assert_eq!(user.get("/v1/posts/10-1").await.ok()["reposts"], 1);
        user.put("/v1/posts/3-1/repost").await.has(json!({ "post": "2-3", "reposts": 2 }));
        assert_eq!(world.user(10).delete("/v1/posts/2-3").await.status, 403, "the author of the original");
        world.stranger(Some("9 posts:moderate")).delete("/v1/posts/2-3").await.ok();
        assert_eq!((reposters(&reader, 10).await, user.get("/v1/posts/10-1").await.ok()["reposts"].clone()), (vec![3], json!(1)));
        assert_eq!(user.put("/v1/posts/2-3/repost").await.problem(), (404, "/problems/not-found"), "it is deleted");
        user.put(REPOST).await.has(json!({ "post": "2-4", "reposts": 2 }));
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["2-4"]);
        assert_eq!(ids(&reader.walk("/v1/authors/2/posts", 10).await), ["2-4"]);
    });
}

#[test]
fn a_repost_of_a_repost_and_all_that_is_done_to_a_repost_go_to_its_original() {
    world(async |world| {
        let (author, user, other) = (world.user(10), world.user(2), world.user(3));
        author.publish("one").await;
        user.put(REPOST).await.ok();
        other.put("/v1/posts/2-1/repost").await.has(json!({ "post": "3-1", "reposts": 2 }));
        assert_eq!(quote(&other, "see", "2-1").await["of"]["id"], "10-1");
        for (request, expected) in [
            ("PUT /v1/posts/2-1/like", json!({ "liked": true, "likes": 1 })),
            ("PUT /v1/posts/10-1/like", json!({ "liked": true, "likes": 1 })),
            ("PUT /v1/posts/3-1/favorite", json!({ "favorited": true, "favorites": 1 })),
        ] {
            assert_eq!(other.request(request).await.ok(), expected, "{request}");
        }
        for post in ["10-1", "2-1", "3-1"] {
            let shown = json!({ "liked": true, "favorited": true, "likes": 1, "favorites": 1, "reposts": 2 });
            other.get(&format!("/v1/posts/{post}")).await.has(shown);
            for list in ["likes", "favorites"] {
                assert_eq!(texts(&other.walk(&format!("/v1/posts/{post}/{list}"), 5).await, "user"), ["3"], "{list} of {post}");
            }
            assert_eq!(texts(&other.walk(&format!("/v1/posts/{post}/reposts"), 1).await, "post"), ["3-1", "2-1"], "{post}");
        }
        other.get("/v1/posts?post=2-1").await.has(json!({ "items": [{ "liked": true, "likes": 1, "reposts": 2 }] }));
        world.user(4).follow([2]).await;
        world.idle().await;
        world
            .user(4)
            .get("/v1/feed?include=counts")
            .await
            .has(json!({ "items": [{ "liked": false, "likes": 1, "reposts": 2 }] }));
        other.get("/v1/users/10/counters").await.has(json!({ "likes_received": 1, "favorites_received": 1 }));
        other.get("/v1/users/2/counters").await.has(json!({ "likes_received": 0, "favorites_received": 0 }));
        assert_eq!(ids(&other.walk("/v1/me/likes", 5).await), ["10-1"]);
        assert_eq!(other.delete("/v1/posts/2-1/like").await.ok(), json!({ "liked": false, "likes": 0 }));
        // A reaction to a withdrawn repost can be taken back.
        user.delete(REPOST).await.ok();
        assert_eq!(other.put("/v1/posts/2-1/like").await.problem(), (404, "/problems/not-found"));
        assert_eq!(other.get("/v1/posts/2-1/reposts").await.problem(), (404, "/problems/not-found"));
        assert_eq!(other.delete("/v1/posts/2-1/favorite").await.ok(), json!({ "favorited": false, "favorites": 0 }));
        // A quote is a post of its own.
        other.put("/v1/posts/3-2/like").await.has(json!({ "likes": 1 }));
        user.put("/v1/posts/3-2/repost").await.has(json!({ "post": "2-2", "reposts": 1 }));
        user.get("/v1/posts/2-2").await.has(json!({ "likes": 1, "of": { "id": "3-2", "title": "see" } }));
        user.get("/v1/posts/10-1").await.has(json!({ "likes": 0, "reposts": 1 }));
    });
}

#[test]
fn a_quote_shows_its_original_as_it_is_now_and_an_edit_keeps_it() {
    world(async |world| {
        let (author, user, reader) = (world.user(10), world.user(2), world.reader(5, [2]).await);
        author.publish("one").await;
        let body = json!({ "title": "see", "body": "text", "data": { "a": 1 }, "weight": 3, "of": "10-1" });
        let first = user.post_with_key("/v1/posts", "once", &body).await.ok();
        assert!(has(&first["of"], &of("one", 1)), "{first}");
        assert_eq!(user.post_with_key("/v1/posts", "once", &body).await.ok(), first);
        let other = json!({ "title": "see", "body": "text", "data": { "a": 1 }, "weight": 3, "of": "2-1" });
        let reused = user.post_with_key("/v1/posts", "once", &other).await;
        assert_eq!(reused.problem(), (422, "/problems/idempotency-key-reused"));
        world.idle().await;
        assert_of(&reader, &FEEDS, &["2-1"], &of("one", 1)).await;
        author.put_body("/v1/posts/10-1", &json!({ "title": "two" })).await.ok();
        let edited = user.put_body("/v1/posts/2-1", &json!({ "title": "look" })).await.ok();
        assert_eq!((&edited["title"], &edited["of"]["title"]), (&json!("look"), &json!("two")));
        assert_of(&reader, &FEEDS, &["2-1"], &of("two", 2)).await;
        assert_eq!(reader.get("/v1/posts/10-1").await.ok()["reposts"], 0, "a quote is no repost");
        assert_eq!(reposters(&reader, 5).await, [0_u64; 0]);
        reader.put("/v1/posts/2-1/like").await.ok();
        assert_of(&reader, &["/v1/me/likes"], &["2-1"], &of("two", 2)).await;
        // A quote of a quote names that quote.
        assert_eq!(quote(&reader, "third", "2-1").await["of"]["title"], "look");
        for (body, field) in [(json!({ "title": "x", "of": "10" }), "of"), (json!({ "of": "10-1" }), "title")] {
            assert_eq!(user.post("/v1/posts", &body).await.field(), field);
        }
        let missing = user.post("/v1/posts", &json!({ "title": "x", "of": "10-2" })).await;
        assert_eq!(missing.problem(), (404, "/problems/not-found"));
        assert_eq!(user.post("/v1/posts", &json!({ "title": "x", "of": null })).await.ok().get("of"), None);
        // A repetition is answered although the original is gone.
        author.delete("/v1/posts/10-1").await.ok();
        let repeated = user.post_with_key("/v1/posts", "once", &body).await.ok();
        assert_eq!((&repeated["id"], &repeated["of"]), (&first["id"], &unavailable("10-1")));
    });
}

/// A repost and a quote of `10-1` by user 2, and a reader who follows the user and has read neither.
async fn referred(world: &World) -> User {
    let (user, reader) = (world.user(2), world.reader(5, [2]).await);
    world.user(10).publish("one").await;
    user.put(REPOST).await.ok();
    quote(&user, "see", "10-1").await;
    world.idle().await;
    assert_of(&reader, &FEEDS, &["2-1", "2-2"], &of("one", 1)).await;
    reader
}

/// The originals are unavailable to the caller, and the items stay where they are and count as they did.
async fn assert_unavailable(world: &World, caller: &User, feed: &[&str]) {
    for what in ["at once", "at rest", "from the facts"] {
        match what {
            "at rest" => world.idle().await,
            "from the facts" => world.flush_redis().await,
            _ => {}
        }
        assert_eq!(caller.feed_ids().await, feed, "{what}");
        assert_of(caller, &FEEDS, feed, &unavailable("10-1")).await;
        assert_of(caller, &["/v1/authors/2/posts?include=body"], feed, &unavailable("10-1")).await;
    }
    caller.get("/v1/authors/2/posts?include=counts").await.has(json!({
        "items": [{ "title": "see", "likes": 0 }, { "title": null, "liked": false, "likes": 0, "reposts": 0 }], "total": 2,
    }));
}

const BOTH: [&str; 2] = ["2-2", "2-1"];

#[test]
fn the_original_is_unavailable_once_it_is_deleted_and_the_repost_can_be_withdrawn() {
    world(async |world| {
        let reader = referred(world).await;
        world.user(3).put(REPOST).await.ok();
        world.user(10).delete("/v1/posts/10-1").await.ok();
        assert_unavailable(world, &reader, &BOTH).await;
        assert_eq!(reader.unread_total().await, 2);
        for request in
            ["PUT /v1/posts/2-1/like", "GET /v1/posts/2-1/likes", "GET /v1/posts/2-1/reposts", "PUT /v1/posts/2-1/repost"]
        {
            assert_eq!(reader.request(request).await.problem(), (404, "/problems/not-found"), "{request}");
        }
        let user = world.user(2);
        for _ in 0..2 {
            assert_eq!(user.delete(REPOST).await.ok(), json!({ "reposted": false, "post": null, "reposts": 0 }));
        }
        world.user(3).delete("/v1/posts/3-1/repost").await.has(json!({ "reposted": false, "reposts": 0 }));
        world.idle().await;
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec!["2-2".to_owned()], 1));
    });
}

#[test]
fn a_block_in_either_direction_makes_the_original_unavailable_while_it_lasts() {
    world(async |world| {
        let (reader, author) = (referred(world).await, world.user(10));
        reader.put("/v1/posts/2-1/like").await.ok();
        for (blocker, blocked) in [(&author, 5), (&reader, 10)] {
            let path = format!("/v1/blocks/{blocked}");
            blocker.put(&path).await.ok();
            assert_unavailable(world, &reader, &BOTH).await;
            for request in
                ["PUT /v1/posts/10-1/repost", r#"POST /v1/posts {"title": "x", "of": "2-1"}"#, "PUT /v1/posts/2-1/like"]
            {
                assert_eq!(reader.request(request).await.problem(), (403, "/problems/blocked"), "{request}");
            }
            blocker.delete(&path).await.ok();
            assert_of(&reader, &FEEDS, &BOTH, &of("one", 1)).await;
            reader.get("/v1/posts/2-1").await.has(json!({ "liked": true, "likes": 1, "reposts": 1 }));
        }
        // A user who was blocked after the repost may withdraw it.
        author.put("/v1/blocks/2").await.ok();
        let user = world.user(2);
        assert_eq!(user.get(REPOSTS).await.problem(), (403, "/problems/blocked"));
        assert_eq!(user.put(REPOST).await.problem(), (403, "/problems/blocked"));
        for _ in 0..2 {
            assert_eq!(user.delete(REPOST).await.ok(), json!({ "reposted": false, "post": null, "reposts": 0 }));
        }
        assert_eq!(author.get("/v1/posts/10-1").await.ok()["reposts"], 0);
        // Who is blocked by the author of a repost does not learn what it is of.
        let other = world.user(3);
        other.put(REPOST).await.ok();
        other.put("/v1/blocks/5").await.ok();
        for method in ["PUT", "DELETE"] {
            assert_eq!(reader.request(&format!("{method} /v1/posts/3-1/repost")).await.problem(), (403, "/problems/blocked"));
        }
    });
}

#[test]
fn the_original_of_a_private_author_is_available_to_accepted_followers_and_moderators_only() {
    world(async |world| {
        let (reader, author) = (referred(world).await, world.user(10));
        let follower = world.reader(6, [2, 10]).await;
        let set = async |private: bool| author.put_body("/v1/me/privacy", &json!({ "private": private })).await.ok();
        set(true).await;
        assert_unavailable(world, &reader, &BOTH).await;
        assert_of(&follower, &["/v1/authors/2/posts"], &BOTH, &of("one", 1)).await;
        let moderator = world.stranger(Some("9 posts:moderate"));
        assert_of(&moderator, &["/v1/authors/2/posts"], &BOTH, &of("one", 1)).await;
        // Only the author shows the post to others.
        for caller in [&reader, &follower] {
            for request in ["PUT /v1/posts/10-1/repost", r#"POST /v1/posts {"title": "x", "of": "10-1"}"#] {
                assert_eq!(caller.request(request).await.problem(), (403, "/problems/private"), "{request}");
            }
        }
        author.put(REPOST).await.has(json!({ "post": "10-2", "reposts": 2 }));
        assert_eq!(quote(&author, "mine", "10-1").await["of"]["title"], "one");
        assert_eq!(world.user(2).delete(REPOST).await.ok(), json!({ "reposted": false, "post": null, "reposts": 0 }));
        set(false).await;
        assert_of(&reader, &["/v1/authors/2/posts"], &["2-2"], &of("one", 1)).await;
        reader.put(REPOST).await.has(json!({ "reposts": 2 }));
        // A private user's own repost is withheld like any post, and the list of reposts names it.
        world.user(2).put(REPOST).await.has(json!({ "post": "2-3" }));
        world.user(2).put_body("/v1/me/privacy", &json!({ "private": true })).await.ok();
        let stranger = world.user(7);
        assert_eq!(stranger.put("/v1/posts/2-3/like").await.problem(), (403, "/problems/private"));
        assert_eq!(reposters(&stranger, 9).await, [2, 5, 10]);
    });
}

#[test]
fn an_erasure_of_either_side_leaves_the_other_right() {
    world(async |world| {
        let reader = referred(world).await;
        each(world, [3, 4], "PUT /v1/posts/10-1/repost").await;
        world.user(3).delete("/v1/me").await.ok();
        until("the repost is gone", async || reposters(&reader, 1).await.len() == 2).await;
        assert_eq!(reader.get("/v1/posts/10-1").await.ok()["reposts"], 2);
        world.user(10).delete("/v1/me").await.ok();
        until("the original is gone", async || reader.get("/v1/posts/10-1").await.status == 404).await;
        world.idle().await;
        assert_unavailable(world, &reader, &BOTH).await;
        // What is left of the author is not counted down.
        let user = world.user(2);
        for _ in 0..2 {
            assert_eq!(user.delete(REPOST).await.ok(), json!({ "reposted": false, "post": null, "reposts": 0 }));
        }
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["2-2"]);
        world.user(4).delete("/v1/me").await.ok();
        world.idle().await;
        assert_eq!(world.user(5).get("/v1/users/4/counters").await.ok()["posts"], 0);
    });
}

#[test]
fn reposters_are_as_many_as_the_count_less_the_users_in_a_block_with_the_caller() {
    world(async |world| {
        let reader = world.user(5);
        world.user(10).publish_all(["one", "two"]).await;
        assert_eq!(reposters(&reader, 5).await, [0_u64; 0]);
        for user in 101..=120 {
            world.user(user).put(REPOST).await.ok();
        }
        each(world, 101..105, "PUT /v1/posts/10-2/repost").await;
        world.user(120).put_body("/v1/me/profile", &json!({ "name": "Grace" })).await.ok();
        for limit in [1, 7, 19, 20, 100] {
            let items = reader.walk(REPOSTS, limit).await;
            let expected: Vec<u64> = (101..=120).rev().collect();
            assert_eq!(texts(&items, "user"), expected.iter().map(u64::to_string).collect::<Vec<_>>(), "limit {limit}");
            assert_eq!(texts(&items, "post"), expected.iter().map(|user| format!("{user}-1")).collect::<Vec<_>>());
            assert!(texts(&items, "since").is_sorted_by(|newer, older| newer >= older));
        }
        assert_eq!(reader.get("/v1/posts/10-1").await.ok()["reposts"], 20);
        let page = reader.get(&format!("{REPOSTS}?limit=1")).await.ok();
        assert_eq!(page["profiles"], json!({ "120": { "name": "Grace", "handle": null, "picture": null } }));
        assert_eq!(reader.get(&format!("{REPOSTS}?profiles=false")).await.ok().get("profiles"), None);
        reader.put("/v1/blocks/102").await.ok();
        world.user(103).put("/v1/blocks/5").await.ok();
        for limit in [1, 100] {
            let listed = BTreeSet::from_iter(reposters(&reader, limit).await);
            assert_eq!(listed, (101..=120).filter(|user| ![102, 103].contains(user)).collect(), "limit {limit}");
        }
        for (query, field) in
            [("limit=0", "limit"), ("cursor=x", "cursor"), ("profiles=1", "profiles"), ("order=oldest", "order")]
        {
            assert_eq!(reader.get(&format!("{REPOSTS}?{query}")).await.field(), field);
        }
        each(world, 101..=120, "DELETE /v1/posts/10-1/repost").await;
        assert_eq!(
            (reposters(&reader, 5).await.len(), reader.get("/v1/posts/10-1").await.ok()["reposts"].clone()),
            (0, json!(0))
        );
    });
}

#[test]
fn requests_of_many_devices_make_one_repost() {
    world(async |world| {
        let user = world.user(2);
        world.user(10).publish("one").await;
        for round in 1..=3 {
            let puts = (0..8).map(|_| user.put(REPOST));
            let made = futures::future::join_all(puts).await;
            let posts: BTreeSet<String> = made.into_iter().map(|made| made.ok()["post"].to_string()).collect();
            assert_eq!(posts.len(), 1, "round {round}: {posts:?}");
            assert_eq!(ids(&user.walk("/v1/authors/2/posts", 10).await).len(), 1, "round {round}");
            assert_eq!(
                (reposters(&user, 5).await, user.get("/v1/posts/10-1").await.ok()["reposts"].clone()),
                (vec![2], json!(1))
            );
            let gone = futures::future::join_all((0..4).map(|_| user.delete(REPOST))).await;
            assert!(gone.iter().all(|response| response.status == 200), "{gone:?}");
            assert_eq!(user.get("/v1/posts/10-1").await.ok()["reposts"], 0);
        }
        // Many users at once are no conflict for each other.
        each(world, 1_000..1_100, "PUT /v1/posts/10-1/repost").await;
        assert_eq!(reposters(&user, 100).await.len(), 100);
        assert_eq!(user.get("/v1/posts/10-1").await.ok()["reposts"], 100);
    });
}

#[test]
fn followers_who_pull_and_readers_without_redis_see_the_same_originals() {
    world_with(parameter("PullThreshold", "1"), async |world| {
        let (user, reader) = (world.user(2), world.reader(5, [2]).await);
        world.user(10).publish("one").await;
        user.publish("own").await;
        user.put(REPOST).await.ok();
        quote(&user, "see", "10-1").await;
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["2-3", "2-2", "2-1"]);
        assert_of(&reader, &FEEDS, &["2-3", "2-2"], &of("one", 1)).await;
        assert_eq!(reader.unread_total().await, 3);
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        assert_of(&reader, &FEEDS, &["2-3", "2-2"], &of("one", 1)).await;
        assert_eq!(reader.get("/v1/feed").await.header("degraded"), Some("redis"));
        world.user(3).put(REPOST).await.has(json!({ "reposts": 2 }));
        world.stack.start_redis().await.unwrap();
        world.idle().await;
        reader.get("/v1/posts/2-2").await.has(json!({ "reposts": 2, "of": { "title": "one" } }));
    });
}

#[test]
fn a_mute_hides_the_authors_own_posts_and_no_reposts_of_them() {
    world(async |world| {
        let reader = world.reader(5, [2, 10]).await;
        world.user(10).publish("one").await;
        world.user(2).put(REPOST).await.ok();
        world.idle().await;
        reader.put("/v1/mutes/10").await.ok();
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec!["2-1".to_owned()], 1));
        assert_of(&reader, &FEEDS, &["2-1"], &of("one", 1)).await;
        reader.delete("/v1/mutes/10").await.ok();
        reader.put("/v1/mutes/2").await.ok();
        assert_eq!(reader.feed_ids().await, ["10-1"]);
    });
}

#[test]
fn an_export_has_reposts_once_and_quotes_as_posts() {
    world(async |world| {
        let user = world.user(2);
        world.user(10).publish("one").await;
        user.publish("own").await;
        user.put(REPOST).await.ok();
        quote(&user, "see", "10-1").await;
        for limit in [1, 100] {
            let items = user.walk("/v1/me/export", limit).await;
            let of_kind = |kind: &str| items.iter().filter(|item| item["kind"] == kind).cloned().collect::<Vec<Value>>();
            let [reposts, posts] = ["repost", "post"].map(of_kind);
            assert_eq!(reposts.len(), 1, "{items:?}");
            assert_eq!(json!([reposts[0]["id"], reposts[0]["of"]]), json!(["2-2", "10-1"]));
            assert_eq!(ids(&posts), ["2-3", "2-1"]);
            assert_eq!((&posts[0]["of"], posts[1].get("of")), (&json!("10-1"), None));
        }
    });
}
