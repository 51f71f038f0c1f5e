//! `GET /v1/feed`, and `?since=`: what is newer than an earlier first page.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::domain::PostId;
use tidemark_tests::{ids, texts, until, world};

#[test]
fn a_feed_has_the_posts_of_followed_authors_newest_first() {
    world(async |world| {
        let reader = world.reader(1, [10, 20, 30]).await;
        reader.get("/v1/feed").await.has(json!({ "items": [], "next_cursor": null, "unread_total": 0 }));
        world.deliver_posts([10, 20, 30, 40], 6).await;
        let items = reader.walk("/v1/feed", 5).await;
        let key = |item: &Value| {
            let author: u64 = item["author"].as_str().unwrap().parse().unwrap();
            (item["created_at"].as_str().unwrap().to_owned(), author, item["seq"].as_u64().unwrap())
        };
        assert!(items.is_sorted_by(|newer, older| key(newer) > key(older)));
        let mut ids = ids(&items);
        ids.sort();
        let expected = [10, 20, 30].map(|author| (1..=6).map(move |seq| format!("{author}-{seq}")));
        assert_eq!(ids, expected.into_iter().flatten().collect::<Vec<_>>());
        assert!(items.iter().all(|item| item["read"] == false && item["liked"] == false && item["favorited"] == false));
        assert_eq!(reader.unread_total().await, 18);
    });
}

#[test]
fn after_a_follow_the_next_read_shows_the_newest_100_older_posts_as_read() {
    world(async |world| {
        world.deliver_posts([10], 105).await;
        // The workers are paused: the handler alone must prepare the caller's next read.
        world.pause_workers().await;
        let (live, cold) = (world.user(1), world.user(2));
        live.feed_ids().await;
        let expected: Vec<_> = (6..=105).rev().map(|seq| (format!("10-{seq}"), true)).collect();
        for reader in [&live, &cold] {
            reader.follow([10]).await;
            assert_eq!((reader.feed("all").await, reader.unread_total().await), (expected.clone(), 0));
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
        world.deliver_posts([10], 2).await;
        assert_eq!(reader.unread_total().await, 2);
        reader.delete("/v1/following/10").await.ok();
        assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![], 0));
        author.publish("three").await;
        reader.follow([10]).await;
        world.publish_and_deliver(10, "four").await;
        assert_eq!(reader.unread_total().await, 1);
        let read = reader.feed("all").await.into_iter().map(|(_, read)| read);
        assert_eq!(read.collect::<Vec<_>>(), [false, true, true, true]);
    });
}

#[test]
fn unread_pages_have_exactly_the_posts_that_count_as_unread() {
    world(async |world| {
        let reader = world.live_reader(1, [10]).await;
        world.deliver_posts([10], 30).await;
        for seq in (1..=30).filter(|seq| seq % 3 != 0) {
            reader.put(&format!("/v1/posts/10-{seq}/read")).await.ok();
        }
        let unread = (1..=10).rev().map(|n| (format!("10-{}", n * 3), false)).collect::<Vec<_>>();
        assert_eq!((reader.feed("unread").await, reader.unread_total().await), (unread, 10));
    });
}

#[test]
fn pages_do_not_shift_while_posts_arrive() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.deliver_posts([10], 20).await;
        let first = reader.get("/v1/feed?limit=8").await;
        let link = first.header("link").unwrap().to_owned();
        let page = first.ok();
        assert_eq!(link, format!("</v1/feed?limit=8&cursor={}>; rel=\"next\"", page["next_cursor"].as_str().unwrap()));
        world.deliver_posts([10], 5).await;
        let next = reader.get(link.split(['<', '>']).nth(1).unwrap()).await.items();
        assert_eq!(ids(&next), ["10-12", "10-11", "10-10", "10-9", "10-8", "10-7", "10-6", "10-5"]);
    });
}

#[test]
fn deleted_posts_disappear_from_pages_and_counts_before_and_after_their_retraction() {
    world(async |world| {
        let reader = world.live_reader(1, [10]).await;
        world.deliver_posts([10], 10).await;
        assert_eq!(reader.feed_ids().await.len(), 10);
        world.stack.pause("fan-out").await.unwrap();
        for seq in [10, 9, 8, 7, 3] {
            world.user(10).delete(&format!("/v1/posts/10-{seq}")).await.ok();
        }
        assert_eq!(reader.get("/v1/feed?limit=4").await.items().len(), 4, "a page is refilled after deletions");
        let left = ["10-6", "10-5", "10-4", "10-2", "10-1"];
        for retracted in [false, true] {
            if retracted {
                world.resume("fan-out").await;
            }
            let items = left.map(|id| json!({ "id": id }));
            reader.get("/v1/feed").await.has(json!({ "items": items, "unread_total": 5 }));
            reader.get("/v1/authors/10/posts?status=unread").await.has(json!({ "items": items, "total": 5 }));
            assert_eq!((reader.feed_ids().await, reader.unread_total().await), (left.map(str::to_owned).to_vec(), 5));
            assert_eq!(reader.feed("unread").await.len(), 5);
        }
    });
}

