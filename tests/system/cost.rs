//! The counted cost of a publish, of old cursors, choices and walks, and of warm reads. `docs/fan-out.md` uses the
//! numbers of a publish.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use futures::future::join_all;
use serde_json::{Value, json};
use tidemark_tests::{User, World, items::s, parameter, while_leased, world};

use crate::{
    at_once,
    damage::proxy::{Fate, Proxy, world_behind_a_proxy, world_behind_a_proxy_with},
    publish_and_deliver_all,
    turns::{bulk_calls, log_calls},
};

const FOLLOWERS: u64 = 1_200;

/// From the first request on, Redis knows for an hour that the author may call.
#[test]
fn a_publish_reads_counters_once_the_head_twice_and_each_shard_once_if_it_is_pushed() {
    world_behind_a_proxy_with(parameter("PullThreshold", 3), async |world, proxy| {
        world.follow(1..=2, 10).await;
        world.follow(1..=3, 11).await;
        world.user(10).unread_total().await;
        world.publish_and_deliver(11, "pushed, and the last one").await;
        let asked = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
        let seen = Arc::clone(&asked);
        proxy.decide(move |request| {
            if request.function == "publish" && !request.is_of_the_outage_note() {
                *seen.lock().unwrap().entry(request.operation).or_default() += 1;
            }
            Fate::Forwarded
        });
        // The head is read before and after. A pulled post is delivered when it is published.
        for (author, then) in [(10, ("Query", 16)), (11, ("UpdateItem", 1))] {
            world.publish_and_deliver(author, "counted").await;
            let expected = [("BatchGetItem", 3), ("TransactWriteItems", 1), then];
            let expected = expected.map(|(operation, count)| (operation.to_owned(), count)).into();
            assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), expected, "author {author}");
        }
    });
}

#[test]
fn a_publish_costs_what_the_page_says() {
    world(async |world| {
        // The longest possible ids, because the document states the largest cost.
        let first = u64::MAX - FOLLOWERS;
        world.follow_at_once((0..FOLLOWERS).map(|follower| first + follower), 10).await;
        world.idle().await;
        world.publish_and_deliver(10, "loads the library").await;

        world.stack.pause("fan-out").await.unwrap();
        world.user(10).publish("counted").await;
        let messages = world.waiting("FanOutQueue").await;
        let bytes: usize = world.messages("FanOutQueue").await.iter().map(String::len).sum();
        assert_eq!(messages, 2, "one message for each page of 1,000 followers");
        assert!((20 * FOLLOWERS..23 * FOLLOWERS).contains(&(bytes as u64)), "about 21 bytes for each follower: {bytes}");
        let mut nodes = world.redis_nodes().await;
        log_calls(&mut nodes).await;
        let calls = async || world.redis_calls().await.get("fcall").copied().unwrap_or(0);
        let before = calls().await;
        world.resume("fan-out").await;
        let made = calls().await - before;
        let logged = join_all(nodes.iter_mut().map(bulk_calls)).await.concat();
        let (deliveries, turns): (Vec<&String>, Vec<&String>) = logged.iter().partition(|name| name.starts_with("deliver"));
        // A call delivers to 35 followers, the last one of each page to fewer, and asks for the next turn. A trip that
        // misses its turn asks once more. One more call for each page stores the progress.
        let least = FOLLOWERS.div_ceil(35) as usize;
        assert!((least..least + messages).contains(&deliveries.len()), "{logged:?}");
        assert!((deliveries.len()..=2 * deliveries.len()).contains(&turns.len()), "{logged:?}");
        let others = made - logged.len() as u64;
        assert!((messages as u64..=messages as u64 + 4).contains(&others), "{others} of {made} calls: {logged:?}");

        let query = world.dynamodb().await.query().table_name("FollowersTable").consistent_read(true);
        let query = query.key_condition_expression("#shard = :shard").expression_attribute_names("#shard", "shard");
        let query = query.expression_attribute_values(":shard", s("10#03"));
        let page = query.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();
        let units = page.consumed_capacity().unwrap().capacity_units().unwrap();
        let per_thousand = units / page.items().len() as f64 * 1000.0;
        println!("{units} units for {} followers: {per_thousand:.1} a thousand", page.items().len());
        assert!((20.0..=30.0).contains(&per_thousand), "{per_thousand}");
    });
}

