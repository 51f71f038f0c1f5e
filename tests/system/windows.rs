//! Read states and heads that are larger than one item of DynamoDB (400 KB).

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use futures::future::join_all;
use tidemark::{
    App,
    domain::{ReadState, Seq, SeqSet, feed::FEED_CAP},
    facts::schema,
};
use tidemark_tests::{
    World,
    items::{Item, n, with_attributes},
    user_id, world,
};

use super::deleted_runs::{self, FIRST_MS};

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

fn bytes(seqs: &SeqSet) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.to_bytes()))
}

/// An author with this number of posts and these deletions. Only the posts of a feed and a few older ones exist as
/// items.
async fn plant_author(world: &World, latest: Seq, deleted: &SeqSet, there: &[Seq]) {
    let mut head = vec![("latest_seq", n(latest)), ("latest_at", n(FIRST_MS + latest)), ("posts", n(latest - deleted.len()))];
    if !deleted.is_empty() {
        head.extend([("deleted", bytes(deleted)), ("deletions", n(deleted.len()))]);
    }
    world.put_item("PostsTable", with_attributes(schema::head(user_id(AUTHOR)), &head)).await;
    let there = there.iter().copied().chain(latest - FEED_CAP as u64..=latest);
    world.put_items("PostsTable", there.map(|seq| deleted_runs::post(user_id(AUTHOR), seq, false, false))).await;
}

async fn reads(app: &App) -> ReadState {
    app.stores.reads.reads(user_id(READER), &[user_id(AUTHOR)]).await.unwrap().remove(&user_id(AUTHOR)).unwrap_or_default()
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
        world.user(READER).put(&format!("/v1/following/{AUTHOR}")).await.ok();
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
                let reads = &app.stores.reads;
                async move { reads.mark(user_id(READER), user_id(AUTHOR), &seqs, read).await.unwrap() }
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
            if app.stores.reads.put(user_id(READER), user_id(AUTHOR), &after).await.unwrap() {
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
        let app = world.stack.app("publish").unwrap();
        let head = app.stores.posts.heads(&[user_id(AUTHOR)]).await.unwrap().remove(&user_id(AUTHOR)).unwrap();
        assert_eq!((head.latest_seq, head.posts), (LATEST + 1, LATEST + 1 - deleted.len()));
        assert_eq!(head.deleted, deleted);
        // A window that its head does not name is damage of this head only.
        let window = schema::window(&schema::head(user_id(AUTHOR)), "deleted", 0).unwrap();
        world.delete_item("PostsTable", window).await;
        assert!(app.stores.posts.heads(&[user_id(AUTHOR)]).await.is_err());
    });
}

#[test]
fn an_author_cannot_publish_after_the_last_sequence_number() {
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
    });
}
