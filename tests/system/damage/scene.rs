//! Scenes: a few users with a short history, and access to their stored data.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use redis::AsyncCommands;
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{
        AuthorState, FeedKey, NoticeId, Platform, Post, PostId, SeqSet, Timestamp, UserId,
        reader_state::{META_FIELD, RECENT_FIELDS, ReaderMeta},
    },
    views::keys::{self, View},
};
use tidemark_tests::{
    Connection, User, World,
    items::{Item, with_attributes},
    until, user_id,
};

/// A reader with a live view follows an author with five posts and another with one, and has read, liked and
/// favorited some of them. Another follower has no view. A stranger with one post has no followers. Scenes do not
/// share users.
pub(super) struct Scene<'w> {
    pub(super) world: &'w World,
    pub(super) app: &'w App,
    redis: Connection,
    pub(super) reader: UserId,
    pub(super) follower: UserId,
    pub(super) author: UserId,
    pub(super) other: UserId,
    pub(super) stranger: UserId,
    pub(super) platform: Platform,
    /// The keys of the reader's view.
    pub(super) state_key: String,
    pub(super) feed_key: String,
}

pub(super) fn seqs(seqs: impl IntoIterator<Item = u64>) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.into_iter().collect::<SeqSet>().to_bytes()))
}

impl<'w> Scene<'w> {
    async fn new(world: &'w World, number: u16) -> Self {
        let [reader, follower, author, other, stranger] = [1, 2, 3, 4, 5].map(|user| user_id(u64::from(number) * 1_000 + user));
        let scene = Self {
            world,
            app: world.stack.app("reconcile").unwrap(),
            redis: world.redis().await,
            reader,
            follower,
            author,
            other,
            stranger,
            platform: Platform::new(number).unwrap(),
            state_key: keys::reader_state(reader),
            feed_key: keys::feed(reader),
        };
        scene.caller(follower).follow([author]).await;
        let reader = scene.caller(reader);
        reader.follow([author, other]).await;
        reader.feed_ids().await;
        scene.caller(author).publish_all(["one", "two", "three", "four", "five"]).await;
        for writer in [other, stranger] {
            scene.caller(writer).publish("one").await;
        }
        for (seq, what) in [(1, "read"), (2, "like"), (4, "favorite")] {
            reader.put(&format!("/v1/posts/{}/{what}", scene.post(seq))).await.ok();
        }
        scene
    }

    pub(super) async fn settled(world: &'w World) -> Self {
        Self::several(world, 1).await.remove(0)
    }

    /// This number of scenes without work that is left.
    pub(super) async fn several(world: &'w World, count: usize) -> Vec<Self> {
        let mut scenes = Vec::new();
        for number in (1..).take(count) {
            scenes.push(Self::new(world, number).await);
        }
        world.idle().await;
        scenes
    }

    pub(super) fn caller(&self, user: UserId) -> User {
        self.world.user(user.get())
    }

    pub(super) fn post(&self, seq: u64) -> PostId {
        PostId::new(self.author, seq)
    }

    pub(super) fn notice(&self, seq: u64) -> NoticeId {
        NoticeId { platform: self.platform, seq }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.app.stores.clock.now()
    }

    /// The counters of a user, as the user sees them.
    pub(super) async fn counters(&self, user: UserId) -> Value {
        self.caller(user).get(&format!("/v1/users/{user}/counters")).await.ok()
    }

    /// Deletes a post of the author and waits until the retraction is done.
    pub(super) async fn delete(&self, seq: u64) {
        self.caller(self.author).delete(&format!("/v1/posts/{}", self.post(seq))).await.ok();
        super::idle_without_projector(self.world).await;
        self.without_head().await;
    }

    /// Removes the view of the author's head. Otherwise damage of the head would be a difference of its view too.
    pub(super) async fn without_head(&self) {
        self.redis().del::<_, ()>(keys::head(self.author).to_vec()).await.unwrap();
    }

    /// Repeats a request until a key exists. A busy server may respond from facts at first.
    pub(super) async fn until_cached(&self, path: &str, key: &str) {
        until(&format!("{path} is cached"), async || {
            let is_cached: bool = self.redis().exists(key).await.unwrap();
            if !is_cached {
                self.caller(self.reader).get(path).await.ok();
            }
            is_cached
        })
        .await;
    }

