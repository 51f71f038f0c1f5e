//! Many clients follow and unfollow the same pair at once, with repeated and delayed stream records.

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark_tests::{World, stream_record, world};

/// The number of storms in a run. A build with `TIDEMARK_STORMS` sets another number.
const STORMS: u64 = match option_env!("TIDEMARK_STORMS") {
    Some(_) => 1_000,
    None => 40,
};

#[tokio::test]
async fn facts_lists_counters_and_feed_agree_after_a_storm() {
    world(async |world| {
        for seed in 0..STORMS {
            storm(world, seed).await;
        }
    })
    .await;
}

async fn storm(world: &World, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (user, author) = (1_000_000 + seed * 2, 1_000_001 + seed * 2);
    let (reader, writer) = (world.user(user), world.user(author));
    writer.publish("before").await;
    // In some runs the feed is live and lists and counters are cached, in others not.
    if rng.random() {
        reader.feed_ids().await;
        reader.get(&format!("/v1/users/{author}/followers")).await.ok();
        reader.get(&format!("/v1/users/{user}/following")).await.ok();
        reader.get(&format!("/v1/users/{author}/counters")).await.ok();
    }
    let held = rng.random();
    if held {
        world.stack.pause("relation-projector").await.unwrap();
    }
    let plans: Vec<Vec<u8>> = (0..8).map(|_| (0..4).map(|_| rng.random_range(0..10)).collect()).collect();
    join_all(plans.into_iter().map(|plan| {
        let reader = reader.clone();
        async move {
            for step in plan {
                let path = format!("/v1/following/{author}");
                match step {
                    0..5 => drop(reader.put(&path).await.ok()),
                    5..9 => drop(reader.delete(&path).await.ok()),
                    _ => repeat(world, user, author).await,
                }
            }
        }
    }))
    .await;
    if held {
        world.stack.resume("relation-projector").unwrap();
    }
    world.idle().await;
    repeat(world, user, author).await;
    agree(world, user, author, seed).await;
}

/// Sends the stream record of the pair once more.
async fn repeat(world: &World, user: u64, author: u64) {
    let keys = json!({ "user": { "N": user.to_string() }, "author": { "N": author.to_string() } });
    let record = stream_record("1", keys);
    world.stack.invoke("relation-projector", json!({ "Records": [record, record] })).await.unwrap();
}

async fn agree(world: &World, user: u64, author: u64, seed: u64) {
    let reader = world.user(user);
    let following = reader.get(&format!("/v1/relations/{author}")).await.ok()["following"] == true;
    let edges = u64::from(following);
    let size = async |path: String| reader.walk(&path, 10).await.len() as u64;
    assert_eq!(size(format!("/v1/users/{user}/following")).await, edges, "storm {seed}: following");
    assert_eq!(size(format!("/v1/users/{author}/followers")).await, edges, "storm {seed}: followers");
    let count =
        async |user: u64, name: &str| reader.get(&format!("/v1/users/{user}/counters")).await.ok()[name].as_u64().unwrap();
    assert_eq!(count(user, "followings").await, edges, "storm {seed}: followings counter");
    assert_eq!(count(author, "followers").await, edges, "storm {seed}: followers counter");
    assert_eq!(size("/v1/feed".to_owned()).await, edges, "storm {seed}: feed");
    assert_eq!(reader.unread_total().await, 0, "storm {seed}");
    world.user(author).publish("after").await;
    world.idle().await;
    assert_eq!(
        (size("/v1/feed".to_owned()).await, reader.unread_total().await),
        (edges * 2, edges),
        "storm {seed}: a post after the storm"
    );
}
