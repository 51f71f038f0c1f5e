//! `GET /v1/feed?order=oldest`: the feed from the other end.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::domain::{NewPost, Timestamp};
use tidemark_tests::{User, World, ids, texts, user_id, world};

const READER: u64 = 7;
const OLDEST: &str = "/v1/feed?order=oldest";

/// Publishes posts of these authors with these times, oldest first, in the facts alone.
async fn plant(world: &World, author: u64, times: impl Iterator<Item = u64>) {
    let facts = &world.stack.app("publish").unwrap().stores.facts;
    for at in times {
        let post = NewPost::titled(user_id(author), "x");
        facts.publish_post(&post, 1, None, Timestamp::from_ms(at)).await.unwrap();
    }
}

/// Asserts that the feed by time, walked backwards, is the feed from the oldest post on.
async fn assert_same(reader: &User, selection: &str, posts: usize) {
    let mut by_time = reader.walk(&format!("/v1/feed?{selection}"), 100).await;
    by_time.reverse();
    assert_eq!(by_time.len(), posts, "{selection}");
    let limit = if posts > 1_000 { 100 } else { 37 };
    let oldest = reader.walk(&format!("{OLDEST}&{selection}"), limit).await;
    assert_eq!(ids(&oldest), ids(&by_time), "{selection}");
    assert_eq!(oldest, by_time, "{selection}");
}

/// More posts than a view stores. Many have the same time, of one author and of several.
#[test]
fn a_feed_is_the_same_from_both_ends_past_its_cap_with_equal_times_and_without_redis() {
    world(async |world| {
        let reader = world.reader(READER, 10..16).await;
        reader.post("/v1/lists", &json!({ "name": "x" })).await.ok();
        for author in [11, 14] {
            reader.put(&format!("/v1/lists/{READER}-1/authors/{author}")).await.ok();
        }
        join_all((10..16).map(async |author| plant(world, author, (0..500).map(|seq| 1_000 + seq / 3)).await)).await;
        plant(world, READER, (0..40).map(|seq| 1_000 + 5 * seq)).await;
        world.idle().await;
        reader.put("/v1/mutes/15").await.ok();
        reader.post("/v1/reads", &json!({ "author": "12", "through": 400 })).await.ok();
        world
            .at_each_loss_of_redis(async || {
                assert_same(&reader, "", 2_500).await;
                assert_same(&reader, "status=unread", 2_100).await;
                assert_same(&reader, "own=true", 2_540).await;
                assert_same(&reader, &format!("list={READER}-1"), 1_000).await;
            })
            .await;
        reader.delete("/v1/mutes/15").await.ok();
        assert_same(&reader, "", 3_000).await;
        for author in [10, 11, 13, 14, 15] {
            reader.post("/v1/reads", &json!({ "author": author.to_string(), "through": 490 })).await.ok();
        }
        assert_same(&reader, "status=unread", 150).await;
        assert_same(&reader, &format!("status=unread&list={READER}-1&own=true"), 20).await;
        assert_same(&reader, &format!("list={READER}-1&own=true"), 1_040).await;
    });
}

#[test]
fn a_walk_has_each_post_once_while_others_come_and_go_and_ends_with_the_new_ones() {
    world(async |world| {
        let reader = world.live_reader(READER, [10, 20]).await;
        world.deliver_posts([10, 20], 10).await;
        for selection in ["", "&status=unread", "&own=true"] {
            let before = ids(&reader.walk(&format!("{OLDEST}{selection}"), 100).await);
            let (mut walked, mut cursor) = (Vec::new(), String::new());
            let mut new = Vec::new();
            for round in 0.. {
                let page = reader.get(&format!("{OLDEST}{selection}&limit=3{cursor}")).await.ok();
                walked.extend(ids(page["items"].as_array().unwrap()));
                let Some(next) = page["next_cursor"].as_str() else { break };
                cursor = format!("&cursor={next}");
                match round {
                    1 => new.push(world.publish_and_deliver(10, "new").await),
                    2 => _ = world.user(20).delete(&format!("/v1/posts/{}", before[before.len() - 2])).await,
                    3 => _ = world.user(20).delete(&format!("/v1/posts/{}", before[0])).await,
                    4 => new.push(world.publish_and_deliver(20, "new").await),
                    5 => world.flush_redis().await,
                    _ => {}
                }
                world.idle().await;
            }
            let own = |post: &&String| post.starts_with("20-");
            let gone: BTreeSet<&String> = [&before[before.len() - 2]].into_iter().filter(own).collect();
            let expected: Vec<&String> = before.iter().filter(|post| !gone.contains(post)).chain(&new).collect();
            assert_eq!(walked.iter().collect::<Vec<_>>(), expected, "{selection}");
        }
    });
}

