//! Damage of a reader's state and feed, and of relation lists, counters, reactions, heads, summaries, and keys.

use std::collections::HashMap;

use futures::future::LocalBoxFuture;
use redis::{AsyncCommands, Cmd};
use serde_json::{Value, json};
use tidemark::{
    domain::{
        AuthorHead, AuthorState, Card, CountsVersion, FanOutKind, FeedKey, PostId, PostSummary, PostText, PostTimes, Rank,
        Reaction, ReactionCounts, ReactionState, ReadState, Timestamp, UserId, bitmap::Bitmap, feed::author_prefix,
        reader_state::META_FIELD,
    },
    facts::schema,
    views::{
        CardVersion, List, Marks, Rebuild,
        keys::{self, View},
    },
};
use tidemark_tests::{items::n, while_leased};

use super::{Damage, Plant, Scene};
use Change::{Author, Command, Feed, Posts};

/// A difference in a view as a whole.
pub(super) fn whole(kind: &str, view: View) -> Value {
    json!({ "kind": kind, "view": view, "field": "value" })
}

/// Caches the reader's list of followed authors or the author's list of followers, and damages it by the command that
/// `damage` makes for its key and the member. Returns the difference, in the member if the list can be read.
async fn damage_list(
    scene: &Scene<'_>,
    kind: &str,
    view: View,
    member: UserId,
    damage: impl FnOnce(String, Vec<u8>) -> Cmd,
) -> Value {
    let (path, list) = match view {
        View::Following(user) => (format!("/v1/users/{user}/following"), List::Following(user)),
        View::Followers(user) => (format!("/v1/users/{user}/followers"), List::Followers(user)),
        other => panic!("{other:?} is no list"),
    };
    let [key, ..] = keys::list(list);
    scene.until_cached(&path, &key).await;
    damage(key, author_prefix(member)).exec_async(&mut scene.redis()).await.unwrap();
    match kind {
        "view-damaged" => whole(kind, view),
        _ => json!({ "kind": kind, "view": view, "field": "members", "member": member }),
    }
}

/// Replaces the summary of a post. Returns the difference.
async fn summary(scene: &Scene<'_>, kind: &str, seq: u64, title: &str) -> Value {
    let (post, title) = (scene.post(seq), title.to_owned());
    scene.redis().del::<_, ()>(&keys::post(post)[0]).await.unwrap();
    let known = scene.app.stores.facts.posts(&[post]).await.unwrap();
    let created_at = known.get(&post).map_or_else(|| scene.now(), |post| post.created_at);
    let summary = PostSummary { id: post, title, of: None, created_at, revision: 1, rank: Rank::default(), deleted: false };
    scene.app.stores.views.remember_posts(&[(summary, None)], None).await.unwrap();
    whole(kind, View::Summary(post))
}

async fn reactions(scene: &Scene<'_>, value: Vec<u8>) {
    let key = keys::reactions(scene.reader);
    scene.redis().hset::<_, _, _, ()>(key, scene.author.get(), value).await.unwrap();
}

/// Stores reactions of the reader. Returns the difference.
async fn differing_reactions(scene: &Scene<'_>, state: ReactionState) -> Value {
    reactions(scene, state.encode()).await;
    json!({ "kind": "view-differs", "view": View::Reactions(scene.reader), "field": "reactions", "author": scene.author })
}

/// A difference between the reader's view and the facts of an author.
pub(super) fn of_author(scene: &Scene, field: &str, author: UserId) -> Value {
    json!({ "kind": "view-differs", "view": View::Reader(scene.reader), "field": field, "author": author })
}

/// A difference in the reader's whole view.
pub(super) fn of_reader(scene: &Scene, kind: &str, field: &str) -> Value {
    json!({ "kind": kind, "view": View::Reader(scene.reader), "field": field })
}

/// A difference in one post of the reader's view.
fn of_post(scene: &Scene, field: &str, post: PostId) -> Value {
    json!({ "kind": "view-differs", "view": View::Reader(scene.reader), "field": field, "post": post })
}

/// Differences in posts of the author.
fn of_posts(scene: &Scene, field: &str, seqs: impl IntoIterator<Item = u64>) -> Value {
    seqs.into_iter().map(|seq| of_post(scene, field, scene.post(seq))).collect()
}

/// Inserts an entry into the feed. Returns the difference.
async fn ghost(scene: &Scene<'_>, key: FeedKey) -> Value {
    scene.enter(key).await;
    of_post(scene, "entries", key.post)
}

