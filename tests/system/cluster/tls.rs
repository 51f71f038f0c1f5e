//! Redis over TLS, as in a deployment.

use std::path::PathBuf;

use tidemark::{
    ports::ProgressViews,
    views::{Redis, RedisOptions},
};
use tidemark_tests::{World, world_with};

async fn responds(world: &World, change: impl FnOnce(&mut RedisOptions)) -> bool {
    let mut options = world.stack.redis_options().clone();
    change(&mut options);
    Redis::new(&options).unwrap().ping().await.is_ok()
}

#[test]
fn tls_works_with_one_node_and_a_cluster_and_unknown_authorities_are_refused() {
    for name in ["tls", "tls-cluster"] {
        world_with(
            |options| options.redis = name.parse().unwrap(),
            async |world| {
                world.follow(1..=20, 99).await;
                world.publish_and_deliver(99, "one").await;
                for reader in 1..=20 {
                    let page = world.user(reader).get("/v1/feed").await;
                    assert_eq!(page.header("degraded"), None, "{name}");
                    assert_eq!(page.ok()["unread_total"], 1, "{name}");
                }
                assert!(responds(world, |_| {}).await);
                assert!(!responds(world, |options| options.ca_file = None).await, "the system does not know the authority");
                assert!(!responds(world, |options| options.url = options.url.replace("rediss", "redis")).await);
                let mut missing = world.stack.redis_options().clone();
                missing.ca_file = Some(PathBuf::from("/nowhere/authority.pem"));
                assert!(Redis::new(&missing).is_err());
                assert!(!format!("{missing:?}").contains("127.0.0.1"), "a URL may contain a password");
            },
        );
    }
}
