//! Views are lost and rebuilt under traffic.

use futures::future::join_all;
use serde_json::json;
use tidemark_tests::world;

#[test]
fn all_views_are_rebuilt_from_facts() {
    world(async |world| {
        let reader = world.reader(1, 10..20).await;
        for author in 10..20 {
            world.user(author).publish_all(0..10).await;
        }
        world.idle().await;
        reader.put("/v1/posts/10-3/read").await.ok();
        reader.post("/v1/reads", &json!({ "author": "11", "through": 7 })).await.ok();
        reader.delete("/v1/posts/11-2/read").await.ok();
        world.user(12).delete("/v1/posts/12-5").await.ok();
        world.idle().await;
        let before = (reader.feed("all").await, reader.feed("unread").await, reader.unread_total().await);
        assert_eq!(before.2, 100 - 1 - 6 - 1);
        for _ in 0..3 {
            world.flush_redis().await;
            assert_eq!((reader.feed("all").await, reader.feed("unread").await, reader.unread_total().await), before);
        }
    });
}

#[test]
fn flushes_during_traffic_lose_nothing() {
    world(async |world| {
        let readers: Vec<u64> = (1..=10).collect();
        for author in 20..25 {
            world.follow(readers.clone(), author).await;
        }
        let publish = async {
            for number in 0..12 {
                join_all((20..25).map(|author| async move { world.user(author).publish(&format!("{number}")).await })).await;
            }
        };
        let read = async {
            for _ in 0..12 {
                join_all(readers.iter().map(|&reader| async move { world.user(reader).feed_ids().await })).await;
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
        for &reader in &readers {
            assert_eq!(world.user(reader).unread_total().await, 60, "reader {reader}");
            assert_eq!(world.user(reader).feed_ids().await.len(), 60);
        }
    });
}

#[test]
fn a_lost_feed_or_a_damaged_field_is_rebuilt() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.user(10).publish_all(0..5).await;
        world.idle().await;
        let before = (reader.feed("all").await, reader.unread_total().await);
        let mut redis = world.redis().await;
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut redis).await.unwrap();
        let feed = keys.iter().find(|key| key.ends_with(":f:1")).unwrap();
        let state = keys.iter().find(|key| key.ends_with(":r:1")).unwrap();

        redis::cmd("DEL").arg(feed).query_async::<()>(&mut redis).await.unwrap();
        assert_eq!((reader.feed("all").await, reader.unread_total().await), before);
        // The feed is lost, and a post is delivered before the next read. The rest must not count as the whole feed.
        redis::cmd("DEL").arg(feed).query_async::<()>(&mut redis).await.unwrap();
        world.publish_and_deliver(10, "after the loss").await;
        assert_eq!((reader.feed("all").await.len(), reader.unread_total().await), (6, 6));
        let before = (reader.feed("all").await, reader.unread_total().await);
        for (field, value) in [("10", "short"), ("@", "x"), ("nobody", "")] {
            redis::cmd("HSET").arg(state).arg(field).arg(value).query_async::<()>(&mut redis).await.unwrap();
            assert_eq!((reader.feed("all").await, reader.unread_total().await), before, "{field}");
        }
    });
}

#[test]
fn responses_are_degraded_until_an_abandoned_rebuild_is_taken_over() {
    world(async |world| {
        let reader = world.reader(1, [10]).await;
        world.publish_and_deliver(10, "one").await;
        // The function dies after it has begun a rebuild.
        let app = world.stack.app("read-feed").unwrap();
        let user = "1".parse().unwrap();
        let now = app.stores.clock.now();
        assert_eq!(app.stores.reader_views.begin(user, 7, now, false).await.unwrap(), tidemark::ports::Begun::Begun);
        let page = reader.get("/v1/feed").await.ok();
        assert_eq!(json!([page["rebuilding"], page["unread_total"]]), json!([true, 1]), "the response from facts is complete");
        // Lets the deadline of the rebuild pass: its begin is set to ten seconds ago.
        world.flush_redis().await;
        let past = tidemark::domain::Timestamp::from_ms(now.ms() - 20_000);
        app.stores.reader_views.begin(user, 7, past, false).await.unwrap();
        let page = reader.get("/v1/feed").await.ok();
        assert_eq!(json!([page["rebuilding"], page["unread_total"]]), json!([null, 1]));
    });
}