/// Makes sure that the reader has a ranked feed, and damages it by a command for its key.
async fn damage_ranked(scene: &Scene<'_>, damage: impl FnOnce(&str) -> Cmd) {
    let [ranked, _] = keys::ranked(scene.reader);
    scene.until_cached("/v1/feed?order=ranked", &ranked).await;
    damage(&ranked).exec_async(&mut scene.redis()).await.unwrap();
}

/// A wrong score in the reader's ranked feed.
fn of_score(scene: &Scene, seq: u64) -> Value {
    json!({ "kind": "view-differs", "view": View::Ranked(scene.reader), "field": "scores", "post": scene.post(seq) })
}

/// The key of a post in the feed.
async fn entry(scene: &Scene<'_>, seq: u64) -> FeedKey {
    scene.fact(scene.post(seq)).await.key()
}

pub(super) async fn lose_entry(scene: &Scene<'_>, seq: u64) {
    let entry = entry(scene, seq).await.entry();
    scene.feed(|entries| entries.retain(|known| *known != entry)).await;
}

/// A field of the reader's view, and the change that makes it wrong.
enum Change {
    /// In what the view has of the author.
    Author(&'static str, fn(&mut AuthorState)),
    /// The same, and a difference in each of these posts.
    Posts(&'static str, &'static [u64], fn(&mut AuthorState)),
    /// In the feed's entries, and a difference of this kind in the whole view.
    Feed(&'static str, fn(&mut Vec<Vec<u8>>)),
    /// By a command, and a difference of this kind in the whole view.
    Command(&'static str, &'static str, fn(&Scene) -> Cmd),
}

impl Plant for Change {
    fn plant<'a>(&'a self, scene: &'a Scene<'a>) -> LocalBoxFuture<'a, Value> {
        Box::pin(async move {
            match self {
                Author(field, change) => {
                    scene.field(change).await;
                    of_author(scene, field, scene.author)
                }
                Posts(field, seqs, change) => {
                    scene.field(change).await;
                    of_posts(scene, field, seqs.iter().copied())
                }
                Feed(field, change) => {
                    scene.feed(change).await;
                    of_reader(scene, "view-damaged", field)
                }
                Command(kind, field, command) => {
                    command(scene).exec_async(&mut scene.redis()).await.unwrap();
                    of_reader(scene, kind, field)
                }
            }
        })
    }
}

/// Makes every post after `base` unread.
fn all_unread(field: &mut AuthorState, base: u64) {
    (field.base, field.read) = (base, Bitmap::default());
}

