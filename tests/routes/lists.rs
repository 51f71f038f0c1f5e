//! Lists of followed authors, with feeds and counts of their own.

use serde_json::{Value, json};
use tidemark_tests::{User, World, ids, texts, world};

const READER: u64 = 7;

async fn make(user: &User, name: &str) -> String {
    let list = user.post("/v1/lists", &json!({ "name": name })).await;
    assert_eq!((list.status, &list.body["name"]), (201, &json!(name)));
    list.body["id"].as_str().unwrap().to_owned()
}

/// The feed of a list, its unread posts, and its counts.
async fn seen(user: &User, list: &str) -> Value {
    let mut seen = user.get(&format!("/v1/unread?list={list}")).await.ok();
    for status in ["all", "unread"] {
        let feed = format!("/v1/feed?list={list}&status={status}");
        let by_time = ids(&user.walk(&feed, 2).await);
        let ranked = ids(&user.walk(&format!("{feed}&order=ranked"), 2).await);
        assert_eq!(ranked, by_time, "posts without weights, preferences and reactions are ranked by time");
        seen[status] = json!(by_time);
    }
    seen
}

/// The reader follows 1, 2 and 3, who have two posts each, and has 1 and 2 on the list 7-1.
async fn reader_with_list(world: &World) -> User {
    let reader = world.reader(READER, 1..=3).await;
    world.deliver_posts(1..=3, 2).await;
    assert_eq!(make(&reader, "Friends").await, "7-1");
    for author in 1..=2 {
        for _ in 0..2 {
            let member = reader.put(&format!("/v1/lists/7-1/authors/{author}")).await.ok();
            assert_eq!(member, json!({ "member": true }));
        }
    }
    reader
}

#[test]
fn a_list_has_its_own_feed_and_counts() {
    world(async |world| {
        let reader = reader_with_list(world).await;
        reader.put("/v1/posts/1-1/read").await.ok();
        let expected = json!({
            "all": ["2-2", "1-2", "2-1", "1-1"], "unread": ["2-2", "1-2", "2-1"],
            "total": 3, "authors": [{ "author": "2", "unread": 2 }, { "author": "1", "unread": 1 }],
        });
        assert_eq!(seen(&reader, "7-1").await, expected);
        reader.get("/v1/feed?list=7-1").await.has(json!({ "unread_total": 3 }));
        assert_eq!(reader.unread_total().await, 5, "the home feed is as before");

        // From a view that is rebuilt, and without Redis.
        world.at_each_loss_of_redis(async || assert_eq!(seen(&reader, "7-1").await, expected)).await;

        // A mute hides the author in lists too.
        reader.put("/v1/mutes/2").await.ok();
        assert_eq!(seen(&reader, "7-1").await["all"], json!(["1-2", "1-1"]));
        reader.delete("/v1/mutes/2").await.ok();

        // An unfollow ends membership, and a new follow does not bring it back.
        reader.delete("/v1/following/2").await.ok();
        reader.follow([2]).await;
        assert_eq!(seen(&reader, "7-1").await["all"], json!(["1-2", "1-1"]));
        assert_eq!(reader.delete("/v1/lists/7-1/authors/1").await.ok(), json!({ "member": false }));
        assert_eq!(seen(&reader, "7-1").await, json!({ "all": [], "unread": [], "total": 0, "authors": [] }));
    });
}

#[test]
fn lists_belong_to_their_user() {
    world(async |world| {
        let reader = reader_with_list(world).await;
        let other = world.user(8);
        make(&other, "Own").await;
        let missing: [(&User, &str, &[&str]); 5] = [
            (&other, "GET", &["feed?list=7-1", "unread?list=7-1", "lists/7-1/authors"]),
            (&other, "PUT", &["lists/7-1/authors/1"]),
            (&other, "DELETE", &["lists/7-1/authors/1", "lists/7-1"]),
            // The list 7-9 does not exist, and the others are no ids.
            (&reader, "GET", &["feed?list=7-9", "feed?list=x", "unread?list=7", "lists/nope/authors"]),
            (&reader, "DELETE", &["lists/7-9", "lists/7-0"]),
        ];
        for (user, method, paths) in missing {
            for path in paths {
                let response = user.request(&format!("{method} /v1/{path}")).await;
                assert_eq!(response.problem(), (404, "/problems/not-found"), "{method} {path}");
            }
        }
        assert_eq!(reader.put("/v1/lists/7-1/authors/9").await.problem(), (422, "/problems/not-following"));
        assert_eq!(reader.delete("/v1/lists/7-1/authors/9").await.ok(), json!({ "member": false }));
        assert_eq!(reader.put("/v1/lists/7-1/authors/x").await.field(), "author");
        assert_eq!(texts(&reader.walk("/v1/lists/7-1/authors", 1).await, "user"), ["2", "1"]);

        // A deleted list is gone, and its number is not given again.
        for _ in 0..2 {
            assert_eq!(reader.delete("/v1/lists/7-1").await.status, 204);
        }
        assert_eq!(reader.get("/v1/feed?list=7-1").await.status, 404);
        assert_eq!(make(&reader, "Friends").await, "7-2");
        assert_eq!(seen(&reader, "7-2").await["all"], json!([]));
    });
}

#[test]
fn a_user_has_at_most_fifty_lists() {
    world(async |world| {
        let user = world.user(READER);
        let mut made = Vec::new();
        for number in 1..=50 {
            made.push(make(&user, &format!("list {number}")).await);
        }
        let over = user.post("/v1/lists", &json!({ "name": "one more" })).await;
        assert_eq!(over.problem(), (422, "/problems/list-limit"));
        let listed = user.walk("/v1/lists", 20).await;
        made.reverse();
        assert_eq!(ids(&listed), made);
        user.delete(&format!("/v1/lists/{}", made[3])).await;
        make(&user, "one more").await;
    });
}
