//! A Redis that restarts with older data is not used: the first read after it agrees with the facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tidemark::{
    domain::{Edge, Timestamp},
    facts::schema,
};
use tidemark_local::RedisData;
use tidemark_tests::{PATIENCE, World, user_id, world, world_with};

use crate::{
    at_once, cluster,
    damage::proxy::{Proxy, run_behind_a_proxy},
    publish_and_deliver_all, publish_notices,
};

/// Readers of two authors. On a cluster every master has some of them.
const READERS: std::ops::RangeInclusive<u64> = 1..=6;
const AUTHORS: [u64; 2] = [10, 20];

/// Every view of a reader as the API shows it, by path.
pub(crate) type Views = BTreeMap<(u64, String), Value>;

fn paths(reader: u64) -> Vec<String> {
    let own = [
        "/v1/feed?limit=100".to_owned(),
        "/v1/feed?status=unread&limit=100".to_owned(),
        "/v1/feed?order=ranked&limit=100".to_owned(),
        "/v1/unread".to_owned(),
        "/v1/notices?platform=7".to_owned(),
        "/v1/notices/unread?platform=7".to_owned(),
        format!("/v1/users/{reader}/following?limit=100"),
        format!("/v1/users/{reader}/counters"),
    ];
    let of_author = |author: u64| {
        [
            format!("/v1/unread/{author}"),
            format!("/v1/authors/{author}/posts?limit=100"),
            format!("/v1/users/{author}/followers?limit=100"),
            format!("/v1/users/{author}/counters"),
            format!("/v1/posts/{author}-2"),
            format!("/v1/posts/{author}-5"),
        ]
    };
    own.into_iter().chain(AUTHORS.into_iter().flat_map(of_author)).collect()
}

pub(crate) async fn views(world: &World) -> Views {
    world.redis_is_asked_again().await;
    let mut views = Views::new();
    for reader in READERS {
        for path in paths(reader) {
            let response = world.user(reader).get(&path).await.ok();
            views.insert((reader, path), response);
        }
    }
    views
}

/// Reads every view until it agrees with the facts, and twice more. Asserts that every view is right at its first read.
async fn assert_first_reads(world: &World, facts: &Views, what: &str) {
    world.redis_is_asked_again().await;
    // The largest number of reads until a view agreed, responses from views that did not agree, and responses from
    // facts, while a node was unavailable.
    let (mut most, mut wrong, mut degraded) = (0, 0, 0);
    for ((reader, path), right) in facts {
        let started = Instant::now();
        let (mut count, mut agreed) = (0, 0);
        while agreed < 3 {
            assert!(started.elapsed() < PATIENCE, "{path} of {reader} does not agree with the facts in time");
            let response = world.user(*reader).get(path).await;
            let from_view = response.header("degraded").is_none();
            let response = response.ok();
            count += usize::from(agreed == 0 && from_view);
            if response == *right {
                agreed += usize::from(from_view);
                degraded += usize::from(!from_view);
            } else {
                wrong += 1;
                println!("{path} of {reader}: {response} instead of {right}");
            }
        }
        most = most.max(count);
    }
    println!("{what}: {} views, {degraded} responses from facts", facts.len());
    assert_eq!((most, wrong), (1, 0), "{what}");
}

/// The state at the moment to which Redis returns.
pub(crate) async fn prepare(world: &World) {
    for author in AUTHORS {
        world.follow(READERS, author).await;
    }
    publish_notices(world, &[7], ["one", "two"]).await;
    publish_and_deliver_all(world, AUTHORS, 1..=5).await;
    views(world).await;
}

