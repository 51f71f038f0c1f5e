//! The keys and attributes of the fact tables. `functions/migrate` formats the items of the migration table.
//!
//! | table | key | item | attributes | written by |
//! |---|---|---|---|---|
//! | following | `user` N, `author` N | edge by follower, or its tombstone (expires after 7 days) | `following` BOOL, `since` N ms, `rev` N, `base` N, `floor` N, `expires_at` N s | follow, unfollow, migrate |
//! | followers | `shard` S `<author>#<shard>`, `follower` S `<bucket>#<user>` | edge by followee, in bucket order; local index `by-time` on `since` | `since` S `<ms>#<user>` | follow, unfollow, migrate |
//! | counters | `counter` S `u#<user>` | number of authors that the user follows | `count` N, `changes` N | follow, unfollow, migrate |
//! | counters | `counter` S `f#<author>#<shard>` | number of followers in that shard | `count` N, `changes` N | follow, unfollow, migrate |
//! | counters | `counter` S `walk#<job>` | where a job of reconcile continues; present only while the job is unfinished | `position` S | reconcile |
//! | counters | `counter` S `outage` | outage note: until when views may lack changes that wait for a worker | `until` N ms | follow, publish, mark-read, notice, fan-out, migrate |
//! | posts | `author` N, `item` S `head` | author head | `latest_seq` N, `latest_at` N ms, `posts` N, `deletions` N, `deleted` B, `mode_changes` N, `pulled` N, `archived` N, `archived_seqs` B (roaring), `importing` BOOL, `windows` M | publish, delete, migrate |
//! | posts | `author` N, `item` S `post#<seq>` | post, or its tombstone without `title`; index `by-time` on `time`, sparse index `unfinished` | `title` S, `at` N ms, `time` S `<ms>#<seq>`, `tombstone` BOOL, `mode` S, `state` S, `followers` N, `pages` N, `retract_pages` N, `delivered` N, `attempts` N, `seen_pages` N, `sent_at` N ms, `finished_at` N ms, `unfinished` S, `archived` BOOL, `write_token` N | publish, delete, fan-out, reconcile, migrate |
//! | posts | `author` N, `item` S `body#<seq>` | body of a live post | `body` S | publish, delete |
//! | reads | `user` N, `author` N | read state | `version` N, `through` N, `read` B (roaring, runs compressed), `marked` NS and `unmarked` NS (marks that are not part of `read` yet, about a hundred at most), `imported` B (roaring, runs compressed: marks that came by migration), `windows` M | mark-read, migrate |
//! | posts, reads | as their items; see [`window`] | bits of one window of a set that has outgrown its item | `bits` B (roaring), `token` N | as their items |
//! | reactions | `shard` S `<author>#<shard>`, `item` S `user#<user>` | reactions of a user of that shard to the author's posts | `version` N, `liked` B, `favorited` B (roaring) | react |
//! | reactions | `shard` S, `item` S `post#<seq>` | number of users of that shard who have reacted to a post, deleted or not | `likes` N, `favorites` N, `changes` N | react |
//! | reactions | `shard` S, `item` S `total` | the same for all posts of the author | `likes` N, `favorites` N, `changes` N | react |
//! | notices | `platform` N, `item` S `head` | platform head | `version` N, `latest_seq` N, `latest_slot` N, `latest_at` N ms, `live` B (see [`PlatformHead::encode_live`](tidemark_domain::PlatformHead::encode_live)) | notice, reconcile |
//! | notices | `platform` N, `item` S `notice#<seq>` | notice; absent when deleted, and some time after it has expired | `title` S, `body` S, `at` N ms, `revision` N, `until` N ms, `expires_at` N s | notice |
//! | notice_reads | `user` N, `platform` N | read state of notices | `version` N, `through` N, `through_slot` N, `read` B (roaring, runs compressed, of slots) | notice, migrate, reconcile |
//! | counters | `counter` S `n#<platform>#<shard>#<block>` | number of users of that shard who have read each slot of that block; a block has 32 slots | `s<slot % 32>` N | notice, migrate |
//! | idempotency | `key` S `<user>#<operation>#<key>` | response to an earlier request; expires after 24 h | `fingerprint` S, `post` S or `notices` S and `at` N ms, `expires_at` N s | publish, notice |
//! | profiles | `user` N | profile | `version` N, `name` S, `handle` S, `picture` S, `bio` S, `data` S (JSON), `updated_at` N ms | profile |
//! | handles | `handle` S | user who has a handle; one that was given up expires after 30 days | `user` N, `expires_at` N s | profile |
//! | identities | `identity` S `claim#<claim>` | user id of a claim; never changes | `user` N | every function that serves requests |
//! | identities | `identity` S `user#<user>` | that the user id is given to a claim | | every function that serves requests |
//!
//! One transaction writes:
//! - for a follow or an unfollow, both edges and both counters;
//! - for a publish or a deletion, head, post, body and idempotency record;
//! - for a notice, the notice and its platform's head;
//! - for a read state of notices, the state and the counters of the slots that changed;
//! - for a profile, the profile, the handle that it takes and the one that it gives up;
//! - for the first call of a claim, its user id, and that the user id is given;
//! - for a reaction, the reaction and its two counts, which lie in one partition;
//! - for a migration, up to 48 posts with head, mappings and record, or an edge as a follow does.
//!
//! A DynamoDB item holds at most 400 KB. Before a set reaches this size, its oldest windows of 65,536 numbers move to
//! items of their own. `windows` names them, each with the token that its item must carry ([`super::windows`]).
//!
//! `changes` grows by one with every write that changes the counted items. A repair sets a count only if `changes` is
//! still the number that it read before it listed the items. For a head's `posts`, the pair of `latest_seq` and
//! `deletions` serves this purpose. `write_token` tells a publish whether a stored post is its own.

