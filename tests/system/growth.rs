//! Keys that a user can make large: the tombstones of unfollowed authors in the reader state.

use std::time::{Duration, Instant};

use redis::AsyncCommands as _;
use serde_json::json;
use tidemark::{App, domain::Edge, views::keys};
use tidemark_tests::{World, number_from, user_id, world};

use crate::at_once;

const READER: u64 = 7;

/// An author whom the reader follows, and one whom the reader has left.
const AUTHOR: u64 = 1;
const LEFT: u64 = 2;

/// The most fields of a reader who follows one author: meta, recent entries, and tombstones.
const MOST_FIELDS: usize = 520;

fn app(world: &World) -> &App {
    world.stack.app("follow").unwrap()
}

/// Tells the view of this number of unfollows, as `DELETE /v1/following` does.
async fn unfollow(world: &World, number: u64) {
    let app = app(world);
    let now = app.stores.clock.now();
    at_once(8, 0..number, async |author| {
        let gone = Edge { following: true, ..Edge::never(user_id(READER), user_id(100_000 + author)) }.ended(now);
        app.stores.views.drop_author(&gone).await.unwrap();
    })
    .await;
}

async fn fields(world: &World) -> usize {
    world.redis().await.hlen(keys::reader_state(user_id(READER))).await.unwrap()
}

/// `TIDEMARK_UNFOLLOWS`: 17,640 are an hour of the limit.
#[test]
fn unfollows_leave_a_bounded_number_of_tombstones() {
    world(async |world| {
        let reader = world.live_reader(READER, [AUTHOR]).await;
        world.publish_and_deliver(AUTHOR, "one").await;
        let read = async || {
            let (reads, before) = (50, world.redis_micros().await);
            let started = Instant::now();
            let mut degraded = 0;
            for _ in 0..reads {
                let page = reader.get("/v1/feed").await;
                degraded += u64::from(page.header("degraded").is_some());
                page.has(json!({ "unread_total": 1 }));
            }
            let took: Duration = started.elapsed() / reads;
            let after = world.redis_micros().await;
            let micros: u64 = ["hgetall", "exec"].iter().map(|name| after[*name] - before.get(*name).unwrap_or(&0)).sum();
            println!(
                "{} fields: {} µs of the server's thread a read, {took:.1?} a read, {degraded} of {reads} degraded",
                fields(world).await,
                micros / u64::from(reads),
            );
        };
        read().await;
        unfollow(world, 490).await;
        read().await;
        for _ in 0..4 {
            unfollow(world, number_from("TIDEMARK_UNFOLLOWS", 4_000) / 4).await;
            assert!(fields(world).await <= MOST_FIELDS, "{} fields", fields(world).await);
            read().await;
            assert!(fields(world).await <= MOST_FIELDS, "{} fields", fields(world).await);
        }
        assert_eq!(reader.feed_ids().await, ["1-1"]);
    });
}

/// The follow is older than the unfollow and arrives after the tombstone is lost.
#[test]
fn a_late_follow_does_not_come_back_after_its_tombstone_is_lost() {
    world(async |world| {
        let reader = world.live_reader(READER, [AUTHOR, LEFT]).await;
        world.publish_and_deliver(AUTHOR, "stays").await;
        world.publish_and_deliver(LEFT, "gone").await;
        let (user, app) = (user_id(READER), app(world));
        let follow = app.stores.facts.edges(user, &[user_id(LEFT)]).await.unwrap().remove(&user_id(LEFT)).unwrap();
        reader.delete(&format!("/v1/following/{LEFT}")).await.ok();
        world.idle().await;
        let shows = async |when: &str| {
            assert_eq!(reader.feed_ids().await, ["1-1"], "{when}");
            assert_eq!(reader.unread_total().await, 1, "{when}");
            let view = app.stores.views.reader_view(user, 100).await.unwrap().unwrap();
            assert!(view.state.authors.keys().eq([&user_id(AUTHOR)]), "{when}: {:?}", view.state.authors);
        };
        for rebuilt in [false, true] {
            unfollow(world, 600).await;
            if rebuilt {
                shows("before the late follow").await;
            }
            // The whole update arrives late.
            app.readers.sync_edges(user, vec![follow.clone()]).await.unwrap();
            shows("after a late update").await;
            // The process dies after the gate. A post is delivered through it.
            unfollow(world, 600).await;
            if rebuilt {
                shows("before the late gate").await;
            }
            app.stores.views.open_gate(user, std::slice::from_ref(&follow)).await.unwrap();
            world.publish_and_deliver(LEFT, "not for this reader").await;
            shows("after a late gate").await;
        }
    });
}
