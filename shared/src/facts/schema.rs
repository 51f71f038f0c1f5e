//! Every table, key and attribute, named here and nowhere else.
//!
//! | table | key | item | attributes | written by |
//! |---|---|---|---|---|
//! | following | `user` N, `author` N | edge by follower, or its tombstone (expires after 7 days) | `following` BOOL, `since` N ms, `rev` N, `base` N, `floor` N, `expires_at` N s | follow, unfollow |
//! | followers | `shard` S `<author>#<shard>`, `follower` S `<bucket>#<user>` | edge by followee, in bucket order; local index `by-time` on `since` | `since` S `<ms>#<user>` | follow, unfollow |
//! | counters | `counter` S `u#<user>` | authors the user follows | `count` N | follow, unfollow |
//! | counters | `counter` S `f#<author>#<shard>` | followers in that shard | `count` N | follow, unfollow |
//! | counters | `counter` S `walk#<job>` | where a job of reconcile goes on; only while it is under way | `position` S | reconcile |
//! | posts | `author` N, `item` S `head` | author head | `latest_seq` N, `latest_at` N ms, `posts` N, `deletions` N, `deleted` B, `mode_changes` N, `pulled` N | publish, delete |
//! | posts | `author` N, `item` S `post#<seq>` | post, or its tombstone without `title`; index `by-time` on `time`, sparse index `unfinished` | `title` S, `at` N ms, `time` S `<ms>#<seq>`, `tombstone` BOOL, `mode` S, `state` S, `followers` N, `pages` N, `retract_pages` N, `delivered` N, `attempts` N, `seen_pages` N, `finished_at` N ms, `unfinished` S | publish, delete, fan-out, reconcile |
//! | posts | `author` N, `item` S `body#<seq>` | body of a live post | `body` S | publish, delete |
//! | reads | `user` N, `author` N | read state | `version` N, `through` N, `read` B (roaring, runs compressed) | mark-read |
//! | reactions | `shard` S `<author>#<shard>`, `item` S `user#<user>` | what a user of that shard thinks of the author's posts | `version` N, `liked` B, `favorited` B (roaring) | react |
//! | reactions | `shard` S, `item` S `post#<seq>` | how many users of that shard have reacted to a post, deleted or not | `likes` N, `favorites` N | react |
//! | reactions | `shard` S, `item` S `total` | the same of all the author's posts | `likes` N, `favorites` N | react |
//! | idempotency | `key` S `<user>#<operation>#<key>` | an answer given; expires after 24 h | `fingerprint` S, `post` S, `expires_at` N s | publish |
//!
//! Follow and unfollow write both edges and both counters in one transaction; publish and delete write head, post, body and record in one; a
//! reaction and its two counts, which lie in one partition, are written in one.

use std::{collections::HashMap, ops::Range};

use aws_sdk_dynamodb::types::AttributeValue;

use super::{item::Item, number, string};
use crate::domain::{PostId, Relation, Seq, Timestamp, UserId};

/// Index of an author's posts by time, and of a shard's followers by time.
pub const BY_TIME: &str = "by-time";

/// Sparse index of posts whose fan-out or retraction is not finished.
pub const UNFINISHED: &str = "unfinished";

/// Partitions of [`UNFINISHED`].
pub const UNFINISHED_SHARDS: u64 = 4;

/// How long an idempotent answer is kept.
pub const IDEMPOTENCY_SECONDS: u64 = 24 * 3600;

fn key<const N: usize>(parts: [(&str, AttributeValue); N]) -> Item {
    HashMap::from(parts.map(|(name, value)| (name.to_owned(), value)))
}

/// following: one edge by follower.
pub fn edge(user: UserId, author: UserId) -> Item {
    key([("user", number(user.get())), ("author", number(author.get()))])
}

/// followers: the partition of one shard.
pub fn follower_shard(author: UserId, shard: u16) -> AttributeValue {
    string(format!("{author}#{shard:02}"))
}

/// followers: one edge by followee.
pub fn follower(author: UserId, user: UserId) -> Item {
    key([
        ("shard", follower_shard(author, user.shard())),
        ("follower", string(format!("{:04x}#{user:020}", user.bucket(), user = user.get()))),
    ])
}

/// followers: first and last possible sort key of these buckets.
pub fn follower_range(buckets: &Range<u16>) -> (AttributeValue, AttributeValue) {
    (string(format!("{:04x}#", buckets.start)), string(format!("{:04x}$", buckets.end.saturating_sub(1))))
}

/// followers: the user in a sort key.
pub fn follower_of(sort_key: &str) -> Option<UserId> {
    UserId::new(sort_key.split_once('#')?.1.parse().ok()?)
}

/// followers: the sort key of the index by time.
pub fn follower_since(user: UserId, since: Timestamp) -> AttributeValue {
    string(format!("{:015}#{:020}", since.ms(), user.get()))
}

/// followers: the entry in a sort key of the index by time.
pub fn relation_of(since: &str) -> Option<Relation> {
    let (ms, user) = since.split_once('#')?;
    Some(Relation { since: Timestamp::from_ms(ms.parse().ok()?), user: UserId::new(user.parse().ok()?)? })
}

/// counters: authors the user follows.
pub fn followings_counter(user: UserId) -> Item {
    key([("counter", string(format!("u#{user}")))])
}

/// counters: followers of the author in one shard.
pub fn followers_counter(author: UserId, shard: u16) -> Item {
    key([("counter", string(format!("f#{author}#{shard:02}")))])
}