use std::{collections::HashMap, ops::Range};

use aws_sdk_dynamodb::types::AttributeValue;

use super::{item::Item, number, string};
use tidemark_domain::{
    Edge, Handle, NoticeId, Platform, PostId, Relation, Seq, Slot, Timestamp, UserId, ids::BUCKETS, model::TOMBSTONE_SECONDS,
};

/// Index of an author's posts by time, and of a shard's followers by time.
pub(crate) const BY_TIME: &str = "by-time";

/// Sparse index of posts whose fan-out or retraction is unfinished. Reconcile resumes those in partitions `0` to `3`.
/// Those that were given up are in partitions `given-up#0` to `given-up#3`.
pub const UNFINISHED: &str = "unfinished";

pub const UNFINISHED_SHARDS: u64 = 4;

pub(crate) const IDEMPOTENCY_SECONDS: u64 = 24 * 3600;

/// A key, or some attributes of an item.
pub fn key<const N: usize>(parts: [(&str, AttributeValue); N]) -> Item {
    HashMap::from(parts.map(|(name, value)| (name.to_owned(), value)))
}

fn key_names(table: &str) -> &'static [&'static str] {
    match table {
        "following" | "reads" => &["user", "author"],
        "followers" => &["shard", "follower"],
        "counters" => &["counter"],
        "posts" => &["author", "item"],
        "reactions" => &["shard", "item"],
        "notices" => &["platform", "item"],
        "notice_reads" => &["user", "platform"],
        "profiles" => &["user"],
        "handles" => &["handle"],
        "identities" => &["identity"],
        _ => &["key"],
    }
}

/// The key of an item as text for logs and reports: `7 post#0000000000000003`.
pub fn key_text(table: &str, item: &Item) -> String {
    let text = |name: &&str| match item.get(*name) {
        Some(AttributeValue::S(text) | AttributeValue::N(text)) => text.clone(),
        _ => "?".to_owned(),
    };
    key_names(table).iter().map(text).collect::<Vec<_>>().join(" ")
}

/// following: one edge by follower.
pub fn edge(user: UserId, author: UserId) -> Item {
    key([("user", number(user.get())), ("author", number(author.get()))])
}

/// following: the key from which a scan continues. The numbers need not be valid ids.
pub fn edge_key(user: &str, author: &str) -> Item {
    key([("user", AttributeValue::N(user.to_owned())), ("author", AttributeValue::N(author.to_owned()))])
}

