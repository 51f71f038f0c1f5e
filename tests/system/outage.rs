//! Redis away: the facts answer.

use std::time::Duration;

use tidemark_local::RedisData;
use tidemark_tests::{world, world_with};

#[tokio::test]
async fn without_redis_everything_goes_on_from_the_facts() {
    world(async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        reader.put("/v1/following/10").await.ok();
        reader.feed_ids().await;
        author.publish("one").await;
        author.publish("two").await;
        world.idle().await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();

        let page = reader.get("/v1/feed").await;
        assert_eq!(page.header("degraded"), Some("redis"));
        assert_eq!(page.ok()["unread_total"], 2);
        let answer = reader.put("/v1/posts/10-1/read").await;
        assert_eq!(answer.header("degraded"), Some("redis"));
        assert_eq!(answer.ok()["unread"]["total"], 1);
        author.publish("three").await;
        reader.put("/v1/following/20").await.ok();
        world.user(20).publish("twenty").await;
        let unread = reader.get("/v1/unread").await;
        assert_eq!((unread.header("degraded"), unread.body["total"].as_u64()), (Some("redis"), Some(3)));
        assert_eq!(reader.feed_ids().await, ["20-1", "10-3", "10-2", "10-1"]);

        world.stack.start_redis().await.unwrap();
        world.idle().await;
        world.redis_is_asked_again().await;
        let page = reader.get("/v1/feed").await;
        assert_eq!(page.header("degraded"), None);
        assert_eq!(page.ok()["unread_total"], 3);
        assert_eq!(reader.feed("unread").await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_change_while_redis_is_away_reaches_a_view_that_survived() {
    // The task is tried again for longer than Redis is away.
    let patient = |options: &mut tidemark_local::Options| options.retry_delay = Duration::from_secs(3);
    world_with(patient, async |world| {
        let (reader, author) = (world.user(1), world.user(10));
        reader.put("/v1/following/10").await.ok();
        author.publish("one").await;
        world.idle().await;
        assert_eq!(reader.unread_total().await, 1);
        let refusal = world.refuse_redis().await;
        reader.put("/v1/posts/10-1/read").await.ok();
        reader.put("/v1/following/20").await.ok();
        refusal.end().await;
        world.idle().await;
        world.redis_is_asked_again().await;
        assert_eq!(reader.feed("all").await, [("10-1".to_owned(), true)]);
        world.user(20).publish("seen").await;
        world.idle().await;
        assert_eq!(reader.unread_total().await, 1);
    })
    .await;
}
