//! With replica reads on, data that may be a moment old comes from replicas. Data that the caller can have changed
//! comes from masters.

use std::collections::BTreeMap;

use serde_json::json;
use tidemark_tests::{World, world_with};

use super::{MASTERS, ask, with_replicas};

const READS: [&str; 8] = ["get", "mget", "exists", "hgetall", "hmget", "lrange", "zrange", "zscore"];

/// The number of reads that replicas have served, by command.
async fn read_from_replicas(world: &World) -> BTreeMap<String, u64> {
    let mut reads = BTreeMap::new();
    for replica in MASTERS..2 * MASTERS {
        let stats: String = ask(world, replica, &["INFO", "commandstats"]).await;
        for line in stats.lines() {
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) else { continue };
            if READS.contains(&name) {
                *reads.entry(name.to_owned()).or_default() += rest.split(',').next().unwrap().parse::<u64>().unwrap();
            }
        }
    }
    reads
}

/// Waits until the replicas have all data of the masters.
async fn replicas_have_heard(world: &World) {
    for master in 0..MASTERS {
        while ask::<i64>(world, master, &["WAIT", "1", "100"]).await < 1 {}
    }
}

#[test]
fn own_data_is_read_from_masters_and_lists_of_others_from_replicas() {
    let configure = |options: &mut tidemark_local::Options| {
        with_replicas(1)(options);
        options.redis_replica_reads = true;
    };
    world_with(configure, async |world| {
        let (caller, anybody) = (world.user(1), world.user(2));
        world.follow(10..20, 9).await;
        world.user(9).publish("one").await;
        world.user(9).get("/v1/users/9/followers?profiles=false").await.ok();
        world.idle().await;
        caller.put("/v1/following/9").await.ok();
        world.idle().await;
        caller.feed("all").await;
        anybody.get("/v1/users/9/counters").await.ok();
        anybody.get("/v1/users/9/followers?profiles=false").await.ok();
        replicas_have_heard(world).await;

        // The caller's own lists. After a change by the caller, also the lists of others.
        let before = read_from_replicas(world).await;
        assert_eq!(caller.get("/v1/unread").await.ok()["total"], 0);
        for path in [
            "/v1/users/1/following?profiles=false",
            "/v1/users/1/counters",
            "/v1/users/9/followers?profiles=false",
            "/v1/users/9/counters",
        ] {
            caller.get(path).await.ok();
        }
        anybody.get("/v1/users/2/following?profiles=false").await.ok();
        assert_eq!(read_from_replicas(world).await, before);
        // Lists and counters of others, for a caller without changes.
        let list = anybody.get("/v1/users/9/followers?profiles=false").await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), 11);
        assert_eq!(anybody.get("/v1/users/9/counters").await.ok()["followers"], 11);
        let after = read_from_replicas(world).await;
        assert_ne!(after.get("zrange"), before.get("zrange"), "a list");
        assert_eq!(after.get("get").copied().unwrap_or(0), before.get("get").copied().unwrap_or(0) + 1, "counters");
        assert_eq!(after.get("exists"), before.get("exists"), "masters say whether a replica may be read");
        // A like counts at once for the caller who gave it.
        anybody.put("/v1/posts/9-1/like").await.ok();
        assert_eq!(anybody.get("/v1/users/9/counters").await.ok()["likes_received"], 1);
        assert_eq!(read_from_replicas(world).await, after);
        // The titles of a page come from replicas, its flags and counts from masters.
        caller.put("/v1/posts/9-1/like").await.ok();
        let page = caller.get("/v1/feed").await.ok();
        assert_eq!((&page["items"][0]["liked"], &page["items"][0]["title"]), (&json!(true), &json!("one")));
        let page = read_from_replicas(world).await;
        let more = |name: &str| page.get(name).copied().unwrap_or(0) - after.get(name).copied().unwrap_or(0);
        assert_eq!(READS.map(more), [0, 1, 0, 0, 0, 0, 0, 0], "one MGET");
    });
}

#[test]
fn a_caller_sees_its_own_changes_at_once() {
    let configure = |options: &mut tidemark_local::Options| {
        with_replicas(1)(options);
        options.redis_replica_reads = true;
    };
    world_with(configure, async |world| {
        world.follow(10..15, 9).await;
        world.user(9).publish("one").await;
        let caller = world.user(1);
        for round in 0..30 {
            let (given, expected) = (round % 2 == 0, 5 + u64::from(round % 2 == 0));
            let (follow, like) = ("/v1/following/9", "/v1/posts/9-1/like");
            if given {
                caller.put(follow).await.ok();
                caller.put(like).await.ok();
            } else {
                caller.delete(follow).await.ok();
                caller.delete(like).await.ok();
            }
            let fans = caller.get("/v1/users/9/followers").await.ok();
            assert_eq!(fans["items"].as_array().unwrap().len() as u64, expected, "round {round}");
            let counters = caller.get("/v1/users/9/counters").await.ok();
            let likes = u64::from(given);
            assert_eq!((&counters["followers"], &counters["likes_received"]), (&json!(expected), &json!(likes)), "round {round}");
            assert_eq!(caller.feed_ids().await.len(), usize::from(given), "round {round}");
        }
    });
}