#[test]
fn the_last_page_has_the_cursor_with_which_polls_go_on() {
    world(async |world| {
        let reader = world.live_reader(READER, [10, 20]).await;
        let empty = reader.get(OLDEST).await.ok();
        assert_eq!((&empty["items"], &empty["next_cursor"]), (&json!([]), &Value::Null));
        world.deliver_posts([10, 20], 3).await;
        let first = reader.get(&format!("{OLDEST}&limit=4")).await.ok();
        world.publish_and_deliver(10, "during the walk").await;
        let next = first["next_cursor"].as_str().unwrap();
        let last = reader.get(&format!("{OLDEST}&limit=4&cursor={next}")).await.ok();
        assert_eq!((last["next_cursor"].is_null(), ids(last["items"].as_array().unwrap()).len()), (true, 3));
        let after = world.publish_and_deliver(20, "after the walk").await;
        let since = async |page: &Value| {
            let since = page["first_cursor"].as_str().unwrap();
            ids(&reader.walk(&format!("/v1/feed?since={since}"), 2).await)
        };
        assert_eq!(since(&last).await, [after.as_str()]);
        assert_eq!(since(&first).await, [after.as_str(), "10-4"], "what has entered the feed since the first page");
        assert_eq!(since(&empty).await.len(), 8);
        let middle = reader.get(&format!("{OLDEST}&limit=2&cursor={next}")).await.ok();
        assert_eq!(middle.get("first_cursor"), None);

        // A first page has an `ETag`, and cursors of other orders are refused.
        let page = reader.get(OLDEST).await;
        let unless = [("if-none-match", page.header("etag").unwrap())];
        assert_eq!(reader.request_with(&unless, &format!("GET {OLDEST}")).await.status, 304);
        let by_time = reader.cursor("next_cursor", "/v1/feed?limit=1").await;
        assert_eq!(reader.get(&format!("{OLDEST}&cursor={by_time}")).await.field(), "cursor");
        assert_eq!(reader.get(&format!("/v1/feed?cursor={next}")).await.field(), "cursor");
        let since = reader.cursor("first_cursor", "/v1/feed").await;
        assert_eq!(reader.get(&format!("{OLDEST}&since={since}")).await.field(), "since");
        assert_eq!(reader.get(&format!("/v1/feed?since={next}")).await.field(), "since");
    });
}

#[test]
fn a_client_catches_up_from_the_oldest_unread_post() {
    world(async |world| {
        let reader = world.live_reader(READER, [10, 20]).await;
        world.deliver_posts([10, 20], 12).await;
        let expected: Vec<String> = ids(&reader.walk("/v1/feed?status=unread", 100).await).into_iter().rev().collect();
        let (mut read, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = reader.get(&format!("{OLDEST}&status=unread&limit=5{cursor}")).await.ok();
            let posts = ids(page["items"].as_array().unwrap());
            reader.post("/v1/reads", &json!({ "posts": posts })).await.ok();
            read.extend(posts);
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(read, expected);
        reader.get(&format!("{OLDEST}&status=unread")).await.has(json!({ "items": [], "unread_total": 0 }));
    });
}

#[test]
fn posts_that_are_as_long_as_a_page_may_be_end_it_early() {
    world(async |world| {
        let reader = world.live_reader(READER, [10]).await;
        let body = "x".repeat(60_000);
        for _ in 0..20 {
            world.user(10).post("/v1/posts", &json!({ "title": "x", "body": body })).await.ok();
        }
        world.idle().await;
        let items = reader.walk(&format!("{OLDEST}&include=body"), 100).await;
        assert_eq!(texts(&items, "id"), (1..=20).map(|seq| format!("10-{seq}")).collect::<Vec<_>>());
        let counts = reader.walk(&format!("{OLDEST}&include=counts"), 100).await;
        assert!(counts.iter().all(|item| item["likes"] == 0 && item.get("body").is_none()));
    });
}
