//! Damage of a reader's state and feed.

use futures::future::LocalBoxFuture;
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{AuthorState, FeedKey, PostId, Timestamp, bitmap::Bitmap},
    facts::schema,
    views::keys,
};
use tidemark_tests::items::n;

use super::{Damage, Plant, Scene};

/// A difference in the reader's field of the author.
fn field(scene: &Scene, kind: &str) -> Vec<Value> {
    vec![json!({ "kind": kind, "user": scene.reader(), "author": scene.author() })]
}

/// A difference in the reader's whole view.
fn view(scene: &Scene, kind: &str) -> Vec<Value> {
    vec![json!({ "kind": kind, "user": scene.reader() })]
}

/// A difference in one post of the reader's view.
fn post(scene: &Scene, kind: &str, seq: u64) -> Value {
    json!({ "kind": kind, "user": scene.reader(), "post": scene.post(seq) })
}

/// Makes sure that the reader has a ranked feed. Returns its key.
async fn ranked(scene: &Scene<'_>) -> String {
    let [ranked, _] = keys::ranked(scene.reader());
    scene.until_cached("/v1/feed?order=ranked", &ranked).await;
    ranked
}

fn ghost(scene: &Scene, post: PostId, why: &str) -> Vec<Value> {
    vec![json!({ "kind": "entry-ghost", "user": scene.reader(), "post": post, "why": why })]
}

/// A change of the reader's field of the author, and the kind of the difference.
struct Field(&'static str, fn(&mut AuthorState));

impl Plant for Field {
    fn plant<'a>(&'a self, scene: &'a Scene<'a>) -> LocalBoxFuture<'a, Vec<Value>> {
        Box::pin(async move {
            scene.field(self.1).await;
            field(scene, self.0)
        })
    }
}

/// Makes every post after `base` unread.
fn all_unread(field: &mut AuthorState, base: u64) {
    (field.base, field.read) = (base, Bitmap::default());
}