/// counters: the shard in a counter's key.
pub fn counter_shard(counter: &str) -> Option<usize> {
    counter.rsplit_once('#')?.1.parse().ok().filter(|shard| *shard < 16)
}

/// counters: where a job of reconcile goes on.
pub fn walk(job: &str) -> Item {
    key([("counter", string(format!("walk#{job}")))])
}

/// followers, reactions: the author in a partition key.
pub fn shard_author(shard: &str) -> Option<UserId> {
    shard.split_once('#')?.0.parse().ok()
}

/// posts: an author's head.
pub fn head(author: UserId) -> Item {
    key([("author", number(author.get())), ("item", string("head"))])
}

/// posts: one post.
pub fn post(post: PostId) -> Item {
    key([("author", number(post.author.get())), ("item", post_sort_key(post.seq))])
}

/// posts: the sort key of a post.
pub fn post_sort_key(seq: Seq) -> AttributeValue {
    string(format!("post#{seq:016}"))
}

/// posts: the sequence number in a post's sort key.
pub fn post_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("post#")?.parse().ok()
}

/// posts: a post's body.
pub fn body(post: PostId) -> Item {
    key([("author", number(post.author.get())), ("item", string(format!("body#{:016}", post.seq)))])
}

/// posts: the sequence number in a body's sort key.
pub fn body_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("body#")?.parse().ok()
}

/// posts: the sort key of the index by time.
pub fn post_time(at: Timestamp, seq: Seq) -> AttributeValue {
    string(format!("{:015}#{seq:016}", at.ms()))
}

/// posts: above every post at or before `at` in the index by time.
pub fn post_time_end(at: Timestamp) -> AttributeValue {
    string(format!("{:015}$", at.ms()))
}

/// posts: the partition of the index of unfinished fan-outs.
pub fn unfinished_shard(shard: u64) -> AttributeValue {
    string(shard.to_string())
}

/// reads: what a user has read of an author.
pub fn reads(user: UserId, author: UserId) -> Item {
    key([("user", number(user.get())), ("author", number(author.get()))])
}

/// The sort key of an author's own counts.
const TOTAL: &str = "total";

/// reactions: the partition of the users of one shard, as in followers.
pub fn reactions_shard(author: UserId, shard: u16) -> AttributeValue {
    follower_shard(author, shard)
}

/// reactions: what a user thinks of an author's posts.
pub fn reaction(user: UserId, author: UserId) -> Item {
    let item = string(format!("user#{:020}", user.get()));
    key([("shard", reactions_shard(author, user.shard())), ("item", item)])
}

/// reactions: counts of a post among the users of a shard.
pub fn post_reactions(post: PostId, shard: u16) -> Item {
    key([("shard", reactions_shard(post.author, shard)), ("item", post_sort_key(post.seq))])
}

/// reactions: counts of all posts of an author among the users of a shard.
pub fn author_reactions(author: UserId, shard: u16) -> Item {
    key([("shard", reactions_shard(author, shard)), ("item", string(TOTAL))])
}

/// reactions: whether a sort key is that of the count of all posts.
pub fn is_total(sort_key: &str) -> bool {
    sort_key == TOTAL
}

/// reactions: the user in the sort key of what a user thinks.
pub fn reacting_user(sort_key: &str) -> Option<UserId> {
    UserId::new(sort_key.strip_prefix("user#")?.parse().ok()?)
}

/// idempotency: one record.
pub fn record(name: &str) -> Item {
    key([("key", string(name))])
}

/// idempotency: one record of a publish.
pub fn publish_record(user: UserId, idempotency_key: &str) -> Item {
    record(&format!("{user}#publish#{idempotency_key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(item: &Item, name: &str) -> String {
        match &item[name] {
            AttributeValue::S(text) | AttributeValue::N(text) => text.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_are_exactly_these() {
        let (user, author) = (UserId::new(1042).unwrap(), UserId::new(7).unwrap());
        let id = PostId::new(author, 3);
        let item = follower(author, user);
        assert_eq!((text(&item, "shard"), text(&item, "follower")), ("7#03".into(), "033f#00000000000000001042".into()));
        assert_eq!(follower_of(&text(&item, "follower")), Some(user));
        assert_eq!(text(&followings_counter(user), "counter"), "u#1042");
        assert_eq!(text(&followers_counter(author, 3), "counter"), "f#7#03");
        assert_eq!(counter_shard("f#7#03"), Some(3));
        assert_eq!(text(&head(author), "item"), "head");
        assert_eq!(text(&post(id), "item"), "post#0000000000000003");
        assert_eq!(post_seq("post#0000000000000003"), Some(3));
        assert_eq!(text(&body(id), "item"), "body#0000000000000003");
        assert_eq!(post_time(Timestamp::from_ms(5), 3), string("000000000000005#0000000000000003"));
        assert_eq!(text(&publish_record(user, "k"), "key"), "1042#publish#k");
        let item = reaction(user, author);
        assert_eq!((text(&item, "shard"), text(&item, "item")), ("7#03".into(), "user#00000000000000001042".into()));
        assert_eq!((shard_author("7#03"), reacting_user("user#00000000000000001042")), (Some(author), Some(user)));
        assert_eq!(reacting_user("total"), None);
        let item = post_reactions(id, 3);
        assert_eq!((text(&item, "shard"), text(&item, "item")), ("7#03".into(), "post#0000000000000003".into()));
        assert_eq!(text(&author_reactions(author, 3), "item"), "total");
        assert_eq!(follower_range(&(0..4096)), (string("0000#"), string("0fff$")));
    }
}
