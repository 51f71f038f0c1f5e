//! Mutes hide an author's posts from feeds and counts, and change nothing else. Blocks end follows in both directions,
//! and keep the two users apart until they end.

use aws_sdk_dynamodb::types::AttributeValue;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    facts::schema,
    views::{List, keys},
};
use tidemark_tests::{Response, User, World, ids, texts, user_id, world};

const READER: u64 = 7;

/// The ids of the feed and of its unread posts, and the counts.
async fn seen(reader: &User) -> Value {
    let mut seen = reader.get("/v1/unread").await.ok();
    for status in ["all", "unread"] {
        seen[status] = json!(ids(&reader.walk(&format!("/v1/feed?status={status}"), 3).await));
    }
    seen
}

/// The reader follows 1 and 2, has three unread posts of each, and has read the first of 1.
async fn two_authors(world: &World) -> User {
    let reader = world.reader(READER, [1, 2]).await;
    world.deliver_posts([1, 2], 3).await;
    reader.put("/v1/posts/1-1/read").await.ok();
    reader
}

async fn assert_hides_author_one(reader: &User) {
    let (only_two, authors) = (["2-3", "2-2", "2-1"], json!([{ "author": "2", "unread": 3 }]));
    assert_eq!(seen(reader).await, json!({ "all": only_two, "unread": only_two, "total": 3, "authors": authors }));
    reader.get("/v1/unread/1").await.has(json!({ "unread": 0 }));
    // The author's own page is as before.
    reader.get("/v1/authors/1/posts?status=unread").await.has(json!({ "total": 2 }));
    reader.put("/v1/posts/1-2/like").await.has(json!({ "liked": true }));
}

#[test]
fn a_mute_hides_at_once_and_its_end_restores() {
    world(async |world| {
        let reader = two_authors(world).await;
        let mut before = seen(&reader).await;
        assert_eq!((before["all"].as_array().unwrap().len(), &before["total"]), (6, &json!(5)));
        for _ in 0..2 {
            assert_eq!(reader.put("/v1/mutes/1").await.ok(), json!({ "muted": true }));
            assert_hides_author_one(&reader).await;
        }
        reader.get("/v1/users/1").await.has(json!({ "relation": { "muted": true, "following": true } }));
        assert_eq!(world.user(1).get("/v1/users/1/followers").await.items().len(), 1);
        world.user(1).get("/v1/users/7").await.has(json!({ "relation": { "muted": false } }));

        // A view that is rebuilt, and pages without Redis, agree.
        world.at_each_loss_of_redis(async || assert_hides_author_one(&reader).await).await;

        // Posts that arrive while the author is muted appear after the mute ends.
        world.publish_and_deliver(1, "hidden").await;
        reader.get("/v1/unread").await.has(json!({ "total": 3 }));
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/mutes/1").await.ok(), json!({ "muted": false }));
        }
        for status in ["all", "unread"] {
            before[status].as_array_mut().unwrap().insert(0, json!("1-4"));
        }
        (before["total"], before["authors"]) =
            (json!(6), json!([{ "author": "1", "unread": 3 }, { "author": "2", "unread": 3 }]));
        assert_eq!(seen(&reader).await, before);
        reader.get("/v1/users/1").await.has(json!({ "relation": { "muted": false } }));
    });
}

#[test]
fn a_mute_outlives_follows() {
    world(async |world| {
        let reader = two_authors(world).await;
        reader.put("/v1/mutes/1").await.ok();
        reader.delete("/v1/following/1").await.ok();
        reader.get("/v1/users/1").await.has(json!({ "relation": { "muted": true } }));
        reader.follow([1]).await;
        world.publish_and_deliver(1, "hidden").await;
        reader.get("/v1/unread").await.has(json!({ "total": 3 }));
        reader.delete("/v1/mutes/1").await.ok();
        assert_eq!(reader.get("/v1/unread/1").await.ok()["unread"], 1, "since the follow");

        // A stranger may be muted first and followed later.
        reader.put("/v1/mutes/3").await.ok();
        reader.follow([3]).await;
        world.publish_and_deliver(3, "hidden").await;
        assert_eq!(reader.get("/v1/unread/3").await.ok()["unread"], 0);
        reader.delete("/v1/mutes/3").await.ok();
        assert_eq!(reader.get("/v1/unread/3").await.ok()["unread"], 1);
        assert_eq!(reader.get("/v1/users/7/counters").await.ok()["followings"], 3, "a mute is not a follow");
    });
}

