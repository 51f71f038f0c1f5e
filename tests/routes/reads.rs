//! `PUT`, `DELETE /v1/posts/{post}/read`, `POST /v1/reads`, and `GET /v1/unread…`.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::{
    Clock, MarkForm, Stores,
    domain::{NewPost, PostId, Timestamp},
    once::Once,
    outage::Outage,
};
use tidemark_app::{Marking, ViewSync};
use tidemark_tests::{User, World, texts, user_id, world};

async fn prepared(world: &World, posts: usize) -> User {
    let reader = world.reader(1, [10, 20]).await;
    world.deliver_posts([10, 20], posts).await;
    reader
}

async fn reads(reader: &User, body: Value) -> (u64, u64) {
    let response = reader.post("/v1/reads", &body).await.ok();
    (response["changed"].as_u64().unwrap(), response["total"].as_u64().unwrap())
}

#[test]
fn one_post_is_read_and_unread_again_except_older_posts_and_own_posts() {
    world(async |world| {
        let reader = prepared(world, 3).await;
        for (method, read, of_author, total) in [("PUT", true, 2, 5), ("DELETE", false, 3, 6)] {
            for _ in 0..2 {
                let response = reader.request(&format!("{method} /v1/posts/10-2/read")).await.ok();
                assert_eq!(response, json!({ "read": read, "author": "10", "unread": of_author, "total": total }));
            }
        }
        assert_eq!(reader.put("/v1/posts/10-4/read").await.problem(), (404, "/problems/not-found"));

        world.user(30).publish("old").await;
        reader.follow([30]).await;
        let response = reader.delete("/v1/posts/30-1/read").await.ok();
        assert_eq!(response, json!({ "read": true, "author": "30", "unread": 0, "total": 6 }));
        world.user(30).delete("/v1/posts/30-1/read").await.has(json!({ "read": true }));
    });
}

#[test]
fn through_never_goes_back_or_covers_later_posts_and_missing_posts_of_a_list_do_not_count() {
    world(async |world| {
        let reader = prepared(world, 10).await;
        assert_eq!(reads(&reader, json!({ "author": "10", "through": 6 })).await, (6, 14));
        reader.delete("/v1/posts/10-2/read").await.has(json!({ "unread": 5, "total": 15 }));
        assert_eq!(reads(&reader, json!({ "author": "10", "through": "4" })).await, (0, 15), "a lower number changes nothing");
        assert_eq!(reads(&reader, json!({ "author": "10", "through": 8 })).await, (3, 12));
        assert_eq!(reads(&reader, json!({ "author": "10", "through": 1000.0 })).await, (2, 10));
        world.publish_and_deliver(10, "later").await;
        assert_eq!(reader.unread_total().await, 11);

        world.user(20).delete("/v1/posts/20-5").await.ok();
        // Posts of an author whom the reader does not follow never count as unread.
        world.user(30).publish("not followed").await;
        world.user(30).publish("not followed either").await;
        let posts = json!({ "posts": ["20-1", "20-1", "10-11", "20-5", "20-99", "30-1", "77-1"] });
        assert_eq!(reads(&reader, posts.clone()).await, (2, 8));
        assert_eq!(reads(&reader, posts).await, (0, 8));
        assert_eq!(reads(&reader, json!({ "author": "30", "through": 2 })).await, (0, 8));
        for post in ["30-1", "30-2"] {
            reader.get(&format!("/v1/posts/{post}")).await.has(json!({ "read": true }));
        }
    });
}

#[test]
fn a_mark_of_everything_covers_only_existing_posts() {
    world(async |world| {
        let reader = prepared(world, 4).await;
        let times = texts(&reader.walk("/v1/feed", 8).await, "created_at");
        let before = &times[1];
        let later = times.iter().filter(|time| *time > before).count() as u64;
        assert_eq!(reads(&reader, json!({ "all": true, "before": before })).await, (8 - later, later));
        assert_eq!(reads(&reader, json!({ "all": true })).await, (later, 0));
        assert_eq!(reads(&reader, json!({ "all": true })).await, (0, 0));
        world.publish_and_deliver(10, "later").await;
        assert_eq!(reader.unread_total().await, 1);
        for before in ["2020-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"] {
            assert_eq!(reads(&reader, json!({ "all": true, "before": before })).await, (0, 1));
        }
    });
}

/// A clock that differs from that of the other machines.
struct Skewed(Arc<dyn Clock>, i64);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.now().ms().saturating_add_signed(self.1))
    }
}

