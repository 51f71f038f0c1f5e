//! The layouts for comparison, as plain commands.
//!
//! | layout | keys | from |
//! |---|---|---|
//! | unread sets | `user:unread:<user>:<author>` set of post ids, `user:unread:count:<user>` hash author → count | the first source design |
//! | sorted set | `user:feed:<user>` sorted set of post ids by time | what a feed usually is |
//! | daily sorted sets | `{bucket}:f:<user>:<day>` sorted set of compact members by time | the starting design |

use redis::Cmd;
use serde::Serialize;
use tidemark::domain::{FeedKey, UserId};

use crate::world::{DAY_MS, POSTS_A_DAY, World};

/// Twitter's epoch in ms and the number of bits below the time. Ids then have 19 digits, as real ones.
const SNOWFLAKE_EPOCH_MS: u64 = 1_288_834_974_657;
const SNOWFLAKE_TIME_SHIFT: u32 = 22;
/// Bytes of the time at the beginning of a feed entry. The starting design had the time as the score.
const ENTRY_TIME: usize = 6;

/// A post's global id, in layouts that have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PostIds {
    Integers,
    /// `blog:` and the number.
    Strings,
}

impl PostIds {
    pub(super) fn of(self, post: &FeedKey) -> String {
        let snowflake = post.at.ms().saturating_sub(SNOWFLAKE_EPOCH_MS) << SNOWFLAKE_TIME_SHIFT;
        match self {
            Self::Integers => snowflake.to_string(),
            Self::Strings => format!("blog:{snowflake}"),
        }
    }
}

/// The data of one reader in one layout.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) keys: Vec<String>,
    pub(super) commands: Vec<Cmd>,
}

impl Stored {
    fn push(&mut self, command: &str, key: String, args: impl IntoIterator<Item = Vec<u8>>) {
        let mut all = redis::cmd(command);
        all.arg(&key).arg(args.into_iter().collect::<Vec<_>>());
        self.commands.push(all);
        self.keys.push(key);
    }
}

pub(super) fn unread_set(user: UserId, author: UserId) -> String {
    format!("user:unread:{user}:{author}")
}

pub(super) fn unread_counts(user: UserId) -> String {
    format!("user:unread:count:{user}")
}

pub(super) fn feed(user: UserId) -> String {
    format!("user:feed:{user}")
}

pub(super) fn unread_sets(user: UserId, world: &World, ids: PostIds) -> Stored {
    let unread = world.unread();
    let mut stored = Stored::default();
    for (author, posts) in &unread {
        stored.push("SADD", unread_set(user, *author), posts.iter().map(|post| ids.of(post).into_bytes()));
    }
    let counts = unread.iter().flat_map(|(author, posts)| [author.to_string(), posts.len().to_string()]);
    stored.push("HSET", unread_counts(user), counts.map(String::into_bytes));
    stored
}

pub(super) fn sorted_set(user: UserId, world: &World) -> Stored {
    let mut stored = Stored::default();
    let entries = world.newest();
    let scored = entries.iter().flat_map(|post| [post.at.ms().to_string(), PostIds::Integers.of(post)]);
    stored.push("ZADD", feed(user), scored.map(String::into_bytes));
    stored
}

pub(super) fn daily_sorted_sets(user: UserId, world: &World) -> Stored {
    let mut stored = Stored::default();
    for posts in world.newest().chunks(POSTS_A_DAY) {
        let key = format!("{{{}}}:f:{user}:{}", user.bucket(), posts[0].at.ms() / DAY_MS);
        let scored = posts.iter().flat_map(|post| [post.at.ms().to_string().into_bytes(), post.entry().split_off(ENTRY_TIME)]);
        stored.push("ZADD", key, scored);
    }
    stored
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::world::{Followed, Ids, Shape};

    fn world() -> World {
        World::new(Shape { authors: 10, posts: 150 }, Ids::UpTo100Million, Followed::Later, 1, 3)
    }

    fn words(command: &Cmd) -> Vec<String> {
        let packed = String::from_utf8_lossy(&command.get_packed_command()).into_owned();
        packed.split("\r\n").skip(2).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn every_post_has_one_id_of_nineteen_digits() {
        let posts = world().posts();
        let ids: HashSet<String> = posts.iter().map(|post| PostIds::Integers.of(post)).collect();
        assert_eq!(ids.len(), posts.len());
        assert!(ids.iter().all(|id| id.len() == 19 && id.parse::<i64>().is_ok()));
        assert_eq!(PostIds::Strings.of(&posts[0]), format!("blog:{}", PostIds::Integers.of(&posts[0])));
    }

    #[test]
    fn unread_sets_hold_every_unread_post_and_its_count() {
        let world = world();
        let user = world.readers[0];
        let stored = unread_sets(user, &world, PostIds::Integers);
        assert_eq!((stored.keys.len(), stored.commands.len()), (11, 11));
        let first = words(&stored.commands[0]);
        assert_eq!((first[0].as_str(), &first[1], first.len()), ("SADD", &stored.keys[0], 152));
        assert!(first[1].starts_with(&format!("user:unread:{user}:")));
        let counts = words(&stored.commands[10]);
        assert_eq!((counts[1].clone(), counts[3].as_str(), counts.len()), (format!("user:unread:count:{user}"), "150", 22));
    }

    #[test]
    fn both_feeds_hold_the_newest_thousand() {
        let world = world();
        let user = world.readers[0];
        let whole = words(&sorted_set(user, &world).commands[0]);
        assert_eq!((whole[0].as_str(), whole.len()), ("ZADD", 2_002));
        let daily = daily_sorted_sets(user, &world);
        assert_eq!(daily.keys.iter().collect::<HashSet<_>>().len(), 10);
    }
}
