//! An application of the legacy system: read state of S0 and follows of S4, on its Redis.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use tidemark_tests::LegacyRedis;

use crate::migration::command;

/// Adds a blog to, or removes it from, the unread set of one reader, and sets the count.
const MARK: &str = "
    if ARGV[3] == 'unread' then redis.call('SADD', KEYS[1], ARGV[2]) else redis.call('SREM', KEYS[1], ARGV[2]) end
    if ARGV[3] == 'read' then redis.call('SADD', KEYS[3], ARGV[2]) end
    redis.call('HSET', KEYS[2], ARGV[1], redis.call('SCARD', KEYS[1]))";

pub(super) struct LegacySystem {
    redis: MultiplexedConnection,
    blogs: AtomicU64,
}

#[expect(clippy::disallowed_methods, reason = "the legacy application has a clock of its own")]
fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

impl LegacySystem {
    pub(super) async fn start() -> (LegacyRedis, Self) {
        let redis = LegacyRedis::start().await;
        let system = Self { redis: redis.connect().await, blogs: AtomicU64::new(0) };
        (redis, system)
    }

    pub(super) async fn run(&self, text: &str) {
        command(text).exec_async(&mut self.redis.clone()).await.unwrap();
    }

    pub(super) async fn follow(&self, user: u64, author: u64) {
        let seconds = now() / 1_000;
        let mut pipe = redis::pipe();
        pipe.atomic().zadd(format!("u_follow:{user}"), author, seconds).ignore();
        pipe.zadd(format!("u_fans:{author}"), user, seconds).ignore().incr(format!("u_fans_num:{author}"), 1).ignore();
        pipe.exec_async(&mut self.redis.clone()).await.unwrap();
    }

    pub(super) async fn unfollow(&self, user: u64, author: u64) {
        let mut pipe = redis::pipe();
        pipe.atomic().zrem(format!("u_follow:{user}"), author).ignore();
        pipe.zrem(format!("u_fans:{author}"), user).ignore().decr(format!("u_fans_num:{author}"), 1).ignore();
        pipe.exec_async(&mut self.redis.clone()).await.unwrap();
    }

    pub(super) async fn following(&self, user: u64) -> Vec<u64> {
        self.redis.clone().zrange(format!("u_follow:{user}"), 0, -1).await.unwrap()
    }

    pub(super) async fn publish(&self, author: u64, title: &str) {
        let blog = 1_000_000 + self.blogs.fetch_add(1, Ordering::Relaxed);
        let [id, author_id, at] = [blog, author, now()].map(|number| number.to_string());
        let info = [("id", id.as_str()), ("userId", &author_id), ("title", title), ("createTime", &at)];
        self.redis.clone().hset_multiple::<_, _, _, ()>(format!("blog:info:{blog}"), &info).await.unwrap();
        self.run(&format!("SADD author:blogs:{author} {blog}")).await;
        self.tell(author, blog, "unread").await;
    }

    async fn tell(&self, author: u64, blog: u64, mark: &str) {
        let fans: Vec<u64> = self.redis.clone().zrange(format!("u_fans:{author}"), 0, -1).await.unwrap();
        for fan in fans {
            self.mark(fan, author, blog, mark).await;
        }
    }

    async fn mark(&self, user: u64, author: u64, blog: u64, mark: &str) {
        let script = Script::new(MARK);
        let mut call = script.prepare_invoke();
        call.key(format!("user:unread:{user}:{author}"))
            .key(format!("user:unread:count:{user}"))
            .key(format!("user:read:{user}"));
        call.arg(author).arg(blog).arg(mark).invoke_async::<()>(&mut self.redis.clone()).await.unwrap();
    }

    /// Deletes any blog of the author. Returns its title.
    pub(super) async fn delete_one(&self, author: u64) -> Option<String> {
        let list = format!("author:blogs:{author}");
        let blog: Option<u64> = self.redis.clone().srandmember(&list).await.unwrap();
        let blog = blog?;
        let title = self.title(blog).await;
        self.run(&format!("SREM {list} {blog}")).await;
        self.run(&format!("DEL blog:info:{blog}")).await;
        self.tell(author, blog, "gone").await;
        title
    }

    /// Reads any unread blog of a followed author. Returns its title.
    pub(super) async fn read_one(&self, user: u64) -> Option<String> {
        for author in self.following(user).await {
            let blog: Option<u64> = self.redis.clone().srandmember(format!("user:unread:{user}:{author}")).await.unwrap();
            if let Some(blog) = blog
                && let Some(title) = self.title(blog).await
            {
                self.mark(user, author, blog, "read").await;
                return Some(title);
            }
        }
        None
    }

    async fn title(&self, blog: u64) -> Option<String> {
        self.redis.clone().hget(format!("blog:info:{blog}"), "title").await.unwrap()
    }

    pub(super) async fn unread_titles(&self, user: u64) -> BTreeSet<String> {
        let mut titles = BTreeSet::new();
        for author in self.following(user).await {
            titles.extend(self.titles(&format!("user:unread:{user}:{author}")).await);
        }
        titles
    }

    pub(super) async fn titles(&self, set: &str) -> BTreeSet<String> {
        let mut titles = BTreeSet::new();
        for blog in self.redis.clone().smembers::<_, Vec<u64>>(set).await.unwrap() {
            titles.extend(self.title(blog).await);
        }
        titles
    }
}