#[test]
fn requests_that_come_together_read_the_outage_note_once_a_second() {
    world_behind_a_proxy(async |world, proxy| {
        world.follow(1..=20, 100).await;
        world.publish_and_deliver(100, "read by all").await;
        let reads = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&reads);
        proxy.decide(move |request| {
            let of_note = request.operation == "BatchGetItem" && request.is_of_the_outage_note();
            *seen.lock().unwrap() += usize::from(request.function == "read-feed" && of_note);
            Fate::Forwarded
        });
        let since = Instant::now();
        for _ in 0..5 {
            at_once(20, 1..=20, async |reader| drop(world.user(reader).feed_ids().await)).await;
        }
        let (reads, seconds) = (*reads.lock().unwrap(), since.elapsed().as_secs() as usize);
        assert!(reads <= seconds + 2, "{reads} reads for 100 requests in less than {} s", seconds + 1);
    });
}

/// Followed authors in the tests below, and posts of each.
const FOLLOWED: u64 = 60;
const POSTS: u64 = 20;

/// Units for which the end of a mute reads one post of the author.
const UNITS_OF_PLACE: f64 = 0.3;

/// Units of the facts that one request may cost, for each followed author and in addition (docs/architecture.md,
/// "Limits").
const UNITS_PER_AUTHOR: f64 = 3.0;
const MORE_UNITS: f64 = 250.0;
/// The same for each post of a page with texts and counts.
const UNITS_OF_TEXT: f64 = 4.0;

/// Reader 1 follows authors who have more posts than a feed stores, and has followed as many others before.
async fn an_old_reader(world: &World) {
    let reader = world.user(1);
    at_once(8, 100..100 + FOLLOWED, async |author| {
        reader.follow([author]).await;
        for _ in 0..2 {
            reader.follow([author + FOLLOWED]).await;
            reader.delete(&format!("/v1/following/{}", author + FOLLOWED)).await.ok();
        }
        world.user(author).publish_all(0..POSTS).await;
    })
    .await;
    world.idle().await;
}

#[test]
fn no_old_cursor_and_no_old_time_costs_more_than_the_stated_units() {
    world_behind_a_proxy(async |world, proxy| {
        an_old_reader(world).await;
        let (reader, most) = (world.user(1), UNITS_PER_AUTHOR * FOLLOWED as f64 + MORE_UNITS);
        let spent = |what: &str| {
            let units = proxy.meter().units;
            let most = if what.contains("include") { most + 100.0 * UNITS_OF_TEXT } else { most };
            println!("{what}: {units:.1} units, at most {most:.0}");
            assert!(units <= most, "{what}: {units} units");
        };
        reader.publish_all(0..POSTS).await;
        proxy.meter();
        for (order, pages) in [
            ("order=time", usize::MAX),
            ("order=oldest", usize::MAX),
            ("status=unread", 4),
            ("order=oldest&status=unread", 4),
            ("order=ranked", 4),
            ("own=true", 4),
            ("order=oldest&own=true", 4),
            ("order=ranked&own=true", 4),
            ("include=body", 12),
        ] {
            let mut path = format!("/v1/feed?limit=100&{order}");
            for page in 1..=pages {
                let response = reader.get(&path).await.ok();
                spent(&format!("page {page} of the feed with {order}"));
                let Some(cursor) = response["next_cursor"].as_str() else { break };
                path = format!("/v1/feed?limit=100&{order}&cursor={cursor}");
            }
        }
        for before in ["2001-01-01T00:00:00.000Z", "2100-01-01T00:00:00.000Z"] {
            reader.post("/v1/reads", &json!({ "all": true, "before": before })).await.ok();
            spent(&format!("all read before {before}"));
        }
        for path in ["/v1/mutes", "/v1/blocks", "/v1/users/1/following?limit=100", "/v1/users/1/following?offset=50"] {
            reader.get(path).await.ok();
            spent(path);
        }
    });
}