/// following: one edge by follower, or its tombstone, with all attributes.
pub fn edge_item(edge: &Edge) -> Item {
    let mut item = self::edge(edge.user, edge.author);
    item.extend(key([
        ("following", AttributeValue::Bool(edge.following)),
        ("since", number(edge.since.ms())),
        ("rev", number(edge.rev.into())),
        ("base", number(edge.base)),
        ("floor", number(edge.floor)),
    ]));
    if !edge.following {
        item.insert("expires_at".to_owned(), number(edge.since.seconds() + TOMBSTONE_SECONDS));
    }
    item
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

/// followers: one edge by followee, with its key in the index by time.
pub fn follower_item(edge: &Edge) -> Item {
    let mut item = follower(edge.author, edge.user);
    item.insert("since".to_owned(), follower_since(edge.user, edge.since));
    item
}

/// followers: the lowest and highest possible sort key of these buckets.
pub(crate) fn follower_range(buckets: &Range<u16>) -> (AttributeValue, AttributeValue) {
    (string(format!("{:04x}#", buckets.start)), string(format!("{:04x}$", buckets.end.saturating_sub(1))))
}

/// followers: the user in a sort key.
pub(crate) fn follower_of(sort_key: &str) -> Option<UserId> {
    UserId::new(sort_key.split_once('#')?.1.parse().ok()?)
}

/// followers: the sort key of the index by time.
pub fn follower_since(user: UserId, since: Timestamp) -> AttributeValue {
    string(format!("{:015}#{:020}", since.ms(), user.get()))
}

/// followers: the entry that a sort key of the index by time encodes.
pub fn relation_of(since: &str) -> Option<Relation> {
    let (ms, user) = since.split_once('#')?;
    Some(Relation { since: Timestamp::from_ms(ms.parse().ok()?), user: UserId::new(user.parse().ok()?)? })
}

/// counters: the number of authors that the user follows.
pub fn followings_counter(user: UserId) -> Item {
    key([("counter", string(format!("u#{user}")))])
}

/// counters: the number of followers of the author in one shard.
pub fn followers_counter(author: UserId, shard: u16) -> Item {
    key([("counter", string(format!("f#{author}#{shard:02}")))])
}

pub fn counter_item(counter: Item, count: u64) -> Item {
    let mut item = counter;
    item.insert("count".to_owned(), number(count));
    item
}

/// counters: the shard in a counter's key.
pub fn counter_shard(counter: &str) -> Option<usize> {
    counter.rsplit_once('#')?.1.parse().ok().filter(|shard| *shard < 16)
}

/// counters: where a job of reconcile continues.
pub fn walk(job: &str) -> Item {
    key([("counter", string(format!("walk#{job}")))])
}

/// counters: the outage note.
pub fn outage() -> Item {
    key([("counter", string("outage"))])
}

/// followers, reactions: the author in a partition key.
pub fn shard_author(shard: &str) -> Option<UserId> {
    shard.split_once('#')?.0.parse().ok()
}

pub fn head(author: UserId) -> Item {
    key([("author", number(author.get())), ("item", string("head"))])
}

pub fn post(post: PostId) -> Item {
    key([("author", number(post.author.get())), ("item", post_sort_key(post.seq))])
}

pub fn post_sort_key(seq: Seq) -> AttributeValue {
    string(format!("post#{seq:016}"))
}

/// posts: the sequence number in a post's sort key.
pub fn post_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("post#")?.parse().ok()
}

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

/// posts: a bound of the index by time above every post at or before `at`.
pub fn post_time_end(at: Timestamp) -> AttributeValue {
    string(format!("{:015}$", at.ms()))
}

/// posts: the partition of unfinished fan-outs in [`UNFINISHED`].
pub fn unfinished_shard(shard: u64) -> AttributeValue {
    string(shard.to_string())
}

/// posts: the partition of fan-outs that were given up in [`UNFINISHED`].
pub fn given_up_shard(shard: u64) -> AttributeValue {
    string(format!("given-up#{shard}"))
}

/// reads: the read state of a user and an author.
pub fn reads(user: UserId, author: UserId) -> Item {
    key([("user", number(user.get())), ("author", number(author.get()))])
}

/// reads: a bound above every read state of a user and below the windows of their sets.
pub(crate) fn reads_end() -> AttributeValue {
    AttributeValue::N(format!("1{:020}", 0))
}

/// reads: the sets of a read state. Their order here decides the keys of their windows.
const READ_SETS: [&str; 2] = ["read", "imported"];

