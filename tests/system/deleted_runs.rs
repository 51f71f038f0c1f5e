//! Authors with long runs of deleted posts. A page, a feed and a rebuild cost as much as without deleted posts.

use std::time::Instant;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use serde_json::{Value, json};
use tidemark::{
    domain::{AuthorHead, PostId, Seq, SeqSet, Timestamp, UserId},
    facts::schema,
};
use tidemark_tests::{
    User, World,
    items::{Item, n, s, with_attributes},
    user_id, world,
};

use super::damage::proxy::{Proxy, world_behind_a_proxy};

const DELETED: u64 = 100_000;
const LIVE: u64 = 150;

/// The time of the first post. Each later post is one millisecond younger.
pub(super) const FIRST_MS: u64 = 1_700_000_000_000;

fn bytes(seqs: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.to_bytes()))
}

/// The item of a post or of its tombstone.
pub(super) fn post(author: UserId, seq: Seq, deleted: bool, archived: bool) -> Item {
    let at = Timestamp::from_ms(FIRST_MS + seq);
    let mut attributes = vec![
        ("at", n(at.ms())),
        ("time", s(schema::post_time(at, seq))),
        ("mode", s("push")),
        ("state", s(if deleted { "cancelled" } else { "done" })),
        ("followers", n(0)),
        ("pages", n(0)),
        if deleted { ("tombstone", AttributeValue::Bool(true)) } else { ("title", s("live")) },
    ];
    attributes.extend(archived.then_some(("archived", AttributeValue::Bool(true))));
    with_attributes(schema::post(PostId::new(author, seq)), &attributes)
}

/// The item of an author's head. `None` for `archive` omits the attribute, as in old heads.
fn head(author: UserId, head: &AuthorHead, archive: Option<&SeqSet>) -> Item {
    let mut attributes = vec![
        ("latest_seq", n(head.latest_seq)),
        ("latest_at", n(FIRST_MS + head.latest_seq)),
        ("posts", n(head.implied_posts())),
        ("archived", n(head.archived)),
    ];
    if !head.deleted.is_empty() {
        attributes.extend([("deleted", bytes(&head.deleted)), ("deletions", n(head.deleted.len()))]);
    }
    attributes.extend(archive.map(|archive| ("archived_seqs", bytes(archive))));
    with_attributes(schema::head(author), &attributes)
}

/// An author of [`LIVE`] posts, with a run of deleted posts before the last of them. Only the newest `tombstones`
/// still exist.
async fn plant(world: &World, author: UserId, deleted: u64, tombstones: u64) {
    let latest = LIVE + deleted;
    let mut facts = AuthorHead { latest_seq: latest, ..AuthorHead::default() };
    facts.deleted.insert_range(LIVE, latest - 1);
    let live = (1..LIVE).chain([latest]).map(|seq| post(author, seq, false, false));
    let tombstones = (latest - tombstones..latest).map(|seq| post(author, seq, true, false));
    world.put_items("PostsTable", live.chain(tombstones).chain([head(author, &facts, None)])).await;
}

/// The cost: requests to DynamoDB, and time.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: u64,
    ms: f64,
}

/// Measures `what`: the average number of requests, and the median time.
async fn cost(proxy: &Proxy, times: usize, what: impl AsyncFn()) -> Cost {
    what().await;
    proxy.meter();
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let started = Instant::now();
        what().await;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let requests = proxy.meter().requests.values().sum::<u64>() / times as u64;
    Cost { requests, ms: took[times / 2].as_secs_f64() * 1000.0 }
}

