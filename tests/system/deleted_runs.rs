//! Authors with long runs of deleted posts. A page, a feed and a rebuild cost as much as without deleted posts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Instant,
};

use aws_sdk_dynamodb::{
    Client,
    primitives::Blob,
    types::{AttributeValue, PutRequest, WriteRequest},
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tidemark::{
    domain::{AuthorHead, PostId, Seq, SeqSet, Timestamp, UserId},
    facts::schema,
};
use tidemark_tests::{User, World, world, world_with};

use super::permissions::{Seen, Tap};

type Item = HashMap<String, AttributeValue>;

const DELETED: u64 = 100_000;
const LIVE: u64 = 150;

/// The time of the first post. Each later post is one millisecond younger.
pub(super) const FIRST_MS: u64 = 1_700_000_000_000;

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn bytes(seqs: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.to_bytes()))
}

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

/// The item of a post or of its tombstone.
pub(super) fn post(author: UserId, seq: Seq, deleted: bool, archived: bool) -> Item {
    let at = Timestamp::from_ms(FIRST_MS + seq);
    let s = |text: &str| AttributeValue::S(text.to_owned());
    let mut item = schema::post(PostId::new(author, seq));
    item.extend([
        ("at".to_owned(), n(at.ms())),
        ("time".to_owned(), s(&schema::post_time(at, seq))),
        ("mode".to_owned(), s("push")),
        ("state".to_owned(), s(if deleted { "cancelled" } else { "done" })),
        ("followers".to_owned(), n(0)),
        ("pages".to_owned(), n(0)),
    ]);
    item.extend([match deleted {
        true => ("tombstone".to_owned(), AttributeValue::Bool(true)),
        false => ("title".to_owned(), s("live")),
    }]);
    if archived {
        item.insert("archived".to_owned(), AttributeValue::Bool(true));
    }
    item
}

/// The item of an author's head. `None` for `archive` omits the attribute, as in old heads.
fn head(author: UserId, head: &AuthorHead, archive: Option<&SeqSet>) -> Item {
    let mut item = schema::head(author);
    item.extend([
        ("latest_seq".to_owned(), n(head.latest_seq)),
        ("latest_at".to_owned(), n(FIRST_MS + head.latest_seq)),
        ("posts".to_owned(), n(head.implied_posts())),
        ("archived".to_owned(), n(head.archived)),
    ]);
    if !head.deleted.is_empty() {
        item.extend([("deleted".to_owned(), bytes(&head.deleted)), ("deletions".to_owned(), n(head.deleted.len()))]);
    }
    item.extend(archive.map(|archive| ("archived_seqs".to_owned(), bytes(archive))));
    item
}

pub(super) async fn write(dynamodb: &Client, items: impl Iterator<Item = Item>) {
    let items: Vec<Item> = items.collect();
    let writes = items.chunks(25).map(async |items| {
        let put = |item: &Item| {
            WriteRequest::builder().put_request(PutRequest::builder().set_item(Some(item.clone())).build().unwrap()).build()
        };
        let response =
            dynamodb.batch_write_item().request_items("PostsTable", items.iter().map(put).collect()).send().await.unwrap();
        assert!(response.unprocessed_items().is_none_or(HashMap::is_empty));
    });
    stream::iter(writes).buffer_unordered(8).collect::<()>().await;
}

/// An author of [`LIVE`] posts, with a run of deleted posts before the last of them. Only the newest `tombstones`
/// still exist.
async fn plant(dynamodb: &Client, author: UserId, deleted: u64, tombstones: u64) {
    let latest = LIVE + deleted;
    let mut facts = AuthorHead { latest_seq: latest, ..AuthorHead::default() };
    facts.deleted.insert_range(LIVE, latest - 1);
    let live = (1..LIVE).chain([latest]).map(|seq| post(author, seq, false, false));
    let tombstones = (latest - tombstones..latest).map(|seq| post(author, seq, true, false));
    write(dynamodb, live.chain(tombstones).chain([head(author, &facts, None)])).await;
}

/// The cost: requests to DynamoDB, and time.
#[derive(Debug, Clone, Copy)]
struct Cost {
    requests: u64,
    ms: f64,
}

/// Measures `what`: the average number of requests, and the median time.
async fn cost(tap: &Tap, times: usize, what: impl AsyncFn()) -> Cost {
    what().await;
    let before = tap.requests.load(Ordering::Relaxed);
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let started = Instant::now();
        what().await;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let requests = (tap.requests.load(Ordering::Relaxed) - before) / times as u64;
    Cost { requests, ms: took[times / 2].as_secs_f64() * 1000.0 }
}

/// Compares pages, feeds and rebuilds of an author with deleted posts and of one without.
async fn compare(tombstones: u64) {
    let (address, tap) = Tap::start(&Arc::new(Mutex::new(Seen::new()))).await;
    let configure = |options: &mut tidemark_local::Options| {
        options.environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), address);
    };
    world_with(configure, async |world| {
        tap.service.set(world.stack.dynamodb_endpoint().to_owned()).unwrap();
        let dynamodb = world.dynamodb().await;
        let [without, with] = [10, 20];
        plant(&dynamodb, user(without), 0, 0).await;
        plant(&dynamodb, user(with), DELETED, tombstones).await;
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
                cost(&tap, 40, async || {
                    let page = world.user(9).get(&path).await.ok();
                    assert_eq!(page["items"][0]["seq"], LIVE - 1, "{page}");
                })
                .await
            };
            costs.push((name, [of(0).await, of(1).await]));
        }
        let rebuild = async |reader: u64| {
            cost(&tap, 15, async || {
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
    })
    .await;
}

#[tokio::test]
async fn a_run_of_deleted_posts_adds_no_cost_to_a_page_or_a_rebuild() {
    compare(2_000).await;
}

/// The same with all tombstones present: `cargo test -p tidemark-tests --test system -- --ignored --nocapture
/// deleted_runs`.
#[tokio::test]
#[ignore = "a measurement"]
async fn a_hundred_thousand_tombstones() {
    compare(DELETED).await;
}

async fn seqs(reader: &User, limit: usize) -> Vec<Value> {
    reader.walk("/v1/authors/10/posts", limit).await.iter().map(|post| post["seq"].clone()).collect()
}

#[tokio::test]
async fn archived_posts_are_listed_among_deleted_ones_and_are_in_no_feed() {
    world(async |world: &World| {
        let (dynamodb, reader) = (world.dynamodb().await, world.user(1));
        // Posts 3 and 6 are archived, posts 4, 5 and 7 are deleted.
        let archive: SeqSet = [3, 6].into_iter().collect();
        let facts = AuthorHead { latest_seq: 8, deleted: (3..=7).collect(), archived: 2, ..AuthorHead::default() };
        let posts = || (1..=8).map(|seq| post(user(10), seq, [4, 5, 7].contains(&seq), archive.contains(seq)));
        // An old head without archives gives the same list. Its pages may be short.
        for archive in [None, Some(&archive)] {
            write(&dynamodb, posts().chain([head(user(10), &facts, archive)])).await;
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
        let head = world.stack.app("publish").unwrap().stores.posts.heads(&[user(10)]).await.unwrap().remove(&user(10)).unwrap();
        assert_eq!((head.archived, head.archive), (1, [3].into_iter().collect()));
    })
    .await;
}
