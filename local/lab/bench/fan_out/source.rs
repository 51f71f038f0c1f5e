//! The replaced method: the commands of the source designs for each follower, one by one or with one pipeline for
//! each page, and bare `ZADD`.

use redis::{Cmd, Pipeline, aio::MultiplexedConnection, cmd};
use tidemark::domain::{UserId, feed::FEED_CAP};

use super::{
    PAGE, Readers,
    worker::{AUTHOR, OTHERS},
};
use crate::server::Server;

/// Followers that the sequential form handles in a round. The number is small because the form is slow.
const SEQUENTIAL: usize = 500;
/// Commands in a pipeline of bare `ZADD`, as `redis-benchmark -P 16` sends them.
const DEPTH: usize = 16;
/// Lifetimes in seconds: 60 hours for feeds, 30 days for unread state.
const FEED_SECONDS: u64 = 60 * 3600;
const UNREAD_SECONDS: u64 = 30 * 24 * 3600;
/// Ids and times of the posts in the feeds, and of later posts.
const FIRST_ID: u64 = 1_800_000_000_000_000_000;
const START_MS: u64 = 1_720_000_000_000;

/// The same readers in the source's layout, and one feed each for bare `ZADD`.
pub(super) struct Source {
    connection: MultiplexedConnection,
    followers: Vec<UserId>,
    /// Entries in every feed before the first post.
    entries: usize,
}

impl Source {
    /// No follower has read any post of the feed, as in the worker's views.
    pub(super) async fn prepare(server: &Server, readers: &Readers) -> anyhow::Result<Self> {
        let mut connection = server.connect().await?;
        for users in readers.shuffled.chunks(100) {
            pipeline(users.iter().flat_map(|&user| reader(user, readers.entries))).exec_async(&mut connection).await?;
        }
        Ok(Self { connection, followers: readers.listed.clone(), entries: readers.entries })
    }

    /// Delivers with one command at a time, as the source design does.
    pub(super) async fn sequential(&mut self, round: u32) -> anyhow::Result<usize> {
        for &user in self.followers.iter().take(SEQUENTIAL) {
            for command in commands(user, self.entries, round) {
                command.exec_async(&mut self.connection).await?;
            }
        }
        Ok(SEQUENTIAL)
    }

    /// Sends the commands of a page of followers in one pipeline.
    pub(super) async fn pipelined(&mut self, round: u32) -> anyhow::Result<usize> {
        for users in self.followers.chunks(PAGE) {
            let pipeline = pipeline(users.iter().flat_map(|&user| commands(user, self.entries, round)));
            pipeline.exec_async(&mut self.connection).await?;
        }
        Ok(self.followers.len())
    }

    /// Sends only `ZADD` into one feed for each follower.
    pub(super) async fn zadd(&mut self, round: u32) -> anyhow::Result<usize> {
        for users in self.followers.chunks(DEPTH) {
            let pipeline = pipeline(users.iter().map(|&user| zadd(bare(user), self.entries, round)));
            pipeline.exec_async(&mut self.connection).await?;
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

/// A follower before the first post: the feed, and for each of the other authors the unread posts and their number.
fn reader(user: UserId, entries: usize) -> Vec<Cmd> {
    let mut commands = Vec::new();
    for key in [feed(user), bare(user)] {
        let mut zadd = cmd("ZADD");
        zadd.arg(key);
        for number in 0..entries as u64 {
            zadd.arg(START_MS + number).arg(FIRST_ID + number);
        }
        commands.push(zadd);
    }
    let mut hset = cmd("HSET");
    hset.arg(counts(user)).arg(AUTHOR).arg(0);
    for other in 0..OTHERS {
        let author = AUTHOR + 1 + other;
        let posts: Vec<u64> = (other..entries as u64).step_by(OTHERS as usize).map(|number| FIRST_ID + number).collect();
        hset.arg(author).arg(posts.len());
        commands.push(cmd("SADD").arg(unread(user, author)).arg(posts).to_owned());
        commands.push(expire(&unread(user, author), UNREAD_SECONDS));
    }
    commands.extend([hset, expire(&feed(user), FEED_SECONDS), expire(&counts(user), UNREAD_SECONDS)]);
    commands
}

/// The commands for one follower, two more if the feed is full. A pipeline cannot wait for a response, so the count and
/// the oldest entry are computed instead of read.
fn commands(user: UserId, entries: usize, round: u32) -> Vec<Cmd> {
    let (feed, unread, counts) = (feed(user), unread(user, AUTHOR), counts(user));
    let mut commands = vec![cmd("EXISTS").arg(&feed).to_owned(), cmd("ZCARD").arg(&feed).to_owned()];
    if entries >= FEED_CAP {
        commands.push(cmd("ZREVRANGE").arg(&feed).arg(-1).arg(-1).to_owned());
        commands.push(cmd("ZREM").arg(&feed).arg(FIRST_ID + u64::from(round)).to_owned());
    }
    commands.push(zadd(feed.clone(), entries, round));
    commands.push(cmd("SADD").arg(&unread).arg(post(entries, round)).to_owned());
    commands.push(cmd("HGET").arg(&counts).arg(AUTHOR).to_owned());
    commands.push(cmd("HSET").arg(&counts).arg(AUTHOR).arg(round + 1).to_owned());
    commands.extend([expire(&feed, FEED_SECONDS), expire(&unread, UNREAD_SECONDS), expire(&counts, UNREAD_SECONDS)]);
    commands
}

fn expire(key: &str, seconds: u64) -> Cmd {
    cmd("EXPIRE").arg(key).arg(seconds).to_owned()
}

fn zadd(key: String, entries: usize, round: u32) -> Cmd {
    let at = START_MS + entries as u64 + u64::from(round);
    cmd("ZADD").arg(key).arg(at).arg(post(entries, round)).to_owned()
}

fn post(entries: usize, round: u32) -> u64 {
    FIRST_ID + entries as u64 + u64::from(round)
}

fn feed(user: UserId) -> String {
    format!("focusFeedKey{user}")
}

fn unread(user: UserId, author: u64) -> String {
    format!("user:unread:{user}:{author}")
}

fn counts(user: UserId) -> String {
    format!("user:unread:count:{user}")
}

fn bare(user: UserId) -> String {
    format!("bare:{user}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_follower_are_the_sources() {
        let names = |entries| -> Vec<String> {
            let commands = commands(UserId::MIN, entries, 0);
            let name = |command: &Cmd| match command.args_iter().next() {
                Some(redis::Arg::Simple(name)) => Some(String::from_utf8_lossy(name).into_owned()),
                _ => None,
            };
            commands.iter().filter_map(name).collect()
        };
        assert_eq!(names(999), ["EXISTS", "ZCARD", "ZADD", "SADD", "HGET", "HSET", "EXPIRE", "EXPIRE", "EXPIRE"]);
        assert_eq!(names(1_000)[..5], ["EXISTS", "ZCARD", "ZREVRANGE", "ZREM", "ZADD"]);
    }
}
