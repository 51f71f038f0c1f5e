//! A slot moves to another master, key by key, while its users read, mark and get deliveries.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use tidemark_tests::{World, until, user_id, world_with};

use super::{ask, connect, home_of, slot_of, with_replicas};
use crate::migration::command;

const AUTHOR: u64 = 1_000_000;

/// Moves a slot from one master to another, key by key. Returns the number of keys.
async fn move_slot(traffic: &Traffic<'_>, slot: u16, source: usize, target: usize) -> usize {
    let (world, published) = (traffic.world, &traffic.published);
    let id = async |node: usize| ask::<String>(world, node, "CLUSTER MYID").await;
    let (from, to) = (id(source).await, id(target).await);
    ask::<()>(world, target, &format!("CLUSTER SETSLOT {slot} IMPORTING {from}")).await;
    ask::<()>(world, source, &format!("CLUSTER SETSLOT {slot} MIGRATING {to}")).await;
    let port = world.stack.redis_nodes()[target].url.rsplit(':').next().unwrap().to_owned();
    let mut moved = 0;
    loop {
        let keys: Vec<String> = ask(world, source, &format!("CLUSTER GETKEYSINSLOT {slot} 1")).await;
        let Some(key) = keys.first() else { break };
        // While the slot is on two masters, two more posts are published.
        let wanted = published.load(Ordering::Relaxed) + 2;
        let migrate = command(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
        // A target that has not heard from the others for a moment refuses.
        until("the target takes the key", async || {
            migrate.query_async::<redis::Value>(&mut connect(world, source).await).await.is_ok()
        })
        .await;
        moved += 1;
        until("two more posts", async || moved >= 8 || published.load(Ordering::Relaxed) >= wanted).await;
    }
    for node in [target, source, 3 - source - target] {
        ask::<()>(world, node, &format!("CLUSTER SETSLOT {slot} NODE {to}")).await;
    }
    moved
}

struct Traffic<'a> {
    world: &'a World,
    over: AtomicBool,
    published: AtomicUsize,
    responses: AtomicUsize,
    degraded: AtomicUsize,
}

impl Traffic<'_> {
    /// Reads the feed and marks one post after the other. Returns the number of marks.
    async fn read(&self, reader: u64) -> usize {
        let (reader, mut seq) = (self.world.user(reader), 1);
        while !self.over.load(Ordering::Relaxed) {
            let page = reader.get("/v1/feed").await;
            self.responses.fetch_add(1, Ordering::Relaxed);
            self.degraded.fetch_add(usize::from(page.header("degraded").is_some()), Ordering::Relaxed);
            assert!(page.ok()["unread_total"].as_u64().is_some());
            if seq <= self.published.load(Ordering::Relaxed) {
                assert_eq!(reader.put(&format!("/v1/posts/{AUTHOR}-{seq}/read")).await.ok()["read"], true);
                let unread = reader.feed("unread").await;
                assert!(!unread.contains(&(format!("{AUTHOR}-{seq}"), false)), "the reader's own mark is visible at once");
                seq += 1;
            }
        }
        seq - 1
    }
}

#[test]
fn a_slot_that_moves_during_traffic_loses_no_data() {
    world_with(with_replicas(0), async |world| {
        // Five readers of one bucket, so that a delivery is one call for all of them.
        let readers: Vec<u64> = (1..).filter(|&id| user_id(id).bucket() == user_id(1).bucket()).take(5).collect();
        world.follow(readers.iter().copied(), AUTHOR).await;
        world.publish_and_deliver(AUTHOR, "before").await;
        world.assert_unread(readers.iter().copied(), 1).await;
        let (slot, source) = (slot_of(world, readers[0]).await, home_of(world, readers[0]).await);
        let target = (source + 1) % 3;
        let [published, responses, degraded] = [1, 0, 0].map(AtomicUsize::new);
        let traffic = Traffic { world, over: AtomicBool::new(false), published, responses, degraded };
        let publishing = async {
            while !traffic.over.load(Ordering::Relaxed) {
                world.user(AUTHOR).publish("meanwhile").await;
                traffic.published.fetch_add(1, Ordering::Relaxed);
            }
        };
        let reading = join_all(readers.iter().map(|&reader| traffic.read(reader)));
        let moving = async {
            let moved = move_slot(&traffic, slot, source, target).await;
            let wanted = traffic.published.load(Ordering::Relaxed) + 3;
            until("three more posts", async || traffic.published.load(Ordering::Relaxed) >= wanted).await;
            traffic.over.store(true, Ordering::Relaxed);
            moved
        };
        let ((), marked, moved) = futures::join!(publishing, reading, moving);
        world.idle().await;
        // A mark or a delivery that met the moving slot became a task. Its outage note stands for some seconds.
        world.redis_is_asked_again().await;
        let Traffic { published, responses, degraded, .. } = traffic;
        let [published, responses, degraded] = [published, responses, degraded].map(AtomicUsize::into_inner);
        println!("{moved} keys moved, {published} posts published, {degraded} of {responses} feeds from the facts");
        // A reader whose two keys are on different masters waits for a short time and then gets a response from
        // facts. The number of such responses depends on the machine.
        assert!(degraded < responses, "{degraded} of {responses}");
        assert!(moved >= 10, "a state and a feed for each of five readers");
        for (&reader, marked) in readers.iter().zip(marked) {
            let reader = world.user(reader);
            let response = reader.get("/v1/unread").await;
            assert_eq!(response.header("degraded"), None);
            assert_eq!(reader.unread_total().await, (published - marked) as u64);
            assert_eq!(reader.feed_ids().await.len(), published);
        }
        let there: u64 = ask(world, target, &format!("CLUSTER COUNTKEYSINSLOT {slot}")).await;
        assert!(there >= 10, "{there} keys are on the slot's new master");
    });
}
