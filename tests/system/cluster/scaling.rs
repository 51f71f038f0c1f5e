//! Scale drills: a cluster grows from one shard to three and shrinks again, each master fails over and returns, and
//! nodes are replaced by empty ones: without reads, and during traffic in which invocations are killed. No response may
//! be wrong.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::join_all;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tidemark::domain::feed::FeedCap;
use tidemark_local::Options;
use tidemark_tests::{Model, World, deployed_redis_timeouts, until, world_with};

use super::{MASTERS, ask, command, connect, slot_of, with_replicas};
use crate::{
    chaos::{caught, settle},
    epochs::{change, prepare, views},
    operations::{Callers, Done, OPERATIONS, compare, operate},
};

const SLOTS: usize = 16_384;

/// Slots that are moved together.
const TOGETHER: usize = 1_024;

/// Runs commands on a node in one pipeline.
async fn ask_all<T: redis::FromRedisValue>(world: &World, node: usize, commands: impl IntoIterator<Item = String>) -> Vec<T> {
    let mut pipeline = redis::pipe();
    for text in commands {
        pipeline.add_command(command(&text));
    }
    pipeline.query_async(&mut connect(world, node).await).await.unwrap()
}

/// Returns the master of every slot.
async fn masters(world: &World) -> Vec<usize> {
    let port = |url: &str| url.rsplit(':').next().unwrap().parse::<u64>().unwrap();
    let ports: Vec<u64> = world.stack.redis_nodes().iter().map(|node| port(&node.url)).collect();
    let mut masters = vec![usize::MAX; SLOTS];
    type Node = (String, u64, redis::Value, redis::Value);
    let ranges: Vec<(usize, usize, Node)> = ask(world, 0, "CLUSTER SLOTS").await;
    for (first, last, (_, port, ..)) in ranges {
        masters[first..=last].fill(ports.iter().position(|known| *known == port).unwrap());
    }
    masters
}

/// What a node knows of each node of the cluster: its epoch and its slots.
async fn topology(world: &World, node: usize) -> BTreeMap<String, (String, Vec<String>)> {
    let nodes: String = ask(world, node, "CLUSTER NODES").await;
    let known = nodes.lines().map(|line| {
        let fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let slots = fields[8..].iter().filter(|slots| !slots.starts_with('[')).cloned().collect();
        (fields[0].clone(), (fields[6].clone(), slots))
    });
    known.collect()
}

/// Gives slots to a master that has their keys, until all masters agree. A late message of the former owner can take a
/// slot back, and two masters that took slots one after the other can have the same epoch for a moment.
async fn assign(world: &World, commands: &[String], nodes: [usize; MASTERS]) {
    until("the masters agree on the owners of the slots", async || {
        let mut known = Vec::new();
        for node in nodes {
            ask_all::<()>(world, node, commands.iter().cloned()).await;
            known.push(topology(world, node).await);
        }
        let epochs: BTreeSet<&String> = known[0].values().map(|(epoch, _)| epoch).collect();
        epochs.len() == MASTERS && known.iter().all(|other| *other == known[0])
    })
    .await;
}

/// Moves slots with their keys, as a deployment that changes `RedisShards` does.
async fn move_slots(world: &World, slots: &[usize], source: usize, target: usize) {
    let [from, to] = [ask::<String>(world, source, "CLUSTER MYID").await, ask(world, target, "CLUSTER MYID").await];
    let port = world.stack.redis_nodes()[target].url.rsplit(':').next().unwrap().to_owned();
    for slots in slots.chunks(TOGETHER) {
        let set = |what: &str| slots.iter().map(|slot| format!("CLUSTER SETSLOT {slot} {what}")).collect::<Vec<_>>();
        ask_all::<()>(world, target, set(&format!("IMPORTING {from}"))).await;
        ask_all::<()>(world, source, set(&format!("MIGRATING {to}"))).await;
        let counts = slots.iter().map(|slot| format!("CLUSTER COUNTKEYSINSLOT {slot}"));
        let counts: Vec<u64> = ask_all(world, source, counts).await;
        for (slot, _) in slots.iter().zip(counts).filter(|(_, count)| *count > 0) {
            until("the target has the keys of a slot", async || {
                let keys: Vec<String> = ask(world, source, &format!("CLUSTER GETKEYSINSLOT {slot} 1000")).await;
                let migrate = format!("MIGRATE 127.0.0.1 {port}  0 5000 KEYS {}", keys.join(" "));
                // A target that has not heard from the others for a moment refuses.
                keys.is_empty() || {
                    command(&migrate).query_async::<()>(&mut connect(world, source).await).await.ok();
                    false
                }
            })
            .await;
        }
        assign(world, &set(&format!("NODE {to}")), [target, source, 3 - source - target]).await;
    }
}

