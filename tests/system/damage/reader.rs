//! Damage of a reader's state and feed.

use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    domain::{FeedKey, PostId, Timestamp, bitmap::Bitmap},
    facts::schema,
    views::keys,
};

use super::{Damage, Scene, scene::n};

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

pub(super) const ALL: &[Damage] = &[
    ("a followed author without a field", |scene| {
        Box::pin(async move {
            let [state, _] = scene.keys();
            scene.redis().hdel::<_, _, ()>(state, scene.author().get()).await.unwrap();
            field(scene, "field-missing")
        })
    }),
    ("a field of an author who is not followed", |scene| {
        Box::pin(async move {
            let [state, _] = scene.keys();
            let value: Vec<u8> = scene.redis().hget(&state, scene.author().get()).await.unwrap();
            scene.redis().hset::<_, _, _, ()>(state, scene.stranger().get(), value).await.unwrap();
            vec![json!({ "kind": "field-ghost", "user": scene.reader(), "author": scene.stranger() })]
        })
    }),
    ("a field of an earlier follow", |scene| {
        Box::pin(async move {
            scene.field(|field| field.rev -= 1).await;
            field(scene, "field-old")
        })
    }),
    ("a field of a future follow", |scene| {
        Box::pin(async move {
            scene.field(|field| field.rev += 1_000).await;
            field(scene, "field-ahead")
        })
    }),
    ("a gate that was opened and never filled", |scene| {
        Box::pin(async move {
            scene.field(|field| field.opening = true).await;
            field(scene, "field-opening")
        })
    }),
    ("read state older than the fact", |scene| {
        Box::pin(async move {
            scene
                .field(|field| {
                    field.version = 0;
                    field.base = 0;
                    field.read = Bitmap::default();
                })
                .await;
            field(scene, "reads-behind")
        })
    }),
    ("read state with a version above the fact", |scene| {
        Box::pin(async move {
            scene.field(|field| field.version += 5).await;
            field(scene, "field-ahead")
        })
    }),
    ("an unread post marked read", |scene| {
        Box::pin(async move {
            scene.field(|field| field.read.set(3 - 1 - field.base)).await;
            field(scene, "reads-wrong")
        })
    }),
    ("a read post marked unread", |scene| {
        Box::pin(async move {
            scene
                .field(|field| {
                    field.base = 0;
                    field.read = Bitmap::default();
                })
                .await;
            field(scene, "reads-wrong")
        })
    }),
    ("a base that hides unread posts", |scene| {
        Box::pin(async move {
            scene
                .field(|field| {
                    field.base = 8;
                    field.read = Bitmap::default();
                })
                .await;
            field(scene, "base-wrong")
        })
    }),
    ("a floor that hides posts of the feed", |scene| {
        Box::pin(async move {
            scene.field(|field| field.floor = 2).await;
            field(scene, "floor-wrong")
        })
    }),
    ("an author hidden who is not muted", |scene| {
        Box::pin(async move {
            scene.field(|field| field.muted = true).await;
            field(scene, "choice-wrong")
        })
    }),
    ("a preference that the reader does not have", |scene| {
        Box::pin(async move {
            scene.field(|field| field.preference = 5).await;
            field(scene, "preference-wrong")
        })
    }),
    ("a wrong score", |scene| {
        Box::pin(async move {
            let ranked = ranked(scene).await;
            let entry = scene.fact(scene.post(2)).await.key().entry();
            scene.redis().zincr::<_, _, _, ()>(ranked, entry, 5).await.unwrap();
            vec![post(scene, "rank-wrong", 2)]
        })
    }),
    ("a score of a post that the feed does not have", |scene| {
        Box::pin(async move {
            let ranked = ranked(scene).await;
            let entry = FeedKey { at: Timestamp::from_ms(5), post: scene.post(99) }.entry();
            scene.redis().zadd::<_, _, _, ()>(ranked, entry, 1).await.unwrap();
            vec![post(scene, "rank-wrong", 99)]
        })
    }),
    ("an unreadable ranked feed", |scene| {
        Box::pin(async move {
            let ranked = ranked(scene).await;
            scene.redis().zadd::<_, _, _, ()>(ranked, "nobody", 1).await.unwrap();
            view(scene, "rank-damaged")
        })
    }),
    ("a deleted post without its bit", |scene| {
        Box::pin(async move {
            scene.delete(3).await;
            scene.field(|field| field.deleted = Bitmap::default()).await;
            vec![post(scene, "deletion-missing", 3)]
        })
    }),
    ("deliveries forgotten", |scene| {
        Box::pin(async move {
            scene.field(|field| field.through = 3).await;
            vec![post(scene, "undelivered", 4), post(scene, "undelivered", 5)]
        })
    }),
    ("a lost delivery and its lost entry", |scene| {
        Box::pin(async move {
            scene.field(|field| field.through = 4).await;
            let entry = scene.fact(scene.post(5)).await.key().entry();
            scene.feed(|entries| entries.retain(|known| *known != entry)).await;
            vec![post(scene, "undelivered", 5)]
        })
    }),
    ("deliveries of future posts", |scene| {
        Box::pin(async move {
            scene.field(|field| field.through = 9).await;
            field(scene, "delivered-ahead")
        })
    }),
    ("a bit for a future post", |scene| {
        Box::pin(async move {
            scene.field(|field| field.tail.set(7)).await;
            field(scene, "delivered-ahead")
        })
    }),
    ("a change of mode that the view lacks", |scene| {
        Box::pin(async move {
            let modes = [("mode_changes", n(2)), ("pulled", n(0))];
            scene.update("PostsTable", schema::head(scene.author()), &modes, &[]).await;
            field(scene, "modes-behind")
        })
    }),
    ("an entry missing", |scene| {
        Box::pin(async move {
            let entry = scene.fact(scene.post(3)).await.key().entry();
            scene.feed(|entries| entries.retain(|known| *known != entry)).await;
            vec![post(scene, "entry-missing", 3)]
        })
    }),
    ("many entries missing", |scene| {
        Box::pin(async move {
            for _ in 0..25 {
                scene.caller(scene.author()).publish("one of many").await;
            }
            scene.world.idle().await;
            scene.feed(|entries| drop(entries.drain(..26))).await;
            view(scene, "feed-incomplete")
        })
    }),
    ("an entry of a deleted post", |scene| {
        Box::pin(async move {
            let key = scene.fact(scene.post(3)).await.key();
            scene.delete(3).await;
            scene.enter(key).await;
            ghost(scene, scene.post(3), "deleted")
        })
    }),
    ("an entry of an author who is not followed", |scene| {
        Box::pin(async move {
            let post = PostId::new(scene.stranger(), 1);
            scene.enter(scene.fact(post).await.key()).await;
            ghost(scene, post, "unfollowed")
        })
    }),
    ("an entry of a post that does not exist", |scene| {
        Box::pin(async move {
            scene.enter(FeedKey { at: scene.app.stores.clock.now(), post: scene.post(77) }).await;
            ghost(scene, scene.post(77), "unknown")
        })
    }),
    ("an entry with another time than its post's", |scene| {
        Box::pin(async move {
            let key = scene.fact(scene.post(5)).await.key();
            scene.enter(FeedKey { at: key.at.plus_ms(60_000), ..key }).await;
            ghost(scene, scene.post(5), "unknown")
        })
    }),
    ("a feed out of order", |scene| {
        Box::pin(async move {
            scene.feed(|entries| entries.swap(1, 3)).await;
            view(scene, "feed-disordered")
        })
    }),
    ("a feed that the next post would put out of order", |scene| {
        Box::pin(async move {
            scene.newest(|newest| Timestamp::from_ms(newest.ms() - 1)).await;
            view(scene, "feed-disordered")
        })
    }),
    ("an entry twice", |scene| {
        Box::pin(async move {
            scene.feed(|entries| entries.insert(2, entries[1].clone())).await;
            view(scene, "feed-disordered")
        })
    }),
    ("an unreadable feed", |scene| {
        Box::pin(async move {
            scene.feed(|entries| entries.push(b"nonsense".to_vec())).await;
            view(scene, "feed-damaged")
        })
    }),
    ("a feed lost", |scene| {
        Box::pin(async move {
            let [_, feed] = scene.keys();
            scene.redis().del::<_, ()>(feed).await.unwrap();
            view(scene, "feed-lost")
        })
    }),
    ("a feed whose state is lost", |scene| {
        Box::pin(async move {
            let [state, _] = scene.keys();
            scene.redis().del::<_, ()>(state).await.unwrap();
            view(scene, "feed-orphan")
        })
    }),
    ("a state without the mark of its feed", |scene| {
        Box::pin(async move {
            let [state, _] = scene.keys();
            let mut meta: Vec<u8> = scene.redis().hget(&state, "@").await.unwrap();
            meta[0] = 0;
            scene.redis().hset::<_, _, _, ()>(state, "@", meta).await.unwrap();
            view(scene, "feed-unannounced")
        })
    }),
    ("a feed that expires before its state", |scene| {
        Box::pin(async move {
            let [_, feed] = scene.keys();
            scene.redis().expire::<_, ()>(feed, 3_600).await.unwrap();
            view(scene, "feed-short-lived")
        })
    }),
    ("fields without the rest of the state", |scene| {
        Box::pin(async move {
            let [state, _] = scene.keys();
            scene.redis().hdel::<_, _, ()>(state, "@").await.unwrap();
            view(scene, "state-headless")
        })
    }),
    ("an unreadable state", |scene| {
        Box::pin(async move {
            let [state, _] = scene.keys();
            scene.redis().hset::<_, _, _, ()>(state, scene.author().get(), "short").await.unwrap();
            view(scene, "state-damaged")
        })
    }),
    ("a rebuild that was abandoned", |scene| {
        Box::pin(async move {
            let past = tidemark::domain::Timestamp::from_ms(scene.app.stores.clock.now().ms() - 60_000);
            scene.app.stores.reader_views.begin(scene.reader(), 7, past, true).await.unwrap();
            view(scene, "rebuild-abandoned")
        })
    }),
    ("a lost read fact below a view", |scene| {
        Box::pin(async move {
            let key = schema::reads(scene.reader(), scene.author());
            scene.remove("ReadsTable", key).await;
            field(scene, "field-ahead")
        })
    }),
];
