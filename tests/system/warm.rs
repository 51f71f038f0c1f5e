//! The counted cost of warm reads: one post, the first page of a timeline, and feeds with profiles.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tidemark_tests::{User, World, world};

use crate::damage::proxy::{Proxy, world_behind_a_proxy};

const READS: usize = 1_000;
const READERS: u64 = 20;
const AUTHOR: u64 = 1;

/// A read of a post that is not warm: flags, reactions and 16 counts from the facts.
const COLD_UNITS: f64 = 22.0;

/// The time that others may see the state before a change.
const STALE: Duration = Duration::from_secs(5);

fn readers(world: &World) -> Vec<User> {
    (10..10 + READERS).map(|reader| world.user(reader)).collect()
}

/// 30 posts of an author whom half of the readers follow.
async fn publish(world: &World) -> User {
    let author = world.user(AUTHOR);
    world.follow((10..10 + READERS).step_by(2), AUTHOR).await;
    for number in 1..=30 {
        author.post("/v1/posts", &json!({ "title": format!("post {number}"), "body": "text" })).await.ok();
    }
    world.idle().await;
    author
}

/// The units of the facts that one read costs, after every reader has read once.
async fn units(world: &World, proxy: &Proxy, path: &str) -> f64 {
    let readers = readers(world);
    for reader in &readers {
        reader.get(path).await.ok();
    }
    proxy.meter();
    for turn in 0..READS {
        readers[turn % readers.len()].get(path).await.ok();
    }
    proxy.meter().units / READS as f64
}

#[test]
fn warm_reads_of_a_post_and_of_a_timeline_cost_hardly_any_facts() {
    world_behind_a_proxy(async |world, proxy| {
        publish(world).await;
        for path in ["/v1/posts/1-30", "/v1/authors/1/posts", "/v1/authors/1/posts?include=body"] {
            let units = units(world, proxy, path).await;
            println!("{path}: {units:.3} units a read, {:.2} % of a cold one", 100.0 * units / COLD_UNITS);
            assert!(units <= COLD_UNITS / 100.0, "{path}: {units} units a read");
        }
    });
}

#[test]
fn a_change_of_a_warm_post_is_visible_to_its_caller_at_once_and_to_others_soon() {
    world_behind_a_proxy(async |world, proxy| {
        let author = publish(world).await;
        let (path, readers) = ("/v1/posts/1-30", readers(world));
        units(world, proxy, path).await;
        proxy.meter();
        let mut reads = 0;
        let liker = &readers[3];
        let title = json!({ "title": "edited" }).to_string();
        // Each change, and whether a response shows it.
        let changes = [
            (
                "edit",
                &author,
                Method::PUT,
                path.to_owned(),
                Some(title),
                (|post| post["title"] == "edited") as fn(&Value) -> bool,
            ),
            ("like", liker, Method::PUT, format!("{path}/like"), None, |post| post["likes"] == 1),
            ("deletion", &author, Method::DELETE, path.to_owned(), None, |post| post["status"] == 404),
        ];
        for (name, caller, method, changed, body, shows) in changes {
            let (made, over) = (Cell::new(None::<Instant>), Cell::new(false));
            let others = join_all(readers.iter().map(async |reader| {
                let (mut stale, mut count) = (Duration::ZERO, 0);
                while !over.get() {
                    let since = made.get().map(|made| made.elapsed());
                    if !shows(&reader.get(path).await.body) {
                        stale = stale.max(since.unwrap_or_default());
                    }
                    count += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                (stale, count)
            }));
            let change = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(caller.send(method, &changed, &[], body).await.status < 300, "{name}");
                made.set(Some(Instant::now()));
                assert!(shows(&caller.get(path).await.body), "{name} is not visible to its caller");
                tokio::time::sleep(STALE + Duration::from_secs(1)).await;
                over.set(true);
            };
            let (lanes, ()) = futures::join!(others, change);
            let stale = lanes.iter().map(|(stale, _)| *stale).max().unwrap();
            reads += lanes.iter().map(|(_, count)| *count).sum::<usize>();
            println!("{name}: others see the state before it for {} ms", stale.as_millis());
            assert!(stale < STALE, "{name}: {stale:?}");
        }
        let units = proxy.meter().units;
        println!("{reads} reads beside an edit, a like and a deletion: {units} units, the writes included");
        // The number of reads depends on the machine. A change makes at most one read of each reader cold.
        assert!(units <= 3.0 * READERS as f64 * COLD_UNITS, "{units} units for {reads} reads");
    });
}

