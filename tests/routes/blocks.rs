//! Blocks end follows in both directions, and keep the two users apart until they end.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::json;
use tidemark::facts::schema;
use tidemark_tests::{Response, User, World, ids, user_id, world};

const BLOCKER: u64 = 1;
const BLOCKED: u64 = 2;

fn refused(response: &Response) {
    assert_eq!(response.problem(), (403, "/problems/blocked"), "{}", response.body);
}

/// Both follow each other, have a post each, and like each other's post.
async fn friends(world: &World) -> (User, User) {
    let (blocker, blocked) = (world.user(BLOCKER), world.user(BLOCKED));
    for (user, other) in [(&blocker, BLOCKED), (&blocked, BLOCKER)] {
        user.put(&format!("/v1/following/{other}")).await.ok();
        user.publish("hello").await;
    }
    world.idle().await;
    for (user, other) in [(&blocker, BLOCKED), (&blocked, BLOCKER)] {
        user.put(&format!("/v1/posts/{other}-1/like")).await.ok();
        assert_eq!(user.feed_ids().await, [format!("{other}-1")]);
    }
    (blocker, blocked)
}

/// The blocked user cannot see the blocker's posts, and neither follows or reacts to the other.
async fn are_apart(blocker: &User, blocked: &User) {
    for (user, other) in [(blocker, BLOCKED), (blocked, BLOCKER)] {
        refused(&user.put(&format!("/v1/following/{other}")).await);
        let many = user.post("/v1/following", &json!({ "authors": [other.to_string(), "9"] })).await.ok();
        assert_eq!(many["results"][0]["error"]["type"], "/problems/blocked");
        assert_eq!(many["results"][1]["following"], true);
        for reaction in ["like", "favorite"] {
            refused(&user.put(&format!("/v1/posts/{other}-1/{reaction}")).await);
        }
        let relation = user.get(&format!("/v1/relations/{other}")).await.ok();
        assert_eq!((&relation["following"], &relation["followed_by"]), (&json!(false), &json!(false)));
        assert_eq!(user.feed_ids().await, [] as [String; 0]);
        assert_eq!(user.unread_total().await, 0);
    }
    refused(&blocked.get("/v1/posts/1-1").await);
    refused(&blocked.get("/v1/posts/1-1/delivery").await);
    refused(&blocked.put("/v1/posts/1-1/read").await);
    refused(&blocked.delete("/v1/posts/1-1/read").await);
    for query in ["", "?status=unread", "?include=body&limit=1"] {
        refused(&blocked.get(&format!("/v1/authors/1/posts{query}")).await);
    }
    assert_eq!(ids(&blocked.get("/v1/posts?post=1-1&post=2-1").await.items()), ["2-1"]);
    assert_eq!(ids(&blocked.get("/v1/me/likes").await.items()), [] as [&str; 0]);
    // The blocker still sees the other's posts.
    assert_eq!(blocker.get("/v1/posts/2-1").await.ok()["liked"], true);
    assert_eq!(ids(&blocker.get("/v1/authors/2/posts").await.items()), ["2-1"]);
    assert_eq!(ids(&blocker.get("/v1/me/likes").await.items()), ["2-1"]);
    assert_eq!(blocker.get("/v1/users/2").await.ok()["relation"]["blocked"], true);
    assert_eq!(blocked.get("/v1/users/1").await.ok()["relation"]["blocked"], false, "the blocked user is not told");
}