#[test]
fn an_unread_page_costs_as_much_as_any_page() {
    world(async |world| {
        let reader = world.reader(1, 10..15).await;
        for author in 10..15 {
            world.deliver_posts([author], 100).await;
        }
        for author in 10..15 {
            reader.post("/v1/reads", &json!({ "author": author.to_string(), "through": 100 })).await.ok();
        }
        // The two oldest unread posts, below 498 read ones.
        for seq in 1..=2 {
            reader.delete(&format!("/v1/posts/10-{seq}/read")).await.ok();
        }
        assert_eq!(reader.feed("unread").await.len(), 2);
        world.idle().await;
        world.forget_redis_calls().await;
        let oldest = json!([{ "id": "10-2" }, { "id": "10-1" }]);
        reader.get("/v1/feed?status=unread").await.has(json!({ "items": oldest, "next_cursor": null }));
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
        let reader = world.reader(1, 10..18).await;
        join_all((10..18).map(async |author| world.user(author).publish_all(0..160).await)).await;
        world.idle().await;
        // The first read rebuilds the view: the newest 1,000 go to Redis, the other 280 come from the facts.
        for status in ["all", "unread"] {
            let items = reader.walk(&format!("/v1/feed?status={status}"), 97).await;
            assert!(texts(&items, "created_at").is_sorted_by(|newer, older| newer >= older));
            let mut ids = ids(&items);
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
        for request in ["GET /v1/feed", "GET /v1/unread"] {
            let first = reader.request(request).await;
            let unless = [("if-none-match", first.header("etag").unwrap())];
            let same = reader.request_with(&unless, request).await;
            assert_eq!((same.status, &same.body, same.header("etag")), (304, &Value::Null, first.header("etag")));
            for response in [&first, &same] {
                assert_eq!(response.header("cache-control"), Some("private, no-cache"));
            }
            world.publish_and_deliver(10, "new").await;
            assert_eq!(reader.request_with(&unless, request).await.status, 200);
        }
    });
}

#[test]
fn since_lists_what_is_newer_once_and_ends() {
    world(async |world| {
        let reader = world.reader(7, 1..=3).await;
        let paths = ["/v1/feed", "/v1/feed?status=unread", "/v1/authors/1/posts", "/v1/authors/1/posts?status=unread"];
        let mut firsts = Vec::new();
        for path in paths {
            let page = reader.get(path).await.has(json!({ "items": [] }));
            firsts.push(page["first_cursor"].as_str().unwrap().to_owned());
        }
        for round in 0..3 {
            world.deliver_posts(1..=3, 4).await;
            for (path, first) in paths.iter().zip(&mut firsts) {
                let since = format!("{path}{}since=", if path.contains('?') { '&' } else { '?' });
                let authors = if path.contains("authors") { 1..=1 } else { 1..=3 };
                let seqs = 4 * round + 1..=4 * round + 4;
                let published = authors.flat_map(|author| seqs.clone().map(move |seq| format!("{author}-{seq}")));
                let mut ids = ids(&reader.walk(&format!("{since}{first}"), 5).await);
                ids.sort_by_key(|id| id.parse::<PostId>().unwrap());
                assert_eq!(ids, published.collect::<Vec<_>>(), "{path} in round {round}");
                *first = reader.cursor("first_cursor", &format!("{since}{first}")).await;
                let nothing = json!({ "items": [], "next_cursor": null, "first_cursor": first });
                reader.get(&format!("{since}{first}")).await.has(nothing);
            }
        }
        let next = reader.cursor("next_cursor", "/v1/feed?limit=1").await;
        let next = reader.get(&format!("/v1/feed?limit=1&cursor={next}")).await.ok();
        assert_eq!(next.get("first_cursor"), None, "only a first page has it");
        assert_eq!(reader.get(&format!("/v1/feed?since={}", firsts[2])).await.field(), "since");
    });
}

/// Pages through what is newer again and again, while posts arrive.
#[test]
fn each_arriving_post_is_listed_once() {
    const POSTS: usize = 200;
    world(async |world| {
        let reader = world.reader(7, 1..=4).await;
        world.publish_and_deliver(1, "first").await;
        let start = reader.cursor("first_cursor", "/v1/feed").await;
        let mut since = reader.cursor("first_cursor", "/v1/authors/1/posts").await;
        let arriving = join_all((1..=4).map(async |author| world.user(author).publish_all(["x"; POSTS / 4]).await));
        let walks = async {
            let mut listed = Vec::new();
            until("all posts of an author are listed", async || {
                let pages = reader.pages(&format!("/v1/authors/1/posts?since={since}"), 3).await;
                listed.extend(pages.iter().flat_map(|page| ids(page["items"].as_array().unwrap())));
                since = pages[0]["first_cursor"].as_str().unwrap().to_owned();
                listed.len() >= POSTS / 4
            })
            .await;
            listed
        };
        let (published, listed) = futures::join!(arriving, walks);
        let of_author: BTreeSet<&String> = published[0].iter().collect();
        assert_eq!((listed.len(), listed.iter().collect::<BTreeSet<_>>()), (of_author.len(), of_author));
        world.idle().await;
        let all = reader.walk(&format!("/v1/feed?since={start}"), 7).await;
        let ids: BTreeSet<String> = ids(&all).into_iter().collect();
        assert_eq!((all.len(), ids), (POSTS, published.into_iter().flatten().collect()));
    });
}
