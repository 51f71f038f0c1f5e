//! Tests on a cluster of three masters: a moving slot, a lost master, reads from replicas. They do not depend on the
//! Redis that the other tests use.

mod failover;
mod migration;
mod replicas;
mod tls;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tidemark::views::keys;
use tidemark_local::{ClusterSetup, Options, RedisSetup};
use tidemark_tests::{World, user_id};

const MASTERS: usize = 3;

/// A cluster whose nodes count a silent node as lost after a second.
fn with_replicas(replicas: usize) -> impl FnOnce(&mut Options) {
    move |options| {
        let cluster = ClusterSetup { masters: MASTERS, replicas, node_timeout: Duration::from_secs(1) };
        options.redis = RedisSetup { tls: false, cluster: Some(cluster) };
        // The attempts of a message last longer than a failover.
        options.retry_delay = Duration::from_secs(3);
    }
}

async fn node(world: &World, node: usize) -> MultiplexedConnection {
    let client = world.stack.redis_nodes()[node].clients().unwrap().remove(0);
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn ask<T: redis::FromRedisValue>(world: &World, index: usize, command: &[&str]) -> T {
    let mut connection = node(world, index).await;
    redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
}

/// The slot of a user's keys.
async fn slot_of(world: &World, id: u64) -> u16 {
    ask(world, 0, &["CLUSTER", "KEYSLOT", &keys::reader_state(user_id(id))]).await
}

/// The master that had a user's slot when the cluster was formed.
async fn home_of(world: &World, id: u64) -> usize {
    let slot = usize::from(slot_of(world, id).await);
    (0..MASTERS).find(|master| slot < (master + 1) * 16_384 / MASTERS).unwrap()
}

/// The first `count` users from `first` on whose slots are on that master.
async fn at_home(world: &World, master: usize, first: u64, count: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for id in first.. {
        if home_of(world, id).await == master {
            found.push(id);
        }
        if found.len() == count {
            break;
        }
    }
    found
}

/// The process id of a node.
async fn pid(world: &World, index: usize) -> String {
    let info: String = ask(world, index, &["INFO", "server"]).await;
    info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().to_owned()
}

/// Sends a signal to a node.
fn signal(pid: &str, name: &str) {
    assert!(std::process::Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap().success());
}
