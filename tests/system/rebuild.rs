//! Views are lost and rebuilt, also under traffic and after a restart of the stack. Redis remembers readers without
//! posts for some minutes.

use std::time::Duration;

use futures::future::join_all;
use redis::AsyncCommands;
use serde_json::json;
use tidemark::{
    domain::UserId,
    views::{Begun, Rebuild, keys},
};
use tidemark_tests::{World, until, user_id, world};

use crate::{delivery::delivery, fields, publish_and_deliver_all};

#[test]
fn all_views_are_rebuilt_from_facts() {
    world(async |world| {
        let reader = world.reader(1, 10..20).await;
        publish_and_deliver_all(world, 10..20, 0..10).await;
        reader.put("/v1/posts/10-3/read").await.ok();
        reader.post("/v1/reads", &json!({ "author": "11", "through": 7 })).await.ok();
        reader.delete("/v1/posts/11-2/read").await.ok();
        world.user(12).delete("/v1/posts/12-5").await.ok();
        world.idle().await;
        let seen = async || (reader.feed("all").await, reader.feed("unread").await, reader.unread_total().await);
        let before = seen().await;
        assert_eq!(before.2, 100 - 1 - 6 - 1);
        for _ in 0..3 {
            world.flush_redis().await;
            assert_eq!(seen().await, before);
        }
    });
}

/// Redis has lost the head after the second post, and the projector is late. What the reader did after that post shows
/// it: a follow, or a mark.
#[test]
fn a_head_that_is_older_than_the_follow_or_a_mark_is_not_relied_on() {
    for follows_first in [false, true] {
        world(async |world| {
            let reader = if follows_first { world.reader(1, [10]).await } else { world.user(1) };
            publish_and_deliver_all(world, [10], ["first"]).await;
            world.user(5).get("/v1/authors/10/posts").await.ok();
            let head = keys::head(user_id(10))[0].clone();
            let mut redis = world.redis().await;
            let first: Vec<u8> = redis.get(&head).await.unwrap();
            publish_and_deliver_all(world, [10], ["second"]).await;
            if follows_first {
                reader.put("/v1/posts/10-2/read").await.ok();
            }
            world.stack.pause("projector").await.unwrap();
            () = redis.set(&head, &first).await.unwrap();
            if !follows_first {
                reader.put("/v1/following/10").await.ok();
                assert_eq!(reader.feed_ids().await, ["10-2", "10-1"], "followed");
                () = redis.set(&head, &first).await.unwrap();
            }
            () = redis.del(&[keys::reader_state(user_id(1)), keys::feed(user_id(1))]).await.unwrap();
            assert_eq!(reader.feed_ids().await, ["10-2", "10-1"], "rebuilt");
            world.resume("projector").await;
        });
    }
}

/// Redis has an old head and no view of the reader when a page is handled, and the projector is late. The page skips
/// the reader, and the rebuild takes the head.
#[test]
fn a_rebuild_after_a_page_does_not_rely_on_a_head_without_its_change() {
    for deletes in [false, true] {
        world(async |world| {
            let (reader, author) = (world.reader(1, [10]).await, world.user(10));
            publish_and_deliver_all(world, [10], ["first", "second"]).await;
            author.get("/v1/authors/10/posts").await.ok();
            let head = keys::head(user_id(10))[0].clone();
            let mut redis = world.redis().await;
            let old: Vec<u8> = redis.get(&head).await.unwrap();
            for worker in ["fan-out", "projector"] {
                world.stack.pause(worker).await.unwrap();
            }
            if deletes {
                author.delete("/v1/posts/10-2").await.ok();
            } else {
                author.publish("third").await;
            }
            world.stack.lose_records("projector").unwrap();
            () = redis.set(&head, &old).await.unwrap();
            () = redis.del(&[keys::reader_state(user_id(1)), keys::feed(user_id(1))]).await.unwrap();
            world.stack.resume("fan-out").unwrap();
            // The end of the delivery is in the projector's stream too.
            until("the page is handled", async || {
                world.stack.lose_records("projector").unwrap();
                world.stack.idle_within(Duration::from_millis(500)).await.is_ok()
            })
            .await;
            let expected: &[&str] = if deletes { &["10-1"] } else { &["10-3", "10-2", "10-1"] };
            assert_eq!(reader.feed_ids().await, expected);
            assert_eq!(reader.unread_total().await, expected.len() as u64);
            world.resume("projector").await;
        });
    }
}

#[test]
fn flushes_during_traffic_lose_nothing() {
    world(async |world| {
        for author in 20..25 {
            world.follow(1..=10, author).await;
        }
        let publish = async {
            for number in 0..12 {
                join_all((20..25).map(async |author| world.user(author).publish(&format!("{number}")).await)).await;
            }
        };
        let read = async {
            for _ in 0..12 {
                join_all((1..=10).map(async |reader| world.user(reader).feed_ids().await)).await;
            }
        };
        let flush = async {
            for _ in 0..12 {
                world.flush_redis().await;
                world.user(1).unread_total_once().await;
            }
        };
        futures::join!(publish, read, flush);
        world.idle().await;
        world.assert_unread(1..=10, 60).await;
        for reader in 1..=10 {
            assert_eq!(world.user(reader).feed_ids().await.len(), 60);
        }
    });
}