    /// Asserts that the reader's feed agrees with the authors' timelines, which come from facts, and that the
    /// reader's notices agree with the facts.
    pub(super) async fn agrees(&self, name: &str) {
        let reader = self.caller(self.reader);
        let feed = reader.walk("/v1/feed", 50).await;
        let mut expected = Vec::new();
        for author in [self.author, self.other] {
            expected.extend(reader.walk(&format!("/v1/authors/{author}/posts"), 50).await);
        }
        let unread = expected.iter().filter(|post| post["read"] == false).count();
        let sorted = |posts: &[Value]| {
            let mut posts: Vec<String> = posts.iter().map(Value::to_string).collect();
            posts.sort();
            posts
        };
        assert_eq!(sorted(&feed), sorted(&expected), "{name}");
        assert_eq!(reader.unread_total().await as usize, unread, "{name}");
        let board = self.app.notices.board(self.platform, self.reader).await.unwrap();
        let (head, reads) = self.app.stores.facts.notice_state(self.platform, self.reader).await.unwrap();
        assert_eq!(board.counts(), head.counts(&reads.read, board.now), "{name}");
        let listed = reader.walk(&format!("/v1/notices?platform={}", self.platform), 50).await;
        assert_eq!(listed.len(), head.live_at(board.now).count(), "{name}");
    }

    pub(super) async fn set(&self, table: &str, key: Item, attributes: &[(&str, AttributeValue)]) {
        self.world.update_item(table, key, attributes, &[]).await;
    }

    pub(super) async fn put(&self, table: &str, key: Item, attributes: &[(&str, AttributeValue)]) {
        self.world.put_item(table, with_attributes(key, attributes)).await;
    }

    pub(super) fn redis(&self) -> Connection {
        self.redis.clone()
    }

    /// Takes the expiry from a key. Returns the difference.
    pub(super) async fn persist(&self, view: View, key: &str) -> Value {
        self.redis().persist::<_, ()>(key).await.unwrap();
        json!({ "kind": "view-damaged", "view": view, "field": "lifetime", "key": key })
    }

    /// Replaces a key by a string, which is another type. Returns the difference.
    pub(super) async fn overwrite(&self, view: View, key: &str) -> Value {
        self.redis().set_ex::<_, _, ()>(key, "x", 3_600).await.unwrap();
        json!({ "kind": "view-damaged", "view": view, "field": "type", "key": key })
    }

    pub(super) async fn without_view(&self) {
        self.redis().del::<_, ()>(&[&self.state_key, &self.feed_key]).await.unwrap();
    }

    /// Changes the author's field in the reader's view.
    pub(super) async fn field(&self, change: impl FnOnce(&mut AuthorState)) {
        let (state, author) = (&self.state_key, self.author.get());
        let value: Vec<u8> = self.redis().hget(state, author).await.unwrap();
        let mut field = AuthorState::decode(&value).unwrap();
        change(&mut field);
        self.redis().hset::<_, _, _, ()>(state, author, field.encode()).await.unwrap();
    }

    /// Changes the entries of the reader's feed, oldest first, which are all in its list then.
    pub(super) async fn feed(&self, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let (state, feed) = (&self.state_key, &self.feed_key);
        let lifetime: i64 = self.redis().pttl(feed).await.unwrap();
        let mut entries: Vec<Vec<u8>> = self.redis().lrange(feed, 0, -1).await.unwrap();
        let recent: Vec<Option<Vec<u8>>> = self.redis().hmget(state, &RECENT_FIELDS).await.unwrap();
        let mut meta: Vec<u8> = self.redis().hget(state, META_FIELD).await.unwrap();
        entries.extend(recent.into_iter().take(usize::from(meta[0] / 16)).flatten());
        meta[0] %= 16;
        self.redis().hset::<_, _, _, ()>(state, META_FIELD, meta).await.unwrap();
        self.redis().hdel::<_, _, ()>(state, &RECENT_FIELDS).await.unwrap();
        change(&mut entries);
        self.redis().del::<_, ()>(feed).await.unwrap();
        self.redis().rpush::<_, _, ()>(feed, entries).await.unwrap();
        self.redis().pexpire::<_, ()>(feed, lifetime).await.unwrap();
    }

    /// Inserts an entry at its place. If it is the newest entry, also updates the view's newest time.
    pub(super) async fn enter(&self, key: FeedKey) {
        self.newest(|newest| newest.max(key.at)).await;
        let entry = key.entry();
        self.feed(|entries| {
            let at = entries.partition_point(|known| *known < entry);
            entries.insert(at, entry);
        })
        .await;
    }

    /// Changes the view's time of the newest entry.
    pub(super) async fn newest(&self, change: impl FnOnce(Timestamp) -> Timestamp) {
        let mut meta: Vec<u8> = self.redis().hget(&self.state_key, META_FIELD).await.unwrap();
        let newest = change(ReaderMeta::decode(&meta).unwrap().newest);
        meta[21..27].copy_from_slice(&newest.ms().to_le_bytes()[..6]);
        self.redis().hset::<_, _, _, ()>(&self.state_key, META_FIELD, meta).await.unwrap();
    }

    pub(super) async fn fact(&self, post: PostId) -> Post {
        self.app.stores.facts.posts(&[post]).await.unwrap().remove(&post).unwrap()
    }
}