/// posts, reads: the key of one window of a set of the item with the key `base`; `None` if that item has no such set.
/// For an author's head, the sort key is `deleted#<window>`. For a read state, it is a number: the author in 20 digits,
/// after a prefix that numbers the windows of both sets from 1.
pub fn window(base: &Item, set: &str, window: u64) -> Option<Item> {
    if let Some(author) = base.get("author").filter(|_| base.contains_key("item")) {
        return Some(key([("author", author.clone()), ("item", string(format!("{set}#{window:05}")))]));
    }
    let place = READ_SETS.iter().position(|name| *name == set)? as u64;
    let author = base.get("author")?.as_n().ok()?;
    let sort_key = AttributeValue::N(format!("{}{author:0>20}", 2 * window + place + 1));
    Some(key([("user", base.get("user")?.clone()), ("author", sort_key)]))
}

/// posts, reads: only the key attributes of an item.
pub(crate) fn windowed_key(item: &Item) -> Item {
    let table = if item.contains_key("item") { "posts" } else { "reads" };
    key_names(table).iter().filter_map(|name| Some(((*name).to_owned(), item.get(*name)?.clone()))).collect()
}

/// The name of a window in `windows`: `deleted#12`.
pub(crate) fn window_name(set: &str, window: u64) -> String {
    format!("{set}#{window}")
}

/// Set and window in such a name.
pub(crate) fn named_window(name: &str) -> Option<(&str, u64)> {
    let (set, window) = name.split_once('#')?;
    Some((set, window.parse().ok()?))
}

/// The sort key of the counts of all posts of an author.
const TOTAL: &str = "total";

/// reactions: the partition of the users of one shard; the format is that of followers.
pub fn reactions_shard(author: UserId, shard: u16) -> AttributeValue {
    follower_shard(author, shard)
}

/// reactions: the reactions of a user to an author's posts.
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

/// reactions: whether a sort key is that of the counts of all posts.
pub fn is_total(sort_key: &str) -> bool {
    sort_key == TOTAL
}

/// reactions: the user in the sort key of a user's reactions.
pub fn reacting_user(sort_key: &str) -> Option<UserId> {
    UserId::new(sort_key.strip_prefix("user#")?.parse().ok()?)
}

pub fn record(name: &str) -> Item {
    key([("key", string(name))])
}

/// idempotency: the record of a publish.
pub(crate) fn publish_record(user: UserId, idempotency_key: &str) -> Item {
    record(&format!("{user}#publish#{idempotency_key}"))
}

pub fn platform_head(platform: Platform) -> Item {
    key([("platform", number(platform.get().into())), ("item", string("head"))])
}

pub fn notice(notice: NoticeId) -> Item {
    key([("platform", number(notice.platform.get().into())), ("item", notice_sort_key(notice.seq))])
}

pub fn notice_sort_key(seq: Seq) -> AttributeValue {
    string(format!("notice#{seq:016}"))
}

/// notices: the sequence number in a notice's sort key.
pub fn notice_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("notice#")?.parse().ok()
}

/// notice_reads: the read state of a user on a platform.
pub fn notice_reads(user: UserId, platform: Platform) -> Item {
    key([("user", number(user.get())), ("platform", number(platform.get().into()))])
}

/// counters: shards of the reader counts of a platform. They allow many readers to mark at once.
pub(crate) const READER_SHARDS: u16 = 64;

/// counters: slots that one item counts. Such an item stays below one write unit.
const READER_SLOTS: u64 = 32;

/// counters: the shard that counts a user.
pub fn reader_shard(user: UserId) -> u16 {
    user.bucket() / (BUCKETS / READER_SHARDS)
}

/// counters: the block that counts a slot, and the slot's place in it.
pub fn reader_block(slot: Slot) -> (u64, u64) {
    (slot / READER_SLOTS, slot % READER_SLOTS)
}

/// counters: the reader counts of one block of slots in one shard.
pub fn notice_readers(platform: Platform, shard: u16, block: u64) -> Item {
    key([("counter", string(format!("n#{platform}#{shard:02}#{block}")))])
}

/// counters: the attribute of one place in a block.
pub fn reader_count(place: u64) -> String {
    format!("s{place}")
}

pub fn profile(user: UserId) -> Item {
    key([("user", number(user.get()))])
}

