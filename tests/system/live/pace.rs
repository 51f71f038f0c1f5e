//! The time between two messages to a connection, also if messages wait on their way.

use std::time::{Duration, Instant};

use serde_json::Value;
use tidemark_tests::{LiveConnection, World, until, world};

use super::{AUTHOR, READER, reader};

/// The messages until one tells this total, with the times at which they arrived.
async fn arrivals(connection: &mut LiveConnection, total: u64) -> Vec<(Instant, Value)> {
    let mut arrivals = Vec::new();
    loop {
        let message = connection.unread().await;
        arrivals.push((Instant::now(), message));
        if arrivals.last().is_some_and(|(_, message)| message["total"] == total) {
            return arrivals;
        }
    }
}

/// Publishes for so long, one post after another. Returns their number.
async fn publish_for(world: &World, time: Duration) -> u64 {
    let (started, mut posts) = (Instant::now(), 0);
    while started.elapsed() < time {
        world.user(AUTHOR).publish("one of many").await;
        posts += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    posts
}

fn assert_paced(arrivals: &[(Instant, Value)], least: Duration) {
    for pair in arrivals.windows(2) {
        let gap = pair[1].0.duration_since(pair[0].0);
        assert!(gap >= least, "two messages within {gap:?}: {arrivals:?}");
    }
}

/// The sender is late, so that messages that were built a second apart would be posted at the same moment.
#[test]
fn messages_that_wait_at_the_sender_are_posted_a_second_apart() {
    // Longer than a reader waits for the end of a message.
    const LONG: Duration = Duration::from_secs(12);
    world(async |world| {
        reader(world).await;
        let (mut phone, mut desk) = (world.live(READER).await, world.live(READER).await);
        let mut posts = 0;
        for held in [Duration::from_millis(3_500), LONG] {
            world.stack.pause("live-sender").await.unwrap();
            posts += publish_for(world, held).await;
            world.stack.resume("live-sender").unwrap();
            let (phone, desk) = futures::join!(arrivals(&mut phone, posts), arrivals(&mut desk, posts));
            for arrivals in [phone, desk] {
                println!("held for {held:?}: {} messages", arrivals.len());
                assert_paced(&arrivals, Duration::from_millis(950));
            }
            world.idle().await;
        }
        until("nothing more is told", async || phone.is_silent().await && desk.is_silent().await).await;
    });
}

#[test]
fn a_burst_is_told_at_most_once_a_second() {
    world(async |world| {
        reader(world).await;
        let mut connection = world.live(READER).await;
        let author = world.user(AUTHOR);
        let (_, arrivals) = futures::join!(author.publish_all(["one of a burst"; 20]), arrivals(&mut connection, 20));
        assert_paced(&arrivals, Duration::from_millis(950));
        world.idle().await;
        assert!(connection.is_silent().await);
    });
}