#[test]
fn a_lost_feed_or_a_damaged_field_is_rebuilt() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        publish_and_deliver_all(world, [10], 0..5).await;
        let seen = async || (reader.feed("all").await, reader.unread_total().await);
        let before = seen().await;
        let mut redis = world.redis().await;
        let [feed, state] = [keys::feed(UserId::MIN), keys::reader_state(UserId::MIN)];

        assert_eq!(redis.del::<_, u64>(&feed).await.unwrap(), 1);
        assert_eq!(seen().await, before);
        // The feed is lost, and a post is delivered before the next read. The rest must not count as the whole feed.
        redis.del::<_, ()>(&feed).await.unwrap();
        world.publish_and_deliver(10, "after the loss").await;
        let before = seen().await;
        assert_eq!((before.0.len(), before.1), (6, 6));
        for (field, value) in [("10", "short"), ("@", "x"), ("nobody", "")] {
            redis.hset::<_, _, _, ()>(&state, field, value).await.unwrap();
            assert_eq!(seen().await, before, "{field}");
        }
    });
}

#[test]
fn responses_are_degraded_until_an_abandoned_rebuild_is_taken_over() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.publish_and_deliver(10, "one").await;
        let seen = async || fields(&reader.get("/v1/feed").await.ok(), &["rebuilding", "unread_total"]);
        // The function dies after it has begun a rebuild.
        let stores = &world.stack.app("read-feed").unwrap().stores;
        let begin = async |at| stores.views.begin_rebuild(UserId::MIN, 7, at, Rebuild::Missing).await.unwrap();
        let now = stores.clock.now();
        assert_eq!(begin(now).await, Begun::Begun);
        assert_eq!(seen().await, json!([true, 1]), "the response from facts is complete");
        // Lets the deadline of the rebuild pass: its begin is set to twenty seconds ago.
        world.flush_redis().await;
        begin(tidemark::domain::Timestamp::from_ms(now.ms() - 20_000)).await;
        assert_eq!(seen().await, json!([null, 1]));
    });
}

/// The remaining lifetime of the reader's state in Redis in seconds. Negative if there is no state.
async fn lifetime(world: &World, user: u64) -> i64 {
    world.redis().await.ttl(keys::reader_state(user_id(user))).await.unwrap()
}

/// Whether a feed read rebuilds the view. One function call lets the caller in.
async fn rebuilds(world: &World, user: u64) -> bool {
    let calls = async || world.redis_calls().await.get("fcall").copied();
    let before = calls().await;
    assert!(world.user(user).feed_ids().await.is_empty());
    calls().await > before.map(|calls| calls + 1).or(Some(1))
}

#[test]
fn a_reader_without_posts_is_remembered_for_five_minutes() {
    world(async |world| {
        // One reader follows no author, one follows an author without posts.
        world.follow([2], 10).await;
        world.idle().await;
        for reader in [1, 2] {
            assert!(rebuilds(world, reader).await);
            assert!((240..=300).contains(&lifetime(world, reader).await));
            assert!(!rebuilds(world, reader).await, "remembered");
        }
        // The first delivery ends it.
        world.publish_and_deliver(10, "hello").await;
        assert!(lifetime(world, 2).await > 59 * 3600);
        assert_eq!((world.user(2).feed_ids().await, world.user(2).unread_total().await), (vec!["10-1".to_owned()], 1));
        // A follow ends it at once.
        world.follow([1], 10).await;
        assert_eq!(world.user(1).feed("all").await, [("10-1".to_owned(), true)]);
        assert!(lifetime(world, 1).await > 59 * 3600);
        // And the reader has no posts again.
        world.user(1).delete("/v1/following/10").await.ok();
        // The projector calls Redis too. Only when it is idle, the calls are the reader's.
        world.idle().await;
        assert!(!rebuilds(world, 1).await);
    });
}

#[tokio::test]
async fn facts_and_queued_messages_survive_a_restart() {
    let world = World::start(|_| {}).await;
    world.live_reader(1, [2]).await;
    world.stack.pause("fan-out").await.unwrap();
    let post = world.user(2).publish("before").await;
    assert!(!world.stack.status().await.unwrap().idle);

    let world = world.restart().await;
    world.idle().await;
    let reader = world.user(1);
    assert_eq!((reader.feed_ids().await, reader.unread_total().await), (vec![post.clone()], 1));
    assert_eq!(delivery(&world, &post, &["state", "delivered"]).await, json!(["done", 1]));
    world.finish().await;
}