pub fn handle(handle: &Handle) -> Item {
    key([("handle", string(handle.as_str()))])
}

/// identities: the user id of a claim.
pub fn identity(claim: &str) -> Item {
    key([("identity", string(format!("claim#{claim}")))])
}

/// identities: that a user id is given to a claim.
pub fn identified(user: UserId) -> Item {
    key([("identity", string(format!("user#{user}")))])
}

/// idempotency: the record of a publish of notices.
pub(crate) fn notices_record(user: UserId, idempotency_key: &str) -> Item {
    key([("key", string(format!("{user}#notices#{idempotency_key}")))])
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
    fn keys_have_exactly_this_format() {
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
        let notice_id: NoticeId = "7-300".parse().unwrap();
        assert_eq!(
            (text(&platform_head(notice_id.platform), "platform"), text(&platform_head(notice_id.platform), "item")),
            ("7".into(), "head".into())
        );
        assert_eq!(text(&notice(notice_id), "item"), "notice#0000000000000300");
        assert_eq!(notice_seq("notice#0000000000000300"), Some(300));
        assert_eq!(
            (text(&notice_reads(user, notice_id.platform), "user"), text(&notice_reads(user, notice_id.platform), "platform")),
            ("1042".into(), "7".into())
        );
        assert_eq!(text(&notice_readers(notice_id.platform, reader_shard(user), reader_block(300).0), "counter"), "n#7#12#9");
        assert_eq!(reader_count(reader_block(300).1), "s12");
        assert_eq!(text(&window(&head(author), "deleted", 12).unwrap(), "item"), "deleted#00012");
        assert_eq!(text(&window(&reads(user, author), "read", 0).unwrap(), "author"), "100000000000000000007");
        assert_eq!(text(&window(&reads(user, author), "imported", 1).unwrap(), "author"), "400000000000000000007");
        assert_eq!(
            (window(&reads(user, author), "deleted", 0), reads_end()),
            (None, AttributeValue::N("100000000000000000000".into()))
        );
        assert_eq!((window_name("read", 12), named_window("read#12")), ("read#12".into(), Some(("read", 12))));
        assert_eq!(text(&notices_record(user, "k"), "key"), "1042#notices#k");
        let item = reaction(user, author);
        assert_eq!((text(&item, "shard"), text(&item, "item")), ("7#03".into(), "user#00000000000000001042".into()));
        assert_eq!((shard_author("7#03"), reacting_user("user#00000000000000001042")), (Some(author), Some(user)));
        assert_eq!(reacting_user("total"), None);
        let item = post_reactions(id, 3);
        assert_eq!((text(&item, "shard"), text(&item, "item")), ("7#03".into(), "post#0000000000000003".into()));
        assert_eq!(text(&author_reactions(author, 3), "item"), "total");
        assert_eq!(key_text("posts", &post(id)), "7 post#0000000000000003");
        assert_eq!(key_text("following", &edge(user, author)), "1042 7");
        assert_eq!(key_text("counters", &followers_counter(author, 3)), "f#7#03");
        assert_eq!((unfinished_shard(2), given_up_shard(2)), (string("2"), string("given-up#2")));
        assert_eq!(follower_range(&(0..4096)), (string("0000#"), string("0fff$")));
    }

    #[test]
    fn only_a_tombstone_expires() {
        let [user, author] = [1042, 7].map(|id| UserId::new(id).unwrap());
        let live = Edge { user, author, following: true, since: Timestamp::from_ms(5_000), rev: 9, base: 3, floor: 2 };
        let item = edge_item(&live);
        assert_eq!(
            ["user", "author", "since", "rev", "base", "floor"].map(|name| text(&item, name)).join(" "),
            "1042 7 5000 9 3 2"
        );
        assert_eq!((&item["following"], item.get("expires_at")), (&AttributeValue::Bool(true), None));
        assert_eq!(relation_of(&text(&follower_item(&live), "since")), Some(Relation { since: live.since, user }));
        let tombstone = edge_item(&Edge { following: false, ..live });
        assert_eq!(text(&tombstone, "expires_at"), (5 + TOMBSTONE_SECONDS).to_string());
        assert_eq!(counter_item(followings_counter(user), 4)["count"], number(4));
    }
}
