//! Readers with nothing to see: remembered for a while, and woken by the first delivery or follow.

use tidemark_tests::{World, world};

/// Lifetime of the reader's state in Redis in seconds, negative when there is no state.
async fn lifetime(world: &World, user: u64) -> i64 {
    let key = tidemark::views::keys::reader_state(user.to_string().parse().unwrap());
    redis::cmd("TTL").arg(key).query_async(&mut world.redis().await).await.unwrap()
}

/// What reading the feed costs in queries of edges: none when the reader is remembered.
async fn rebuilds(world: &World, user: u64) -> bool {
    let calls = async || world.redis_calls().await.get("fcall").copied();
    let before = calls().await;
    assert!(world.user(user).feed_ids().await.is_empty());
    calls().await > before
}

#[tokio::test]
async fn a_reader_with_nothing_to_see_is_remembered_for_five_minutes() {
    world(async |world| {
        // One follows nobody, one follows a silent author.
        world.user(2).put("/v1/following/10").await.ok();
        world.idle().await;
        for reader in [1, 2] {
            assert!(rebuilds(world, reader).await);
            assert!((240..=300).contains(&lifetime(world, reader).await));
            assert!(!rebuilds(world, reader).await, "remembered");
        }
        // Woken by the first delivery.
        world.user(10).publish("hello").await;
        world.idle().await;
        assert!(lifetime(world, 2).await > 59 * 3600);
        assert_eq!((world.user(2).feed_ids().await, world.user(2).unread_total().await), (vec!["10-1".to_owned()], 1));
        // Woken by a follow, at once.
        world.user(1).put("/v1/following/10").await.ok();
        assert_eq!(world.user(1).feed("all").await, [("10-1".to_owned(), true)]);
        assert!(lifetime(world, 1).await > 59 * 3600);
        // And back to nothing.
        world.user(1).delete("/v1/following/10").await.ok();
        // The projector calls Redis too: only then it is known who did.
        world.idle().await;
        assert!(!rebuilds(world, 1).await);
    })
    .await;
}