/// Warm pages of 100 posts by 100 authors who all have profiles.
#[test]
fn profiles_on_a_page_cost_no_round_trip() {
    const AUTHORS: u64 = 100;
    world(async |world| {
        let authors: Vec<u64> = (1_000..1_000 + AUTHORS).collect();
        let readers: Vec<User> = (10..110).map(|reader| world.user(reader)).collect();
        for &author in &authors {
            let profile = json!({ "name": format!("Author {author}"), "handle": format!("author_{author}") });
            world.user(author).put_body("/v1/me/profile", &profile).await.ok();
        }
        let ids: Vec<String> = authors.iter().map(u64::to_string).collect();
        for reader in &readers {
            for some in ids.chunks(50) {
                reader.post("/v1/following", &json!({ "authors": some })).await.ok();
            }
            reader.get("/v1/feed?limit=1").await.ok();
        }
        for &author in &authors {
            world.user(author).publish("one").await;
        }
        world.idle().await;
        let paths = ["/v1/feed?limit=100&profiles=false", "/v1/feed?limit=100"];
        // Round trips and the server's microseconds, summed over all rounds.
        let mut costs = [(0, 0); 2];
        let spent = async || (world.redis_sum("stats", "total_reads_processed").await, world.redis_time().await);
        for round in 0..6 {
            for (path, cost) in paths.iter().zip(&mut costs) {
                let before = spent().await;
                for reader in &readers {
                    let page = reader.get(path).await.ok();
                    assert_eq!(page["items"].as_array().unwrap().len(), 100);
                    let named = page["profiles"].as_object().map_or(0, serde_json::Map::len);
                    assert_eq!(named, if path.contains("false") { 0 } else { 100 });
                }
                let after = spent().await;
                if round > 0 {
                    *cost = (cost.0 + after.0 - before.0, cost.1 + after.1 - before.1);
                }
            }
        }
        let [(trips_without, micros_without), (trips, micros)] = costs;
        let ratio = micros as f64 / micros_without as f64;
        println!(
            "500 pages: {trips_without} → {trips} reads of a socket, {micros_without} → {micros} µs of Redis, ratio {ratio:.2}"
        );
        assert!(trips <= trips_without + trips_without / 20, "{trips_without} → {trips}");
    });
}

#[test]
fn a_post_that_was_read_before_an_edit_is_not_stored_after_redis_lost_the_edit() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.user(7));
        author.publish("Before").await;
        let app = world.stack.app("read-feed").unwrap();
        let (id, views) = ("1-1".parse().unwrap(), &app.stores.post_views);
        let read = |lease| async move {
            views.lease(&[id], lease).await.unwrap();
            let (post, text) = app.stores.posts.with_texts(&[id]).await.unwrap().remove(&id).unwrap();
            [(post.into(), text)]
        };
        let before = read(1).await;
        author.put_body("/v1/posts/1-1", &json!({ "title": "After" })).await.ok();
        world.flush_redis().await;
        views.remember(&before, Some(1)).await.unwrap();
        assert_eq!(reader.get("/v1/posts/1-1").await.ok()["title"], "After");
        // Another reader took the lease, so it read the facts later.
        let (first, second) = (read(2).await, read(3).await);
        world.flush_redis().await;
        views.lease(&[id], 3).await.unwrap();
        views.remember(&first, Some(2)).await.unwrap();
        assert!(views.summaries(&[id]).await.unwrap().is_empty());
        views.remember(&second, Some(3)).await.unwrap();
        assert_eq!(views.summaries(&[id]).await.unwrap().len(), 1);
    });
}