#[test]
fn a_block_keeps_two_users_apart_until_it_ends() {
    world(async |world| {
        let (blocker, blocked) = friends(world).await;
        let stranger = world.user(3);
        assert_eq!(blocked.get("/v1/posts/1-1").await.status, 200);
        for _ in 0..2 {
            assert_eq!(blocker.put("/v1/blocks/2").await.ok(), json!({ "blocked": true }));
            are_apart(&blocker, &blocked).await;
        }
        assert_eq!(stranger.get("/v1/posts/1-1").await.status, 200);
        for user in [BLOCKER, BLOCKED] {
            let counters = stranger.get(&format!("/v1/users/{user}/counters")).await.ok();
            // The follow of 9 is left.
            assert_eq!((&counters["followers"], &counters["followings"]), (&json!(0), &json!(1)));
        }

        // Posts of the two reach no user whom a block keeps away.
        blocker.publish("to nobody").await;
        world.idle().await;
        world.at_each_loss_of_redis(async || are_apart(&blocker, &blocked).await).await;

        // For a user who is blocked the post does not exist.
        let marked = blocked.post("/v1/reads", &json!({ "posts": ["1-1", "2-1"] })).await.ok();
        assert_eq!(marked, json!({ "changed": 0, "unread": { "total": 0 } }));
        refused(&blocked.get("/v1/posts/1-1").await);

        // A reaction may be taken back.
        assert_eq!(blocked.delete("/v1/posts/1-1/like").await.ok(), json!({ "liked": false }));
        for _ in 0..2 {
            assert_eq!(blocker.delete("/v1/blocks/2").await.ok(), json!({ "blocked": false }));
        }
        assert_eq!(blocked.get("/v1/posts/1-1").await.ok()["liked"], false);
        assert_eq!(blocked.get("/v1/authors/1/posts").await.ok()["total"], 2);
        assert_eq!(blocked.get("/v1/relations/1").await.ok()["following"], false, "the follow does not come back");
        assert_eq!(blocked.put("/v1/following/1").await.ok()["created"], true);
        assert_eq!(blocked.put("/v1/posts/1-1/like").await.ok(), json!({ "liked": true }));
    });
}

#[test]
fn a_repeated_block_restores_its_flags() {
    world(async |world| {
        let (blocker, blocked) = friends(world).await;
        let [one, two] = [BLOCKER, BLOCKED].map(user_id);
        let flags = [(schema::reaction(two, one), "blocked"), (schema::reaction(one, two), "blocks")];
        blocker.put("/v1/blocks/2").await.ok();
        for (key, flag) in &flags {
            world.update_item("ReactionsTable", key.clone(), &[], &[*flag]).await;
        }
        blocker.put("/v1/blocks/2").await.ok();
        are_apart(&blocker, &blocked).await;

        blocker.delete("/v1/blocks/2").await.ok();
        for (key, flag) in flags {
            world.update_item("ReactionsTable", key, &[(flag, AttributeValue::Bool(true))], &[]).await;
        }
        refused(&blocked.put("/v1/following/1").await);
        blocker.delete("/v1/blocks/2").await.ok();
        blocked.put("/v1/following/1").await.ok();
        blocker.put("/v1/posts/2-1/like").await.ok();
    });
}

#[test]
fn a_request_to_follow_fifty_blockers_names_each() {
    world(async |world| {
        let blockers: Vec<String> = (100..150).map(|blocker| blocker.to_string()).collect();
        for blocker in 100..150 {
            world.user(blocker).put("/v1/blocks/2").await.ok();
        }
        let results = world.user(2).post("/v1/following", &json!({ "authors": blockers })).await.ok();
        let results = results["results"].as_array().unwrap();
        assert_eq!(results.len(), 50);
        assert!(results.iter().all(|result| result["error"]["type"] == "/problems/blocked"), "{results:?}");
    });
}

#[test]
fn both_users_may_block_each_other() {
    world(async |world| {
        let (one, two) = friends(world).await;
        one.put("/v1/blocks/2").await.ok();
        two.put("/v1/blocks/1").await.ok();
        one.delete("/v1/blocks/2").await.ok();
        refused(&one.put("/v1/following/2").await);
        refused(&one.get("/v1/posts/2-1").await);
        refused(&two.put("/v1/posts/1-1/like").await);
        assert_eq!(two.get("/v1/posts/1-1").await.status, 200);
        two.delete("/v1/blocks/1").await.ok();
        one.put("/v1/following/2").await.ok();
    });
}

#[test]
fn blocks_are_listed_newest_first() {
    world(async |world| {
        let user = world.user(7);
        for other in 10..15 {
            user.put(&format!("/v1/blocks/{other}")).await.ok();
        }
        user.delete("/v1/blocks/11").await.ok();
        user.put("/v1/mutes/20").await.ok();
        let listed = user.walk("/v1/blocks", 2).await;
        let users: Vec<&str> = listed.iter().map(|item| item["user"].as_str().unwrap()).collect();
        assert_eq!(users, ["14", "13", "12", "10"]);
        assert!(listed.iter().all(|item| item["since"].is_string()));
        assert_eq!(user.walk("/v1/mutes", 2).await.len(), 1);
        assert_eq!(user.put("/v1/blocks/7").await.field(), "user");
        assert_eq!(user.put("/v1/blocks/x").await.field(), "user");
    });
}
