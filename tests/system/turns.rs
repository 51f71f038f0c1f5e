//! The turns that a node of Redis gives to bulk work (decision 24).

use std::time::Duration;

use redis::{Script, Value, aio::MultiplexedConnection};
use tidemark_tests::{World, until, world};

/// The work of a call that delivers to 35 users.
const WORK: u64 = 40;

/// Delivers to several readers, so that the functions load the library, and returns a connection to the node.
async fn node(world: &World) -> MultiplexedConnection {
    world.follow(1..=20, 42).await;
    world.read_feeds(1..=20).await;
    world.publish_and_deliver(42, "to twenty readers").await;
    world.redis_nodes().await.remove(0)
}

/// Asks for turns in one trip. Returns the times until them, in microseconds.
async fn turns(node: &mut MultiplexedConnection, number: usize) -> Vec<u64> {
    let mut pipeline = redis::pipe();
    for _ in 0..number {
        pipeline.cmd("FCALL").arg("redis_link_turn_2").arg(0).arg(WORK);
    }
    pipeline.query_async(node).await.unwrap()
}

/// The distance of two turns, in microseconds.
async fn distance(node: &mut MultiplexedConnection) -> u64 {
    let turns = turns(node, 2).await;
    turns[1].saturating_sub(turns[0])
}

#[test]
fn turns_follow_each_other_and_are_at_most_a_tenth_of_a_second_away() {
    world(async |world| {
        let mut node = node(world).await;
        let told = turns(&mut node, 20_000).await;
        assert!(told[100] > told[0], "{told:?}");
        // Later in the trip, a node without much of a processor has moved its turns together.
        assert_eq!(told.iter().max(), Some(&100_000));
        until("no turn is given for long", async || turns(&mut node, 1).await[0] == 0).await;
    });
}

#[test]
fn a_trip_that_comes_long_after_its_turn_asks_for_another_one() {
    world(async |world| {
        world.stack.app("fan-out").expect("deliveries in one process");
        node(world).await;
        let mut nodes = world.redis_nodes().await;
        for node in &mut nodes {
            // A queue: each trip gets a turn after a millisecond.
            load(node, "math.floor(mine - now)", "1000").await;
        }
        world.publish_and_deliver(42, "gets a turn").await;
        log_calls(&mut nodes).await;
        // The turn passes.
        tokio::time::sleep(Duration::from_millis(10)).await;
        world.publish_and_deliver(42, "late").await;
        let mut trips = 0;
        for node in &mut nodes {
            let calls = bulk_calls(node).await;
            let ends = calls.iter().position(|name| !name.contains("turn"));
            assert!(ends.is_none_or(|deliver| deliver > 0), "{calls:?}");
            trips += usize::from(ends.is_some());
        }
        assert!(trips > 0);
    });
}

/// Begins a log of all commands of these nodes.
pub(crate) async fn log_calls(nodes: &mut [MultiplexedConnection]) {
    let mut begin = redis::pipe();
    begin.cmd("CONFIG").arg("SET").arg("slowlog-log-slower-than").arg(0).arg("slowlog-max-len").arg(10_000);
    begin.cmd("SLOWLOG").arg("RESET");
    for node in nodes {
        begin.exec_async(node).await.unwrap();
    }
}

/// The names of the functions that delivered or gave a turn since the log began, in order.
pub(crate) async fn bulk_calls(node: &mut MultiplexedConnection) -> Vec<String> {
    let log: Vec<Value> = redis::cmd("SLOWLOG").arg("GET").arg(10_000).query_async(node).await.unwrap();
    let commands = log.into_iter().rev().map(|entry| match entry {
        Value::Array(fields) => redis::from_redis_value::<Vec<Value>>(fields[3].clone()).unwrap(),
        other => panic!("{other:?}"),
    });
    let names = commands.filter_map(|command| redis::from_redis_value::<String>(command.get(1)?.clone()).ok());
    names.filter(|name| name.starts_with("deliver") || name.contains("turn")).collect()
}

/// Replaces the library by itself with another `part`.
async fn load(node: &mut MultiplexedConnection, part: &str, other: &str) {
    let library = include_str!("../../shared/redis-link/src/lua/turn.lua");
    assert!(library.contains(part));
    let load = redis::cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(library.replace(part, other)).to_owned();
    assert_eq!(load.query_async::<String>(node).await.unwrap(), "redis_link_turn_2");
}

/// The node may be busy for a tenth of its time. Beside other tests, a node does not get much more of a processor.
#[test]
fn a_busy_node_moves_turns_apart_and_an_idle_one_moves_them_together() {
    let work = Script::new("for _ = 1, 3000 do redis.call('PING') end");
    world(async |world| {
        let mut node = node(world).await;
        load(&mut node, "local BUSY = 0.72", "local BUSY = 0.1").await;
        let began = distance(&mut node).await;
        until("a busy node gives fewer turns", async || {
            for _ in 0..300 {
                let () = work.invoke_async(&mut node).await.unwrap();
            }
            distance(&mut node).await > 2 * began
        })
        .await;
        until("an idle node gives more turns", async || distance(&mut node).await <= began).await;
    });
}
