//! `GET /v1/feed`.

use reqwest::Method;
use serde_json::json;
use tidemark_tests::{ids, world};

#[test]
fn a_feed_has_the_posts_of_followed_authors_newest_first() {
    world(async |world| {
        let reader = world.reader(1, [10, 20, 30]).await;
        assert!(reader.feed_ids().await.is_empty());
        let mut expected = Vec::new();
        for round in 0..6 {
            for author in [10, 20, 30, 40] {
                let id = world.user(author).publish(&format!("round {round}")).await;
                if author != 40 {
                    expected.insert(0, id);
                }
            }
        }
        world.idle().await;
        let items = reader.walk("/v1/feed", 5).await;
        let key = |item: &serde_json::Value| {
            let author: u64 = item["author"].as_str().unwrap().parse().unwrap();
            (item["created_at"].as_str().unwrap().to_owned(), author, item["seq"].as_u64().unwrap())
        };
        assert!(items.is_sorted_by(|newer, older| key(newer) > key(older)));
        let mut ids = ids(&items);
        ids.sort();
        expected.sort();
        assert_eq!(ids, expected);
        assert!(items.iter().all(|item| item["read"] == false && item["liked"] == false && item["favorited"] == false));
        assert_eq!(reader.unread_total().await, 18);
    });
}

#[test]
fn after_a_follow_the_next_read_shows_the_newest_100_older_posts_as_read() {
    world(async |world| {
        world.user(10).publish_all(0..105).await;
        world.idle().await;
        // The workers are paused: the handler alone must prepare the caller's next read.
        world.pause_workers().await;
        let (live, cold) = (world.user(1), world.user(2));
        live.feed_ids().await;
        for reader in [&live, &cold] {
            reader.put("/v1/following/10").await.ok();
            let feed = reader.feed("all").await;
            assert_eq!((feed.len(), &feed[0].0, &feed[99].0), (100, &"10-105".to_owned(), &"10-6".to_owned()));
            assert!(feed.iter().all(|(_, read)| *read));
            assert_eq!(reader.unread_total().await, 0);
            reader.delete("/v1/following/10").await.ok();
            assert!(reader.feed_ids().await.is_empty());
        }
        world.resume_workers();
    });
}

#[test]
fn a_repeated_follow_after_an_unfollow_starts_with_a_new_base() {
    world(async |world| {
        let (reader, author) = (world.live_reader(1, [10]).await, world.user(10));
        author.publish("one").await;
        author.publish("two").await;
        world.idle().await;
        assert_eq!(reader.unread_total().await, 2);
        reader.delete("/v1/following/10").await.ok();
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
        author.publish("three").await;
        reader.put("/v1/following/10").await.ok();
        author.publish("four").await;
        world.idle().await;
        assert_eq!(reader.unread_total().await, 1);
        let feed = reader.feed("all").await;
        assert_eq!(feed.iter().map(|(_, read)| *read).collect::<Vec<_>>(), [false, true, true, true]);
    });
}

#[test]
fn unread_pages_have_exactly_the_posts_that_count_as_unread() {
    world(async |world| {
        let reader = world.live_reader(1, [10]).await;
        world.user(10).publish_all(1..=30).await;
        world.idle().await;
        for seq in (1..=30).filter(|seq| seq % 3 != 0) {
            reader.put(&format!("/v1/posts/10-{seq}/read")).await.ok();
        }
        let unread = (1..=10).rev().map(|n| (format!("10-{}", n * 3), false)).collect::<Vec<_>>();
        assert_eq!(reader.feed("unread").await, unread);
        assert_eq!(reader.unread_total().await, 10);
    });
}

#[test]
fn pages_do_not_shift_while_posts_arrive() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.user(10).publish_all(1..=20).await;
        world.idle().await;
        let first = reader.get("/v1/feed?limit=8").await;
        let link = first.header("link").unwrap().to_owned();
        let page = first.ok();
        assert_eq!(link, format!("</v1/feed?limit=8&cursor={}>; rel=\"next\"", page["next_cursor"].as_str().unwrap()));
        world.user(10).publish_all(["meanwhile"; 5]).await;
        world.idle().await;
        let next = reader.get(link.split(['<', '>']).nth(1).unwrap()).await.items();
        assert_eq!(ids(&next), ["10-12", "10-11", "10-10", "10-9", "10-8", "10-7", "10-6", "10-5"]);
    });
}

#[test]
fn deleted_posts_disappear_from_feed_counts_and_pages() {
    world(async |world| {
        let reader = world.live_reader(1, [10]).await;
        world.user(10).publish_all(1..=10).await;
        world.idle().await;
        for seq in [10, 9, 8, 7, 3] {
            world.user(10).delete(&format!("/v1/posts/10-{seq}")).await.ok();
        }
        let page = reader.get("/v1/feed?limit=4").await.ok();
        assert_eq!(page["items"].as_array().unwrap().len(), 4, "a page is refilled after deletions");
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["10-6", "10-5", "10-4", "10-2", "10-1"]);
        assert_eq!(reader.unread_total().await, 5);
    });
}