/// Gives the slots to this number of masters.
async fn scale(world: &World, shards: usize) {
    let mut moves = BTreeMap::<(usize, usize), Vec<usize>>::new();
    for (slot, source) in masters(world).await.into_iter().enumerate() {
        let target = slot * shards / SLOTS;
        if source != target {
            moves.entry((source, target)).or_default().push(slot);
        }
    }
    for ((source, target), slots) in moves {
        move_slots(world, &slots, source, target).await;
    }
}

/// A cluster whose masters stay masters without slots.
fn scaled(options: &mut Options) {
    with_replicas(0)(options);
    deployed_redis_timeouts(options);
    options.retry_delay = Duration::from_millis(500);
}

async fn keep_masters(world: &World) {
    for node in 0..MASTERS {
        ask::<()>(world, node, "CONFIG SET cluster-allow-replica-migration no").await;
    }
}

/// Reads every view of the readers, and then the same after Redis was emptied. Prints what differs, and returns its
/// number.
async fn count_wrong_responses(world: &World, what: &str) -> usize {
    world.idle().await;
    let found = views(world).await;
    world.flush_redis().await;
    let right = views(world).await;
    let wrong: Vec<_> = right.iter().filter(|(path, right)| found[path] != **right).collect();
    for ((reader, path), right) in &wrong {
        println!("{what}: {path} of {reader}: {} instead of {right}", found[&(*reader, path.clone())]);
    }
    println!("{what}: {} of {} responses are wrong", wrong.len(), right.len());
    wrong.len()
}

#[test]
fn changes_that_no_reader_has_read_are_there_when_a_slot_returns() {
    for (home, away) in [(1, 3), (3, 1)] {
        world_with(scaled, async |world| {
            keep_masters(world).await;
            scale(world, home).await;
            prepare(world).await;
            scale(world, away).await;
            change(world).await;
            scale(world, home).await;
            assert_eq!(count_wrong_responses(world, &format!("from {home} to {away} and back")).await, 0);
        });
    }
}

/// The time after which a node gives up a failover that it was asked for.
const FAILOVER: Duration = Duration::from_secs(5);

/// Makes a replica the master of its master's slots.
async fn fail_over(world: &World, replica: usize) {
    let mut asked = None::<Instant>;
    until("the replica takes over", async || {
        let replication: String = ask(world, replica, "INFO replication").await;
        // A replica that was just attached cannot take over yet.
        let is_ready = replication.contains("master_link_status:up") && asked.is_none_or(|asked| asked.elapsed() > FAILOVER);
        if is_ready {
            ask::<()>(world, replica, "CLUSTER FAILOVER").await;
            asked = Some(Instant::now());
        }
        replication.contains("role:master")
    })
    .await;
}

#[test]
fn changes_that_no_reader_has_read_are_there_when_each_master_has_failed_over_and_returned() {
    world_with(with_replicas(1), async |world| {
        prepare(world).await;
        for replica in MASTERS..2 * MASTERS {
            fail_over(world, replica).await;
        }
        change(world).await;
        for master in 0..MASTERS {
            fail_over(world, master).await;
        }
        assert_eq!(count_wrong_responses(world, "a failover and back").await, 0);
    });
}

/// Users who read and change their data, and the model of it.
struct History {
    seed: u64,
    users: Vec<u64>,
    model: Model,
}

const HISTORIES: u64 = 6;
const USERS: u64 = 4;
const ROUNDS: usize = 4;
/// The operations of each history in a round.
const LENGTH: usize = 25;
/// The operations in a round.
const OPERATIONS_TOGETHER: usize = HISTORIES as usize * LENGTH;

fn histories() -> Vec<History> {
    let users = |seed: u64| (0..USERS).map(|user| (seed + 1) * 1_000_007 + user).collect();
    (0..HISTORIES).map(|seed| History { seed, users: users(seed), model: Model::default() }).collect()
}

