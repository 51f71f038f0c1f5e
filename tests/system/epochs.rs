//! A Redis that comes back with older data is not believed: the first read after it says what the facts say.

use std::path::PathBuf;

use serde_json::json;
use tidemark_local::RedisData;
use tidemark_tests::{World, world};

/// Everything that one reader sees of two authors and a platform, as the API says it.
async fn seen(world: &World) -> serde_json::Value {
    let reader = world.user(1);
    let page = reader.get("/v1/feed?limit=100").await.ok();
    let unread = reader.get("/v1/unread").await.ok();
    let following = reader.get("/v1/users/1/following?limit=100").await.ok();
    let followers = reader.get("/v1/users/10/followers?limit=100").await.ok();
    let counters = reader.get("/v1/users/10/counters").await.ok();
    let notices = reader.get("/v1/notices?platform=7").await.ok();
    json!([page, unread, following["items"], followers["items"], counters, notices["items"]])
}

/// Waits for an answer that does not say that a view is being rebuilt.
async fn settled(world: &World) -> serde_json::Value {
    world.redis_is_asked_again().await;
    seen(world).await
}

#[tokio::test]
async fn a_restart_with_an_older_dump_brings_nothing_back() {
    world(async |world| {
        if !world.is_one_node() {
            return;
        }
        let (reader, admin) = (world.user(1), world.stranger(Some("9 notices:write")));
        for author in [10, 20] {
            world.follow([1, 2], author).await;
            for number in 1..=5 {
                world.user(author).publish(&format!("{number}")).await;
            }
        }
        for title in ["one", "two"] {
            admin.post("/v1/notices", &json!({ "platforms": [7], "title": title })).await.ok();
        }
        world.idle().await;
        let before = settled(world).await;
        // The dump of now.
        let dump = dump_of(world).await;

        reader.put("/v1/posts/10-1/read").await.ok();
        reader.post("/v1/reads", &json!({ "author": "20", "through": 3 })).await.ok();
        world.user(10).delete("/v1/posts/10-4").await.ok();
        reader.put("/v1/posts/10-5/like").await.ok();
        world.user(2).delete("/v1/following/10").await.ok();
        world.follow([3], 10).await;
        reader.put("/v1/notices/7-1/read").await.ok();
        admin.delete("/v1/notices/7-2").await.ok();
        world.user(10).publish("six").await;
        world.idle().await;
        let after = settled(world).await;
        assert_ne!(before, after);

        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        std::fs::write(dump_path(world), dump).unwrap();
        world.stack.start_redis().await.unwrap();
        let mut redis = world.redis().await;
        let keys: u64 = redis::cmd("DBSIZE").query_async(&mut redis).await.unwrap();
        assert!(keys > 5, "the older data is there: {keys} keys");
        assert_eq!(settled(world).await, after, "the first read");
        // And what happens from here on reaches the views that it has made.
        world.user(20).publish("six of twenty").await;
        reader.put("/v1/posts/10-2/read").await.ok();
        world.idle().await;
        let unread = reader.get("/v1/unread").await.ok();
        assert_eq!(unread["total"], after[1]["total"], "one more, one less");
        let dry_run = json!({ "job": "users", "dry_run": true, "share": 1.0, "settle_ms": 0, "slice": 100_000 });
        let report = world.stack.fire("reconcile", Some(dry_run)).await.unwrap();
        assert_eq!((&report["differences"], &report["failed"]), (&json!([]), &json!(0)));
    })
    .await;
}

fn dump_path(world: &World) -> PathBuf {
    world.stack.data_dir().join("redis").join("dump.rdb")
}

async fn dump_of(world: &World) -> Vec<u8> {
    redis::cmd("SAVE").query_async::<()>(&mut world.redis().await).await.unwrap();
    let dump = std::fs::read(dump_path(world)).unwrap();
    std::fs::remove_file(dump_path(world)).unwrap();
    dump
}

#[tokio::test]
async fn views_of_another_epoch_take_no_delivery_and_no_change() {
    world(async |world| {
        if !world.is_one_node() {
            return;
        }
        let reader = world.user(1);
        reader.put("/v1/following/10").await.ok();
        world.user(10).publish("one").await;
        world.idle().await;
        assert_eq!(reader.unread_total().await, 1);
        let dump = dump_of(world).await;
        world.user(10).publish("two").await;
        world.idle().await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        std::fs::write(dump_path(world), dump).unwrap();
        world.stack.start_redis().await.unwrap();
        world.redis_is_asked_again().await;
        // Nobody has read yet: a delivery of the third post must not make the view look current without the second.
        world.user(10).publish("three").await;
        world.idle().await;
        assert_eq!((reader.unread_total().await, reader.feed_ids().await.len()), (3, 3));
    })
    .await;
}
