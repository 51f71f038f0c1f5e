//! Read states and heads that are larger than one item of DynamoDB (400 KB).

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use futures::future::join_all;
use tidemark::{
    App,
    domain::{ReadState, Seq, SeqSet, UserId, feed::FEED_CAP},
    facts::schema,
};
use tidemark_tests::{World, world};

use super::deleted_runs::{self, FIRST_MS};

type Item = HashMap<String, AttributeValue>;

const READER: u64 = 1;
const AUTHOR: u64 = 10;

/// The number of windows (65,536 posts each) that the author has.
const WINDOWS: u64 = 70;
const LATEST: Seq = WINDOWS * 65_536 - 1;

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

/// Half of the numbers of these windows, in an order that a bitmap cannot compress: 8 KiB for each window.
fn half(windows: std::ops::Range<u64>, salt: u64) -> SeqSet {
    let numbers = windows.start.max(1) * 65_536 - 65_535 * u64::from(windows.start == 0)..windows.end * 65_536;
    numbers.filter(|seq| (seq ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1).collect()
}

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn bytes(seqs: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.to_bytes()))
}

async fn put(world: &World, table: &str, mut key: Item, attributes: impl IntoIterator<Item = (&str, AttributeValue)>) {
    key.extend(attributes.into_iter().map(|(name, value)| (name.to_owned(), value)));
    world.dynamodb().await.put_item().table_name(table).set_item(Some(key)).send().await.unwrap();
}

/// An author with this number of posts and these deletions. Only the posts of a feed and a few older ones exist as
/// items.
async fn plant_author(world: &World, latest: Seq, deleted: &SeqSet, there: &[Seq]) {
    let posts = [("latest_seq", n(latest)), ("latest_at", n(FIRST_MS + latest)), ("posts", n(latest - deleted.len()))];
    let deletions = [("deleted", bytes(deleted)), ("deletions", n(deleted.len()))];
    let deletions = deletions.into_iter().filter(|_| !deleted.is_empty());
    put(world, "PostsTable", schema::head(user(AUTHOR)), posts.into_iter().chain(deletions)).await;
    let there = there.iter().copied().chain(latest - FEED_CAP as u64..=latest);
    deleted_runs::write(&world.dynamodb().await, there.map(|seq| deleted_runs::post(user(AUTHOR), seq, false, false))).await;
}

async fn reads(app: &App) -> ReadState {
    app.stores.reads.reads(user(READER), &[user(AUTHOR)]).await.unwrap().remove(&user(AUTHOR)).unwrap_or_default()
}

/// The size of the largest item of a table, in bytes.
async fn largest(world: &World, table: &str) -> usize {
    let items = world.dynamodb().await.scan().table_name(table).into_paginator().items().send();
    let items: Vec<Item> = items.collect::<Result<_, _>>().await.unwrap();
    let bytes = |value: &AttributeValue| value.as_b().map_or(20, |bytes| bytes.as_ref().len());
    items.iter().map(|item| item.values().map(bytes).sum()).max().unwrap()
}

#[tokio::test]
async fn a_read_state_of_half_a_megabyte_accepts_every_form_of_mark() {
    world(async |world| {
        world.user(READER).put(&format!("/v1/following/{AUTHOR}")).await.ok();
        let there = [5, 3 * 65_536 + 1];
        plant_author(world, LATEST, &SeqSet::default(), &there).await;
        // The state of an old version: one item, almost full.
        let mut model = half(0..46, 0);
        let marks = [("version", n(1)), ("through", n(0)), ("read", bytes(&model))];
        put(world, "ReadsTable", schema::reads(user(READER), user(AUTHOR)), marks).await;
        assert!(largest(world, "ReadsTable").await > 370_000);

        let app = world.stack.app("mark-read").unwrap();
        // Marks in more windows than one transaction can write, by two concurrent callers.
        for round in 0..12 {
            let seqs = |salt: u64| (0..90).map(move |i| (i * 51_787 + round * 7_919 + salt) % LATEST + 1).collect::<Vec<Seq>>();
            let (read, unread) = (seqs(0), seqs(1));
            let marks = [(read.clone(), true), (unread.clone(), false)].map(|(seqs, read)| {
                let reads = &app.stores.reads;
                async move { reads.mark(user(READER), user(AUTHOR), &seqs, read).await.unwrap() }
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
            if app.stores.reads.put(user(READER), user(AUTHOR), &after).await.unwrap() {
                break;
            }
            assert!(attempt < 20);
        }
        model = model.union(&more);
        assert_eq!(reads(app).await.read, model);
        assert!(largest(world, "ReadsTable").await < 300_000);

        // The reader's responses from facts and from the view.
        let reader = world.user(READER);
        assert_eq!(reader.unread_total().await, LATEST - model.len());
        world.flush_redis().await;
        assert_eq!(reader.unread_total().await, LATEST - model.len());
        for seq in there {
            reader.put(&format!("/v1/posts/{AUTHOR}-{seq}/read")).await.ok();
            model.insert(seq);
        }
        assert_eq!(reader.unread_total().await, LATEST - model.len());

        let through = serde_json::json!({ "author": AUTHOR.to_string(), "through": LATEST });
        assert_eq!(reader.post("/v1/reads", &through).await.ok()["unread"]["total"], 0);
        assert_eq!(reads(app).await.read.len(), LATEST);
        reader.delete(&format!("/v1/posts/{AUTHOR}-5/read")).await.ok();
        assert_eq!(reader.unread_total().await, 1);
    })
    .await;
}

#[tokio::test]
async fn an_author_with_two_million_deleted_posts_can_publish_and_delete() {
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
        let app = world.stack.app("publish").unwrap();
        let head = app.stores.posts.heads(&[user(AUTHOR)]).await.unwrap().remove(&user(AUTHOR)).unwrap();
        assert_eq!((head.latest_seq, head.posts), (LATEST + 1, LATEST + 1 - deleted.len()));
        assert_eq!(head.deleted, deleted);
        // A window that its head does not name is damage of this head only.
        let window = schema::window(&schema::head(user(AUTHOR)), "deleted", 0).unwrap();
        world.dynamodb().await.delete_item().table_name("PostsTable").set_key(Some(window)).send().await.unwrap();
        assert!(app.stores.posts.heads(&[user(AUTHOR)]).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn an_author_cannot_publish_after_the_last_sequence_number() {
    world(async |world| {
        let (author, reader) = (world.user(AUTHOR), world.user(READER));
        plant_author(world, u64::from(u32::MAX) - 1, &SeqSet::default(), &[]).await;
        reader.put(&format!("/v1/following/{AUTHOR}")).await.ok();
        let last = author.publish("the last").await;
        assert_eq!(last, format!("{AUTHOR}-{}", u32::MAX));
        world.idle().await;
        let more = author.post("/v1/posts", &serde_json::json!({ "title": "one more" })).await;
        assert_eq!(more.problem(), (422, "/problems/post-limit"), "{}", more.body);
        assert_eq!((reader.feed("unread").await, reader.unread_total().await), (vec![(last.clone(), false)], 1));
        reader.put(&format!("/v1/posts/{last}/read")).await.ok();
        assert_eq!(reader.unread_total().await, 0);
    })
    .await;
}
