//! Authors with long runs of deleted posts, for whom a page, a feed and a rebuild cost as much as without them. Read
//! states and heads that are larger than one item of DynamoDB (400 KB).

use std::time::Instant;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use futures::future::join_all;
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{AuthorHead, PostId, ReadState, Seq, SeqSet, Timestamp, UserId, feed::FEED_CAP},
    facts::schema,
};
use tidemark_tests::{
    User, World,
    items::{Item, n, s, with_attributes},
    user_id, world,
};

use crate::damage::proxy::{Proxy, world_behind_a_proxy};

const DELETED: u64 = 100_000;
const LIVE: u64 = 150;

/// The time of the first post. Each later post is one millisecond younger.
const FIRST_MS: u64 = 1_700_000_000_000;

fn bytes(seqs: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.to_bytes()))
}

/// The item of a post or of its tombstone.
pub(crate) fn post(author: UserId, seq: Seq, deleted: bool, archived: bool) -> Item {
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

/// The item of an author's head.
fn head(author: UserId, head: &AuthorHead) -> Item {
    let mut attributes = vec![
        ("latest_seq", n(head.latest_seq)),
        ("latest_at", n(FIRST_MS + head.latest_seq)),
        ("posts", n(head.implied_posts())),
        ("archived", n(head.archived)),
    ];
    if !head.deleted.is_empty() {
        attributes.extend([("deleted", bytes(&head.deleted)), ("deletions", n(head.deleted.len()))]);
    }
    if !head.archive.is_empty() {
        attributes.push(("archived_seqs", bytes(&head.archive)));
    }
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
    world.put_items("PostsTable", live.chain(tombstones).chain([head(author, &facts)])).await;
}

async fn stored_head(world: &World, author: u64) -> AuthorHead {
    let facts = &world.stack.app("publish").unwrap().stores.facts;
    facts.heads(&[user_id(author)]).await.unwrap().remove(&user_id(author)).unwrap()
}

/// Measures `what`: the average number of requests to DynamoDB, and the median time in milliseconds.
async fn cost(proxy: &Proxy, times: usize, what: impl AsyncFn()) -> (u64, f64) {
    what().await;
    proxy.meter();
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let started = Instant::now();
        what().await;
        took.push(started.elapsed());
    }
    took.sort_unstable();
    (proxy.meter().requests.values().sum::<u64>() / times as u64, took[times / 2].as_secs_f64() * 1000.0)
}

/// Compares pages, feeds and rebuilds of an author without deleted posts and of one with them.
fn compare(tombstones: u64) {
    world_behind_a_proxy(async |world, proxy| {
        plant(world, user_id(10), 0, 0).await;
        plant(world, user_id(20), DELETED, tombstones).await;
        let mut costs = Vec::new();
        for (reader, author) in [(1, 10), (2, 20)] {
            world.follow([reader], author).await;
            world.idle().await;
            let first = world.user(9).get(&format!("/v1/authors/{author}/posts?limit=1")).await.ok();
            assert_eq!((&first["items"][0]["title"], &first["total"]), (&json!("live"), &json!(LIVE)));
            let below_the_first = first["next_cursor"].as_str().unwrap();
            let page = async |limit: u64| {
                let path = format!("/v1/authors/{author}/posts?limit={limit}&cursor={below_the_first}");
                let page = async || assert_eq!(world.user(9).get(&path).await.ok()["items"][0]["seq"], LIVE - 1);
                cost(proxy, 40, page).await
            };
            let rebuild = async || {
                world.flush_redis().await;
                assert_eq!(world.user(reader).get("/v1/feed?limit=100").await.items().len(), 100);
                world.idle().await;
            };
            costs.push([page(1).await, page(100).await, cost(proxy, 15, rebuild).await]);
        }
        for (index, name) in ["a page of one post", "a page of a hundred", "a rebuild"].into_iter().enumerate() {
            let [(without, ms), (with, ms_with)] = [costs[0][index], costs[1][index]];
            println!("{name}: {without} requests, {ms:.1} ms; with {DELETED} deleted posts {with} requests, {ms_with:.1} ms");
            assert!(with <= 2 * without, "{name}: {with} instead of {without}");
            assert!(name == "a rebuild" || with <= 6, "{name}: {with}");
        }
        assert_eq!(world.user(9).walk("/v1/authors/20/posts", 100).await.len() as u64, LIVE);
        assert_eq!(world.user(2).walk("/v1/feed", 7).await.len(), 100, "the newest hundred are the backlog of a new follower");
    });
}

