//! Bare `ZADD` into one feed for each follower: what a delivery costs at least on this machine.

use redis::{Cmd, Pipeline, aio::MultiplexedConnection, cmd};
use tidemark::domain::UserId;

use super::Readers;
use crate::server::Server;

/// Commands in a pipeline, as `redis-benchmark -P 16` sends them.
const DEPTH: usize = 16;
/// Ids and times of the posts in the feeds, and of later posts.
const FIRST_ID: u64 = 1_800_000_000_000_000_000;
const START_MS: u64 = 1_720_000_000_000;

/// The same readers with a sorted set each.
pub(super) struct Yardstick {
    connection: MultiplexedConnection,
    followers: Vec<UserId>,
    /// Entries in every feed before the first post.
    entries: usize,
}

impl Yardstick {
    pub(super) async fn prepare(server: &Server, readers: &Readers) -> anyhow::Result<Self> {
        let mut connection = server.connect().await?;
        for users in readers.shuffled.chunks(100) {
            let feed = |user: &UserId| zadd(*user, 0..readers.entries as u64);
            pipeline(users.iter().map(feed)).exec_async(&mut connection).await?;
        }
        Ok(Self { connection, followers: readers.listed.clone(), entries: readers.entries })
    }

    pub(super) async fn zadd(&mut self, round: u32) -> anyhow::Result<usize> {
        let post = self.entries as u64 + u64::from(round);
        for users in self.followers.chunks(DEPTH) {
            pipeline(users.iter().map(|&user| zadd(user, post..=post))).exec_async(&mut self.connection).await?;
        }
        Ok(self.followers.len())
    }
}

fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = redis::pipe();
    for command in commands {
        pipeline.add_command(command).ignore();
    }
    pipeline
}

fn zadd(user: UserId, posts: impl Iterator<Item = u64>) -> Cmd {
    let mut zadd = cmd("ZADD");
    zadd.arg(format!("bare:{user}"));
    for number in posts {
        zadd.arg(START_MS + number).arg(FIRST_ID + number);
    }
    zadd
}
