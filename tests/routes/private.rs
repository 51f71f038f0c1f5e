//! Private authors and follow requests: `/v1/me/privacy`, `/v1/follow-requests…`, and what they change elsewhere.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidemark_tests::{User, World, parameter, texts, world, world_with};

const AUTHOR: u64 = 1;

/// Makes user 1 private, with a post from before.
async fn private_author(world: &World) -> User {
    let author = world.user(AUTHOR);
    author.publish("before").await;
    assert_eq!(set_private(&author, true).await, json!({ "private": true }));
    author
}

async fn set_private(user: &User, private: bool) -> Value {
    user.put_body("/v1/me/privacy", &json!({ "private": private })).await.ok()
}

async fn ask(user: &User) {
    user.put("/v1/following/1").await.has(json!({ "following": false, "requested": true, "since": null }));
}

/// The users of all pages of requests. The total is their number.
async fn requests(user: &User, query: &str, limit: usize) -> Vec<String> {
    let pages = user.pages(&format!("/v1/follow-requests{query}"), limit).await;
    let users: Vec<String> = pages.iter().flat_map(|page| texts(page["items"].as_array().unwrap(), "user")).collect();
    assert!(pages.iter().all(|page| page["total"] == users.len()), "{pages:?}");
    users
}

async fn is_kept_out(user: &User) {
    for path in ["posts/1-1", "posts/1-9", "authors/1/posts", "posts/1-1/delivery", "posts/1-9/delivery"] {
        assert_eq!(user.get(&format!("/v1/{path}")).await.problem(), (403, "/problems/private"), "{path}");
    }
    user.get("/v1/posts?post=1-1").await.has(json!({ "items": [] }));
}

#[test]
fn a_follow_of_a_private_author_is_a_request_until_it_is_accepted() {
    world(async |world| {
        let author = private_author(world).await;
        let reader = world.user(7);
        reader.put_body("/v1/me/profile", &json!({ "name": "Seven" })).await.ok();
        for _ in 0..2 {
            ask(&reader).await;
        }
        // A request is in no list, counter or feed.
        assert!(reader.walk("/v1/users/7/following", 9).await.is_empty());
        assert!(author.walk("/v1/users/1/followers", 9).await.is_empty());
        reader.get("/v1/users/7/counters").await.has(json!({ "followings": 0 }));
        reader.get("/v1/relations/1").await.has(json!({ "following": false }));
        let relation = json!({ "following": false, "requested": true });
        reader.get("/v1/users/1").await.has(json!({ "private": true, "counters": { "posts": 1 }, "relation": relation }));
        author.get("/v1/users/7").await.has(json!({ "private": false, "relation": { "requested": false } }));
        author.get("/v1/me").await.has(json!({ "private": true }));
        assert!(reader.feed_ids().await.is_empty());
        is_kept_out(&reader).await;

        let page = author.get("/v1/follow-requests").await.ok();
        assert_eq!((&page["items"][0]["user"], &page["total"], &page["next_cursor"]), (&json!("7"), &json!(1), &Value::Null));
        assert_eq!(page["profiles"], json!({ "7": { "name": "Seven", "handle": null, "picture": null } }));
        assert_eq!(author.get("/v1/follow-requests?profiles=false").await.ok().get("profiles"), None);
        author.delete("/v1/followers/7").await.ok();
        assert_eq!(requests(&author, "?direction=received", 1).await, ["7"], "it is no follow that ends");
        for post in ["1-1", "1-9"] {
            let path = format!("/v1/posts/{post}");
            assert_eq!(reader.delete(&path).await.status, 403, "{post}");
            assert_eq!(reader.put_body(&path, &json!({ "title": "x" })).await.status, 403, "{post}");
            for list in ["likes", "favorites"] {
                assert_eq!(reader.get(&format!("{path}/{list}")).await.problem(), (403, "/problems/private"));
            }
        }
        assert_eq!(requests(&reader, "?direction=sent", 1).await, ["1"]);
        assert!(requests(&reader, "", 1).await.is_empty() && requests(&author, "?direction=sent", 1).await.is_empty());

        author.publish("while asked").await;
        for _ in 0..2 {
            assert_eq!(author.put("/v1/follow-requests/7").await.ok(), json!({ "accepted": true }));
        }
        assert!(requests(&author, "", 1).await.is_empty() && requests(&reader, "?direction=sent", 1).await.is_empty());
        reader.get("/v1/users/1").await.has(json!({ "relation": { "following": true, "requested": false } }));
        author.get("/v1/users/1/counters").await.has(json!({ "followers": 1 }));
        assert_eq!((reader.feed_ids().await.len(), reader.unread_total().await), (2, 0), "unread begins now");
        world.publish_and_deliver(AUTHOR, "after").await;
        assert_eq!((reader.feed_ids().await.len(), reader.unread_total().await), (3, 1));
        reader.get("/v1/posts/1-1").await.has(json!({ "title": "before" }));
        reader.put("/v1/following/1").await.has(json!({ "following": true, "requested": false, "created": false }));

        // A rejection does not end a follow.
        assert_eq!(author.delete("/v1/follow-requests/7").await.ok(), json!({ "accepted": false }));
        reader.get("/v1/relations/1").await.has(json!({ "following": true }));
        reader.delete("/v1/following/1").await.has(json!({ "following": false }));
        is_kept_out(&reader).await;
        assert!(reader.feed_ids().await.is_empty());
    });
}