#[test]
fn a_run_of_deleted_posts_adds_no_cost_to_a_page_or_a_rebuild() {
    compare(2_000);
}

/// The same with all tombstones present: `cargo test -p tidemark-tests --test system -- --ignored --nocapture
/// windows::a_hundred_thousand_tombstones`.
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
    world(async |world| {
        let reader = world.user(1);
        // Posts 3 and 6 are archived, posts 4, 5 and 7 are deleted.
        let archive: SeqSet = [3, 6].into_iter().collect();
        let facts = AuthorHead { latest_seq: 8, deleted: (3..=7).collect(), archived: 2, archive, ..AuthorHead::default() };
        let posts = (1..=8).map(|seq| post(user_id(10), seq, [4, 5, 7].contains(&seq), facts.archive.contains(seq)));
        world.put_items("PostsTable", posts.chain([head(user_id(10), &facts)])).await;
        for limit in [1, 2, 100] {
            assert_eq!(seqs(&reader, limit).await, [8, 6, 3, 2, 1]);
        }
        assert_eq!(reader.get("/v1/authors/10/posts?limit=3").await.items().len(), 3);
        reader.follow([10]).await;
        world.idle().await;
        assert_eq!(reader.feed_ids().await, ["10-8", "10-2", "10-1"]);
        // The deletion of an archived post removes it from the archive and from the list.
        world.user(10).delete("/v1/posts/10-6").await.ok();
        world.idle().await;
        assert_eq!(seqs(&reader, 1).await, [8, 3, 2, 1]);
        let head = stored_head(world, 10).await;
        assert_eq!((head.archived, head.archive), (1, [3].into_iter().collect()));
    });
}

const READER: u64 = 1;
const AUTHOR: u64 = 10;

/// The number of windows (65,536 posts each) that the author has.
const WINDOWS: u64 = 70;
const LATEST: Seq = WINDOWS * 65_536 - 1;

