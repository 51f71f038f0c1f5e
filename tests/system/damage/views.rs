//! Damage of relation lists, counters, reactions, heads, summaries, and keys.

use redis::{AsyncCommands, Cmd};
use serde_json::{Value, json};
use tidemark::{
    domain::{
        AuthorHead, Card, PostId, PostSummary, PostText, Rank, Reaction, ReactionCounts, ReactionState, ReadState, UserId,
        feed::author_prefix,
    },
    ports::{CardVersion, CountsVersion, FanOutKind, List, Marks},
    views::keys,
};

use super::{Damage, Scene};

/// Caches a list of a user, and damages it by the command that `damage` makes for its key.
async fn damage_list(scene: &Scene<'_>, list: List, damage: impl FnOnce(&str) -> Cmd) {
    let path = match list {
        List::Following(user) => format!("/v1/users/{user}/following"),
        List::Fans(user) => format!("/v1/users/{user}/followers"),
    };
    let [key, ..] = keys::list(list);
    scene.until_cached(&path, &key).await;
    damage(&key).exec_async(&mut scene.redis()).await.unwrap();
}

fn in_list(kind: &str, user: UserId, list: &str, member: UserId) -> Value {
    json!({ "kind": kind, "user": user, "list": list, "member": member })
}

async fn summary(scene: &Scene<'_>, post: PostId, title: &str) {
    scene.redis().del::<_, ()>(&keys::post(post)[0]).await.unwrap();
    let known = scene.app.stores.posts.posts(&[post]).await.unwrap();
    let created_at = known.get(&post).map_or_else(|| scene.now(), |post| post.created_at);
    let summary =
        PostSummary { id: post, title: title.to_owned(), created_at, revision: 1, rank: Rank::default(), deleted: false };
    scene.app.readers.stores.post_views.remember(&[(summary, None)], None).await.unwrap();
}

/// Replaces the reactions to the author in the reader's view.
async fn reactions(scene: &Scene<'_>, value: Vec<u8>) {
    let key = keys::reactions(scene.reader);
    scene.redis().hset::<_, _, _, ()>(key, scene.author.get(), value).await.unwrap();
}

