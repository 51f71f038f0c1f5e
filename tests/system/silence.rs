//! Readers without posts: Redis remembers them for some minutes, and the first delivery or follow ends that.

use tidemark_tests::{World, world};

/// The remaining lifetime of the reader's state in Redis in seconds. Negative if there is no state.
async fn lifetime(world: &World, user: u64) -> i64 {
    let key = tidemark::views::keys::reader_state(user.to_string().parse().unwrap());
    redis::cmd("TTL").arg(key).query_async(&mut world.redis().await).await.unwrap()
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
        world.user(2).put("/v1/following/10").await.ok();
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
        world.user(1).put("/v1/following/10").await.ok();
        assert_eq!(world.user(1).feed("all").await, [("10-1".to_owned(), true)]);
        assert!(lifetime(world, 1).await > 59 * 3600);
        // And the reader has no posts again.
        world.user(1).delete("/v1/following/10").await.ok();
        // The projector calls Redis too. Only when it is idle, the calls are the reader's.
        world.idle().await;
        assert!(!rebuilds(world, 1).await);
    });
}