/// A choice changes the pair and the view's field. Only the end of a mute reads posts: those of one author, once.
#[test]
fn a_mute_a_preference_and_a_list_cost_the_same_for_any_number_of_posts() {
    world_behind_a_proxy(async |world, proxy| {
        let reader = world.user(1);
        let list = reader.post("/v1/lists", &json!({ "name": "x" })).await.body["id"].as_str().unwrap().to_owned();
        reader.follow([2, 3]).await;
        world.user(2).publish("one").await;
        world.user(3).publish_all(["one of many"; 300]).await;
        reader.get("/v1/feed?order=ranked").await.ok();
        world.idle().await;
        let (mut units, mut unmute) = (Vec::new(), Vec::new());
        for author in [2, 3] {
            proxy.meter();
            reader.put(&format!("/v1/mutes/{author}")).await.ok();
            reader.put_body(&format!("/v1/following/{author}"), &json!({ "preference": 3 })).await.ok();
            reader.put(&format!("/v1/lists/{list}/authors/{author}")).await.ok();
            world.idle().await;
            units.push(proxy.meter().units);
            reader.delete(&format!("/v1/mutes/{author}")).await.ok();
            world.idle().await;
            unmute.push(proxy.meter().units);
        }
        println!("three choices: {units:.1?} units with one post and with 300; the end of a mute: {unmute:.1?}");
        assert!(units[1] < units[0] * 1.3 + 5.0, "{units:?}");
        assert!(unmute[1] - unmute[0] <= 300.0 * UNITS_OF_PLACE, "{unmute:?}");
        assert_eq!(reader.get("/v1/unread").await.ok()["total"], 301);
    });
}

/// A repeated mute or block reads its own pair alone.
#[test]
fn a_mute_and_a_block_cost_the_same_for_any_number_of_them_once_they_exist() {
    world_behind_a_proxy(async |world, proxy| {
        let user = world.user(1);
        let hide = async |author: u64| {
            for kind in ["mutes", "blocks"] {
                user.put(&format!("/v1/{kind}/{author}")).await.ok();
            }
            world.idle().await;
        };
        let mut units = Vec::new();
        for authors in [10..12, 12..212] {
            join_all(authors.map(hide)).await;
            proxy.meter();
            hide(10).await;
            units.push(proxy.meter().units);
        }
        // A query of so many pairs takes 7 units.
        assert!(units[1] < units[0] + 3.0, "{units:?}");
    });
}

/// A reader who has no view reads posts of many authors. One of them is the reader's own, for which no view is needed.
#[test]
fn posts_of_many_authors_rebuild_a_missing_view_once_in_any_order() {
    world_behind_a_proxy(async |world, proxy| {
        let (reader, authors) = (world.user(1), 100..140);
        reader.follow(authors.clone()).await;
        publish_and_deliver_all(world, authors.clone().chain([1]), ["one"]).await;
        let mut units = Vec::new();
        for own_at in [20, 0] {
            world.flush_redis().await;
            let mut posts: Vec<String> = authors.clone().take(20).map(|author| format!("post={author}-1")).collect();
            posts.insert(own_at, "post=1-1".to_owned());
            proxy.meter();
            let found = reader.get(&format!("/v1/posts?{}", posts.join("&"))).await;
            assert_eq!(found.items().len(), 21);
            units.push(proxy.meter().units);
        }
        println!("21 posts: {:.1} units with the reader's own at the end, {:.1} with it first", units[0], units[1]);
        assert!(units[1] < units[0] * 1.3 + 5.0, "{units:?}");
    });
}