#[test]
fn requests_are_withdrawn_rejected_and_ended_by_blocks() {
    world(async |world| {
        let author = private_author(world).await;
        let reader = world.user(7);
        let not_found = (404, "/problems/not-found");
        assert_eq!(author.put("/v1/follow-requests/7").await.problem(), not_found);
        assert_eq!(author.delete("/v1/follow-requests/7").await.ok(), json!({ "accepted": false }));
        for (user, path, method) in [
            (&reader, "/v1/following/1", "DELETE"),
            (&author, "/v1/follow-requests/7", "DELETE"),
            (&author, "/v1/blocks/7", "PUT"),
            (&reader, "/v1/blocks/1", "PUT"),
        ] {
            ask(&reader).await;
            assert_eq!(requests(&author, "", 5).await, ["7"]);
            user.request(&format!("{method} {path}")).await.ok();
            assert!(requests(&author, "", 5).await.is_empty() && requests(&reader, "?direction=sent", 5).await.is_empty());
            assert_eq!(author.put("/v1/follow-requests/7").await.problem(), not_found, "{method} {path}");
            reader.get("/v1/users/1").await.has(json!({ "relation": { "following": false, "requested": false } }));
            author.delete("/v1/blocks/7").await.ok();
            reader.delete("/v1/blocks/1").await.ok();
        }
        // A block goes before privacy.
        author.put("/v1/blocks/7").await.ok();
        for path in ["posts/1-1", "posts/1-9", "authors/1/posts", "posts/1-1/delivery"] {
            assert_eq!(reader.get(&format!("/v1/{path}")).await.problem(), (403, "/problems/blocked"), "{path}");
        }
        assert_eq!(reader.put("/v1/following/1").await.problem(), (403, "/problems/blocked"));
    });
}

#[test]
fn an_author_without_posts_can_be_private_and_publish() {
    world(async |world| {
        let (author, reader) = (world.user(AUTHOR), world.user(7));
        set_private(&author, true).await;
        is_kept_out(&reader).await;
        ask(&reader).await;
        author.put("/v1/follow-requests/7").await.ok();
        author.get("/v1/users/1/counters").await.has(json!({ "posts": 0, "followers": 1 }));
        assert_eq!(world.publish_and_deliver(AUTHOR, "first").await, "1-1");
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec!["1-1".to_owned()], 1));
    });
}

#[test]
fn followers_stay_and_requests_outlive_privacy() {
    world(async |world| {
        let author = world.user(AUTHOR);
        let follower = world.reader(5, [AUTHOR]).await;
        world.publish_and_deliver(AUTHOR, "one").await;
        set_private(&author, true).await;
        assert_eq!(follower.feed_ids().await, ["1-1"]);
        follower.get("/v1/posts/1-1").await.has(json!({ "title": "one" }));
        author.get("/v1/posts/1-1").await.has(json!({ "title": "one" }));
        let (asking, other) = (world.user(7), world.user(8));
        ask(&asking).await;
        ask(&other).await;
        set_private(&author, false).await;
        asking.get("/v1/posts/1-1").await.has(json!({ "title": "one" }));
        assert_eq!(requests(&author, "", 1).await, ["8", "7"]);
        // A follow begins at once and ends the request. The other one may still be accepted.
        asking.put("/v1/following/1").await.has(json!({ "following": true, "created": true }));
        assert_eq!(requests(&author, "", 1).await, ["8"]);
        author.put("/v1/follow-requests/8").await.has(json!({ "accepted": true }));
        assert_eq!(author.walk("/v1/users/1/followers", 2).await.len(), 3);
        author.get("/v1/users/1/counters").await.has(json!({ "followers": 3 }));
    });
}