/// Marks everything read on a machine whose clock differs by this. Returns the number of posts that were unread.
async fn mark_all_at(world: &World, reader: u64, ms: i64) -> u64 {
    let app = world.stack.app("mark-read").unwrap();
    let clock = Arc::new(Skewed(app.stores.clock.clone(), ms));
    let stores = Arc::new(Stores { clock, ..(*app.stores).clone() });
    // Only the mark has this clock: the outage note is compared with the right time.
    let sync = ViewSync::new(app.stores.clone(), app.readers.clone(), Outage::new(app.stores.clone()));
    let marking = Marking::new(stores, app.readers.clone(), sync);
    match marking.mark_many(user_id(reader), MarkForm::Before(None), None).await.unwrap() {
        Once::Done(marked) => marked.changed,
        Once::KeyReused => unreachable!("no key"),
    }
}

#[test]
fn a_mark_of_everything_covers_what_the_feed_shows_whatever_the_clocks_say() {
    world(async |world| {
        let reader = prepared(world, 2).await;
        assert_eq!(reader.feed_ids().await.len(), 4);
        assert_eq!(mark_all_at(world, 1, -3_000).await, 4, "the page was shown with all four");
        assert_eq!(reader.unread_total().await, 0);
        world.deliver_posts([10, 20], 1).await;
        assert_eq!(mark_all_at(world, 1, 3_000).await, 2);
        // Without Redis the feed shows the same.
        world.deliver_posts([10], 1).await;
        let outage = world.redis_outage(true).await;
        assert_eq!(reader.feed_ids().await.len(), 7);
        assert_eq!(mark_all_at(world, 1, -3_000).await, 1);
        outage.end(world).await;
        world.redis_recovers().await;
        // A post that is not delivered is not shown. A slow clock leaves it unread.
        world.stack.pause("fan-out").await.unwrap();
        world.user(10).publish("on its way").await;
        assert_eq!(mark_all_at(world, 1, -3_000).await, 0);
        world.resume("fan-out").await;
        assert_eq!(reader.unread_total().await, 1);
        assert_eq!(mark_all_at(world, 1, -3_000).await, 1);
        // A muted author's posts are not shown, but marked as they are with right clocks.
        world.deliver_posts([10], 1).await;
        reader.put("/v1/mutes/10").await.ok();
        world.deliver_posts([20], 1).await;
        assert_eq!(mark_all_at(world, 1, -3_000).await, 2);
        // A time in the future covers what exists, and nothing that comes later.
        world.deliver_posts([20], 1).await;
        assert_eq!(reads(&reader, json!({ "all": true, "before": "2100-01-01T00:00:00Z" })).await, (1, 0));
        world.deliver_posts([20], 1).await;
        assert_eq!(reader.unread_total().await, 1);
        let newest: PostId = reader.feed_ids().await[0].parse().unwrap();
        assert_eq!(newest.author, user_id(20));
    });
}

#[test]
fn a_mark_before_the_delivery_stays() {
    world(async |world| {
        let (reader, author) = (world.live_reader(1, [10]).await, world.user(10));
        world.stack.pause("fan-out").await.unwrap();
        author.publish_all(["one", "two"]).await;
        reader.put("/v1/posts/10-1/read").await.ok();
        assert_eq!(reader.unread_total().await, 0, "no post is delivered yet");
        world.resume("fan-out").await;
        assert_eq!(reader.feed("all").await, [("10-2".to_owned(), false), ("10-1".to_owned(), true)]);
        assert_eq!(reader.unread_total().await, 1);
    });
}

#[test]
fn marks_of_two_devices_leave_a_view_that_agrees_with_the_facts() {
    world(async |world| {
        let reader = prepared(world, 20).await;
        let marks = (1..=20).flat_map(|seq| [("PUT", seq), (if seq % 2 == 0 { "PUT" } else { "DELETE" }, seq)]);
        join_all(marks.map(async |(method, seq)| reader.request(&format!("{method} /v1/posts/10-{seq}/read")).await.ok())).await;
        let before = (reader.feed("all").await, reader.unread_total().await);
        world.idle().await;
        world.flush_redis().await;
        assert_eq!((reader.feed("all").await, reader.unread_total().await), before, "the view agreed with the facts");
    });
}

#[test]
fn counts_are_listed_by_author_with_the_most_recent_post_first() {
    world(async |world| {
        let reader = world.reader(1, [10, 20, 30]).await;
        assert_eq!(reader.get("/v1/unread").await.ok(), json!({ "total": 0, "authors": [] }));
        for author in [30, 10, 20, 10] {
            world.publish_and_deliver(author, "x").await;
        }
        let authors = json!([{ "author": "10", "unread": 2 }, { "author": "20", "unread": 1 }, { "author": "30", "unread": 1 }]);
        assert_eq!(reader.get("/v1/unread").await.ok(), json!({ "total": 4, "authors": authors }));
        assert_eq!(reader.get("/v1/unread/10").await.ok(), json!({ "author": "10", "unread": 2 }));
        assert_eq!(reader.get("/v1/unread/40").await.ok(), json!({ "author": "40", "unread": 0 }));
        reader.put("/v1/posts/20-1/read").await.ok();
        let authors = json!([{ "author": "10", "unread": 2 }, { "author": "30", "unread": 1 }]);
        assert_eq!(reader.get("/v1/unread").await.ok(), json!({ "total": 3, "authors": authors }));
    });
}