/// Posts of followed authors on a page with counts, and posts of other authors by id. Each has its own counts.
#[test]
fn a_hundred_cold_posts_are_read_from_the_facts_together() {
    const POSTS: u64 = 100;
    // Likes, favorites, reposts and comments. Authors share sequence numbers, and two have two posts.
    const COUNTED: [(&str, [u64; 4]); 6] = [
        ("102-1", [2, 0, 0, 0]),
        ("101-1", [0, 1, 0, 1]),
        ("101-2", [1, 0, 0, 0]),
        ("301-1", [0, 0, 1, 0]),
        ("301-2", [0, 0, 0, 2]),
        ("302-1", [1, 0, 0, 1]),
    ];
    world_behind_a_proxy(async |world, proxy| {
        let (reader, followed, others) = (world.user(1), 100..100 + POSTS, 300..300 + POSTS);
        reader.follow(followed.clone()).await;
        publish_and_deliver_all(world, followed.chain(others.clone()), ["one"]).await;
        publish_and_deliver_all(world, [101, 301], ["two"]).await;
        for (post, counts) in COUNTED {
            for (kind, count) in ["like", "favorite", "repost", "comments"].into_iter().zip(counts) {
                for user in 11..11 + count {
                    let (user, path) = (world.user(user), format!("/v1/posts/{post}/{kind}"));
                    let response = match kind {
                        "comments" => user.post(&path, &json!({ "text": "x" })).await,
                        _ => user.put(&path).await,
                    };
                    response.ok();
                }
            }
        }
        let others = others.skip(1).map(|author| format!("post={author}-1")).collect::<Vec<_>>().join("&");
        for path in [format!("/v1/posts?post=301-2&{others}"), "/v1/feed?limit=100&include=body".to_owned()] {
            world.idle().await;
            world.flush_redis().await;
            reader.get("/v1/unread").await.ok();
            world.idle().await;
            proxy.meter();
            let items = reader.get(&path).await.items();
            let requests = proxy.meter().requests;
            assert_eq!(items.len() as u64, POSTS, "{path}");
            for item in items {
                let counts = ["likes", "favorites", "reposts", "comments"].map(|name| item[name].as_u64().unwrap());
                let expected = COUNTED.iter().find(|(post, _)| item["id"] == *post).map_or([0; 4], |(_, counts)| *counts);
                assert_eq!(counts, expected, "{item}");
            }
            println!("{path:.20}: {requests:?}");
            let count: u64 = requests.values().sum();
            assert!(count <= 30, "{path}: {requests:?}");
        }
    });
}

/// Units for which a walk compares a user, and each edge of the user, once from either side: of the users outside and
/// inside the sample (docs/reconcile.md).
const WALK_UNITS: [(f64, [f64; 2]); 2] = [(0.0, [93.0, 0.12]), (1.0, [158.0, 5.7])];

#[test]
fn a_walk_costs_what_the_page_says() {
    const READERS: u64 = 40;
    world_behind_a_proxy(async |world, proxy| {
        let mut measured = Vec::new();
        for authors in [10_u64, 50] {
            let followed = 1_001..=1_000 + authors;
            let ids: Vec<String> = followed.clone().map(|author| author.to_string()).collect();
            for reader in 1..=READERS {
                world.user(reader).post("/v1/following", &json!({ "authors": ids })).await.ok();
            }
            world.read_feeds(1..=READERS).await;
            publish_and_deliver_all(world, followed, ["compared"]).await;
            for (share, _) in WALK_UNITS {
                proxy.meter();
                let walk = json!({ "job": "users", "share": share, "settle_ms": 0 });
                let report = world.reconcile(walk).await;
                assert_eq!((&report["next"], &report["found"]), (&Value::Null, &json!({})));
                measured.push(((READERS + authors) as f64, (READERS * authors) as f64, proxy.meter().units));
            }
        }
        for (index, (share, stated)) in WALK_UNITS.into_iter().enumerate() {
            let ((users, edges, units), (more_users, more_edges, more_units)) = (measured[index], measured[index + 2]);
            let per_edge = (more_units - units * more_users / users) / (more_edges - edges * more_users / users);
            let per_user = (units - per_edge * edges) / users;
            println!("share {share}: {per_user:.1} units for each user, {per_edge:.2} for each edge");
            for (measured, stated) in [per_user, per_edge].into_iter().zip(stated) {
                assert!((0.8..=1.2).contains(&(measured / stated)), "{measured} instead of {stated}");
            }
        }
    });
}

const READS: usize = 1_000;
const WARM_READERS: u64 = 20;

/// A read of a post that is not warm: flags, reactions and 16 counts from the facts.
const COLD_UNITS: f64 = 22.0;