#[test]
fn a_deleted_post_disappears_from_page_and_count_before_its_retraction() {
    world(async |world| {
        let reader = world.live_reader(1, [10]).await;
        world.user(10).publish_all(1..=5).await;
        world.idle().await;
        assert_eq!(reader.feed_ids().await.len(), 5);
        world.stack.pause("fan-out").await.unwrap();
        for seq in [5, 2] {
            world.user(10).delete(&format!("/v1/posts/10-{seq}")).await.ok();
        }
        let page = reader.get("/v1/feed").await.ok();
        assert_eq!((page["items"].as_array().unwrap().len(), &page["unread_total"]), (3, &json!(3)));
        assert_eq!(reader.feed("unread").await.len(), 3);
        assert_eq!(reader.unread_total().await, 3);
        let timeline = reader.get("/v1/authors/10/posts?status=unread").await.ok();
        assert_eq!((timeline["items"].as_array().unwrap().len(), &timeline["total"]), (3, &json!(3)));
        world.stack.resume("fan-out").unwrap();
    });
}

#[test]
fn an_unread_page_costs_as_much_as_any_page() {
    world(async |world| {
        let reader = world.reader(1, 10..15).await;
        for author in 10..15 {
            world.user(author).publish_all(["x"; 100]).await;
        }
        world.idle().await;
        for author in 10..15 {
            reader.post("/v1/reads", &json!({ "author": author.to_string(), "through": 100 })).await.ok();
        }
        // The two oldest unread posts, below 498 read ones.
        for seq in 1..=2 {
            reader.delete(&format!("/v1/posts/10-{seq}/read")).await.ok();
        }
        assert_eq!(reader.feed("unread").await.len(), 2);
        world.forget_redis_calls().await;
        let page = reader.get("/v1/feed?status=unread").await.ok();
        assert_eq!((page["items"].as_array().unwrap().len(), &page["next_cursor"]), (2, &json!(null)));
        // The function and its `GET` say that the caller may call. They share a trip with the view.
        let mut calls = world.redis_calls().await;
        calls.retain(|name, _| !["client", "config", "hello", "info"].iter().any(|own| name.starts_with(own)));
        let expected = ["exec", "fcall", "get", "hgetall", "hmget", "lrange", "mget", "multi"].map(|name| (name.to_owned(), 1));
        assert_eq!(calls, expected.into());
    });
}

#[test]
fn a_feed_continues_past_its_cap_without_gap_or_repetition() {
    world(async |world| {
        let reader = world.user(1);
        let authors: Vec<u64> = (10..18).collect();
        reader.follow(&authors).await;
        futures::future::join_all(authors.iter().map(|&author| {
            let author = world.user(author);
            async move { author.publish_all(0..160).await }
        }))
        .await;
        world.idle().await;
        // The first read rebuilds the view: the newest 1,000 go to Redis, the other 280 come from the facts.
        for status in ["all", "unread"] {
            let items = reader.walk(&format!("/v1/feed?status={status}"), 97).await;
            let mut ids = ids(&items);
            let times: Vec<&str> = items.iter().map(|item| item["created_at"].as_str().unwrap()).collect();
            assert!(times.is_sorted_by(|newer, older| newer >= older));
            ids.sort_unstable();
            ids.dedup();
            assert_eq!((items.len(), ids.len()), (1280, 1280));
        }
        assert_eq!(reader.unread_total().await, 1280);
    });
}

#[test]
fn the_first_page_is_not_sent_twice() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        for path in ["/v1/feed", "/v1/unread"] {
            let tag = reader.get(path).await.header("etag").unwrap().to_owned();
            let same = reader.send(Method::GET, path, &[("if-none-match", &tag)], None).await;
            assert_eq!((same.status, &same.body), (304, &serde_json::Value::Null));
            assert_eq!(same.header("etag"), Some(tag.as_str()));
        }
        let tag = reader.get("/v1/feed").await.header("etag").unwrap().to_owned();
        world.publish_and_deliver(10, "new").await;
        assert_eq!(reader.send(Method::GET, "/v1/feed", &[("if-none-match", &tag)], None).await.status, 200);
    });
}

#[test]
fn limits_cursors_and_status_are_checked() {
    world(async |world| {
        let reader = world.user(1);
        for limit in ["0", "101", "-1", "x", "", "1.0", "010"] {
            assert_eq!(reader.get(&format!("/v1/feed?limit={limit}")).await.field(), "limit");
        }
        for cursor in ["x", "AAAA", "%00", ""] {
            assert_eq!(reader.get(&format!("/v1/feed?cursor={cursor}")).await.field(), "cursor");
        }
        world.user(10).publish_all(0..3).await;
        let other = reader.get("/v1/authors/10/posts?limit=1").await.ok();
        let other = other["next_cursor"].as_str().unwrap();
        assert_eq!(reader.get(&format!("/v1/feed?cursor={other}")).await.field(), "cursor", "a cursor of another list");
        assert_eq!(reader.get("/v1/feed?status=read").await.field(), "status");
        let nothing = reader.get("/v1/feed").await.ok();
        assert_eq!((&nothing["items"], &nothing["next_cursor"], &nothing["unread_total"]), (&json!([]), &json!(null), &json!(0)));
    });
}