/// Acknowledged changes after that moment. Reads no view.
pub(crate) async fn change(world: &World) {
    for reader in READERS {
        let caller = world.user(reader);
        caller.put("/v1/posts/10-1/read").await.ok();
        caller.post("/v1/reads", &json!({ "author": "20", "through": 3 })).await.ok();
        caller.put("/v1/posts/10-5/like").await.ok();
        caller.put("/v1/notices/7-1/read").await.ok();
    }
    world.user(10).delete("/v1/posts/10-4").await.ok();
    world.user(2).delete("/v1/following/10").await.ok();
    world.follow([30], 10).await;
    world.administrator().delete("/v1/notices/7-2").await.ok();
    world.user(10).put_body("/v1/posts/10-2", &json!({ "title": "edited" })).await.ok();
    world.user(10).put_body("/v1/me/profile", &json!({ "name": "Ten" })).await.ok();
    world.publish_and_deliver(10, "six").await;
}

/// Asserts that later changes reach the rebuilt views, and that reconcile finds no difference.
async fn goes_on(world: &World, facts: &Views) {
    let total = |views: &Views, reader| views[&(reader, "/v1/unread".to_owned())]["total"].as_u64().unwrap();
    world.user(20).publish("six of twenty").await;
    for reader in READERS {
        world.user(reader).put("/v1/posts/20-5/read").await.ok();
    }
    world.idle().await;
    let now = views(world).await;
    for reader in READERS {
        assert_eq!(total(&now, reader), total(facts, reader), "one more, one less for {reader}");
    }
    let report = world.walk_over_all_users(true, Duration::ZERO).await;
    assert_eq!((report.differences, report.failed), (BTreeSet::new(), 0));
}

#[test]
fn a_restart_from_an_older_dump_shows_no_old_data() {
    world(async |world| {
        prepare(world).await;
        world.stack.dump_redis().await.unwrap();
        change(world).await;
        let facts = views(world).await;
        world.stack.restart_redis_from_dump().await.unwrap();
        assert!(world.redis_sum::<u64>("stats", "total_commands_processed").await < 1_000, "the server was restarted");
        assert_first_reads(world, &facts, "older dump").await;
        goes_on(world, &facts).await;
    });
}

#[test]
fn a_promoted_replica_without_the_last_writes_shows_no_old_data() {
    world(async |world| {
        if !world.is_one_node() {
            // tests/system/cluster/failover.rs tests this on a cluster.
            return;
        }
        prepare(world).await;
        world.stack.start_redis_replica().await.unwrap();
        change(world).await;
        let facts = views(world).await;
        world.stack.promote_redis_replica().await.unwrap();
        assert_first_reads(world, &facts, "promoted replica").await;
        goes_on(world, &facts).await;
    });
}

#[test]
fn masters_of_a_cluster_restarted_from_older_dumps_show_no_old_data() {
    world_with(cluster::with_replicas(0), async |world| {
        prepare(world).await;
        world.stack.dump_redis().await.unwrap();
        change(world).await;
        let facts = views(world).await;
        for master in 0..cluster::MASTERS {
            world.stack.restart_redis_node_from_dump(master).await.unwrap();
            assert_first_reads(world, &facts, &format!("master {master} with an older dump")).await;
        }
        goes_on(world, &facts).await;
    });
}

#[test]
fn views_of_another_epoch_accept_no_delivery_and_no_change() {
    world(async |world| {
        if !world.is_one_node() {
            return;
        }
        let reader = world.reader(1, [10]).await;
        world.publish_and_deliver(10, "one").await;
        assert_eq!(reader.unread_total().await, 1);
        redis::cmd("SAVE").query_async::<()>(&mut world.redis().await).await.unwrap();
        let path = world.stack.data_dir().join("redis").join("dump.rdb");
        let dump = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        world.publish_and_deliver(10, "two").await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        std::fs::write(path, dump).unwrap();
        world.stack.start_redis().await.unwrap();
        world.redis_is_asked_again().await;
        // No reader has read yet. A delivery of the third post must not make the view look complete without the
        // second.
        world.publish_and_deliver(10, "three").await;
        assert_eq!((reader.unread_total().await, reader.feed_ids().await.len()), (3, 3));
    });
}

/// Authors that each reader of the measurement follows, one of them common to all, and posts of each author.
const FOLLOWED: u64 = 20;
const POSTS: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_after_another_epoch_costs_about_as_much_as_a_first_read() {
    rebuild(50, 40).await;
}