/// The time that others may see the state before a change.
const STALE: Duration = Duration::from_secs(3);

fn warm_readers(world: &World) -> Vec<User> {
    (10..10 + WARM_READERS).map(|reader| world.user(reader)).collect()
}

/// 30 posts of an author whom half of the readers follow.
async fn thirty_posts(world: &World) -> User {
    let author = world.user(1);
    world.follow((10..10 + WARM_READERS).step_by(2), 1).await;
    for number in 1..=30 {
        author.post("/v1/posts", &json!({ "title": format!("post {number}"), "body": "text" })).await.ok();
    }
    world.idle().await;
    author
}

/// The units of the facts that one read costs, after every reader has read once.
async fn units_of_a_read(world: &World, proxy: &Proxy, path: &str) -> f64 {
    let readers = warm_readers(world);
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
        thirty_posts(world).await;
        for path in ["/v1/posts/1-30", "/v1/authors/1/posts", "/v1/authors/1/posts?include=body"] {
            let units = units_of_a_read(world, proxy, path).await;
            println!("{path}: {units:.3} units a read, {:.2} % of a cold one", 100.0 * units / COLD_UNITS);
            assert!(units <= COLD_UNITS / 100.0, "{path}: {units} units a read");
        }
    });
}

#[test]
fn a_change_of_a_warm_post_is_visible_to_its_caller_at_once_and_to_others_soon() {
    world_behind_a_proxy(async |world, proxy| {
        let author = thirty_posts(world).await;
        let (path, readers) = ("/v1/posts/1-30", warm_readers(world));
        units_of_a_read(world, proxy, path).await;
        proxy.meter();
        let mut reads = 0;
        let liker = &readers[3];
        let edit = format!(r#"PUT {path} {{"title": "edited"}}"#);
        // Each change, how long others may miss it, and whether a response shows it.
        let changes = [
            ("edit", &author, edit, Duration::ZERO, (|post| post["title"] == "edited") as fn(&Value) -> bool),
            ("like", liker, format!("PUT {path}/like"), STALE, |post| post["likes"] == 1),
            ("deletion", &author, format!("DELETE {path}"), Duration::ZERO, |post| post["status"] == 404),
        ];
        for (name, caller, request, at_most, shows) in changes {
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
                assert!(caller.request(&request).await.status < 300, "{name}");
                made.set(Some(Instant::now()));
                assert!(shows(&caller.get(path).await.body), "{name} is not visible to its caller");
                tokio::time::sleep(STALE + Duration::from_secs(1)).await;
                over.set(true);
            };
            let (lanes, ()) = futures::join!(others, change);
            let stale = lanes.iter().map(|(stale, _)| *stale).max().unwrap();
            reads += lanes.iter().map(|(_, count)| *count).sum::<usize>();
            println!("{name}: others see the state before it for {} ms", stale.as_millis());
            assert!(stale <= at_most, "{name}: {stale:?}");
        }
        let units = proxy.meter().units;
        println!("{reads} reads beside an edit, a like and a deletion: {units} units, the writes included");
        // The number of reads depends on the machine. A change makes at most one read of each reader cold.
        assert!(units <= 3.0 * WARM_READERS as f64 * COLD_UNITS, "{units} units for {reads} reads");
    });
}

/// Warm pages of 100 posts by 100 authors who all have profiles.
#[test]
fn profiles_on_a_page_cost_no_round_trip() {
    const AUTHORS: u64 = 100;
    world(async |world| {
        let authors: Vec<u64> = (1_000..1_000 + AUTHORS).collect();
        let readers: Vec<User> = (10..30).map(|reader| world.user(reader)).collect();
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
        publish_and_deliver_all(world, authors, ["one"]).await;
        let paths = ["/v1/feed?limit=100&profiles=false", "/v1/feed?limit=100"];
        // Round trips and the server's microseconds, summed over all rounds.
        let mut costs = [(0, 0); 2];
        let reads = async || world.redis_sum::<u64>("stats", "total_reads_processed").await;
        let spent = async || (reads().await, world.redis_micros().await.into_values().sum::<u64>());
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
            "100 pages: {trips_without} → {trips} reads of a socket, {micros_without} → {micros} µs of Redis, ratio {ratio:.2}"
        );
        // One more trip for each of the 100 pages would be more. Connections of the test that end late are fewer.
        assert!(trips < trips_without + 50, "{trips_without} → {trips}");
    });
}

