//! Lists that are missing in the legacy Redis for a while: a rebuild, an eviction, a flush, a restore.

use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark_tests::{LegacyRedis, World};

use super::{legacy::LegacySystem, pass, sides::with};

/// The follows of user 1, and the live posts of author 9.
async fn left(world: &World) -> [usize; 2] {
    let followed = world.user(1).walk("/v1/users/1/following", 100).await.len();
    [followed, world.user(1).walk("/v1/authors/9/posts", 100).await.len()]
}

/// A pass with further fields of the event. Returns its report.
async fn pass_with(world: &World, event: Value) -> Value {
    let mut whole = json!({ "follow": true });
    whole.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
    let report = world.stack.invoke("migrate", whole).await.unwrap();
    assert_eq!(report["done"], true, "{report}");
    world.idle().await;
    report
}

/// Renames lists, away and back.
pub(super) async fn rename(redis: &LegacyRedis, pattern: &str, from: &str, to: &str) -> usize {
    let mut connection = redis.connect().await;
    let keys: Vec<String> = connection.keys(pattern).await.unwrap();
    for key in &keys {
        connection.rename::<_, _, ()>(key, key.replacen(from, to, 1)).await.unwrap();
    }
    keys.len()
}

#[tokio::test]
async fn lists_that_vanish_and_return_end_nothing() {
    let (redis, legacy) = LegacySystem::start().await;
    for author in 9..=14 {
        legacy.follow(1, author).await;
    }
    for number in 0..6 {
        legacy.publish(9, &format!("{number}")).await;
    }
    World::run_with(with(&redis, false), async |world| {
        while pass(world).await > 0 {}
        world.idle().await;
        let feed = world.user(1).feed("all").await;
        assert_eq!((left(world).await, feed.len()), ([6, 6], 6));
        legacy.run("RENAME u_follow:1 away:1").await;
        legacy.run("RENAME author:blogs:9 away:9").await;
        let mut report = Value::Null;
        for _ in 0..4 {
            report = pass_with(world, json!({})).await;
        }
        let missed = left(world).await;
        legacy.run("RENAME away:1 u_follow:1").await;
        legacy.run("RENAME away:9 author:blogs:9").await;
        for again in [false, true] {
            pass_with(world, json!({ "again": again })).await;
        }
        assert_eq!((missed, left(world).await), ([6, 6], [6, 6]));
        assert_eq!(world.user(1).feed("all").await, feed);
        for (layout, list) in [("u-follow", "u_follow:1"), ("author-blogs", "author:blogs:9")] {
            let found = &report["layouts"][layout];
            let expected = json!([6, 6, 6, [list]]);
            assert_eq!(json!([found["seen"], found["missing"], found["held"], found["held_lists"]]), expected, "{report:#}");
        }

        // An operator confirms what is missing for good: the number of these lists, and no other.
        legacy.run("DEL u_follow:1 author:blogs:9").await;
        let [few, all] = [5, 6].map(|number| json!({ "confirm_removals": { "u-follow": number, "author-blogs": number } }));
        for (event, expected) in [(all.clone(), [6, 6]), (few, [6, 6]), (json!({}), [6, 6]), (all, [0, 0])] {
            pass_with(world, event).await;
            assert_eq!(left(world).await, expected);
        }
        for wrong in [
            json!({ "confirm_removals": { "user-read": 1 } }),
            json!({ "confirm_removals": { "u-follow": 1 }, "follow": false }),
            json!({ "removals_percent": 101 }),
            json!({ "confirm_removal": {} }),
        ] {
            let mut event = json!({ "follow": true });
            event.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
            let refused = world.stack.invoke("migrate", event).await.unwrap_err().to_string();
            assert!(refused.contains("invalid event"), "{wrong}: {refused}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_pass_has_removed_returns_with_its_list() {
    let (redis, legacy) = LegacySystem::start().await;
    for author in 9..=14 {
        legacy.follow(1, author).await;
        legacy.follow(2, author).await;
    }
    for number in 0..4 {
        legacy.publish(10, &format!("ten {number}")).await;
        legacy.publish(9, &format!("nine {number}")).await;
    }
    World::run_with(with(&redis, false), async |world| {
        while pass(world).await > 0 {}
        world.idle().await;
        let (reader, other) = (world.user(1), world.user(2));
        reader.put("/v1/posts/10-2/read").await.ok();
        let followed = async || -> Vec<Value> { reader.walk("/v1/users/1/following", 100).await };
        let of_ten = async || -> Vec<(String, bool)> {
            reader.feed("all").await.into_iter().filter(|(id, _)| id.starts_with("10-")).collect()
        };
        let (before, posts) = (followed().await, of_ten().await);
        assert_eq!(posts.iter().filter(|(_, read)| *read).count(), 1);

        // One member of each list is gone for a while.
        let mut connection = redis.connect().await;
        let newest: u64 = connection.smembers::<_, Vec<u64>>("author:blogs:9").await.unwrap().into_iter().max().unwrap();
        let since: Vec<u64> =
            redis::pipe().zscore("u_follow:1", 10).zscore("u_follow:2", 10).query_async(&mut connection).await.unwrap();
        legacy.run("ZREM u_follow:1 10").await;
        legacy.run("ZREM u_follow:2 10").await;
        legacy.run(&format!("SREM author:blogs:9 {newest}")).await;
        assert_eq!(pass_with(world, json!({})).await["totals"]["waiting"], 3);
        assert_eq!(followed().await, before, "one pass is not enough");
        while pass(world).await > 0 {}
        world.idle().await;
        assert_eq!((followed().await.len(), of_ten().await.len(), left(world).await[1]), (5, 0, 3));
        // The other reader changes the pair here: that stands.
        other.put("/v1/following/10").await.ok();
        other.delete("/v1/following/10").await.ok();
        world.user(10).publish("in between").await;

        for (user, since) in [1, 2].into_iter().zip(since) {
            legacy.run(&format!("ZADD u_follow:{user} {since} 10")).await;
        }
        legacy.run(&format!("SADD author:blogs:9 {newest}")).await;
        while pass(world).await > 0 {}
        world.idle().await;
        for round in ["views", "facts"] {
            assert_eq!(followed().await, before, "{round}: with the old time");
            let mut expected = posts.clone();
            expected.insert(0, ("10-5".to_owned(), false));
            assert_eq!(of_ten().await, expected, "{round}");
            assert_eq!(other.walk("/v1/users/2/following", 100).await.len(), 5, "{round}");
            let titles: Vec<Value> =
                reader.walk("/v1/authors/9/posts", 100).await.into_iter().map(|post| post["title"].clone()).collect();
            assert_eq!(titles, ["nine 3", "nine 2", "nine 1", "nine 0"], "{round}");
            assert_eq!(reader.get("/v1/posts/9-4").await.status, 404, "{round}: the deleted post stays deleted");
            world.flush_redis().await;
        }
        assert_eq!(pass(world).await, 0);
        let report = crate::damage::walk(world, true, 1_000).await;
        assert_eq!(report["differences"], json!([]));
    })
    .await;
}

/// Lists that passes remove nothing for expire in the legacy system, and return.
#[tokio::test]
async fn marks_and_cached_follows_that_return_undo_nothing_that_was_done_here() {
    let (redis, legacy) = LegacySystem::start().await;
    legacy.follow(1, 9).await;
    legacy.publish(9, "one").await;
    legacy.read_one(1).await.unwrap();
    let old = 1_748_736_000_000_u64;
    legacy.run(&format!("ZADD uf:flws:1 {old} 8")).await;
    World::run_with(with(&redis, false), async |world| {
        while pass(world).await > 0 {}
        world.idle().await;
        let reader = world.user(1);
        assert_eq!(reader.unread_total().await, 0);
        reader.delete("/v1/posts/9-1/read").await.ok();
        reader.delete("/v1/following/8").await.ok();
        world.idle().await;
        // The tombstone expires.
        let edge = tidemark::facts::schema::edge(tidemark_tests::user_id(1), tidemark_tests::user_id(8));
        world.delete_item("FollowingTable", edge).await;
        for (list, away) in [("user:read:1", "away:read"), ("uf:flws:1", "away:flws")] {
            legacy.run(&format!("RENAME {list} {away}")).await;
        }
        for _ in 0..3 {
            pass_with(world, json!({})).await;
        }
        for (list, away) in [("user:read:1", "away:read"), ("uf:flws:1", "away:flws")] {
            legacy.run(&format!("RENAME {away} {list}")).await;
        }
        for _ in 0..3 {
            pass_with(world, json!({})).await;
        }
        let followed = reader.walk("/v1/users/1/following", 100).await.len();
        assert_eq!((reader.unread_total().await, followed), (1, 1));
        // A new follow there is later than the absence.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let now = world.stack.app("migrate").unwrap().stores.clock.now().ms();
        legacy.run(&format!("ZADD uf:flws:1 {now} 8")).await;
        legacy.run("ZREM uf:flws:1 7").await;
        while pass(world).await > 0 {}
        world.idle().await;
    })
    .await;
}
