//! A killed master affects only the users whose views it had. No data is lost, even data that the replica did not
//! receive.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use tidemark_local::Options;
use tidemark_tests::{Hang, PATIENCE, World, deployed_timeouts, until, world_with};

use super::{MASTERS, ask, at_home, home_of, with_replicas};

const AUTHOR: u64 = 1_000_000;

/// The longest time of a request: the waits for the lost node until its breaker opens.
const BOUND: Duration = Duration::from_secs(3);

/// A cluster with the deployed timeouts.
fn deployed(replicas: usize) -> impl FnOnce(&mut Options) {
    move |options| {
        with_replicas(replicas)(options);
        deployed_timeouts(options);
    }
}

async fn unread(world: &World, reader: u64) -> (u64, bool) {
    let started = Instant::now();
    let response = world.user(reader).get("/v1/unread").await;
    let took = started.elapsed();
    if took >= BOUND {
        // A busy machine needs additional time.
        let pace = world.pace().await;
        assert!(took < BOUND + 10 * pace, "{took:?}, where a request takes {pace:?}");
    }
    let degraded = response.header("degraded").is_some();
    (response.ok()["total"].as_u64().unwrap(), degraded)
}

/// Waits until a reader's view is available again.
async fn is_served_again(world: &World, reader: u64) {
    until("a replica takes over", async || !unread(world, reader).await.1).await;
}

#[test]
fn a_lost_master_affects_only_the_users_whose_views_it_had() {
    world_with(deployed(0), async |world| {
        // Each with the master of the reader's view.
        let mut readers = Vec::new();
        for master in 0..MASTERS {
            readers.extend(at_home(world, master, 1, 3).await.into_iter().map(|reader| (reader, master)));
        }
        world.follow(readers.iter().map(|(reader, _)| *reader), AUTHOR).await;
        world.publish_and_deliver(AUTHOR, "one").await;
        for &(reader, _) in &readers {
            assert_eq!(unread(world, reader).await, (1, false));
        }
        let lost = (home_of(world, AUTHOR).await + 1) % MASTERS;
        world.stack.kill_redis_node(lost).await.unwrap();
        for _ in 0..3 {
            for &(reader, master) in &readers {
                assert_eq!(unread(world, reader).await, (1, master == lost), "{reader} of master {master}, {lost} lost");
            }
        }
        assert_eq!(world.user(1).get("/v1/health").await.ok()["redis"], "down");
        // Deliveries to the lost master wait until it is available. The other readers get theirs at once.
        world.user(AUTHOR).publish("two").await;
        for &(reader, _) in readers.iter().filter(|(_, master)| *master != lost) {
            until("the reader gets the delivery", async || unread(world, reader).await == (2, false)).await;
        }
        world.stack.start_redis_node(lost).await.unwrap();
        world.redis_is_asked_again().await;
        world.idle().await;
        for (reader, _) in readers {
            assert_eq!(unread(world, reader).await, (2, false));
            assert_eq!(world.user(reader).feed_ids().await.len(), 2);
        }
    });
}

#[test]
fn a_fan_out_during_the_loss_of_a_master_delivers_each_post_once() {
    const READERS: u64 = 150;
    const POSTS: u64 = 40;
    world_with(deployed(1), async |world| {
        world.follow_at_once(1..=READERS, AUTHOR).await;
        world.idle().await;
        let has_an_empty_feed = async |reader| assert_eq!(world.user(reader).feed_ids().await.len(), 0);
        stream::iter(1..=READERS).for_each_concurrent(30, has_an_empty_feed).await;
        world.stack.pause("fan-out").await.unwrap();
        world.user(AUTHOR).publish_all(0..POSTS).await;
        let lost = home_of(world, 1).await;
        world.stack.resume("fan-out").unwrap();
        let started = Instant::now();
        let left = async || {
            let queue = world.stack.status().await.unwrap().queues["FanOutQueue"];
            queue.visible + queue.in_flight
        };
        while left().await > (POSTS as usize) * 3 / 4 {
            assert!(started.elapsed() < PATIENCE);
            tokio::task::yield_now().await;
        }
        world.stack.kill_redis_node(lost).await.unwrap();
        let before = left().await;
        assert!(before > 0, "messages must be left when the master is killed");
        let killed = Instant::now();
        assert_eq!(unread(world, 1).await.0, POSTS, "the response from facts is right");
        is_served_again(world, 1).await;
        let served = killed.elapsed();
        world.idle().await;
        let done = killed.elapsed();
        // Progress that was on the lost master is made again.
        let is_finished = async |seq| {
            let delivery = world.user(AUTHOR).get(&format!("/v1/posts/{AUTHOR}-{seq}/delivery")).await.ok();
            delivery["state"] == "done" && delivery["delivered"] == READERS
        };
        while !stream::iter(1..=POSTS).all(is_finished).await {
            assert!(killed.elapsed() < PATIENCE, "the fan-outs do not finish in time");
            world.stack.fire("reconcile", None).await.unwrap();
            world.idle().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("killed with {before} of {POSTS} messages left; readers are served after {served:.1?}, idle after {done:.1?}");
        world.assert_unread(1..=READERS, POSTS).await;
        for reader in 1..=READERS {
            assert_eq!(world.user(reader).feed_ids().await.len() as u64, POSTS);
        }
        // The old master returns as a replica without data of its own.
        world.stack.start_redis_node(lost).await.unwrap();
        world.publish_and_deliver(AUTHOR, "after").await;
        assert_eq!(world.user(1).unread_total().await, POSTS + 1);
    });
}

#[test]
fn changes_that_only_the_lost_master_received_are_not_lost() {
    world_with(deployed(1), async |world| {
        let home = home_of(world, AUTHOR).await;
        // An author whose own keys are on another master.
        let lost = (home + 1) % MASTERS;
        let reader = at_home(world, lost, 1, 1).await[0];
        world.user(reader).put(&format!("/v1/following/{AUTHOR}")).await.ok();
        world.user(AUTHOR).publish_all(["heard"; 3]).await;
        world.idle().await;
        assert_eq!(unread(world, reader).await, (3, false));
        let replica = lost + MASTERS;
        until("the replica has everything", async || ask::<i64>(world, lost, "WAIT 1 100").await == 1).await;
        // From here on the replica receives nothing, not even data that waits in a socket.
        let hang = Hang::begin(&[ask(world, replica, "INFO server").await]);
        ask::<u64>(world, lost, "CLIENT KILL TYPE replica").await;
        world.user(reader).put(&format!("/v1/posts/{AUTHOR}-1/read")).await.ok();
        world.publish_and_deliver(AUTHOR, "not heard").await;
        assert_eq!(unread(world, reader).await, (3, false), "one more, one read");
        world.stack.kill_redis_node(lost).await.unwrap();
        hang.end();
        is_served_again(world, reader).await;
        assert_eq!(unread(world, reader).await, (3, false));
        // The replica that took over had three unread posts.
        let feed = [4, 3, 2, 1].map(|seq| (format!("{AUTHOR}-{seq}"), seq == 1));
        assert_eq!(world.user(reader).feed("all").await, feed);
    });
}
