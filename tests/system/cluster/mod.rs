//! Tests on a cluster of three masters: a moving slot, a lost master, reads from replicas. And Redis over TLS, as in a
//! deployment. They do not depend on the Redis that the other tests use.

mod failover;
mod migration;
mod scaling;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use futures::{StreamExt, stream};
use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tidemark::views::{RedisOptions, Views, keys};
use tidemark_local::{ClusterSetup, Options, RedisSetup};
use tidemark_tests::{PATIENCE, World, user_id, world_with};

use crate::migration::command;

pub(crate) const MASTERS: usize = 3;

/// A cluster whose nodes count a silent node as lost after a second if a replica can take over.
pub(crate) fn with_replicas(replicas: usize) -> impl FnOnce(&mut Options) {
    let node_timeout = Duration::from_secs(if replicas > 0 { 1 } else { 15 });
    move |options| {
        let cluster = ClusterSetup { masters: MASTERS, replicas, node_timeout };
        options.redis = RedisSetup { tls: false, cluster: Some(cluster) };
        // The attempts of a message last longer than a failover.
        options.retry_delay = Duration::from_secs(3);
    }
}

/// Runs a command on a node. The command's parts are separated by spaces.
async fn ask<T: redis::FromRedisValue>(world: &World, node: usize, text: &str) -> T {
    command(text).query_async(&mut connect(world, node).await).await.unwrap()
}

async fn connect(world: &World, node: usize) -> MultiplexedConnection {
    let client = world.stack.redis_nodes()[node].clients().unwrap().remove(0);
    // The machine may be busy.
    let patient = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Data that may be a moment old comes from replicas. Data that the caller can have changed comes from masters. No
/// replica takes over, however busy the machine is.
fn with_replica_reads(options: &mut Options) {
    let cluster = ClusterSetup { masters: MASTERS, replicas: 1, ..ClusterSetup::default() };
    options.redis = RedisSetup { tls: false, cluster: Some(cluster) };
    options.redis_replica_reads = true;
}

async fn slot_of(world: &World, id: u64) -> u16 {
    ask(world, 0, &format!("CLUSTER KEYSLOT {}", keys::reader_state(user_id(id)))).await
}

/// The master that had a user's slot when the cluster was formed.
async fn home_of(world: &World, id: u64) -> usize {
    let slot = usize::from(slot_of(world, id).await);
    (0..MASTERS).find(|master| slot < (master + 1) * 16_384 / MASTERS).unwrap()
}

/// The first `count` users from `first` on whose slots are on that master.
async fn at_home(world: &World, master: usize, first: u64, count: usize) -> Vec<u64> {
    let at_home = stream::iter(first..).filter_map(async |id| (home_of(world, id).await == master).then_some(id));
    at_home.take(count).collect().await
}

const READS: [&str; 8] = ["get", "mget", "exists", "hgetall", "hmget", "lrange", "zrange", "zscore"];

/// The number of reads that replicas have served, by command.
async fn read_from_replicas(world: &World) -> BTreeMap<&'static str, u64> {
    let mut reads = BTreeMap::from(READS.map(|name| (name, 0)));
    for replica in MASTERS..2 * MASTERS {
        let stats: String = ask(world, replica, "INFO commandstats").await;
        for line in stats.lines() {
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) else { continue };
            if let Some(sum) = reads.get_mut(name) {
                *sum += rest.split(',').next().unwrap().parse::<u64>().unwrap();
            }
        }
    }
    reads
}

#[test]
fn own_data_is_read_from_masters_and_lists_of_others_from_replicas() {
    world_with(with_replica_reads, async |world| {
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
        // Until the replicas have all data of the masters.
        for master in 0..MASTERS {
            while ask::<i64>(world, master, "WAIT 1 100").await < 1 {}
        }

        // The caller's own lists. After a change by the caller, also the lists of others.
        let before = read_from_replicas(world).await;
        assert_eq!(caller.get("/v1/unread").await.ok()["total"], 0);
        for list in ["1/following?profiles=false", "1/counters", "9/followers?profiles=false", "9/counters"] {
            caller.get(&format!("/v1/users/{list}")).await.ok();
        }
        anybody.get("/v1/users/2/following?profiles=false").await.ok();
        assert_eq!(read_from_replicas(world).await, before);
        // Lists and counters of others, for a caller without changes.
        let list = anybody.get("/v1/users/9/followers?profiles=false").await.ok();
        assert_eq!(list["items"].as_array().unwrap().len(), 11);
        assert_eq!(anybody.get("/v1/users/9/counters").await.ok()["followers"], 11);
        let after = read_from_replicas(world).await;
        assert_ne!(after["zrange"], before["zrange"], "a list");
        assert_eq!(after["get"], before["get"] + 1, "counters");
        assert_eq!(after["exists"], before["exists"], "masters say whether a replica may be read");
        // A like counts at once for the caller who gave it.
        anybody.put("/v1/posts/9-1/like").await.ok();
        assert_eq!(anybody.get("/v1/users/9/counters").await.ok()["likes_received"], 1);
        assert_eq!(read_from_replicas(world).await, after);
        // The titles of a page come from replicas, its flags and counts from masters.
        caller.put("/v1/posts/9-1/like").await.ok();
        let page = caller.get("/v1/feed").await.ok();
        assert!(page["items"][0]["liked"] == true && page["items"][0]["title"] == "one", "{page}");
        let page = read_from_replicas(world).await;
        assert_eq!(READS.map(|name| page[name] - after[name]), [0, 1, 0, 0, 0, 0, 0, 0], "one MGET");
    });
}

#[test]
fn a_caller_sees_its_own_changes_at_once() {
    world_with(with_replica_reads, async |world| {
        world.follow(10..15, 9).await;
        world.user(9).publish("one").await;
        let caller = world.user(1);
        for round in 0..30 {
            let given = round % 2 == 0;
            for path in ["/v1/following/9", "/v1/posts/9-1/like"] {
                let response = if given { caller.put(path).await } else { caller.delete(path).await };
                response.ok();
            }
            let (followers, likes) = (5 + u64::from(given), u64::from(given));
            let fans = caller.get("/v1/users/9/followers").await.ok();
            assert_eq!(fans["items"].as_array().unwrap().len() as u64, followers, "round {round}");
            let counters = caller.get("/v1/users/9/counters").await.ok();
            assert_eq!([&counters["followers"], &counters["likes_received"]], [followers, likes], "round {round}");
            assert_eq!(caller.feed_ids().await.len(), usize::from(given), "round {round}");
        }
    });
}

async fn responds(world: &World, change: impl FnOnce(&mut RedisOptions)) -> bool {
    let patient = Duration::from_secs(10);
    let options = world.stack.redis_options().clone();
    let mut options = RedisOptions { connect_timeout: patient, response_timeout: patient, ..options };
    change(&mut options);
    Views::new(&options).unwrap().ping().await.is_ok()
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
                assert!(Views::new(&missing).is_err());
                assert!(!format!("{missing:?}").contains("127.0.0.1"), "a URL may contain a password");
            },
        );
    }
}
