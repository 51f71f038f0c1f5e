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
        user.follow([other]).await;
    }
    world.deliver_posts([BLOCKER, BLOCKED], 1).await;
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
        let many = user.post("/v1/following", &json!({ "authors": [other.to_string(), "9"] })).await;
        many.has(json!({ "results": [{ "error": { "type": "/problems/blocked" } }, { "following": true }] }));
        for reaction in ["like", "favorite"] {
            refused(&user.put(&format!("/v1/posts/{other}-1/{reaction}")).await);
        }
        user.get(&format!("/v1/relations/{other}")).await.has(json!({ "following": false, "followed_by": false }));
        assert_eq!((user.feed_ids().await, user.unread_total().await), (vec![], 0));
    }
    for end in ["", "/delivery"] {
        refused(&blocked.get(&format!("/v1/posts/1-1{end}")).await);
    }
    refused(&blocked.put("/v1/posts/1-1/read").await);
    refused(&blocked.delete("/v1/posts/1-1/read").await);
    for query in ["", "?status=unread", "?include=body&limit=1"] {
        refused(&blocked.get(&format!("/v1/authors/1/posts{query}")).await);
    }
    assert_eq!(ids(&blocked.get("/v1/posts?post=1-1&post=2-1").await.items()), ["2-1"]);
    assert_eq!(ids(&blocked.get("/v1/me/likes").await.items()), [] as [&str; 0]);
    // The blocker still sees the other's posts.
    blocker.get("/v1/posts/2-1").await.has(json!({ "liked": true }));
    for path in ["/v1/authors/2/posts", "/v1/me/likes"] {
        assert_eq!(ids(&blocker.get(path).await.items()), ["2-1"]);
    }
    blocker.get("/v1/users/2").await.has(json!({ "relation": { "blocked": true } }));
    // The blocked user is not told.
    blocked.get("/v1/users/1").await.has(json!({ "relation": { "blocked": false } }));
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
            // The follow of 9 is left.
            stranger.get(&format!("/v1/users/{user}/counters")).await.has(json!({ "followers": 0, "followings": 1 }));
        }

        // Posts of the two reach no user whom a block keeps away.
        world.publish_and_deliver(BLOCKER, "to nobody").await;
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
        blocked.get("/v1/posts/1-1").await.has(json!({ "liked": false }));
        blocked.get("/v1/authors/1/posts").await.has(json!({ "total": 2 }));
        // The follow does not come back.
        blocked.get("/v1/relations/1").await.has(json!({ "following": false }));
        blocked.put("/v1/following/1").await.has(json!({ "created": true }));
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
        for blocker in 100..150 {
            world.user(blocker).put("/v1/blocks/2").await.ok();
        }
        let blockers: Vec<String> = (100..150).map(|blocker| blocker.to_string()).collect();
        let refused = vec![json!({ "error": { "type": "/problems/blocked" } }); 50];
        world.user(2).post("/v1/following", &json!({ "authors": blockers })).await.has(json!({ "results": refused }));
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
