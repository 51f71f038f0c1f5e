//! Many clients at once: they follow and unfollow the same pair, with repeated and delayed stream records, and they
//! race for handles and for user ids while Redis loses its data.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use tidemark_tests::{User, World, parameter, world, world_with};

use crate::delivery::project;

const STORMS: u64 = if option_env!("TIDEMARK_STORMS").is_some() { 1_000 } else { 40 };

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
        for list in [format!("{author}/followers"), format!("{user}/following"), format!("{author}/counters")] {
            reader.get(&format!("/v1/users/{list}")).await.ok();
        }
    }
    let held = rng.random();
    if held {
        world.stack.pause("relation-projector").await.unwrap();
    }
    let plans: Vec<Vec<u8>> = (0..8).map(|_| (0..4).map(|_| rng.random_range(0..10)).collect()).collect();
    let path = format!("/v1/following/{author}");
    join_all(plans.into_iter().map(async |plan| {
        for step in plan {
            match step {
                0..5 => reader.put(&path).await.ok(),
                5..9 => reader.delete(&path).await.ok(),
                _ => project(world, user, author, 2).await,
            };
        }
    }))
    .await;
    if held {
        world.stack.resume("relation-projector").unwrap();
    }
    world.idle().await;
    project(world, user, author, 2).await;
    let following = reader.get(&format!("/v1/relations/{author}")).await.ok()["following"] == true;
    assert_edge(world, user, author, following, seed).await;
    let edges = usize::from(following);
    assert_eq!((reader.feed_ids().await.len(), reader.unread_total().await), (edges, 0), "storm {seed}");
    world.publish_and_deliver(author, "after").await;
    let after = (reader.feed_ids().await.len(), reader.unread_total().await);
    assert_eq!(after, (edges * 2, edges as u64), "storm {seed}: a post after the storm");
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
            join_all(plans.into_iter().map(async |plan| {
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
                assert_edge(world, pair[who], pair[1 - who], edges[who], seed).await;
            }
            let put = users[0].put(&format!("/v1/following/{}", pair[1])).await;
            assert_eq!(put.status == 403, blocked, "storm {seed}: {}", put.body);
        }
    });
}

/// Asserts that the lists and counters of both users have the edge of this pair, or none.
async fn assert_edge(world: &World, user: u64, author: u64, exists: bool, seed: u64) {
    let (reader, edges) = (world.user(user), usize::from(exists));
    for (of, list, counter) in [(user, "following", "followings"), (author, "followers", "followers")] {
        assert_eq!(reader.walk(&format!("/v1/users/{of}/{list}"), 10).await.len(), edges, "storm {seed}: {list}");
        let counters = reader.get(&format!("/v1/users/{of}/counters")).await.ok();
        assert_eq!(counters[counter], edges, "storm {seed}: counter of {counter}");
    }
}

const CLIENTS: usize = 500;
const WANTED: usize = 50;

fn mapped(test: impl AsyncFnOnce(&World)) {
    world_with(parameter("UserIds", "mapped"), test);
}

async fn id(user: &User) -> String {
    user.get("/v1/me").await.ok()["id"].as_str().unwrap().to_owned()
}

/// Runs all requests at once, and empties Redis in their middle.
async fn beside_a_flush<T>(world: &World, requests: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut requests: Vec<_> = requests.into_iter().collect();
    let second = requests.split_off(requests.len() / 2);
    let ((mut first, ()), second) =
        futures::join!(async { futures::join!(join_all(requests), world.flush_redis()) }, join_all(second));
    first.extend(second);
    first
}

#[test]
fn five_hundred_first_calls_of_fifty_claims_get_fifty_user_ids() {
    mapped(async |world| {
        let callers: Vec<User> = (0..CLIENTS).map(|client| world.stranger(Some(&format!("claim-{}", client % WANTED)))).collect();
        let ids = beside_a_flush(world, callers.iter().map(id)).await;
        let mut by_claim = BTreeMap::<usize, BTreeSet<&String>>::new();
        for (client, id) in ids.iter().enumerate() {
            by_claim.entry(client % WANTED).or_default().insert(id);
        }
        assert!(by_claim.values().all(|ids| ids.len() == 1), "each claim has one id: {by_claim:?}");
        assert_eq!(by_claim.values().flatten().collect::<BTreeSet<_>>().len(), WANTED, "each id has one claim");
        world.flush_redis().await;
        let again = join_all(callers[..WANTED].iter().map(id)).await;
        assert_eq!(again, ids[..WANTED]);
    });
}

#[test]
fn five_hundred_clients_get_fifty_handles_once_each() {
    mapped(async |world| {
        let callers: Vec<User> = (0..CLIENTS).map(|client| world.stranger(Some(&format!("client-{client}")))).collect();
        let ids = join_all(callers.iter().map(id)).await;
        let handle = |client: usize| format!("handle_{}", client % WANTED);
        let claims = callers.iter().enumerate().map(async |(client, caller)| {
            caller.put_body("/v1/me/profile", &json!({ "name": "x", "handle": handle(client) })).await
        });
        let responses = beside_a_flush(world, claims).await;
        let mut owners = BTreeMap::<String, Vec<&String>>::new();
        for (client, response) in responses.iter().enumerate() {
            match response.status {
                200 => owners.entry(handle(client)).or_default().push(&ids[client]),
                _ => assert_eq!(response.problem(), (409, "/problems/handle-taken")),
            }
        }
        assert_eq!(owners.len(), WANTED);
        assert!(owners.values().all(|owners| owners.len() == 1), "{owners:?}");
        // Three callers agree about every handle, and with the profiles.
        for caller in &callers[..3] {
            for (handle, owner) in &owners {
                let found = caller.get(&format!("/v1/handles/{handle}")).await.ok();
                assert_eq!((&found["id"], &found["profile"]["handle"]), (&json!(owner[0]), &json!(handle)));
            }
        }
    });
}
