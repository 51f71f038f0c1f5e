//! What is replaced: the commands of the source designs for each follower, one by one or a page in one pipeline, and bare `ZADD`.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, cmd};
use tidemark::domain::UserId;

use super::{FEED, PAGE};
use crate::tools::bench::server::Server;

/// Followers that the sequential form handles in a round: it takes long enough.
const SEQUENTIAL: usize = 500;
/// Commands in a pipeline of bare `ZADD`, as `redis-benchmark -P 16` sends them, to feeds in no order.
const DEPTH: usize = 16;
/// Lifetimes in seconds: 60 hours for feeds, 30 days for unread state.
const FEED_SECONDS: u64 = 60 * 3600;
const UNREAD_SECONDS: u64 = 30 * 24 * 3600;
const AUTHOR: u64 = 7_000_001;
/// Ids and times of what is in the feeds, and of what is published from then on.
const FIRST_ID: u64 = 1_800_000_000_000_000_000;
const START_MS: u64 = 1_720_000_000_000;

/// Feeds in the source's layout, one set of them for its own commands and one for bare `ZADD`.
pub(super) struct Source {
    connection: MultiplexedConnection,
    followers: Vec<UserId>,
    /// The same in no order.
    shuffled: Vec<UserId>,
}

impl Source {
    pub(super) async fn prepare(server: &Server, followers: &[UserId], shuffled: &[UserId]) -> anyhow::Result<Self> {
        let mut connection = server.connect().await?;
        for users in shuffled.chunks(100) {
            let mut pipeline = redis::pipe();
            for &user in users {
                for key in [feed(user), bare(user)] {
                    let mut zadd = cmd("ZADD");
                    zadd.arg(key);
                    for number in 0..FEED as u64 {
                        zadd.arg(START_MS + number).arg(FIRST_ID + number);
                    }
                    pipeline.add_command(zadd).ignore();
                }
            }
            pipeline.exec_async(&mut connection).await?;
        }
        Ok(Self { connection, followers: followers.to_vec(), shuffled: shuffled.to_vec() })
    }

    /// Each command awaited.
    pub(super) async fn sequential(&mut self, round: u32) -> anyhow::Result<usize> {
        for &user in self.followers.iter().take(SEQUENTIAL) {
            for command in commands(user, round) {
                command.exec_async(&mut self.connection).await?;
            }
        }
        Ok(SEQUENTIAL)
    }

    /// A page of followers in one pipeline.
    pub(super) async fn pipelined(&mut self, round: u32) -> anyhow::Result<usize> {
        for users in self.followers.chunks(PAGE) {
            let pipeline = pipeline(users.iter().flat_map(|&user| commands(user, round)));
            pipeline.exec_async(&mut self.connection).await?;
        }
        Ok(self.followers.len())
    }

    /// Whether the feeds of bare `ZADD` have a lifetime, which Redis looks up with every access.
    pub(super) async fn set_lifetime(&mut self, lifetime: bool) -> anyhow::Result<()> {
        let command = |user| match lifetime {
            true => expire(&bare(user), FEED_SECONDS),
            false => cmd("PERSIST").arg(bare(user)).to_owned(),
        };
        for users in self.shuffled.chunks(PAGE) {
            pipeline(users.iter().copied().map(command)).exec_async(&mut self.connection).await?;
        }
        Ok(())
    }

    /// Nothing but `ZADD` into one feed a follower.
    pub(super) async fn zadd(&mut self, round: u32) -> anyhow::Result<usize> {
        for users in self.shuffled.chunks(DEPTH) {
            let pipeline = pipeline(users.iter().map(|&user| zadd(bare(user), round)));
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

/// What one follower takes when its feed is not full, which spares it two commands. The count is written as read, since a pipeline cannot wait for it.
fn commands(user: UserId, round: u32) -> Vec<Cmd> {
    let (feed, unread, counts) = (feed(user), format!("user:unread:{user}:{AUTHOR}"), format!("user:unread:count:{user}"));
    let mut exists = cmd("EXISTS");
    exists.arg(&feed);
    let mut zcard = cmd("ZCARD");
    zcard.arg(&feed);
    let mut sadd = cmd("SADD");
    sadd.arg(&unread).arg(post(round));
    let mut hget = cmd("HGET");
    hget.arg(&counts).arg(AUTHOR);
    let mut hset = cmd("HSET");
    hset.arg(&counts).arg(AUTHOR).arg(round + 1);
    let expires = [expire(&feed, FEED_SECONDS), expire(&unread, UNREAD_SECONDS), expire(&counts, UNREAD_SECONDS)];
    [exists, zcard, zadd(feed.clone(), round), sadd, hget, hset].into_iter().chain(expires).collect()
}

fn expire(key: &str, seconds: u64) -> Cmd {
    let mut expire = cmd("EXPIRE");
    expire.arg(key).arg(seconds);
    expire
}

fn zadd(key: String, round: u32) -> Cmd {
    let mut zadd = cmd("ZADD");
    zadd.arg(key).arg(START_MS + FEED as u64 + u64::from(round)).arg(post(round));
    zadd
}

fn post(round: u32) -> u64 {
    FIRST_ID + FEED as u64 + u64::from(round)
}

fn feed(user: UserId) -> String {
    format!("focusFeedKey{user}")
}

fn bare(user: UserId) -> String {
    format!("bare:{user}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_follower_are_the_sources() {
        let commands = commands(UserId::MIN, 0);
        let names: Vec<String> = commands
            .iter()
            .filter_map(|command| match command.args_iter().next() {
                Some(redis::Arg::Simple(name)) => Some(String::from_utf8_lossy(name).into_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["EXISTS", "ZCARD", "ZADD", "SADD", "HGET", "HSET", "EXPIRE", "EXPIRE", "EXPIRE"]);
    }
}