/// Rounds of random operations beside a disturbance. After each of them every view of every user is compared with the
/// model, at its first read.
async fn drill(world: &World, histories: &mut [History], disturb: impl AsyncFn(usize, &Done)) {
    let findings = RefCell::new(Vec::new());
    for round in 0..ROUNDS {
        let callers = Callers { world, findings: Some(&findings), unanswered: Arc::default() };
        let done = Done::default();
        let operations = join_all(histories.iter_mut().map(async |History { seed, users, model }| {
            let mut rng = StdRng::seed_from_u64(*seed * 1_000 + round as u64);
            for _ in 0..LENGTH {
                let dice = rng.random_range(0..OPERATIONS);
                operate(&callers, &mut rng, model, users, dice).await;
                done.add_one();
            }
        }));
        let (_, (), killed) = futures::join!(operations, disturb(round, &done), kill(world, &done));
        settle(world).await;
        let before = findings.borrow().len();
        for History { seed, users, model } in &*histories {
            for &user in users {
                let caller = world.user(user);
                caught(&findings, *seed, compare(&caller, model, user, *seed, (40, FeedCap::GREATEST))).await;
            }
        }
        println!("round {round}: {killed} invocations killed, {} differences", findings.borrow().len() - before);
    }
    let findings = findings.into_inner();
    findings.iter().for_each(|finding| println!("{finding}"));
    assert!(findings.is_empty(), "{} differences", findings.len());
}

/// Kills the invocations in flight of one function after the other, in a round. Returns their number.
async fn kill(world: &World, done: &Done) -> usize {
    let functions: Vec<&str> = world.stack.template().functions.values().map(|function| function.binary.as_str()).collect();
    let mut killed = 0;
    for (operations, function) in (0..OPERATIONS_TOGETHER).step_by(3).zip(functions.iter().cycle()) {
        done.reached(operations).await;
        killed += world.stack.kill_invocations(function);
    }
    killed
}

#[test]
fn histories_agree_with_the_model_while_a_cluster_grows_and_shrinks() {
    world_with(scaled, async |world| {
        let mut histories = histories();
        let mut slots = BTreeSet::from_iter((0..SLOTS).step_by(128));
        for &user in histories.iter().flat_map(|history| &history.users) {
            slots.insert(usize::from(slot_of(world, user).await));
        }
        keep_masters(world).await;
        scale(world, 1).await;
        // The slots of the users, and others, go to two more masters and back, as often as the traffic allows.
        let (second, third): (Vec<usize>, Vec<usize>) = slots.into_iter().partition(|slot| slot % 2 == 0);
        drill(world, &mut histories, async |round, done| {
            let mut moves = 0;
            for part in 1..=4 {
                for (slots, master) in [(&second, 1), (&third, 2)] {
                    move_slots(world, slots, 0, master).await;
                }
                done.reached(OPERATIONS_TOGETHER * part / 5).await;
                for (slots, master) in [(&second, 1), (&third, 2)] {
                    move_slots(world, slots, master, 0).await;
                }
                moves += 1;
            }
            println!("round {round}: {moves} times from one shard to three and back");
        })
        .await;
    });
}

#[test]
fn histories_agree_with_the_model_while_masters_fail_over_and_nodes_return_empty() {
    let configure = |options: &mut Options| {
        with_replicas(1)(options);
        deployed_redis_timeouts(options);
    };
    world_with(configure, async |world| {
        let mut histories = histories();
        drill(world, &mut histories, async |round, done| {
            done.reached(OPERATIONS_TOGETHER / 4).await;
            if round == MASTERS {
                // One after the other is replaced by an empty node, with its replica.
                for master in 0..MASTERS {
                    for node in [master + MASTERS, master] {
                        world.stack.kill_redis_node(node).await.unwrap();
                    }
                    for node in [master, master + MASTERS] {
                        world.stack.start_redis_node(node).await.unwrap();
                    }
                    done.reached(OPERATIONS_TOGETHER * (master + 2) / 5).await;
                }
                return;
            }
            // A master is lost, its replica takes over, it returns as a replica, and becomes the master again.
            let replica = round + MASTERS;
            world.stack.kill_redis_node(round).await.unwrap();
            until("the replica takes over", async || {
                ask::<String>(world, replica, "INFO replication").await.contains("role:master")
            })
            .await;
            done.reached(OPERATIONS_TOGETHER / 2).await;
            world.stack.start_redis_node(round).await.unwrap();
            done.reached(OPERATIONS_TOGETHER * 3 / 4).await;
            fail_over(world, round).await;
        })
        .await;
    });
}