pub(super) const ALL: &[Damage] = &[
    ("a followed author without a field", &async |scene: &Scene| {
        scene.redis().hdel::<_, _, ()>(&scene.state_key, scene.author.get()).await.unwrap();
        of_author(scene, "authors", scene.author)
    }),
    ("a field of an author who is not followed", &async |scene: &Scene| {
        let value: Vec<u8> = scene.redis().hget(&scene.state_key, scene.author.get()).await.unwrap();
        scene.redis().hset::<_, _, _, ()>(&scene.state_key, scene.stranger.get(), value).await.unwrap();
        of_author(scene, "authors", scene.stranger)
    }),
    ("a field of an earlier follow", &Author("rev", |field| field.rev -= 1)),
    ("a field of a future follow", &Author("rev", |field| field.rev += 1_000)),
    ("a gate that was opened and never filled", &Author("opening", |field| field.opening = true)),
    ("read state older than the fact", &async |scene: &Scene| {
        scene.field(|field| all_unread(field, 0)).await;
        scene.field(|field| field.version = 0).await;
        of_author(scene, "version", scene.author)
    }),
    ("read state with a version above the fact", &Author("version", |field| field.version += 5)),
    ("an unread post marked read", &Posts("read", &[3], |field| field.read.set(3 - 1 - field.base))),
    ("a read post marked unread", &Posts("read", &[1], |field| all_unread(field, 0))),
    ("a base that hides unread posts", &Posts("read", &[2, 3, 4, 5], |field| all_unread(field, 8))),
    ("a floor that hides posts of the feed", &Author("floor", |field| field.floor = 2)),
    ("an author hidden who is not muted", &Author("muted", |field| field.muted = true)),
    ("a preference that the reader does not have", &Author("preference", |field| field.preference = 5)),
    ("a wrong score", &async |scene: &Scene| {
        let entry = entry(scene, 2).await.entry();
        damage_ranked(scene, |key| Cmd::zincr(key, entry, 5)).await;
        of_score(scene, 2)
    }),
    ("a score of a post that the feed does not have", &async |scene: &Scene| {
        let entry = FeedKey { at: Timestamp::from_ms(5), post: scene.post(99) }.entry();
        damage_ranked(scene, |key| Cmd::zadd(key, entry, 1)).await;
        of_score(scene, 99)
    }),
    ("an unreadable ranked feed", &async |scene: &Scene| {
        damage_ranked(scene, |key| Cmd::zadd(key, "nobody", 1)).await;
        whole("view-damaged", View::Ranked(scene.reader))
    }),
    ("a deleted post without its bit", &async |scene: &Scene| {
        scene.delete(3).await;
        scene.field(|field| field.deleted = Bitmap::default()).await;
        of_posts(scene, "deleted", [3])
    }),
    ("deliveries forgotten", &Posts("delivered", &[4, 5], |field| field.through = 3)),
    ("a lost delivery and its lost entry", &async |scene: &Scene| {
        scene.field(|field| field.through = 4).await;
        lose_entry(scene, 5).await;
        of_posts(scene, "delivered", [5])
    }),
    ("deliveries of future posts", &Author("through", |field| field.through = 9)),
    ("a bit for a future post", &Author("through", |field| field.tail.set(7))),
    ("a change of mode that the view lacks", &async |scene: &Scene| {
        let modes = [("mode_changes", n(2)), ("pulled", n(0))];
        scene.set("PostsTable", schema::head(scene.author), &modes).await;
        of_posts(scene, "modes", [5])
    }),
    ("an entry missing", &async |scene: &Scene| {
        lose_entry(scene, 3).await;
        of_posts(scene, "entries", [3])
    }),
    ("many entries missing", &async |scene: &Scene| {
        scene.caller(scene.author).publish_all(["one of many"; 25]).await;
        super::idle_without_projector(scene.world).await;
        scene.feed(|entries| drop(entries.drain(..26))).await;
        of_posts(scene, "entries", 1..=20)
    }),
    ("an entry of a deleted post", &async |scene: &Scene| {
        let key = entry(scene, 3).await;
        scene.delete(3).await;
        ghost(scene, key).await
    }),
    ("an entry of an author who is not followed", &async |scene: &Scene| {
        ghost(scene, scene.fact(PostId::new(scene.stranger, 1)).await.key()).await
    }),
    ("an entry of a post that does not exist", &async |scene: &Scene| {
        ghost(scene, FeedKey { at: scene.now(), post: scene.post(77) }).await
    }),
    ("an entry with another time than its post's", &async |scene: &Scene| {
        let key = entry(scene, 5).await;
        ghost(scene, FeedKey { at: key.at.plus_ms(60_000), ..key }).await
    }),
    ("a feed out of order", &Feed("order", |entries| entries.swap(1, 3))),
    ("an entry twice", &Feed("order", |entries| entries.insert(2, entries[1].clone()))),
    ("an unreadable feed", &Feed("feed", |entries| entries.push(b"nonsense".to_vec()))),
    ("a feed lost", &Command("view-orphan", "feed", |scene| Cmd::del(&scene.feed_key))),
    ("a feed whose state is lost", &Command("view-orphan", "state", |scene| Cmd::del(&scene.state_key))),
    ("a feed that expires before its state", &Command("view-damaged", "lifetime", |scene| Cmd::expire(&scene.feed_key, 3_600))),
    ("fields without the rest of the state", &Command("view-orphan", "state", |scene| Cmd::hdel(&scene.state_key, META_FIELD))),
    ("an unreadable state", &Command("view-damaged", "state", |scene| Cmd::hset(&scene.state_key, scene.author.get(), "short"))),
    ("a feed that the next post would put out of order", &async |scene: &Scene| {
        scene.newest(|newest| Timestamp::from_ms(newest.ms() - 1)).await;
        of_reader(scene, "view-damaged", "order")
    }),
    ("a state without the mark of its feed", &async |scene: &Scene| {
        let mut meta: Vec<u8> = scene.redis().hget(&scene.state_key, META_FIELD).await.unwrap();
        meta[0] = 0;
        scene.redis().hset::<_, _, _, ()>(&scene.state_key, META_FIELD, meta).await.unwrap();
        of_reader(scene, "view-orphan", "state")
    }),
    ("a rebuild that was abandoned", &async |scene: &Scene| {
        let past = Timestamp::from_ms(scene.now().ms() - 60_000);
        scene.app.stores.views.begin_rebuild(scene.reader, 7, past, Rebuild::Anew).await.unwrap();
        of_reader(scene, "view-orphan", "rebuild")
    }),
    ("a lost read fact below a view", &async |scene: &Scene| {
        scene.world.delete_item("ReadsTable", schema::reads(scene.reader, scene.author)).await;
        of_author(scene, "version", scene.author)
    }),
    ("a view that was rebuilt from wrong times of an author's posts", &async |scene: &Scene| {
        let (views, author) = (&scene.app.stores.views, scene.author);
        let mut times = Vec::new();
        for seq in 1..=5 {
            times.push((seq, entry(scene, seq).await.at.plus_ms(1)));
        }
        let times = PostTimes::default().with(5, times);
        while_leased(async || {
            assert!(views.lease_times(author, 7).await.unwrap());
            views.store_times(author, &times, 7).await.unwrap();
        })
        .await;
        scene.app.stores.views.clear(&[View::Reader(scene.reader)]).await.unwrap();
        scene.until_cached("/v1/feed", &scene.state_key).await;
        of_posts(scene, "entries", 1..=5)
    }),
    ("a followed author missing in the cached list", &async |scene: &Scene| {
        damage_list(scene, "view-differs", View::Following(scene.reader), scene.other, Cmd::zrem).await
    }),
    ("a stranger in the cached list of followed authors", &async |scene: &Scene| {
        let add = |key, member| Cmd::zadd(key, member, scene.now().ms());
        damage_list(scene, "view-differs", View::Following(scene.reader), scene.stranger, add).await
    }),
    ("a follower missing in the cached list", &async |scene: &Scene| {
        damage_list(scene, "view-differs", View::Followers(scene.author), scene.follower, Cmd::zrem).await
    }),
    ("a stranger in the cached list of followers", &async |scene: &Scene| {
        let add = |key, member| Cmd::zadd(key, member, scene.now().ms());
        damage_list(scene, "view-differs", View::Followers(scene.author), scene.stranger, add).await
    }),
    ("a follower in the wrong place of the cached list", &async |scene: &Scene| {
        let later = |key, member| Cmd::zincr(key, member, 5_000);
        damage_list(scene, "view-differs", View::Followers(scene.author), scene.follower, later).await
    }),
    ("a list without its marker", &async |scene: &Scene| {
        let unmark = |key, _| Cmd::zremrangebyrank(key, 0, 0);
        damage_list(scene, "view-damaged", View::Following(scene.reader), scene.other, unmark).await
    }),
    ("a list with an invalid member", &async |scene: &Scene| {
        let add = |key, _| Cmd::zadd(key, "nobody", 1);
        damage_list(scene, "view-damaged", View::Followers(scene.author), scene.follower, add).await
    }),
    ("another user's counters", &async |scene: &Scene| {
        for user in [scene.author, scene.other] {
            let [key, _] = keys::counters(user);
            scene.until_cached(&format!("/v1/users/{user}/counters"), &key).await;
        }
        let [[author, _], [other, _]] = [scene.author, scene.other].map(keys::counters);
        let record: Vec<u8> = scene.redis().get(other).await.unwrap();
        scene.redis().set_ex::<_, _, ()>(author, record, 3_600).await.unwrap();
        whole("view-differs", View::Counters(scene.author))
    }),
    ("counters cut short", &async |scene: &Scene| {
        let [key, _] = keys::counters(scene.author);
        scene.redis().set_ex::<_, _, ()>(key, "short", 3_600).await.unwrap();
        whole("view-damaged", View::Counters(scene.author))
    }),
    ("reactions older than the fact", &async |scene: &Scene| differing_reactions(scene, ReactionState::default()).await),
    ("reactions without a fact", &async |scene: &Scene| {
        let state = ReactionState { version: 2, liked: [1, 2, 3].into_iter().collect(), ..ReactionState::default() };
        differing_reactions(scene, state).await
    }),
    ("reactions with a version above the fact", &async |scene: &Scene| {
        let state = ReactionState { version: 70, ..ReactionState::default() }.changed(5, Reaction::Like, true).unwrap();
        differing_reactions(scene, state).await
    }),
    ("unreadable reactions", &async |scene: &Scene| {
        reactions(scene, b"bad".to_vec()).await;
        whole("view-damaged", View::Reactions(scene.reader))
    }),
    ("a head view newer than its author", &async |scene: &Scene| {
        let head = AuthorHead { latest_seq: 99, posts: 99, ..AuthorHead::default() };
        let (views, author, heads) = (&scene.app.stores.views, scene.author, [(scene.author, head)]);
        while_leased(async || {
            assert_eq!(views.lease_heads(&[author], 7).await.unwrap(), [author]);
            views.fill_heads(&heads, 7).await.unwrap();
        })
        .await;
        // A cached head lives for a minute, which may be too short for this test.
        scene.redis().expire::<_, ()>(&keys::head(author)[0], 3_600).await.unwrap();
        whole("view-differs", View::Head(scene.author))
    }),
    ("the summary of a deleted post", &async |scene: &Scene| {
        scene.delete(3).await;
        summary(scene, "view-differs", 3, "three").await
    }),
    ("a summary with another title", &async |scene: &Scene| summary(scene, "view-differs", 2, "not what it was").await),
    ("a live post with the summary of a deleted one", &async |scene: &Scene| {
        let key = scene.fact(scene.post(2)).await.key();
        scene.app.stores.views.remember_posts(&[(PostSummary::tombstone(key), None)], None).await.unwrap();
        whole("view-differs", View::Summary(scene.post(2)))
    }),
    ("the summary of a post that does not exist", &async |scene: &Scene| summary(scene, "view-orphan", 99, "never").await),
    ("an unreadable summary", &async |scene: &Scene| {
        scene.redis().set_ex::<_, _, ()>(&keys::post(scene.post(1))[0], "x", 3_600).await.unwrap();
        whole("view-damaged", View::Summary(scene.post(1)))
    }),
    ("a text that the post does not have", &async |scene: &Scene| {
        let views = &scene.app.stores.views;
        let text = PostText { body: Some("never written".to_owned()), data: None };
        views.remember_posts(&[(scene.fact(scene.post(2)).await.into(), Some(text))], None).await.unwrap();
        whole("view-differs", View::Text(scene.post(2)))
    }),
    ("reaction counts that nobody made", &async |scene: &Scene| {
        let (views, post) = (&scene.app.stores.views, scene.post(2));
        let counts = ReactionCounts { likes: 5, favorites: 5, reposts: 5, comments: 5 };
        let counts = HashMap::from([(post, CountsVersion { version: 99, counts })]);
        while_leased(async || {
            views.lease_counts(&[post], 1).await.unwrap();
            views.store_counts(&counts, 1).await.unwrap();
        })
        .await;
        whole("view-differs", View::Counts(post))
    }),
    ("the card of a user without a profile", &async |scene: &Scene| {
        let (views, user) = (&scene.app.stores.views, scene.reader);
        let card = Card { name: "Nobody".to_owned(), handle: None, picture: None };
        let cards = [(user, CardVersion { version: 7, card: Some(card) })];
        while_leased(async || {
            scene.redis().del::<_, ()>(&keys::card(user)).await.unwrap();
            assert_eq!(views.lease_cards(&[user], 1).await.unwrap(), [user]);
            views.fill_cards(&cards, 1).await.unwrap();
        })
        .await;
        whole("view-differs", View::Card(user))
    }),
    ("marks that the reader never made", &async |scene: &Scene| {
        let (views, user, author) = (&scene.app.stores.views, scene.stranger, scene.author);
        let mut reads = ReadState { version: 7, ..ReadState::default() };
        reads.mark([1]);
        let marks = [(author, Marks::new(reads, false))];
        while_leased(async || {
            views.lease_marks(user, &[author], 1).await.unwrap();
            views.fill_marks(user, &marks, 1).await.unwrap();
        })
        .await;
        whole("view-differs", View::Marks(user, author))
    }),
    ("a view without expiry", &async |scene: &Scene| scene.persist(View::Reader(scene.reader), &scene.state_key).await),
    ("progress without expiry", &async |scene: &Scene| {
        let key = keys::pages_done(FanOutKind::Deliver, scene.post(1));
        scene.persist(View::Key(key.clone()), &key).await
    }),
    ("a state of the wrong type", &async |scene: &Scene| scene.overwrite(View::Reader(scene.reader), &scene.state_key).await),
    ("a list of the wrong type", &async |scene: &Scene| {
        scene.overwrite(View::Followers(scene.author), &keys::list(List::Followers(scene.author))[0]).await
    }),
    ("a key in another bucket than its user's", &async |scene: &Scene| {
        let key = format!("{{{}}}:r:{}", (scene.reader.bucket() + 1) % 4096, scene.reader);
        scene.redis().hset::<_, _, _, ()>(&key, "@", "x").await.unwrap();
        scene.redis().expire::<_, ()>(&key, 3_600).await.unwrap();
        json!({ "kind": "view-orphan", "view": { "key": key }, "field": "bucket" })
    }),
];