/// Half of the numbers of these windows, in an order that a bitmap cannot compress: 8 KiB for each window.
fn half(windows: std::ops::Range<u64>, salt: u64) -> SeqSet {
    let numbers = windows.start.max(1) * 65_536 - 65_535 * u64::from(windows.start == 0)..windows.end * 65_536;
    numbers.filter(|seq| (seq ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1).collect()
}

/// An author with this number of posts and these deletions. Only the posts of a feed and a few older ones exist as
/// items.
async fn plant_author(world: &World, latest: Seq, deleted: &SeqSet, there: &[Seq]) {
    let (author, facts) = (user_id(AUTHOR), AuthorHead { latest_seq: latest, deleted: deleted.clone(), ..AuthorHead::default() });
    let there = there.iter().copied().chain(latest - FEED_CAP as u64..=latest).map(|seq| post(author, seq, false, false));
    world.put_items("PostsTable", there.chain([head(author, &facts)])).await;
}

async fn reads(app: &App) -> ReadState {
    app.stores.facts.reads(user_id(READER), &[user_id(AUTHOR)]).await.unwrap().remove(&user_id(AUTHOR)).unwrap_or_default()
}

/// The size of the largest item of a table, in bytes.
async fn largest(world: &World, table: &str) -> usize {
    let items = world.dynamodb().await.scan().table_name(table).into_paginator().items().send();
    let items: Vec<Item> = items.collect::<Result<_, _>>().await.unwrap();
    let bytes = |value: &AttributeValue| value.as_b().map_or(20, |bytes| bytes.as_ref().len());
    items.iter().map(|item| item.values().map(bytes).sum()).max().unwrap()
}

#[test]
fn a_read_state_of_half_a_megabyte_accepts_every_form_of_mark() {
    world(async |world| {
        let reader = world.reader(READER, [AUTHOR]).await;
        let there = [5, 3 * 65_536 + 1];
        plant_author(world, LATEST, &SeqSet::default(), &there).await;
        // The state of an old version: one item, almost full.
        let mut model = half(0..46, 0);
        let marks = [("version", n(1)), ("through", n(0)), ("read", bytes(&model))];
        let key = schema::reads(user_id(READER), user_id(AUTHOR));
        world.put_item("ReadsTable", with_attributes(key, &marks)).await;
        assert!(largest(world, "ReadsTable").await > 370_000);

        let app = world.stack.app("mark-read").unwrap();
        // Marks in more windows than one transaction can write, by two concurrent callers.
        for round in 0..12 {
            let seqs = |salt: u64| (0..90).map(move |i| (i * 51_787 + round * 7_919 + salt) % LATEST + 1).collect::<Vec<Seq>>();
            let (read, unread) = (seqs(0), seqs(1));
            let marks = [(read.clone(), true), (unread.clone(), false)].map(|(seqs, read)| {
                let facts = &app.stores.facts;
                async move { facts.mark_posts(user_id(READER), user_id(AUTHOR), &seqs, read, 1).await.unwrap() }
            });
            join_all(marks).await;
            model = model.union(&read.into_iter().collect()).minus(&unread.into_iter().collect());
        }
        assert_eq!(reads(app).await.read, model);
        assert!(largest(world, "ReadsTable").await < 200_000, "{}", largest(world, "ReadsTable").await);

        // Migration writes a state with a change in every window. It needs some attempts and loses nothing.
        let more = half(40..WINDOWS, 77);
        for attempt in 0.. {
            let state = reads(app).await;
            let after = ReadState { version: state.version + 1, read: state.read.union(&more), ..state };
            if app.stores.facts.put_reads(user_id(READER), user_id(AUTHOR), &after).await.unwrap() {
                break;
            }
            assert!(attempt < 20);
        }
        model = model.union(&more);
        assert_eq!(reads(app).await.read, model);
        assert!(largest(world, "ReadsTable").await < 300_000);

        // The reader's responses from facts and from the view.
        assert_eq!(reader.unread_total().await, LATEST - model.len());
        world.flush_redis().await;
        assert_eq!(reader.unread_total().await, LATEST - model.len());
        for seq in there {
            reader.put(&format!("/v1/posts/{AUTHOR}-{seq}/read")).await.ok();
            model.insert(seq);
        }
        assert_eq!(reader.unread_total().await, LATEST - model.len());

        let through = json!({ "author": AUTHOR.to_string(), "through": LATEST });
        assert_eq!(reader.post("/v1/reads", &through).await.ok()["total"], 0);
        assert_eq!(reads(app).await.read.len(), LATEST);
        reader.delete(&format!("/v1/posts/{AUTHOR}-5/read")).await.ok();
        assert_eq!(reader.unread_total().await, 1);
    });
}

#[test]
fn an_author_with_two_million_deleted_posts_can_publish_and_delete() {
    world(async |world| {
        let there = [7, 30 * 65_536 + 1];
        let mut deleted = half(0..46, 3).minus(&there.into_iter().collect());
        plant_author(world, LATEST, &deleted, &there).await;
        let author = world.user(AUTHOR);
        for seq in there {
            author.delete(&format!("/v1/posts/{AUTHOR}-{seq}")).await.ok();
            deleted.insert(seq);
            world.idle().await;
        }
        assert!(largest(world, "PostsTable").await < 100_000);
        assert_eq!(author.publish("one more").await, format!("{AUTHOR}-{}", LATEST + 1));
        world.idle().await;
        let head = stored_head(world, AUTHOR).await;
        assert_eq!((head.latest_seq, head.posts), (LATEST + 1, LATEST + 1 - deleted.len()));
        assert_eq!(head.deleted, deleted);
        // A window that its head does not name is damage of this head only.
        let window = schema::window(&schema::head(user_id(AUTHOR)), "deleted", 0).unwrap();
        world.delete_item("PostsTable", window).await;
        assert!(world.stack.app("publish").unwrap().stores.facts.heads(&[user_id(AUTHOR)]).await.is_err());
    });
}

#[test]
fn an_author_cannot_publish_after_the_last_sequence_number() {
    world(async |world| {
        let (author, reader) = (world.user(AUTHOR), world.user(READER));
        plant_author(world, u64::from(u32::MAX) - 1, &SeqSet::default(), &[]).await;
        reader.follow([AUTHOR]).await;
        let last = author.publish("the last").await;
        assert_eq!(last, format!("{AUTHOR}-{}", u32::MAX));
        world.idle().await;
        let more = author.post("/v1/posts", &json!({ "title": "one more" })).await;
        assert_eq!(more.problem(), (422, "/problems/post-limit"), "{}", more.body);
        assert_eq!((reader.feed("unread").await, reader.unread_total().await), (vec![(last.clone(), false)], 1));
        reader.put(&format!("/v1/posts/{last}/read")).await.ok();
        assert_eq!(reader.unread_total().await, 0);
    });
}
