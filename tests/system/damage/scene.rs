//! Scenes: a few users with a short history, and access to their stored data.

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use redis::AsyncCommands;
use serde_json::Value;
use tidemark::{
    App,
    domain::{
        AuthorState, FeedKey, Platform, Post, PostId, SeqSet, Timestamp, UserId,
        reader_state::{META_FIELD, RECENT_FIELDS, ReaderMeta},
    },
    views::keys,
};
use tidemark_tests::{
    Connection, User, World,
    items::{Item, with_attributes},
    user_id,
};

/// A reader with a live view follows an author with five posts and another with one, and has read, liked and
/// favorited some of them. Another follower has no view. A stranger with one post has no followers. Scenes do not
/// share users.
pub(super) struct Scene<'w> {
    pub(super) world: &'w World,
    pub(super) app: &'w App,
    pub(super) redis: Connection,
    base: u64,
}

pub(super) fn seqs(seqs: impl IntoIterator<Item = u64>) -> AttributeValue {
    AttributeValue::B(Blob::new(seqs.into_iter().collect::<SeqSet>().to_bytes()))
}

impl<'w> Scene<'w> {
    pub(super) async fn new(world: &'w World, base: u64) -> Self {
        let app = world.stack.app("reconcile").unwrap();
        let scene = Self { world, app, redis: world.redis().await, base };
        let (reader, author, other) = (scene.caller(scene.reader()), scene.caller(scene.author()), scene.caller(scene.other()));
        reader.follow([scene.author(), scene.other()]).await;
        scene.caller(scene.follower()).follow([scene.author()]).await;
        reader.feed_ids().await;
        author.publish_all(["one", "two", "three", "four", "five"]).await;
        for writer in [&other, &scene.caller(scene.stranger())] {
            writer.publish("one").await;
        }
        reader.put(&scene.path(1, "read")).await.ok();
        reader.put(&scene.path(2, "like")).await.ok();
        reader.put(&scene.path(4, "favorite")).await.ok();
        scene
    }

    /// A scene without work that is left.
    pub(super) async fn settled(world: &'w World) -> Self {
        let scene = Self::new(world, 1_000).await;
        world.idle().await;
        scene
    }

    /// This number of scenes.
    pub(super) async fn several(world: &'w World, number: u64) -> Vec<Self> {
        let mut scenes = Vec::new();
        for index in 1..=number {
            scenes.push(Self::new(world, index * 1_000).await);
        }
        scenes
    }

    pub(super) fn reader(&self) -> UserId {
        user_id(self.base + 1)
    }

    pub(super) fn follower(&self) -> UserId {
        user_id(self.base + 2)
    }

    pub(super) fn author(&self) -> UserId {
        user_id(self.base + 3)
    }

    pub(super) fn other(&self) -> UserId {
        user_id(self.base + 4)
    }

    pub(super) fn stranger(&self) -> UserId {
        user_id(self.base + 5)
    }

    pub(super) fn caller(&self, user: UserId) -> User {
        self.world.user(user.get())
    }

    pub(super) fn platform(&self) -> Platform {
        Platform::new((self.base / 1_000) as u16).unwrap()
    }

    pub(super) fn post(&self, seq: u64) -> PostId {
        PostId::new(self.author(), seq)
    }

    pub(super) fn path(&self, seq: u64, what: &str) -> String {
        format!("/v1/posts/{}/{what}", self.post(seq))
    }

    /// Deletes a post of the author and waits until the retraction is done.
    pub(super) async fn delete(&self, seq: u64) {
        self.caller(self.author()).delete(&format!("/v1/posts/{}", self.post(seq))).await.ok();
        self.world.idle().await;
        self.without_head().await;
    }

    /// Removes the view of the author's head. Otherwise damage of the head would be a difference of its view too.
    pub(super) async fn without_head(&self) {
        self.redis().del::<_, ()>(keys::head(self.author()).to_vec()).await.unwrap();
    }

    /// Repeats a request until a key exists. A busy server may respond from facts at first.
    pub(super) async fn until_cached(&self, path: &str, key: &str) {
        let started = std::time::Instant::now();
        while !self.redis().exists::<_, bool>(key).await.unwrap() {
            assert!(started.elapsed() < tidemark_tests::PATIENCE, "{path} is not cached");
            self.caller(self.reader()).get(path).await.ok();
        }
    }