#[test]
fn the_following_limit_counts_edges_alone_and_is_checked_at_acceptance() {
    world_with(parameter("FollowingLimit", 2), async |world| {
        let author = private_author(world).await;
        set_private(&world.user(2), true).await;
        let reader = world.reader(7, [10, 11]).await;
        ask(&reader).await;
        let many = reader.post("/v1/following", &json!({ "authors": ["2", "12", "10", "7"] })).await.ok();
        let results = many["results"].as_array().unwrap();
        assert_eq!(results[0], json!({ "author": "2", "following": false, "requested": true, "since": null, "created": false }));
        assert_eq!(results[1]["error"]["type"], "/problems/following-limit");
        assert_eq!((&results[2]["following"], &results[2]["requested"]), (&json!(true), &json!(false)));
        assert_eq!(results[3]["error"]["type"], "/problems/self-follow");
        assert_eq!(author.put("/v1/follow-requests/7").await.problem(), (422, "/problems/following-limit"));
        assert_eq!(requests(&author, "", 3).await, ["7"], "the request stays");
        reader.delete("/v1/following/10").await.ok();
        author.put("/v1/follow-requests/7").await.has(json!({ "accepted": true }));
        assert_eq!(requests(&reader, "?direction=sent", 3).await, ["2"]);
    });
}

#[test]
fn a_request_keeps_its_preference_for_the_follow() {
    world(async |world| {
        let author = private_author(world).await;
        let reader = world.user(7);
        reader.put_body("/v1/following/1", &json!({ "preference": 4 })).await.has(json!({ "requested": true, "preference": 4 }));
        reader.put("/v1/following/1").await.has(json!({ "requested": true, "preference": 4 }));
        author.put("/v1/follow-requests/7").await.ok();
        reader.put("/v1/following/1").await.has(json!({ "following": true, "preference": 4 }));
        reader.delete("/v1/following/1").await.ok();
        ask(&reader).await;
        reader.put_body("/v1/following/1", &json!({ "preference": 4 })).await.ok();
        reader.delete("/v1/following/1").await.ok();
        reader.put("/v1/following/1").await.has(json!({ "requested": true, "preference": 0 }));
    });
}

#[test]
fn pages_of_requests_have_each_request_once_while_others_arrive() {
    world(async |world| {
        let author = private_author(world).await;
        let ask_all = async |users: std::ops::Range<u64>| {
            futures::future::join_all(users.map(async |user| ask(&world.user(user)).await)).await;
        };
        ask_all(100..160).await;
        assert_eq!(requests(&author, "", 7).await.len(), 60);
        let first = author.get("/v1/follow-requests?limit=20").await;
        let link = first.header("link").unwrap().to_owned();
        let first = first.ok();
        let cursor = first["next_cursor"].as_str().unwrap();
        assert!(link.contains(cursor) && link.contains("rel=\"next\""), "{link}");
        ask_all(200..220).await;
        let rest = author.get(&format!("/v1/follow-requests?limit=100&cursor={cursor}")).await.ok();
        assert_eq!((&rest["next_cursor"], &rest["total"]), (&Value::Null, &json!(80)));
        let both = [&first, &rest].map(|page| page["items"].as_array().unwrap().clone()).concat();
        assert!(texts(&both, "since").is_sorted_by(|newer, older| newer >= older));
        let users: BTreeSet<String> = texts(&both, "user").into_iter().collect();
        assert_eq!((both.len(), users), (60, (100..160).map(|user: u64| user.to_string()).collect()));
    });
}