/// Measures the numbers in docs/redis.md.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn the_cost_of_rebuilding_ten_thousand_readers() {
    rebuild(10_000, 400).await;
}

/// Measures with this number of readers. Each follows the common author and some of `pool` authors.
async fn rebuild(readers: u64, pool: u64) {
    run_behind_a_proxy(async |world, proxy| {
        let authors: Vec<u64> = (0..=pool).map(|index| 1_000_000 + index).collect();
        at_once(8, &authors, async |&author| drop(world.user(author).publish_all(0..POSTS).await)).await;
        follow(world, readers, &authors).await;
        // The edges are written as facts. The projector handles every one.
        world.stack.idle_within(Duration::from_secs(3_600)).await.unwrap();
        proxy.meter();
        let first = read_all(world, proxy, readers, "first reads").await;
        let warm = read_all(world, proxy, readers, "warm reads").await;
        world.stack.dump_redis().await.unwrap();
        world.stack.restart_redis_from_dump().await.unwrap();
        world.redis_is_asked_again().await;
        proxy.meter();
        let again = read_all(world, proxy, readers, "reads after another epoch").await;
        // The number of readers that share one read of a head depends on the machine. In addition, each process
        // checks for an outage note once a second.
        let ((first, first_units, _), (again, units, took)) = (first, again);
        let looks = took.as_secs() + 10;
        assert!(again <= first * 5 / 4 + looks, "{again} requests instead of {first}");
        assert!(units <= first_units * 1.25 + looks as f64, "{units} units instead of {first_units}");
        let warm_again = read_all(world, proxy, readers, "warm reads").await;
        // Checks for an outage note, some of them concurrent. No view is rebuilt.
        for (requests, _, took) in [warm, warm_again] {
            assert!(requests < readers + took.as_secs(), "{requests} requests");
        }
    })
    .await;
}

/// Writes edges as facts. Each reader follows the first author and some others.
async fn follow(world: &World, readers: u64, authors: &[u64]) {
    let pool = authors.len() as u64 - 1;
    let edge = |reader: u64, author: u64| {
        let (user, author) = (user_id(reader), user_id(author));
        Edge { following: true, since: Timestamp::from_ms(1), rev: 1, ..Edge::never(user, author) }
    };
    let followed = |reader: u64| {
        let others = (1..FOLLOWED).map(move |index| authors[(1 + (reader * 7 + index * 19) % pool) as usize]);
        others.chain([authors[0]]).collect::<BTreeSet<u64>>()
    };
    let edges: Vec<Edge> =
        (1..=readers).flat_map(|reader| followed(reader).into_iter().map(move |author| edge(reader, author))).collect();
    assert_eq!(edges.len() as u64, readers * FOLLOWED);
    world.put_items("FollowingTable", edges.iter().map(schema::edge_item)).await;
}

/// Reads the feeds of all readers. Returns the requests to DynamoDB, their units, and the time.
async fn read_all(world: &World, proxy: &Proxy, readers: u64, what: &str) -> (u64, f64, Duration) {
    world.forget_redis_calls().await;
    let started = Instant::now();
    at_once(16, 1..=readers, async |reader| {
        let page = world.user(reader).get("/v1/feed?limit=20").await;
        let right = page.header("degraded").is_none() && page.body["unread_total"] == FOLLOWED * POSTS;
        assert!(right && page.items().len() == 20, "{what}: {reader}");
    })
    .await;
    let took = started.elapsed();
    let (meter, calls) = (proxy.meter(), world.redis_calls().await);
    let requests: u64 = meter.requests.values().sum();
    println!(
        "{what}, {readers} readers: {:.1} s; DynamoDB {requests} requests {:?}, {:.0} units; Redis {} commands, {} of them functions",
        took.as_secs_f64(),
        meter.requests,
        meter.units,
        calls.values().sum::<u64>(),
        calls.get("fcall").copied().unwrap_or(0)
    );
    (requests, meter.units, took)
}