/// After a change, lists of followers and counters are cached anew. A big author's would be lost to every mute.
#[test]
fn mutes_preferences_and_lists_touch_no_relation_list_and_no_counter() {
    world(async |world| {
        let reader = two_authors(world).await;
        let list = reader.post("/v1/lists", &json!({ "name": "few" })).await.ok()["id"].as_str().unwrap().to_owned();
        reader.unread_total().await;
        let [own, followed, stranger] = [READER, 1, 9].map(user_id);
        let of = |user| {
            [
                keys::list(List::Following(user)).to_vec(),
                keys::list(List::Followers(user)).to_vec(),
                keys::counters(user).to_vec(),
            ]
        };
        let watched: Vec<String> = [own, followed, stranger].into_iter().flat_map(of).flatten().collect();
        let mut redis = world.redis().await;
        for key in &watched {
            // A value of another type than the key's: it shows every touch.
            redis.set::<_, _, ()>(key, "untouched").await.unwrap();
        }
        let fields = redis.hlen::<_, u64>(keys::reader_state(own)).await.unwrap();
        reader.put_body("/v1/following/1", &json!({ "preference": 3 })).await.ok();
        reader.put(&format!("/v1/lists/{list}/authors/1")).await.ok();
        for author in [1, 9] {
            reader.put(&format!("/v1/mutes/{author}")).await.ok();
            reader.delete(&format!("/v1/mutes/{author}")).await.ok();
        }
        world.idle().await;
        for key in &watched {
            assert_eq!(redis.get::<_, Option<String>>(key).await.unwrap().as_deref(), Some("untouched"), "{key}");
        }
        assert_eq!(redis.hlen::<_, u64>(keys::reader_state(own)).await.unwrap(), fields, "no field of the stranger");
        redis.del::<_, ()>(watched).await.unwrap();
    });
}

#[test]
fn mutes_and_blocks_are_listed_newest_first() {
    world(async |world| {
        let reader = world.user(READER);
        world.user(12).put_body("/v1/me/profile", &json!({ "name": "Zoe" })).await.ok();
        for (path, first) in [("/v1/mutes", 10), ("/v1/blocks", 20)] {
            reader.get(path).await.has(json!({ "items": [] }));
            for user in first..first + 5 {
                reader.put(&format!("{path}/{user}")).await.ok();
            }
            reader.delete(&format!("{path}/{}", first + 1)).await.ok();
            let listed = reader.walk(path, 2).await;
            assert_eq!(texts(&listed, "user"), [first + 4, first + 3, first + 2, first].map(|user| user.to_string()));
            assert!(listed.iter().all(|item| item["since"].is_string()));
        }
        let mutes = reader.get("/v1/mutes").await.has(json!({ "profiles": { "12": { "name": "Zoe" } } }));
        assert_eq!(mutes["items"].as_array().unwrap().len(), 4, "a block is not a mute");
    });
}

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
        for posts in [json!({ "posts": ["1-1", "2-1"] }), json!({ "author": "1", "through": 9 })] {
            let marked = blocked.post("/v1/reads", &posts).await.ok();
            assert_eq!(marked, json!({ "changed": 0, "total": 0 }));
        }
        refused(&blocked.get("/v1/posts/1-1").await);

        refused(&blocked.delete("/v1/posts/1-1/like").await);
        for _ in 0..2 {
            assert_eq!(blocker.delete("/v1/blocks/2").await.ok(), json!({ "blocked": false }));
        }
        blocked.get("/v1/posts/1-1").await.has(json!({ "liked": true, "read": false }));
        blocked.get("/v1/authors/1/posts").await.has(json!({ "total": 2 }));
        // The follow does not come back.
        blocked.get("/v1/relations/1").await.has(json!({ "following": false }));
        blocked.put("/v1/following/1").await.has(json!({ "created": true }));
        assert_eq!(blocked.put("/v1/posts/1-1/like").await.ok(), json!({ "liked": true, "likes": 1 }));
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