#[test]
fn a_moderator_sees_the_posts_of_private_authors() {
    world(async |world| {
        private_author(world).await;
        let moderator = world.stranger(Some("9 posts:moderate"));
        for path in ["posts/1-1", "authors/1/posts", "posts/1-1/delivery"] {
            moderator.get(&format!("/v1/{path}")).await.ok();
        }
        moderator.get("/v1/posts?post=1-1").await.has(json!({ "items": [{ "id": "1-1" }] }));
        moderator.put("/v1/posts/1-1/like").await.has(json!({ "liked": true }));
        moderator.get("/v1/me/likes").await.has(json!({ "items": [{ "id": "1-1" }] }));
        moderator.put("/v1/posts/1-1/read").await.has(json!({ "read": true }));
        assert_eq!(moderator.get("/v1/posts/1-9").await.problem(), (404, "/problems/not-found"));
        // The same user without the scope.
        let user = world.user(9);
        is_kept_out(&user).await;
        user.get("/v1/me/likes").await.has(json!({ "items": [] }));
        assert_eq!(user.delete("/v1/posts/1-1/like").await.problem(), (403, "/problems/private"));
        for request in
            ["PUT /v1/posts/1-9/read", "DELETE /v1/posts/1-9/read", "PUT /v1/posts/1-9/like", "DELETE /v1/posts/1-9/like"]
        {
            assert_eq!(user.request(request).await.problem(), (403, "/problems/private"), "{request}");
        }
    });
}

#[test]
fn privacy_holds_at_once_with_and_without_redis() {
    world(async |world| {
        let author = world.user(AUTHOR);
        author.publish("one").await;
        let stranger = world.user(7);
        stranger.put("/v1/posts/1-1/like").await.ok();
        world.idle().await;
        world.stack.pause("projector").await.unwrap();
        for private in [true, false, true] {
            // The stranger's views of the author's posts are there.
            drop(stranger.get("/v1/posts/1-1").await);
            drop(stranger.get("/v1/authors/1/posts").await);
            set_private(&author, private).await;
            match private {
                true => is_kept_out(&stranger).await,
                false => drop(stranger.get("/v1/posts/1-1").await.has(json!({ "title": "one" }))),
            }
            let likes = stranger.get("/v1/me/likes").await.items().len();
            assert_eq!(likes, usize::from(!private));
        }
        world.stack.resume("projector").unwrap();
        world.at_each_loss_of_redis(async || is_kept_out(&stranger).await).await;
    });
}

#[test]
fn an_export_has_requests_and_privacy_and_an_erasure_ends_them() {
    world(async |world| {
        let author = private_author(world).await;
        set_private(&world.user(2), true).await;
        author.put("/v1/following/2").await.ok();
        ask(&world.user(7)).await;
        let exported = author.walk("/v1/me/export", 2).await;
        let of = |kind: &str| exported.iter().filter(|item| item["kind"] == kind).cloned().collect::<Vec<_>>();
        assert_eq!((&of("profile")[0]["private"], &of("profile")[0]["name"]), (&json!(true), &Value::Null));
        let requests_in: Vec<Value> =
            of("request").iter().map(|item| json!([item["user"], item["direction"], item["since"].is_string()])).collect();
        assert_eq!(requests_in, [json!(["7", "received", true]), json!(["2", "sent", true])]);
        author.put_body("/v1/me/profile", &json!({ "name": "Ada" })).await.ok();
        let exported = author.walk("/v1/me/export", 100).await;
        assert_eq!((&exported[0]["name"], &exported[0]["private"]), (&json!("Ada"), &json!(true)));

        author.delete("/v1/me").await.ok();
        world.idle().await;
        for (user, query) in [(7, "?direction=sent"), (2, "")] {
            assert!(requests(&world.user(user), query, 5).await.is_empty());
        }
        world.user(7).get("/v1/users/1").await.has(json!({ "private": false, "relation": { "requested": false } }));
        assert_eq!(world.user(7).put("/v1/following/1").await.problem(), (404, "/problems/not-found"));
    });
}

#[test]
fn requests_that_are_not_valid_name_the_field() {
    world(async |world| {
        let user = world.user(7);
        for (request, field) in [
            ("PUT /v1/me/privacy", "body"),
            ("PUT /v1/me/privacy {}", "private"),
            (r#"PUT /v1/me/privacy {"private": "yes"}"#, "private"),
            (r#"PUT /v1/me/privacy {"private": null}"#, "private"),
            (r#"PUT /v1/me/privacy {"private": true, "public": false}"#, "public"),
            ("GET /v1/follow-requests?direction=both", "direction"),
            ("GET /v1/follow-requests?limit=0", "limit"),
            ("GET /v1/follow-requests?cursor=x", "cursor"),
            ("GET /v1/follow-requests?sent=true", "sent"),
            ("PUT /v1/follow-requests/0", "user"),
            ("DELETE /v1/follow-requests/x", "user"),
        ] {
            assert_eq!(user.request(request).await.field(), field, "{request}");
        }
        assert_eq!(user.put("/v1/follow-requests/7").await.problem(), (404, "/problems/not-found"));
    });
}