pub(super) const ALL: &[Damage] = &[
    ("a followed author missing in the cached list", &async |scene: &Scene| {
        damage_list(scene, List::Following(scene.reader), |key| Cmd::zrem(key, author_prefix(scene.other))).await;
        in_list("list-missing", scene.reader, "following", scene.other)
    }),
    ("a stranger in the cached list of followed authors", &async |scene: &Scene| {
        damage_list(scene, List::Following(scene.reader), |key| Cmd::zadd(key, author_prefix(scene.stranger), scene.now().ms()))
            .await;
        in_list("list-ghost", scene.reader, "following", scene.stranger)
    }),
    ("a follower missing in the cached list", &async |scene: &Scene| {
        damage_list(scene, List::Fans(scene.author), |key| Cmd::zrem(key, author_prefix(scene.follower))).await;
        in_list("list-missing", scene.author, "fans", scene.follower)
    }),
    ("a stranger in the cached list of followers", &async |scene: &Scene| {
        damage_list(scene, List::Fans(scene.author), |key| Cmd::zadd(key, author_prefix(scene.stranger), scene.now().ms())).await;
        in_list("list-ghost", scene.author, "fans", scene.stranger)
    }),
    ("a follower in the wrong place of the cached list", &async |scene: &Scene| {
        damage_list(scene, List::Fans(scene.author), |key| Cmd::zincr(key, author_prefix(scene.follower), 5_000)).await;
        in_list("list-time", scene.author, "fans", scene.follower)
    }),
    ("a list without its marker", &async |scene: &Scene| {
        damage_list(scene, List::Following(scene.reader), |key| Cmd::zremrangebyrank(key, 0, 0)).await;
        json!({ "kind": "list-damaged", "user": scene.reader, "list": "following" })
    }),
    ("a list with an invalid member", &async |scene: &Scene| {
        damage_list(scene, List::Fans(scene.author), |key| Cmd::zadd(key, "nobody", 1)).await;
        json!({ "kind": "list-damaged", "user": scene.author, "list": "fans" })
    }),
    ("another user's counters", &async |scene: &Scene| {
        for user in [scene.author, scene.other] {
            let [key, _] = keys::counters(user);
            scene.until_cached(&format!("/v1/users/{user}/counters"), &key).await;
        }
        let [[author, _], [other, _]] = [scene.author, scene.other].map(keys::counters);
        let record: Vec<u8> = scene.redis().get(other).await.unwrap();
        scene.redis().set_ex::<_, _, ()>(author, record, 3_600).await.unwrap();
        json!({ "kind": "counters-wrong", "user": scene.author })
    }),
    ("counters cut short", &async |scene: &Scene| {
        let [key, _] = keys::counters(scene.author);
        scene.redis().set_ex::<_, _, ()>(key, "short", 3_600).await.unwrap();
        json!({ "kind": "counters-damaged", "user": scene.author })
    }),
    ("reactions older than the fact", &async |scene: &Scene| {
        reactions(scene, ReactionState::default().encode()).await;
        json!({ "kind": "reactions-behind", "user": scene.reader, "author": scene.author })
    }),
    ("reactions without a fact", &async |scene: &Scene| {
        let state = ReactionState { version: 2, liked: [1, 2, 3].into_iter().collect(), ..ReactionState::default() };
        reactions(scene, state.encode()).await;
        json!({ "kind": "reactions-wrong", "user": scene.reader, "author": scene.author })
    }),
    ("reactions with a version above the fact", &async |scene: &Scene| {
        let state = ReactionState { version: 70, ..ReactionState::default() }.changed(5, Reaction::Like, true).unwrap();
        reactions(scene, state.encode()).await;
        json!({ "kind": "reactions-wrong", "user": scene.reader, "author": scene.author })
    }),
    ("unreadable reactions", &async |scene: &Scene| {
        reactions(scene, b"bad".to_vec()).await;
        json!({ "kind": "reactions-damaged", "user": scene.reader })
    }),
    ("a head view newer than its author", &async |scene: &Scene| {
        let head = AuthorHead { latest_seq: 99, posts: 99, ..AuthorHead::default() };
        let (views, author) = (&scene.app.readers.stores.head_views, scene.author);
        assert_eq!(views.lease_heads(&[author], 7).await.unwrap(), [author]);
        views.fill_heads(&[(author, head)], 7).await.unwrap();
        // A cached head lives for a minute, which may be too short for this test.
        scene.redis().expire::<_, ()>(&keys::head(author)[0], 3_600).await.unwrap();
        json!({ "kind": "head-wrong", "author": scene.author })
    }),
    ("the summary of a deleted post", &async |scene: &Scene| {
        scene.delete(3).await;
        summary(scene, scene.post(3), "three").await;
        json!({ "kind": "summary-of-deleted", "post": scene.post(3) })
    }),
    ("a summary with another title", &async |scene: &Scene| {
        summary(scene, scene.post(2), "not what it was").await;
        json!({ "kind": "summary-wrong", "post": scene.post(2) })
    }),
    ("a live post with the summary of a deleted one", &async |scene: &Scene| {
        let key = scene.fact(scene.post(2)).await.key();
        scene.app.readers.stores.post_views.remember(&[(PostSummary::tombstone(key), None)], None).await.unwrap();
        json!({ "kind": "summary-wrong", "post": scene.post(2) })
    }),
    ("the summary of a post that does not exist", &async |scene: &Scene| {
        summary(scene, scene.post(99), "never").await;
        json!({ "kind": "summary-of-nothing", "post": scene.post(99) })
    }),
    ("an unreadable summary", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(&keys::post(scene.post(1))[0], "x", 3_600).await.unwrap();
        json!({ "kind": "summary-damaged", "post": scene.post(1) })
    }),
    ("a text that the post does not have", &async |scene: &Scene| {
        let views = &scene.app.stores.post_views;
        let text = PostText { body: Some("never written".to_owned()), data: None };
        views.remember(&[(scene.fact(scene.post(2)).await.into(), Some(text))], None).await.unwrap();
        json!({ "kind": "text-wrong", "post": scene.post(2) })
    }),
    ("reaction counts that nobody made", &async |scene: &Scene| {
        let (views, post) = (&scene.app.stores.post_views, scene.post(2));
        let counts = CountsVersion { version: 99, counts: ReactionCounts { likes: 5, favorites: 5 } };
        views.lease_counts(post, 1).await.unwrap();
        views.store_counts(post, counts, 1).await.unwrap();
        json!({ "kind": "counts-wrong", "post": post })
    }),
    ("the card of a user without a profile", &async |scene: &Scene| {
        let (views, user) = (&scene.app.stores.card_views, scene.reader);
        let card = Card { name: "Nobody".to_owned(), handle: None, picture: None };
        scene.redis().del::<_, ()>(&keys::card(user)).await.unwrap();
        assert_eq!(views.lease_cards(&[user], 1).await.unwrap(), [user]);
        views.fill_cards(&[(user, CardVersion { version: 7, card: Some(card) })], 1).await.unwrap();
        json!({ "kind": "card-wrong", "user": user })
    }),
    ("marks that the reader never made", &async |scene: &Scene| {
        let (views, user, author) = (&scene.app.stores.reader_views, scene.stranger, scene.author);
        let mut reads = ReadState { version: 7, ..ReadState::default() };
        reads.mark([1]);
        views.lease_marks(user, author, 1).await.unwrap();
        views.fill_marks(user, author, &Marks::new(reads, false), 1).await.unwrap();
        json!({ "kind": "marks-wrong", "user": user, "author": author })
    }),
    ("a view without expiry", &async |scene: &Scene| {
        scene.redis().persist::<_, ()>(&scene.state_key).await.unwrap();
        json!({ "kind": "key-without-lifetime", "key": scene.state_key })
    }),
    ("progress without expiry", &async |scene: &Scene| {
        let key = keys::pages_done(FanOutKind::Deliver, scene.post(1));
        scene.redis().persist::<_, ()>(&key).await.unwrap();
        json!({ "kind": "key-without-lifetime", "key": key })
    }),
    ("a state of the wrong type", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(&scene.state_key, "x", 3_600).await.unwrap();
        json!({ "kind": "key-of-wrong-type", "key": scene.state_key })
    }),
    ("a list of the wrong type", &async |scene: &Scene| {
        let [key, ..] = keys::list(List::Fans(scene.author));
        scene.redis().set_ex::<_, _, ()>(&key, "x", 3_600).await.unwrap();
        json!({ "kind": "key-of-wrong-type", "key": key })
    }),
    ("a key in another bucket than its user's", &async |scene: &Scene| {
        let key = format!("{{{}}}:r:{}", (scene.reader.bucket() + 1) % 4096, scene.reader);
        scene.redis().hset::<_, _, _, ()>(&key, "@", "x").await.unwrap();
        scene.redis().expire::<_, ()>(&key, 3_600).await.unwrap();
        json!({ "kind": "key-astray", "key": key })
    }),
];