pub(super) const ALL: &[Damage] = &[
    ("a followed author without a field", &async |scene: &Scene| {
        let [state, _] = scene.keys();
        scene.redis().hdel::<_, _, ()>(state, scene.author().get()).await.unwrap();
        field(scene, "field-missing")
    }),
    ("a field of an author who is not followed", &async |scene: &Scene| {
        let [state, _] = scene.keys();
        let value: Vec<u8> = scene.redis().hget(&state, scene.author().get()).await.unwrap();
        scene.redis().hset::<_, _, _, ()>(state, scene.stranger().get(), value).await.unwrap();
        vec![json!({ "kind": "field-ghost", "user": scene.reader(), "author": scene.stranger() })]
    }),
    ("a field of an earlier follow", &Field("field-old", |field| field.rev -= 1)),
    ("a field of a future follow", &Field("field-ahead", |field| field.rev += 1_000)),
    ("a gate that was opened and never filled", &Field("field-opening", |field| field.opening = true)),
    ("read state older than the fact", &async |scene: &Scene| {
        scene.field(|field| all_unread(field, 0)).await;
        scene.field(|field| field.version = 0).await;
        field(scene, "reads-behind")
    }),
    ("read state with a version above the fact", &Field("field-ahead", |field| field.version += 5)),
    ("an unread post marked read", &Field("reads-wrong", |field| field.read.set(3 - 1 - field.base))),
    ("a read post marked unread", &Field("reads-wrong", |field| all_unread(field, 0))),
    ("a base that hides unread posts", &Field("base-wrong", |field| all_unread(field, 8))),
    ("a floor that hides posts of the feed", &Field("floor-wrong", |field| field.floor = 2)),
    ("an author hidden who is not muted", &Field("choice-wrong", |field| field.muted = true)),
    ("a preference that the reader does not have", &Field("preference-wrong", |field| field.preference = 5)),
    ("a wrong score", &async |scene: &Scene| {
        let ranked = ranked(scene).await;
        let entry = scene.fact(scene.post(2)).await.key().entry();
        scene.redis().zincr::<_, _, _, ()>(ranked, entry, 5).await.unwrap();
        vec![post(scene, "rank-wrong", 2)]
    }),
    ("a score of a post that the feed does not have", &async |scene: &Scene| {
        let ranked = ranked(scene).await;
        let entry = FeedKey { at: Timestamp::from_ms(5), post: scene.post(99) }.entry();
        scene.redis().zadd::<_, _, _, ()>(ranked, entry, 1).await.unwrap();
        vec![post(scene, "rank-wrong", 99)]
    }),
    ("an unreadable ranked feed", &async |scene: &Scene| {
        let ranked = ranked(scene).await;
        scene.redis().zadd::<_, _, _, ()>(ranked, "nobody", 1).await.unwrap();
        view(scene, "rank-damaged")
    }),
    ("a deleted post without its bit", &async |scene: &Scene| {
        scene.delete(3).await;
        scene.field(|field| field.deleted = Bitmap::default()).await;
        vec![post(scene, "deletion-missing", 3)]
    }),
    ("deliveries forgotten", &async |scene: &Scene| {
        scene.field(|field| field.through = 3).await;
        vec![post(scene, "undelivered", 4), post(scene, "undelivered", 5)]
    }),
    ("a lost delivery and its lost entry", &async |scene: &Scene| {
        scene.field(|field| field.through = 4).await;
        let entry = scene.fact(scene.post(5)).await.key().entry();
        scene.feed(|entries| entries.retain(|known| *known != entry)).await;
        vec![post(scene, "undelivered", 5)]
    }),
    ("deliveries of future posts", &Field("delivered-ahead", |field| field.through = 9)),
    ("a bit for a future post", &Field("delivered-ahead", |field| field.tail.set(7))),
    ("a change of mode that the view lacks", &async |scene: &Scene| {
        let modes = [("mode_changes", n(2)), ("pulled", n(0))];
        scene.update("PostsTable", schema::head(scene.author()), &modes, &[]).await;
        field(scene, "modes-behind")
    }),
    ("an entry missing", &async |scene: &Scene| {
        let entry = scene.fact(scene.post(3)).await.key().entry();
        scene.feed(|entries| entries.retain(|known| *known != entry)).await;
        vec![post(scene, "entry-missing", 3)]
    }),
    ("many entries missing", &async |scene: &Scene| {
        scene.caller(scene.author()).publish_all(["one of many"; 25]).await;
        scene.world.idle().await;
        scene.feed(|entries| drop(entries.drain(..26))).await;
        view(scene, "feed-incomplete")
    }),
    ("an entry of a deleted post", &async |scene: &Scene| {
        let key = scene.fact(scene.post(3)).await.key();
        scene.delete(3).await;
        scene.enter(key).await;
        ghost(scene, scene.post(3), "deleted")
    }),
    ("an entry of an author who is not followed", &async |scene: &Scene| {
        let post = PostId::new(scene.stranger(), 1);
        scene.enter(scene.fact(post).await.key()).await;
        ghost(scene, post, "unfollowed")
    }),
    ("an entry of a post that does not exist", &async |scene: &Scene| {
        scene.enter(FeedKey { at: scene.app.stores.clock.now(), post: scene.post(77) }).await;
        ghost(scene, scene.post(77), "unknown")
    }),
    ("an entry with another time than its post's", &async |scene: &Scene| {
        let key = scene.fact(scene.post(5)).await.key();
        scene.enter(FeedKey { at: key.at.plus_ms(60_000), ..key }).await;
        ghost(scene, scene.post(5), "unknown")
    }),
    ("a feed out of order", &async |scene: &Scene| {
        scene.feed(|entries| entries.swap(1, 3)).await;
        view(scene, "feed-disordered")
    }),
    ("a feed that the next post would put out of order", &async |scene: &Scene| {
        scene.newest(|newest| Timestamp::from_ms(newest.ms() - 1)).await;
        view(scene, "feed-disordered")
    }),
    ("an entry twice", &async |scene: &Scene| {
        scene.feed(|entries| entries.insert(2, entries[1].clone())).await;
        view(scene, "feed-disordered")
    }),
    ("an unreadable feed", &async |scene: &Scene| {
        scene.feed(|entries| entries.push(b"nonsense".to_vec())).await;
        view(scene, "feed-damaged")
    }),
    ("a feed lost", &async |scene: &Scene| {
        let [_, feed] = scene.keys();
        scene.redis().del::<_, ()>(feed).await.unwrap();
        view(scene, "feed-lost")
    }),
    ("a feed whose state is lost", &async |scene: &Scene| {
        let [state, _] = scene.keys();
        scene.redis().del::<_, ()>(state).await.unwrap();
        view(scene, "feed-orphan")
    }),
    ("a state without the mark of its feed", &async |scene: &Scene| {
        let [state, _] = scene.keys();
        let mut meta: Vec<u8> = scene.redis().hget(&state, "@").await.unwrap();
        meta[0] = 0;
        scene.redis().hset::<_, _, _, ()>(state, "@", meta).await.unwrap();
        view(scene, "feed-unannounced")
    }),
    ("a feed that expires before its state", &async |scene: &Scene| {
        let [_, feed] = scene.keys();
        scene.redis().expire::<_, ()>(feed, 3_600).await.unwrap();
        view(scene, "feed-short-lived")
    }),
    ("fields without the rest of the state", &async |scene: &Scene| {
        let [state, _] = scene.keys();
        scene.redis().hdel::<_, _, ()>(state, "@").await.unwrap();
        view(scene, "state-headless")
    }),
    ("an unreadable state", &async |scene: &Scene| {
        let [state, _] = scene.keys();
        scene.redis().hset::<_, _, _, ()>(state, scene.author().get(), "short").await.unwrap();
        view(scene, "state-damaged")
    }),
    ("a rebuild that was abandoned", &async |scene: &Scene| {
        let past = tidemark::domain::Timestamp::from_ms(scene.app.stores.clock.now().ms() - 60_000);
        scene.app.stores.reader_views.begin(scene.reader(), 7, past, true).await.unwrap();
        view(scene, "rebuild-abandoned")
    }),
    ("a lost read fact below a view", &async |scene: &Scene| {
        let key = schema::reads(scene.reader(), scene.author());
        scene.remove("ReadsTable", key).await;
        field(scene, "field-ahead")
    }),
];