    /// Asserts that the reader's feed agrees with the authors' timelines, which come from facts, and that the
    /// reader's notices agree with the facts.
    pub(super) async fn agrees(&self, name: &str) {
        let reader = self.caller(self.reader());
        let feed = reader.walk("/v1/feed", 50).await;
        let mut expected = Vec::new();
        for author in [self.author(), self.other()] {
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
        let board = self.app.notices.board(self.platform(), self.reader()).await.unwrap();
        let (head, reads) = self.app.notices.stores.notices.state(self.platform(), self.reader()).await.unwrap();
        assert_eq!(board.counts(), head.counts(&reads.read, board.now), "{name}");
        let listed = reader.walk(&format!("/v1/notices?platform={}", self.platform()), 50).await;
        assert_eq!(listed.len(), head.live_at(board.now).count(), "{name}");
    }

    // ---- DynamoDB --------------------------------------------------------

    /// Sets and removes attributes of an item.
    pub(super) async fn update(&self, table: &str, key: Item, set: &[(&str, AttributeValue)], remove: &[&str]) {
        self.world.update_item(table, key, set, remove).await;
    }

    pub(super) async fn put(&self, table: &str, key: Item, attributes: &[(&str, AttributeValue)]) {
        self.world.put_item(table, with_attributes(key, attributes)).await;
    }

    pub(super) async fn remove(&self, table: &str, key: Item) {
        self.world.delete_item(table, key).await;
    }

    // ---- Redis -----------------------------------------------------------

    /// A connection for changes in Redis.
    pub(super) fn redis(&self) -> Connection {
        self.redis.clone()
    }

    /// The keys of the reader's state and feed.
    pub(super) fn keys(&self) -> [String; 2] {
        [keys::reader_state(self.reader()), keys::feed(self.reader())]
    }

    /// Deletes the reader's view.
    pub(super) async fn without_view(&self) {
        self.redis().del::<_, ()>(self.keys().to_vec()).await.unwrap();
    }

    /// Changes the author's field in the reader's view.
    pub(super) async fn field(&self, change: impl FnOnce(&mut AuthorState)) {
        let [state, _] = self.keys();
        let author = self.author().get();
        let value: Vec<u8> = self.redis().hget(&state, author).await.unwrap();
        let mut field = AuthorState::decode(&value).unwrap();
        change(&mut field);
        self.redis().hset::<_, _, _, ()>(&state, author, field.encode()).await.unwrap();
    }

    /// Changes the entries of the reader's feed, oldest first, which are all in its list then.
    pub(super) async fn feed(&self, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let [state, feed] = self.keys();
        let lifetime: i64 = self.redis().pttl(&feed).await.unwrap();
        let mut entries: Vec<Vec<u8>> = self.redis().lrange(&feed, 0, -1).await.unwrap();
        let recent: Vec<Option<Vec<u8>>> = self.redis().hmget(&state, &RECENT_FIELDS).await.unwrap();
        let mut meta: Vec<u8> = self.redis().hget(&state, META_FIELD).await.unwrap();
        entries.extend(recent.into_iter().take(usize::from(meta[0] / 16)).flatten());
        meta[0] %= 16;
        self.redis().hset::<_, _, _, ()>(&state, META_FIELD, meta).await.unwrap();
        self.redis().hdel::<_, _, ()>(&state, &RECENT_FIELDS).await.unwrap();
        change(&mut entries);
        self.redis().del::<_, ()>(&feed).await.unwrap();
        self.redis().rpush::<_, _, ()>(&feed, entries).await.unwrap();
        self.redis().pexpire::<_, ()>(&feed, lifetime).await.unwrap();
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
        let [state, _] = self.keys();
        let mut meta: Vec<u8> = self.redis().hget(&state, META_FIELD).await.unwrap();
        let newest = change(ReaderMeta::decode(&meta).unwrap().newest);
        meta[21..27].copy_from_slice(&newest.ms().to_le_bytes()[..6]);
        self.redis().hset::<_, _, _, ()>(state, META_FIELD, meta).await.unwrap();
    }

    /// A post as the facts have it.
    pub(super) async fn fact(&self, post: PostId) -> Post {
        self.app.stores.posts.posts(&[post]).await.unwrap().remove(&post).unwrap()
    }
}