#[test]
fn a_post_that_was_read_before_an_edit_is_not_stored_after_redis_lost_the_edit() {
    world(async |world| {
        let (author, reader) = (world.user(1), world.user(7));
        author.publish("Before").await;
        let app = world.stack.app("read-feed").unwrap();
        let (id, views) = ("1-1".parse().unwrap(), &app.stores.views);
        let read = |lease| async move {
            views.lease_posts(&[id], lease).await.unwrap();
            let (post, text) = app.stores.facts.posts_with_texts(&[id]).await.unwrap().remove(&id).unwrap();
            [(post.into(), text)]
        };
        let before = read(1).await;
        author.put_body("/v1/posts/1-1", &json!({ "title": "After" })).await.ok();
        world.flush_redis().await;
        views.remember_posts(&before, Some(1)).await.unwrap();
        assert_eq!(reader.get("/v1/posts/1-1").await.ok()["title"], "After");
        // Another reader took the lease, so it read the facts later.
        let (first, second) = (read(2).await, read(3).await);
        while_leased(async || {
            world.flush_redis().await;
            views.lease_posts(&[id], 3).await.unwrap();
            views.remember_posts(&first, Some(2)).await.unwrap();
            assert!(views.summaries(&[id]).await.unwrap().is_empty());
            views.remember_posts(&second, Some(3)).await.unwrap();
        })
        .await;
        assert_eq!(views.summaries(&[id]).await.unwrap().len(), 1);
    });
}

/// Read and write units of a mark in busy times, and of a like and a follow in quiet times, with all that follows from
/// them (docs/scale.md). Acts of one second share a part.
const MARK_UNITS: [f64; 2] = [4.0, 1.0];
const LIKE_UNITS: [f64; 2] = [58.0, 12.0];
const FOLLOW_UNITS: [f64; 2] = [64.0, 13.0];

#[test]
fn a_mark_a_like_and_a_follow_cost_what_the_page_says() {
    const USERS: u64 = 20;
    let [mark, like, follow] = [MARK_UNITS, LIKE_UNITS, FOLLOW_UNITS].map(|[rru, wru]| format!("{rru} RRU and {wru} WRU"));
    let stated = format!("A mark is {mark}, a like {like}, a follow {follow}");
    assert!(include_str!("../../docs/scale.md").contains(&stated), "docs/scale.md does not say: {stated}");
    world_behind_a_proxy(async |world, proxy| {
        let [first, post] = [world.publish_and_deliver(10, "first").await, world.publish_and_deliver(10, "then").await];
        for user in 1_000..=1_000 + USERS {
            world.user(user).feed_ids().await;
            // An author's first mark of a reader has an entry in an index too.
            world.user(user).put(&format!("/v1/posts/{first}/read")).await.ok();
        }
        for (path, stated, is_quiet) in [
            ("/v1/following/10".to_owned(), FOLLOW_UNITS, true),
            (format!("/v1/posts/{post}/like"), LIKE_UNITS, true),
            (format!("/v1/posts/{post}/read"), MARK_UNITS, false),
        ] {
            world.user(1_000).put(&path).await.ok();
            world.idle().await;
            proxy.meter();
            let together = if is_quiet { 1 } else { USERS as usize };
            at_once(together, 1_001..=1_000 + USERS, async |user| {
                world.user(user).put(&path).await.ok();
                if is_quiet {
                    world.idle().await;
                }
            })
            .await;
            world.idle().await;
            let meter = proxy.meter();
            let units = [meter.units - meter.written, meter.written].map(|units| units / USERS as f64);
            println!("{path}: {units:?}, stated {stated:?}");
            for (units, stated) in units.into_iter().zip(stated) {
                assert!((units - stated).abs() <= 0.2 * stated, "{path}: {units} instead of {stated}");
            }
        }
    });
}