/// Compares pages, feeds and rebuilds of an author with deleted posts and of one without.
fn compare(tombstones: u64) {
    world_behind_a_proxy(async |world, proxy| {
        let [without, with] = [10, 20];
        plant(world, user_id(without), 0, 0).await;
        plant(world, user_id(with), DELETED, tombstones).await;
        for (reader, author) in [(1, without), (2, with)] {
            world.user(reader).put(&format!("/v1/following/{author}")).await.ok();
        }
        world.idle().await;

        let below_the_first = async |author: u64| {
            let page = world.user(9).get(&format!("/v1/authors/{author}/posts?limit=1")).await.ok();
            assert_eq!((&page["items"][0]["title"], &page["total"]), (&json!("live"), &json!(LIVE)));
            page["next_cursor"].as_str().unwrap().to_owned()
        };
        let cursors = [below_the_first(without).await, below_the_first(with).await];
        let mut costs: Vec<(&str, [Cost; 2])> = Vec::new();
        for (name, query) in [("a page of one post", "limit=1"), ("a page of a hundred", "limit=100")] {
            let of = async |index: usize| {
                let path = format!("/v1/authors/{}/posts?{query}&cursor={}", [without, with][index], cursors[index]);
                cost(proxy, 40, async || {
                    let page = world.user(9).get(&path).await.ok();
                    assert_eq!(page["items"][0]["seq"], LIVE - 1, "{page}");
                })
                .await
            };
            costs.push((name, [of(0).await, of(1).await]));
        }
        let rebuild = async |reader: u64| {
            cost(proxy, 15, async || {
                world.flush_redis().await;
                assert_eq!(world.user(reader).get("/v1/feed?limit=100").await.ok()["items"].as_array().unwrap().len(), 100);
                world.idle().await;
            })
            .await
        };
        costs.push(("a rebuild", [rebuild(1).await, rebuild(2).await]));
        for (name, [without, with]) in &costs {
            println!(
                "{name}: {} requests, {:.1} ms; with {DELETED} deleted posts {} requests, {:.1} ms",
                without.requests, without.ms, with.requests, with.ms
            );
        }
        for (name, [without, with]) in costs {
            assert!(with.requests <= 2 * without.requests, "{name}: {} instead of {}", with.requests, without.requests);
            assert!(!name.contains("page") || with.requests <= 6, "{name}: {}", with.requests);
        }
        assert_eq!(world.user(9).walk(&format!("/v1/authors/{with}/posts"), 100).await.len() as u64, LIVE);
        assert_eq!(world.user(2).walk("/v1/feed", 7).await.len(), 100, "the newest hundred are the backlog of a new follower");
    });
}

#[test]
fn a_run_of_deleted_posts_adds_no_cost_to_a_page_or_a_rebuild() {
    compare(2_000);
}

/// The same with all tombstones present: `cargo test -p tidemark-tests --test system -- --ignored --nocapture
/// deleted_runs`.
#[test]
#[ignore = "a measurement"]
fn a_hundred_thousand_tombstones() {
    compare(DELETED);
}

async fn seqs(reader: &User, limit: usize) -> Vec<Value> {
    reader.walk("/v1/authors/10/posts", limit).await.iter().map(|post| post["seq"].clone()).collect()
}

#[test]
fn archived_posts_are_listed_among_deleted_ones_and_are_in_no_feed() {
    world(async |world: &World| {
        let reader = world.user(1);
        // Posts 3 and 6 are archived, posts 4, 5 and 7 are deleted.
        let archive: SeqSet = [3, 6].into_iter().collect();
        let facts = AuthorHead { latest_seq: 8, deleted: (3..=7).collect(), archived: 2, ..AuthorHead::default() };
        let posts = || (1..=8).map(|seq| post(user_id(10), seq, [4, 5, 7].contains(&seq), archive.contains(seq)));
        // An old head without archives gives the same list. Its pages may be short.
        for archive in [None, Some(&archive)] {
            world.put_items("PostsTable", posts().chain([head(user_id(10), &facts, archive)])).await;
            for limit in [1, 2, 100] {
                assert_eq!(seqs(&reader, limit).await, [8, 6, 3, 2, 1], "{archive:?}");
            }
        }
        let page = reader.get("/v1/authors/10/posts?limit=3").await.ok();
        assert_eq!(page["items"].as_array().unwrap().len(), 3);
        reader.put("/v1/following/10").await.ok();
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["10-8", "10-2", "10-1"]);
        // The deletion of an archived post removes it from the archive and from the list.
        world.user(10).delete("/v1/posts/10-6").await.ok();
        world.idle().await;
        assert_eq!(seqs(&reader, 1).await, [8, 3, 2, 1]);
        let head =
            world.stack.app("publish").unwrap().stores.posts.heads(&[user_id(10)]).await.unwrap().remove(&user_id(10)).unwrap();
        assert_eq!((head.archived, head.archive), (1, [3].into_iter().collect()));
    });
}
