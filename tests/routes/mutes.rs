//! Mutes hide an author's posts from feeds and counts, in the view and in the facts, and change nothing else.

use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{ports::List, views::keys};
use tidemark_tests::{User, World, ids, user_id, world};

const READER: u64 = 7;

/// The ids of a page, its author counts and the total.
async fn seen(reader: &User) -> (Vec<String>, Vec<String>, Value, u64) {
    let all = ids(&reader.walk("/v1/feed", 3).await);
    let unread = ids(&reader.walk("/v1/feed?status=unread", 3).await);
    let counts = reader.get("/v1/unread").await.ok();
    (all, unread, counts["authors"].clone(), counts["total"].as_u64().unwrap())
}

/// The reader follows 1 and 2, has three unread posts of each, and has read the first of 1.
async fn two_authors(world: &World) -> User {
    let reader = world.reader(READER, [1, 2]).await;
    for _ in 0..3 {
        world.user(1).publish("one").await;
        world.user(2).publish("two").await;
    }
    world.idle().await;
    reader.put("/v1/posts/1-1/read").await.ok();
    reader
}

async fn assert_hides_author_one(reader: &User) {
    let only_two = ["2-3", "2-2", "2-1"].map(str::to_owned).to_vec();
    assert_eq!(seen(reader).await, (only_two.clone(), only_two, json!([{ "author": "2", "unread": 3 }]), 3));
    assert_eq!(reader.get("/v1/unread/1").await.ok()["unread"], 0);
    let timeline = reader.get("/v1/authors/1/posts?status=unread").await.ok();
    assert_eq!(timeline["total"], 2, "the author's own page is as before: {timeline}");
    let marked = reader.put("/v1/posts/1-2/like").await.ok();
    assert_eq!(marked["liked"], true);
}

#[test]
fn a_mute_hides_at_once_and_its_end_restores() {
    world(async |world| {
        let reader = two_authors(world).await;
        let before = seen(&reader).await;
        assert_eq!((before.0.len(), before.3), (6, 5));
        for _ in 0..2 {
            assert_eq!(reader.put("/v1/mutes/1").await.ok(), json!({ "muted": true }));
            assert_hides_author_one(&reader).await;
        }
        let user = reader.get("/v1/users/1").await.ok();
        assert_eq!((&user["relation"]["muted"], &user["relation"]["following"]), (&json!(true), &json!(true)));
        assert_eq!(world.user(1).get("/v1/users/1/followers").await.ok()["items"].as_array().unwrap().len(), 1);
        assert_eq!(world.user(1).get(&format!("/v1/users/{READER}")).await.ok()["relation"]["muted"], false);

        // A view that is rebuilt, and pages without Redis, agree.
        world.at_each_loss_of_redis(async || assert_hides_author_one(&reader).await).await;

        // Posts that arrive while the author is muted appear after the mute ends.
        world.publish_and_deliver(1, "hidden").await;
        assert_eq!(reader.get("/v1/unread").await.ok()["total"], 3);
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/mutes/1").await.ok(), json!({ "muted": false }));
        }
        let (all, unread, _, total) = seen(&reader).await;
        assert_eq!(all[0], "1-4");
        assert_eq!((all[1..].to_vec(), unread.len(), total), (before.0, 6, 6));
        assert_eq!(reader.get("/v1/users/1").await.ok()["relation"]["muted"], false);
    });
}

#[test]
fn a_mute_outlives_follows() {
    world(async |world| {
        let reader = two_authors(world).await;
        reader.put("/v1/mutes/1").await.ok();
        reader.delete("/v1/following/1").await.ok();
        assert_eq!(reader.get("/v1/users/1").await.ok()["relation"]["muted"], true);
        reader.put("/v1/following/1").await.ok();
        world.publish_and_deliver(1, "hidden").await;
        assert_eq!(reader.get("/v1/unread").await.ok()["total"], 3);
        reader.delete("/v1/mutes/1").await.ok();
        assert_eq!(reader.get("/v1/unread/1").await.ok()["unread"], 1, "since the follow");

        // A stranger may be muted first and followed later.
        reader.put("/v1/mutes/3").await.ok();
        reader.put("/v1/following/3").await.ok();
        world.publish_and_deliver(3, "hidden").await;
        assert_eq!(reader.get("/v1/unread/3").await.ok()["unread"], 0);
        reader.delete("/v1/mutes/3").await.ok();
        assert_eq!(reader.get("/v1/unread/3").await.ok()["unread"], 1);
        assert_eq!(reader.get("/v1/users/7/counters").await.ok()["followings"], 3, "a mute is not a follow");
    });
}

/// Lists of followers and counters are cached anew after a change, by reads that hold leases. A big author's would be
/// lost to every mute.
#[test]
fn mutes_preferences_and_lists_touch_no_relation_list_and_no_counter() {
    world(async |world| {
        let reader = two_authors(world).await;
        let list = reader.post("/v1/lists", &json!({ "name": "few" })).await.ok()["id"].as_str().unwrap().to_owned();
        reader.unread_total().await;
        let [own, followed, stranger] = [READER, 1, 9].map(user_id);
        let of = |user| {
            [keys::list(List::Following(user)).to_vec(), keys::list(List::Fans(user)).to_vec(), keys::counters(user).to_vec()]
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
fn mutes_are_listed_newest_first() {
    world(async |world| {
        let reader = world.user(READER);
        assert_eq!(reader.get("/v1/mutes").await.ok()["items"], json!([]));
        world.user(12).put_body("/v1/me/profile", &json!({ "name": "Zoe" })).await.ok();
        for user in 10..15 {
            reader.put(&format!("/v1/mutes/{user}")).await.ok();
        }
        reader.delete("/v1/mutes/11").await.ok();
        let listed = reader.walk("/v1/mutes", 2).await;
        let users: Vec<&str> = listed.iter().map(|item| item["user"].as_str().unwrap()).collect();
        assert_eq!(users, ["14", "13", "12", "10"]);
        assert!(listed.iter().all(|item| item["since"].is_string()));
        assert_eq!(reader.get("/v1/mutes").await.ok()["profiles"]["12"]["name"], "Zoe");
        assert_eq!(reader.put("/v1/mutes/7").await.field(), "user");
        assert_eq!(reader.put("/v1/mutes/x").await.field(), "user");
    });
}
