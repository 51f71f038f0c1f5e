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

#[test]
fn facts_lists_counters_and_feed_agree_after_a_storm() {
    world(async |world| {
        for seed in 0..STORMS {
            storm(world, seed).await;
        }
    });
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

/// On one pair, eight clients block, unblock and follow in both directions. Whenever a block stands, no edge does.
#[test]
fn no_follow_stands_beside_a_block() {
    world(async |world| {
        for seed in 0..STORMS {
            let mut rng = StdRng::seed_from_u64(seed);
            let pair = [3_000_000 + seed * 2, 3_000_001 + seed * 2];
            let users = pair.map(|user| world.user(user));
            let plans: Vec<Vec<(usize, u8)>> =
                (0..8).map(|_| (0..4).map(|_| (rng.random_range(0..2), rng.random_range(0..10))).collect()).collect();
            join_all(plans.into_iter().map(|plan| {
                let users = &users;
                async move {
                    for (who, step) in plan {
                        let (user, other) = (&users[who], pair[1 - who]);
                        let (follow, block) = (format!("/v1/following/{other}"), format!("/v1/blocks/{other}"));
                        let response = match step {
                            0..5 => user.put(&follow).await,
                            5 => user.delete(&follow).await,
                            6..8 => user.put(&block).await,
                            _ => user.delete(&block).await,
                        };
                        assert!(matches!(response.status, 200 | 403), "{}", response.body);
                    }
                }
            }))
            .await;
            world.idle().await;
            let mut blocked = false;
            let mut edges = [false; 2];
            for who in 0..2 {
                let relation = users[who].get(&format!("/v1/users/{}", pair[1 - who])).await.ok()["relation"].clone();
                blocked |= relation["blocked"] == true;
                edges[who] = relation["following"] == true;
            }
            assert!(!blocked || edges == [false; 2], "storm {seed}: blocked, and edges {edges:?}");
            for who in 0..2 {
                let (count, size) = (u64::from(edges[who]), async |path: String| users[who].walk(&path, 10).await.len() as u64);
                let counters = users[who].get(&format!("/v1/users/{}/counters", pair[who])).await.ok();
                assert_eq!(counters["followings"], count, "storm {seed}: counter");
                assert_eq!(counters["followers"], u64::from(edges[1 - who]), "storm {seed}: counter");
                assert_eq!(size(format!("/v1/users/{}/following", pair[who])).await, count, "storm {seed}: list");
                assert_eq!(size(format!("/v1/users/{}/followers", pair[1 - who])).await, count, "storm {seed}: list");
            }
            let put = users[0].put(&format!("/v1/following/{}", pair[1])).await;
            assert_eq!(put.status == 403, blocked, "storm {seed}: {}", put.body);
        }
    });
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
    world.publish_and_deliver(author, "after").await;
    assert_eq!(
        (size("/v1/feed".to_owned()).await, reader.unread_total().await),
        (edges * 2, edges),
        "storm {seed}: a post after the storm"
    );
}