/// The authors with unread posts, in the order of the response.
async fn unread_authors(reader: &User, query: &str) -> Vec<String> {
    texts(reader.get(&format!("/v1/unread{query}")).await.ok()["authors"].as_array().unwrap(), "author")
}

#[test]
fn authors_with_unread_posts_are_in_the_order_of_the_feed_also_after_deletions() {
    world(async |world| {
        let reader = world.live_reader(1, [41, 42, 43]).await;
        reader.post("/v1/lists", &json!({ "name": "x" })).await;
        for author in [41, 42] {
            reader.put(&format!("/v1/lists/1-1/authors/{author}")).await.ok();
        }
        let of_feed = async || {
            let mut authors: Vec<String> = Vec::new();
            for author in texts(&reader.walk("/v1/feed", 10).await, "author") {
                if !authors.contains(&author) {
                    authors.push(author);
                }
            }
            authors
        };
        let assert_order = async |expected: &[&str]| {
            assert_eq!(unread_authors(&reader, "").await, expected);
            assert_eq!(of_feed().await, expected);
            let listed: Vec<&str> = expected.iter().copied().filter(|author| *author != "43").collect();
            assert_eq!(unread_authors(&reader, "?list=1-1").await, listed);
        };
        for author in [43, 41, 42, 41, 41] {
            world.publish_and_deliver(author, "x").await;
        }
        assert_order(&["41", "42", "43"]).await;
        for post in ["41-3", "41-2"] {
            world.user(41).delete(&format!("/v1/posts/{post}")).await;
            world.idle().await;
        }
        assert_order(&["42", "41", "43"]).await;
        // A post that is read counts as before.
        world.publish_and_deliver(43, "x").await;
        reader.put("/v1/posts/43-2/read").await.ok();
        assert_order(&["43", "42", "41"]).await;
        world.at_each_loss_of_redis(async || assert_order(&["43", "42", "41"]).await).await;
        world.user(43).delete("/v1/posts/43-2").await;
        world.idle().await;
        assert_order(&["42", "41", "43"]).await;
        world.at_each_loss_of_redis(async || assert_order(&["42", "41", "43"]).await).await;
    });
}

/// The view only counts the unread post, and does not know which of the newer posts are deleted.
#[test]
fn an_author_with_old_unread_posts_alone_has_the_place_of_the_newest_live_post() {
    world(async |world| {
        let reader = world.live_reader(1, [41, 42]).await;
        let app = world.stack.app("publish").unwrap();
        for seq in 1..=4_200_u64 {
            let post = NewPost::titled(user_id(41), &format!("post {seq}"));
            app.stores.facts.publish_post(&post, 1, None, Timestamp::from_ms(1_000 + seq)).await.unwrap();
        }
        world.publish_and_deliver(42, "x").await;
        world.publish_and_deliver(41, "deleted").await;
        world.flush_redis().await;
        reader.post("/v1/reads", &json!({ "author": "41", "through": 4_201 })).await.ok();
        reader.delete("/v1/posts/41-1/read").await.ok();
        assert_eq!(unread_authors(&reader, "").await, ["41", "42"]);
        world.user(41).delete("/v1/posts/41-4201").await;
        world.idle().await;
        assert_eq!(unread_authors(&reader, "").await, ["42", "41"]);
    });
}

/// What `read` and `status=unread` mean before, during and after a follow.
#[test]
fn of_an_author_who_is_not_followed_a_post_is_read_if_it_is_marked_and_after_a_follow_all_older_posts_are_read() {
    world(async |world| {
        let reader = world.live_reader(1, [20]).await;
        world.deliver_posts([10], 3).await;
        reader.put("/v1/posts/10-2/read").await.has(json!({ "read": true, "unread": 0, "total": 0 }));
        let flags = async |expected: [bool; 3]| {
            let items = reader.get("/v1/authors/10/posts").await.items();
            let read: Vec<bool> = items.iter().rev().map(|item| item["read"].as_bool().unwrap()).collect();
            assert_eq!(read, expected);
            for (seq, read) in (1..).zip(expected) {
                reader.get(&format!("/v1/posts/10-{seq}")).await.has(json!({ "read": read }));
            }
            reader.get("/v1/authors/10/posts?status=unread").await.has(json!({ "items": [], "total": 0 }));
        };
        flags([false, true, false]).await;
        world.at_each_loss_of_redis(async || flags([false, true, false]).await).await;
        reader.follow([10]).await;
        flags([true; 3]).await;
        world.at_each_loss_of_redis(async || flags([true; 3]).await).await;
        reader.delete("/v1/following/10").await.ok();
        flags([false, true, false]).await;
    });
}
