//! Keys: their items, their sort keys as text, and what such a text says.

use std::ops::Range;

use aws_sdk_dynamodb::types::AttributeValue;
use tidemark_domain::{
    Comment, CommentId, CommentNumber, Edge, FeedKey, GroupId, Handle, NoticeId, Platform, PostId, Reaction, Relation, Seq, Slot,
    Timestamp, UserId,
    comments::BLOCK,
    ids::{BUCKETS, SHARDS},
};

use super::*;
use crate::item::encode;

fn key<const N: usize>(parts: [(Attribute, AttributeValue); N]) -> Item {
    Item::from(parts.map(|(attribute, value)| (attribute.name().to_owned(), value)))
}

fn key_attributes(table: &str) -> &'static [Attribute] {
    match table {
        "following" | "reads" => &[EdgeItem::user, EdgeItem::author],
        "followers" => &[FollowerItem::shard, FollowerItem::follower],
        "counters" => &[CounterItem::counter],
        "posts" => &[PostItem::author, PostItem::item],
        "reactions" => &[ReactionItem::shard, ReactionItem::item],
        "notices" => &[NoticeItem::platform, NoticeItem::item],
        "notice_reads" => &[NoticeReadsItem::user, NoticeReadsItem::platform],
        "reacted" => &[ReactedItem::user, ReactedItem::post],
        "inbox" => &[GroupItem::user, GroupItem::item],
        "profiles" => &[ProfileItem::user],
        "handles" => &[HandleItem::handle],
        "identities" => &[IdentityItem::identity],
        _ => &[RecordItem::key],
    }
}

/// The key of an item as text for logs and reports: `7 post#0000000000000003`.
pub fn key_text(table: &str, item: &Item) -> String {
    let text = |attribute: &Attribute| match attribute.of(item) {
        Some(AttributeValue::S(text) | AttributeValue::N(text)) => text.clone(),
        _ => "?".to_owned(),
    };
    key_attributes(table).iter().map(text).collect::<Vec<_>>().join(" ")
}

/// following: one edge by follower.
pub fn edge(user: UserId, author: UserId) -> Item {
    edge_key(&user.to_string(), &author.to_string())
}

/// following: the key from which a scan continues. The numbers need not be valid ids.
pub fn edge_key(user: &str, author: &str) -> Item {
    let number = |text: &str| AttributeValue::N(text.to_owned());
    key([(EdgeItem::user, number(user)), (EdgeItem::author, number(author))])
}

/// following: one edge by follower, or its tombstone, with all attributes.
pub fn edge_item(edge: &Edge) -> Item {
    let time = |at: Option<Timestamp>| at.map(Timestamp::ms);
    let kept = edge.is_kept().then_some(edge.since.ms());
    encode(&EdgeItem {
        user: edge.user.into(),
        author: edge.author.into(),
        following: Some(edge.following),
        since: edge.since.ms(),
        rev: edge.rev,
        begun: edge.begun,
        base: edge.base,
        floor: edge.floor,
        muted_at: time(edge.muted),
        blocked_at: time(edge.blocked),
        lists: (!edge.lists.is_empty()).then(|| edge.lists.iter().copied().collect()),
        preference: (edge.preference != 0).then_some(edge.preference),
        requested_at: time(edge.requested),
        accepted: edge.accepted.then_some(true),
        expires_at: edge.expires_at(),
        kept,
        named: (!edge.following && kept.is_some()).then(|| edge.author.get()),
    })
}

/// followers, reactions: the partition of the users of one shard.
pub fn follower_shard(author: UserId, shard: u16) -> String {
    format!("{author}#{shard:02}")
}

fn follower_key(user: UserId) -> String {
    format!("{:04x}#{user:020}", user.bucket(), user = user.get())
}

/// followers: one edge by followee.
pub fn follower(author: UserId, user: UserId) -> Item {
    listed_key(&follower_shard(author, user.shard()), &follower_key(user))
}

/// followers: the key of an entry, of its stored parts.
pub fn listed_key(shard: &str, follower: &str) -> Item {
    key([(FollowerItem::shard, string(shard)), (FollowerItem::follower, string(follower))])
}

/// followers: one edge by followee, with its key in the index by time.
pub fn follower_item(user: UserId, author: UserId, since: Timestamp) -> Item {
    let (shard, since) = (follower_shard(author, user.shard()), follower_since(user, since));
    encode(&FollowerItem { shard, follower: follower_key(user), since })
}

/// followers: the partition of the requests of one shard of users to an author.
pub fn request_shard(author: UserId, shard: u16) -> String {
    format!("{}#requests", follower_shard(author, shard))
}

/// followers: the partition of a user's own requests.
pub fn sent_requests(user: UserId) -> String {
    format!("{user}#sent")
}

/// The partitions of the two entries of a request, each with the other user: by author, and by user.
fn request_places(user: UserId, author: UserId) -> [(String, UserId); 2] {
    [(request_shard(author, user.shard()), user), (sent_requests(user), author)]
}

/// followers: the two entries of a request: by author, and by user.
pub fn requests(user: UserId, author: UserId) -> [Item; 2] {
    request_places(user, author).map(|(shard, other)| listed_key(&shard, &follower_key(other)))
}

/// followers: the same with the time of the request.
pub fn request_items(user: UserId, author: UserId, at: Timestamp) -> [Item; 2] {
    request_places(user, author)
        .map(|(shard, other)| encode(&FollowerItem { shard, follower: follower_key(other), since: follower_since(other, at) }))
}

/// followers: the partition of the users whom a user blocks.
pub(crate) fn blocked_by(user: UserId) -> String {
    format!("{user}#blocks")
}

/// followers: the partition of the users who block a user.
pub(crate) fn blockers_of(user: UserId) -> String {
    format!("{user}#blocked")
}

/// followers: the two entries of a block: by the user who blocks, and by the other.
pub fn block_entries(user: UserId, other: UserId) -> [Item; 2] {
    [(blocked_by(user), other), (blockers_of(other), user)].map(|(shard, other)| listed_key(&shard, &follower_key(other)))
}

/// followers: the lowest and highest possible sort key of these buckets.
pub(crate) fn follower_range(buckets: &Range<u16>) -> (String, String) {
    (format!("{:04x}#", buckets.start), format!("{:04x}$", buckets.end.saturating_sub(1)))
}

/// followers: the user in a sort key.
pub(crate) fn follower_of(sort_key: &str) -> Option<UserId> {
    UserId::new(sort_key.split_once('#')?.1.parse().ok()?)
}

/// followers: the sort key of the index by time.
pub fn follower_since(user: UserId, since: Timestamp) -> String {
    format!("{:015}#{:020}", since.ms(), user.get())
}

/// followers: the entry that a sort key of the index by time encodes.
pub(crate) fn relation_of(since: &str) -> Option<Relation> {
    let (ms, user) = since.split_once('#')?;
    Some(Relation { since: Timestamp::from_ms(ms.parse().ok()?), user: UserId::new(user.parse().ok()?)? })
}

pub(crate) fn counter(name: String) -> Item {
    key([(CounterItem::counter, string(name))])
}

/// counters: the number of authors that the user follows.
pub fn followings_counter(user: UserId) -> Item {
    counter(format!("u#{user}"))
}

/// counters: the user's lists.
pub fn lists(user: UserId) -> Item {
    counter(lists_key(user))
}

pub(crate) fn lists_key(user: UserId) -> String {
    format!("l#{user}")
}

/// counters: the user in the key of lists.
pub(crate) fn lists_user(counter: &str) -> Option<UserId> {
    counter.strip_prefix("l#")?.parse().ok()
}

/// counters: the number of followers of the author in one shard.
pub fn followers_counter(author: UserId, shard: u16) -> Item {
    counter(format!("f#{author}#{shard:02}"))
}

pub fn counter_item(mut counter: Item, count: u64) -> Item {
    counter.extend(key([(CounterItem::count, number(count))]));
    counter
}

/// counters: a part of that number. The first one, 0, has the key of the whole.
pub fn followers_part(author: UserId, shard: u16, part: u16) -> Item {
    if part == 0 { followers_counter(author, shard) } else { counter(format!("f#{author}#{shard:02}#{part:02}")) }
}

/// counters: author and shard in the key of a number of followers, or of a part of it.
pub fn counter_shard(counter: &str) -> Option<(UserId, u16)> {
    let mut names = counter.strip_prefix("f#")?.split('#');
    let (author, shard) = (names.next()?.parse().ok()?, names.next()?.parse().ok()?);
    Some((author, shard)).filter(|_| shard < SHARDS)
}

fn walk_name(job: &str) -> String {
    format!("walk#{job}")
}

/// counters: where a job of reconcile continues.
pub fn walk(job: &str) -> Item {
    counter(walk_name(job))
}

/// counters: the same with its position.
pub fn walk_item(job: &str, position: &str) -> Item {
    encode(&WalkItem { counter: walk_name(job), position: position.to_owned() })
}

/// counters: the outage note.
pub fn outage() -> Item {
    counter("outage".to_owned())
}

/// followers, reactions: the author in a partition key.
pub fn shard_author(shard: &str) -> Option<UserId> {
    shard.split_once('#')?.0.parse().ok()
}

fn of_author(author: UserId, sort_key: String) -> Item {
    key([(PostItem::author, number(author.get())), (PostItem::item, string(sort_key))])
}

pub fn head(author: UserId) -> Item {
    of_author(author, HEAD.to_owned())
}

/// posts: the bounds of the sort keys of posts.
pub(crate) const POSTS: [&str; 2] = ["post#", "post$"];

/// posts: whether an item is a head.
pub(crate) fn is_head(item: &Item) -> bool {
    HeadItem::item.of(item).and_then(|sort_key| sort_key.as_s().ok()).is_some_and(|sort_key| sort_key == HEAD)
}

pub fn post(post: PostId) -> Item {
    of_author(post.author, post_sort_key(post.seq))
}

pub(crate) fn post_sort_key(seq: Seq) -> String {
    format!("post#{seq:016}")
}

/// posts: the sequence number in a post's sort key.
pub fn post_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("post#")?.parse().ok()
}

pub fn body(post: PostId) -> Item {
    of_author(post.author, body_sort_key(post.seq))
}

pub(crate) fn body_sort_key(seq: Seq) -> String {
    format!("body#{seq:016}")
}

/// posts: the sequence number in a body's sort key.
pub(crate) fn body_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("body#")?.parse().ok()
}

/// posts: the sort key of the index by time.
pub fn post_time(at: Timestamp, seq: Seq) -> String {
    format!("{:015}#{seq:016}", at.ms())
}

/// posts: the time in the sort key of the index by time.
pub(crate) fn time_of(post_time: &str) -> Option<Timestamp> {
    post_time.split_once('#')?.0.parse().ok().map(Timestamp::from_ms)
}

/// posts: a bound of the index by time above every post at or before `at`.
pub fn post_time_end(at: Timestamp) -> String {
    format!("{:015}$", at.ms())
}

/// posts: the partition of unfinished fan-outs in [`UNFINISHED`].
pub fn unfinished_shard(shard: u64) -> String {
    shard.to_string()
}

/// posts: the partition of fan-outs that were given up in [`UNFINISHED`].
pub fn given_up_shard(shard: u64) -> String {
    format!("given-up#{shard}")
}

/// reads: the read state of a user and an author.
pub fn reads(user: UserId, author: UserId) -> Item {
    key([(ReadsItem::user, number(user.get())), (ReadsItem::author, number(author.get()))])
}

/// reads: a bound above every read state of a user and below the windows of their sets.
pub(crate) fn reads_end() -> AttributeValue {
    AttributeValue::N(format!("1{:020}", 0))
}

/// reads: the sets of a read state. Their order here decides the keys of their windows.
const READ_SETS: [Attribute; 2] = [ReadsItem::read, ReadsItem::imported];

/// posts, reads: the key of a window of a set of the item with the key `base`; `None` if it has no such set. For a read
/// state, it is a number: the author in 20 digits, after a prefix that numbers the windows of both sets from 1.
pub fn window(base: &Item, set: &str, window: u64) -> Option<Item> {
    let author = PostItem::author.of(base)?;
    if PostItem::item.of(base).is_some() {
        return Some(key([(PostItem::author, author.clone()), (PostItem::item, string(format!("{set}#{window:05}")))]));
    }
    let place = READ_SETS.iter().position(|attribute| attribute.name() == set)? as u64;
    let sort_key = AttributeValue::N(format!("{}{:0>20}", 2 * window + place + 1, author.as_n().ok()?));
    Some(key([(ReadsItem::user, ReadsItem::user.of(base)?.clone()), (ReadsItem::author, sort_key)]))
}

/// posts, reads: only the key attributes of an item.
pub(crate) fn windowed_key(item: &Item) -> Item {
    key_of(if PostItem::item.of(item).is_some() { "posts" } else { "reads" }, item)
}

pub fn key_of(table: &str, item: &Item) -> Item {
    let attributes = key_attributes(table).iter();
    attributes.filter_map(|attribute| Some((attribute.name().to_owned(), attribute.of(item)?.clone()))).collect()
}

/// The name of a window in `windows`: `deleted#12`.
pub(crate) fn window_name(set: Attribute, window: u64) -> String {
    format!("{}#{window}", set.name())
}

pub(crate) fn named_window(name: &str) -> Option<(&str, u64)> {
    let (set, window) = name.split_once('#')?;
    Some((set, window.parse().ok()?))
}

pub(crate) const HEAD: &str = "head";

/// The sort key of the counts of all posts of an author.
const TOTAL: &str = "total";

fn of_shard(author: UserId, shard: u16, sort_key: String) -> Item {
    key([(ReactionItem::shard, string(follower_shard(author, shard))), (ReactionItem::item, string(sort_key))])
}

pub(crate) fn reaction_sort_key(user: UserId) -> String {
    format!("user#{:020}", user.get())
}

/// reactions: the reactions of a user to an author's posts.
pub fn reaction(user: UserId, author: UserId) -> Item {
    of_shard(author, user.shard(), reaction_sort_key(user))
}

/// reactions: a part of the counts of a post. The first parts of an author's posts lie in different shards.
pub fn post_reactions(post: PostId, part: u16) -> Item {
    of_shard(post.author, part_shard(post.seq, part), post_sort_key(post.seq))
}

/// reactions: the shard of a part of the counts of a post.
pub fn part_shard(seq: Seq, part: u16) -> u16 {
    ((seq % u64::from(SHARDS)) as u16 + part) % SHARDS
}

/// reactions: the post in the key of its counts.
pub(crate) fn counted_post(shard: &str, sort_key: &str) -> Option<PostId> {
    Some(PostId::new(shard_author(shard)?, post_seq(sort_key)?))
}

/// reactions: counts of all posts of an author among the users of a shard.
pub fn author_reactions(author: UserId, shard: u16) -> Item {
    of_shard(author, shard, TOTAL.to_owned())
}

/// reactions: bounds of the sort keys of users, of counts, reposters and users, of entries of likers, and of all
/// entries and counts.
pub(crate) const USERS: [&str; 2] = ["user#", "user$"];
pub const COUNTS_AND_USERS: [&str; 2] = ["post#", "user$"];
pub const LIKERS: [&str; 2] = ["favorite#", "like$"];
pub(crate) const ENTRIES_AND_COUNTS: [&str; 2] = ["favorite#", "total$"];
/// reactions: the bounds of the sort keys of quotes, and those of quotes and counts of posts.
pub const QUOTES: [&str; 2] = ["naming#", "naming$"];
pub(crate) const QUOTES_AND_POSTS: [&str; 2] = ["naming#", "post$"];

/// reactions: the entry of a user who has reacted to a post.
pub fn liker(post: PostId, reaction: Reaction, Relation { since, user }: Relation) -> Item {
    let sort_key = format!("{}{}", likers(post.seq, reaction), follower_since(user, since));
    of_shard(post.author, user.shard(), sort_key)
}

/// reactions: the beginning of the sort keys of the users who have reacted to a post.
pub(crate) fn likers(seq: Seq, reaction: Reaction) -> String {
    match reaction {
        Reaction::Like => format!("like#{seq:016}#"),
        Reaction::Favorite => format!("favorite#{seq:016}#"),
    }
}

/// reactions: the post, the reaction, the time and the user in the sort key of an entry.
pub fn liker_of(sort_key: &str) -> Option<(Seq, Reaction, Relation)> {
    let (reaction, rest) = match sort_key.split_once('#')? {
        ("like", rest) => (Reaction::Like, rest),
        ("favorite", rest) => (Reaction::Favorite, rest),
        _ => return None,
    };
    let (seq, entry) = rest.split_once('#')?;
    Some((seq.parse().ok()?, reaction, relation_of(entry)?))
}

/// reactions: the beginning of the sort keys of the users who repost a post.
pub(crate) fn reposters(seq: Seq) -> String {
    format!("repost#{seq:016}#")
}

fn reposter_key(original: PostId, Relation { since, user }: Relation) -> (String, String) {
    (follower_shard(original.author, user.shard()), reposters(original.seq) + &follower_since(user, since))
}

/// reactions: the entry of a user who reposts a post.
pub fn reposter(original: PostId, entry: Relation) -> Item {
    let (shard, item) = reposter_key(original, entry);
    key([(ReactionItem::shard, string(shard)), (ReactionItem::item, string(item))])
}

/// reactions: the same with the number of the user's post.
pub fn reposter_item(original: PostId, entry: Relation, repost: Seq) -> Item {
    let (shard, item) = reposter_key(original, entry);
    encode(&ReposterItem { shard, item, repost })
}

/// reactions: the beginning of the sort keys of quotes of a post.
pub(crate) fn quoters(seq: Seq) -> String {
    format!("naming#{seq:016}#")
}

/// reactions: a quote of a post by another author, at the time of the quote.
pub fn quoter(original: PostId, by: Relation, quote: Seq) -> Item {
    let sort_key = format!("{}{}#{quote:016}", quoters(original.seq), follower_since(by.user, by.since));
    of_shard(original.author, by.user.shard(), sort_key)
}

/// reactions: the number of the original, the user and time of a quote, and its number, in a sort key.
pub fn quoter_of(sort_key: &str) -> Option<(Seq, Relation, Seq)> {
    let (seq, rest) = sort_key.strip_prefix("naming#")?.split_once('#')?;
    let (entry, quote) = rest.rsplit_once('#')?;
    Some((seq.parse().ok()?, relation_of(entry)?, quote.parse().ok()?))
}

/// reactions: whether a sort key is that of a reposter.
pub fn is_reposter(sort_key: &str) -> bool {
    sort_key.starts_with("repost#")
}

/// reactions: the original, the time and the user in the sort key of a reposter.
pub fn reposter_of(sort_key: &str) -> Option<(Seq, Relation)> {
    let (seq, entry) = sort_key.strip_prefix("repost#")?.split_once('#')?;
    Some((seq.parse().ok()?, relation_of(entry)?))
}

/// reactions: whether a sort key is that of the counts of all posts.
pub fn is_total(sort_key: &str) -> bool {
    sort_key == TOTAL
}

/// reactions: the user in the sort key of a user's reactions.
pub fn reacting_user(sort_key: &str) -> Option<UserId> {
    UserId::new(sort_key.strip_prefix("user#")?.parse().ok()?)
}

/// The counts of a post's comments. Comments that follow each other have different ones, so the transactions of 64
/// comments at once do not meet.
pub const LANES: CommentNumber = 64;

/// The counts in one partition: two write units for each comment make 500 a second, if 1,000 comments a second come.
const LANES_TOGETHER: CommentNumber = 16;

fn comment_block(post: PostId, block: u64) -> String {
    format!("{}#{}#comments#{block}", post.author, post.seq)
}

fn comment_sort_key(number: CommentNumber) -> String {
    format!("comment#{number:016}")
}

/// reactions: a comment.
pub fn comment(id: CommentId) -> Item {
    let (shard, item) = (comment_block(id.post, block_of(id.number)), comment_sort_key(id.number));
    key([(CommentItem::shard, string(shard)), (CommentItem::item, string(item))])
}

/// reactions: a comment that stands. `write_token` names the request that wrote it.
pub fn comment_item(comment: &Comment, write_token: u64) -> Item {
    let &Comment { id, author, ref text, created_at } = comment;
    let (shard, item) = (comment_block(id.post, block_of(id.number)), comment_sort_key(id.number));
    let (user, text) = (Some(author.into()), Some(text.clone()));
    encode(&CommentItem { shard, item, at: created_at.ms(), write_token, user, text })
}

pub(crate) fn block_of(number: CommentNumber) -> u64 {
    number.saturating_sub(1) / BLOCK
}

/// reactions: the partition of a block, and the bounds of its comments with these numbers.
pub(crate) fn comments_in(post: PostId, block: u64, numbers: &std::ops::RangeInclusive<CommentNumber>) -> [String; 3] {
    [comment_block(post, block), comment_sort_key(*numbers.start()), comment_sort_key(*numbers.end())]
}

/// reactions: the comment in a key.
pub fn comment_of(shard: &str, item: &str) -> Option<CommentId> {
    let mut parts = shard.split('#');
    let (author, seq, "comments") = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?) else {
        return None;
    };
    Some(CommentId::new(PostId::new(author, seq), item.strip_prefix("comment#")?.parse().ok()?))
}

/// reactions: the comment of an item.
pub fn comment_in(item: &Item) -> super::super::Result<CommentId> {
    let shard: String = CommentItem::shard.read(item)?;
    CommentItem::item.parsed(item, |item| comment_of(&shard, item))
}

fn comment_counts_part(post: PostId, part: u64) -> String {
    format!("{}#{}#counts#{part}", post.author, post.seq)
}

/// reactions: the partitions of the counts of a post's comments, if `last` is the last number.
pub fn comment_counts(post: PostId, last: CommentNumber) -> Vec<String> {
    let parts = last.min(LANES).div_ceil(LANES_TOGETHER);
    (0..parts).map(|part| comment_counts_part(post, part)).collect()
}

/// reactions: the count that has the comment of this number.
pub fn comment_count(id: CommentId) -> Item {
    let lane = id.number.saturating_sub(1) % LANES;
    let shard = comment_counts_part(id.post, lane / LANES_TOGETHER);
    key([(CommentCountItem::shard, string(shard)), (CommentCountItem::item, string(format!("lane#{lane:02}")))])
}

/// reactions: the number of a lane in its sort key.
pub fn lane_of(sort_key: &str) -> Option<u64> {
    sort_key.strip_prefix("lane#")?.parse().ok()
}

/// reactions: the post of a partition of counts of comments.
pub fn comment_counts_post(shard: &str) -> Option<PostId> {
    let mut parts = shard.split('#');
    let post = PostId::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (parts.next()? == "counts").then_some(post)
}

/// reactions: the bounds of the numbers of comments of users.
pub const COMMENTED: [&str; 2] = ["commented#", "commented$"];

/// reactions: the beginning of the sort keys of the numbers of comments of users on a post.
pub(crate) fn commented_on(seq: Seq) -> String {
    format!("commented#{seq:016}#")
}

/// reactions: the number of a user's comments on a post.
pub fn commented(post: PostId, user: UserId) -> Item {
    of_shard(post.author, user.shard(), format!("{}{:020}", commented_on(post.seq), user.get()))
}

/// reactions: the post's number and the user in the sort key of a number of comments.
pub fn commented_of(sort_key: &str) -> Option<(Seq, UserId)> {
    let (seq, user) = sort_key.strip_prefix("commented#")?.split_once('#')?;
    Some((seq.parse().ok()?, UserId::new(user.parse().ok()?)?))
}

/// counters: the numbers of a post's comments.
pub fn comment_numbers(post: PostId) -> Item {
    counter(format!("c#{post}"))
}

/// counters: the post of the numbers of comments.
pub fn comment_numbers_post(counter: &str) -> Option<PostId> {
    counter.strip_prefix("c#")?.parse().ok()
}

/// reacted: the partition of a user's comments.
pub fn comments_by(user: UserId) -> String {
    format!("{user}#comments")
}

/// reacted: the user in the partition of a user's comments.
pub(crate) fn commenting_user(partition: &str) -> Option<UserId> {
    partition.strip_suffix("#comments")?.parse().ok()
}

fn commented_post(id: CommentId) -> String {
    format!("{}#{:016}", reacted_post(id.post), id.number)
}

/// reacted: one entry of a user's list of comments.
pub fn comment_entry(user: UserId, id: CommentId) -> Item {
    key([(ReactedItem::user, string(comments_by(user))), (ReactedItem::post, string(commented_post(id)))])
}

/// reacted: the same with its time.
pub fn comment_entry_item(user: UserId, id: CommentId, at: Timestamp) -> Item {
    encode(&ReactedItem { user: comments_by(user), post: commented_post(id), at: commented_at(at, id), repost: None })
}

/// reacted: the sort key of the index by time.
pub(crate) fn commented_at(at: Timestamp, id: CommentId) -> String {
    format!("{:015}#{}", at.ms(), commented_post(id))
}

/// reacted: the comment in a sort key.
pub fn entry_comment(post: &str) -> Option<CommentId> {
    let mut parts = post.split('#');
    let (author, seq, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(CommentId::new(PostId::new(UserId::new(author)?, seq), number))
}

/// reacted: time and comment in a sort key of the index by time.
pub(crate) fn entry_time(at: &str) -> Option<(Timestamp, CommentId)> {
    let (ms, comment) = at.split_once('#')?;
    Some((Timestamp::from_ms(ms.parse().ok()?), entry_comment(comment)?))
}
fn of_inbox(user: UserId, sort_key: String) -> Item {
    key([(GroupItem::user, number(user.get())), (GroupItem::item, string(sort_key))])
}

/// inbox: one group.
pub fn group(user: UserId, id: GroupId) -> Item {
    of_inbox(user, group_sort_key(id))
}

pub(crate) fn group_sort_key(id: GroupId) -> String {
    format!("group#{id}")
}

/// inbox: the id of the group in a sort key.
pub(crate) fn group_of(sort_key: &str) -> Option<GroupId> {
    sort_key.strip_prefix("group#")?.parse().ok()
}

/// inbox: up to which time the user has read it.
pub fn inbox_read(user: UserId) -> Item {
    of_inbox(user, INBOX_READ.to_owned())
}

pub(crate) const INBOX_READ: &str = "read";

pub fn record(name: &str) -> Item {
    key([(RecordItem::key, string(name))])
}

/// idempotency: the record of a request.
pub fn request_record(user: UserId, operation: &str, idempotency_key: &str) -> String {
    format!("{user}#{operation}#{idempotency_key}")
}

/// idempotency: the user in the key of a record.
pub fn record_user(key: &str) -> Option<UserId> {
    key.split_once('#')?.0.parse().ok()
}

/// idempotency: the record of a publish.
pub fn publish_record(user: UserId, idempotency_key: &str) -> String {
    request_record(user, "publish", idempotency_key)
}

fn of_platform(platform: Platform, sort_key: String) -> Item {
    key([(NoticeItem::platform, number(platform.get())), (NoticeItem::item, string(sort_key))])
}

pub fn profile(user: UserId) -> Item {
    key([(ProfileItem::user, number(user.get()))])
}

pub fn handle(handle: &Handle) -> Item {
    key([(HandleItem::handle, string(handle.as_str()))])
}

/// identities: the user id of a claim.
pub(crate) fn identity_key(claim: &str) -> String {
    format!("claim#{claim}")
}

/// identities: the claim in such a key.
pub(crate) fn claim_of(identity: &str) -> Option<&str> {
    identity.strip_prefix("claim#")
}

pub fn identity(claim: &str) -> Item {
    key([(IdentityItem::identity, string(identity_key(claim)))])
}

/// identities: that a user id is given to a claim.
pub(crate) fn given_key(user: UserId) -> String {
    format!("user#{user}")
}

/// identities: the receipt of an erasure.
pub(crate) fn erasure_key(user: UserId) -> String {
    format!("erased#{user}")
}

pub fn erasure(user: UserId) -> Item {
    key([(ErasureItem::identity, string(erasure_key(user)))])
}

/// identities: that the user has asked to leave, for transactions of one of 16 shards.
pub(crate) fn left_key(user: UserId, shard: u16) -> String {
    format!("left#{user}#{shard}")
}

pub(crate) fn left(user: UserId, shard: u16) -> Item {
    key([(IdentityItem::identity, string(left_key(user, shard)))])
}

/// identities: an item by its whole key.
pub fn identity_item(identity: &str) -> Item {
    key([(IdentityItem::identity, string(identity))])
}

/// The user of a receipt.
pub fn erased_user(identity: &str) -> Option<UserId> {
    identity.strip_prefix("erased#")?.parse().ok()
}

/// Items that list the users whose erasures are not finished.
const RUNNING_PARTS: u16 = 64;

/// identities: the users of the same part whose erasures are not finished.
pub fn running_part(user: UserId) -> Item {
    running(user.bucket() % RUNNING_PARTS)
}

fn running(part: u16) -> Item {
    key([(RunningItem::identity, string(format!("erasures#{part:02}")))])
}

/// All items that list such users.
pub fn running_erasures() -> Vec<Item> {
    (0..RUNNING_PARTS).map(running).collect()
}

/// reacted: the partition of one kind of a user's reactions.
pub fn reacted_by(user: UserId, reaction: Reaction) -> String {
    match reaction {
        Reaction::Like => format!("{user}#likes"),
        Reaction::Favorite => format!("{user}#favorites"),
    }
}

/// reacted: the user and the kind of reaction of a partition.
pub(crate) fn reacting(partition: &str) -> Option<(UserId, Reaction)> {
    match partition.split_once('#')? {
        (user, "likes") => Some((user.parse().ok()?, Reaction::Like)),
        (user, "favorites") => Some((user.parse().ok()?, Reaction::Favorite)),
        _ => None,
    }
}

/// reacted: a post, as text in the order of author and number.
pub fn reacted_post(post: PostId) -> String {
    format!("{:020}#{:016}", post.author.get(), post.seq)
}

/// reacted: the bounds of the sort keys of entries for the posts of an author.
pub(crate) fn reacted_to(author: UserId) -> [String; 2] {
    ["#", "$"].map(|end| format!("{:020}{end}", author.get()))
}

/// reacted: the number of the post in a sort key.
pub(crate) fn reacted_seq(post: &str) -> Option<Seq> {
    post.split('#').nth(1)?.parse().ok()
}

/// reacted: one entry of a user's list of likes or favorites.
pub fn reacted(user: UserId, reaction: Reaction, post: PostId) -> Item {
    key([(ReactedItem::user, string(reacted_by(user, reaction))), (ReactedItem::post, string(reacted_post(post)))])
}

/// reacted: one reaction with its time.
pub fn reacted_item(user: UserId, reaction: Reaction, key: FeedKey) -> Item {
    let (user, post, at) = (reacted_by(user, reaction), reacted_post(key.post), reacted_at(key.at, key.post));
    encode(&ReactedItem { user, post, at, repost: None })
}

/// reacted: the partition of a user's reposts.
pub fn reposts_by(user: UserId) -> String {
    format!("{user}#reposts")
}

/// reacted: the user in the partition of a user's reposts.
pub(crate) fn reposting_user(partition: &str) -> Option<UserId> {
    partition.strip_suffix("#reposts")?.parse().ok()
}

/// reacted: a user's repost of a post.
pub fn repost(user: UserId, original: PostId) -> Item {
    key([(ReactedItem::user, string(reposts_by(user))), (ReactedItem::post, string(reacted_post(original)))])
}

/// reacted: the same with its time and number.
pub fn repost_item(user: UserId, original: PostId, at: Timestamp, repost: Seq) -> Item {
    let (post, at) = (reacted_post(original), reacted_at(at, original));
    encode(&ReactedItem { user: reposts_by(user), post, at, repost: Some(repost) })
}

/// reacted: the sort key of the index by time.
pub(crate) fn reacted_at(at: Timestamp, post: PostId) -> String {
    format!("{:015}#{}", at.ms(), reacted_post(post))
}

/// reacted: time and post in a sort key of the index by time.
pub fn reaction_of(at: &str) -> Option<FeedKey> {
    let mut parts = at.split('#');
    let (ms, author, seq) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(FeedKey { at: Timestamp::from_ms(ms), post: PostId::new(UserId::new(author)?, seq) })
}

pub fn platform_head(platform: Platform) -> Item {
    of_platform(platform, HEAD.to_owned())
}

pub fn notice(notice: NoticeId) -> Item {
    of_platform(notice.platform, notice_sort_key(notice.seq))
}

pub fn notice_sort_key(seq: Seq) -> String {
    format!("notice#{seq:016}")
}

/// notices: the sequence number in a notice's sort key.
pub fn notice_seq(sort_key: &str) -> Option<Seq> {
    sort_key.strip_prefix("notice#")?.parse().ok()
}

/// notices: the pending edit that made this version of the head.
pub fn pending_edit(platform: Platform, revision: u64) -> Item {
    of_platform(platform, pending_edit_sort_key(revision))
}

pub fn pending_edit_sort_key(revision: u64) -> String {
    format!("edit#{revision:020}")
}

/// notices: the revision in a pending edit's sort key.
pub fn pending_edit_revision(sort_key: &str) -> Option<u64> {
    sort_key.strip_prefix("edit#")?.parse().ok()
}

/// The least time from the end of a notice until DynamoDB removes it. An edit that lets it live longer may wait in the
/// projector's stream for a day.
const NOTICE_STAYS_SECONDS: u64 = 2 * 24 * 3_600;

/// notices: the second from which DynamoDB may remove a notice. The head alone says whether it has expired.
pub fn notice_expires_at(at: Timestamp) -> u64 {
    at.seconds() + NOTICE_STAYS_SECONDS
}

/// notice_reads: the read state of a user on a platform.
pub fn notice_reads(user: UserId, platform: Platform) -> Item {
    key([(NoticeReadsItem::user, number(user.get())), (NoticeReadsItem::platform, number(platform.get()))])
}

/// counters: shards of the reader counts of a platform. They allow many readers to mark at once.
pub(crate) const READER_SHARDS: u16 = 64;

/// counters: the shard that counts a user.
pub fn reader_shard(user: UserId) -> u16 {
    user.bucket() / (BUCKETS / READER_SHARDS)
}

/// counters: the block that counts a slot, and the attribute of the slot in it.
pub fn reader_block(slot: Slot) -> (u64, Attribute) {
    let slots = READER_SLOTS.len() as u64;
    (slot / slots, READER_SLOTS[(slot % slots) as usize])
}

/// counters: the reader counts of one block of slots in one shard.
pub fn notice_readers(platform: Platform, shard: u16, block: u64) -> Item {
    counter(format!("n#{platform}#{shard:02}#{block}"))
}

#[cfg(test)]
mod tests {
    use tidemark_domain::model::TOMBSTONE_SECONDS;

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
        assert_eq!(text(&followers_part(author, 3, 0), "counter"), "f#7#03");
        assert_eq!(text(&followers_part(author, 3, 12), "counter"), "f#7#03#12");
        assert_eq!(["f#7#03", "f#7#03#12"].map(counter_shard), [Some((author, 3)); 2]);
        assert_eq!(["u#7", "f#7#16", "f#7"].map(counter_shard), [None; 3]);
        assert_eq!(text(&head(author), "item"), "head");
        assert_eq!(text(&post(id), "item"), "post#0000000000000003");
        assert_eq!(post_seq("post#0000000000000003"), Some(3));
        assert_eq!(text(&body(id), "item"), "body#0000000000000003");
        assert_eq!(post_time(Timestamp::from_ms(5), 3), "000000000000005#0000000000000003");
        assert_eq!(time_of(&post_time(Timestamp::from_ms(5), 3)), Some(Timestamp::from_ms(5)));
        assert_eq!(text(&record(&publish_record(user, "k")), "key"), "1042#publish#k");
        assert_eq!((record_user("1042#publish#k#1"), record_user("k")), (Some(user), None));
        assert_eq!((erasure_key(user), left_key(user, 3)), ("erased#1042".into(), "left#1042#3".into()));
        assert_eq!((erased_user("erased#1042"), erased_user("left#1042#3")), (Some(user), None));
        assert_eq!(record_user(&publish_record(user, "7#x")), Some(user));
        let notice_id: NoticeId = "7-300".parse().unwrap();
        assert_eq!(
            (text(&platform_head(notice_id.platform), "platform"), text(&platform_head(notice_id.platform), "item")),
            ("7".into(), "head".into())
        );
        assert_eq!(text(&notice(notice_id), "item"), "notice#0000000000000300");
        assert_eq!(notice_seq("notice#0000000000000300"), Some(300));
        assert_eq!(text(&pending_edit(notice_id.platform, 12), "item"), "edit#00000000000000000012");
        assert_eq!(pending_edit_revision("edit#00000000000000000012"), Some(12));
        assert_eq!(
            (text(&notice_reads(user, notice_id.platform), "user"), text(&notice_reads(user, notice_id.platform), "platform")),
            ("1042".into(), "7".into())
        );
        assert_eq!(text(&notice_readers(notice_id.platform, reader_shard(user), reader_block(300).0), "counter"), "n#7#12#9");
        assert_eq!(reader_block(300).1.name(), "s12");
        assert_eq!(text(&window(&head(author), "deleted", 12).unwrap(), "item"), "deleted#00012");
        assert_eq!(text(&window(&reads(user, author), "read", 0).unwrap(), "author"), "100000000000000000007");
        assert_eq!(text(&window(&reads(user, author), "imported", 1).unwrap(), "author"), "400000000000000000007");
        assert_eq!(
            (window(&reads(user, author), "deleted", 0), reads_end()),
            (None, AttributeValue::N("100000000000000000000".into()))
        );
        assert_eq!((window_name(ReadsItem::read, 12), named_window("read#12")), ("read#12".into(), Some(("read", 12))));
        assert_eq!(text(&record(&request_record(user, "lists", "k")), "key"), "1042#lists#k");
        assert_eq!((unfinished_shard(2), given_up_shard(2)), ("2".into(), "given-up#2".into()));
    }

    #[test]
    fn keys_of_users_of_a_shard_have_exactly_this_format() {
        let (user, author) = (UserId::new(1042).unwrap(), UserId::new(7).unwrap());
        let id = PostId::new(author, 3);
        let item = reaction(user, author);
        assert_eq!((text(&item, "shard"), text(&item, "item")), ("7#03".into(), "user#00000000000000001042".into()));
        assert_eq!((shard_author("7#03"), reacting_user("user#00000000000000001042")), (Some(author), Some(user)));
        assert_eq!(reacting_user("total"), None);
        let shards = [0, 1, 15].map(|part| text(&post_reactions(PostId::new(author, 18), part), "shard"));
        assert_eq!(shards, ["7#02", "7#03", "7#01"]);
        let item = post_reactions(id, 0);
        assert_eq!((text(&item, "shard"), text(&item, "item")), ("7#03".into(), "post#0000000000000003".into()));
        assert_eq!((counted_post("7#03", "post#0000000000000003"), counted_post("7#03", "total")), (Some(id), None));
        assert_eq!(text(&author_reactions(author, 3), "item"), "total");
        let relation = Relation { since: Timestamp::from_ms(5), user };
        let item = liker(id, Reaction::Favorite, relation);
        let sort_key = text(&item, "item");
        assert_eq!(
            (text(&item, "shard").as_str(), sort_key.as_str()),
            ("7#03", "favorite#0000000000000003#000000000000005#00000000000000001042")
        );
        assert_eq!((liker_of(&sort_key), liker_of("total")), (Some((3, Reaction::Favorite, relation)), None));
        let sorted = ["commented#", "favorite#", "like#", "naming#", "post#", "repost#", "total", "user#"];
        assert!(sorted.is_sorted(), "the bounds of sort keys have what they say");
        let sort_key = text(&quoter(id, relation, 9), "item");
        assert_eq!(sort_key, "naming#0000000000000003#000000000000005#00000000000000001042#0000000000000009");
        assert_eq!((quoter_of(&sort_key), liker_of(&sort_key), reposter_of(&sort_key)), (Some((3, relation, 9)), None, None));
        assert_eq!(key_text("posts", &post(id)), "7 post#0000000000000003");
        assert_eq!(key_text("following", &edge(user, author)), "1042 7");
        assert_eq!(key_text("counters", &followers_counter(author, 3)), "f#7#03");
        let [by_author, by_user] = requests(user, author).map(|key| (text(&key, "shard"), text(&key, "follower")));
        assert_eq!(by_author, ("7#03#requests".into(), text(&follower(author, user), "follower")));
        assert_eq!(by_user, ("1042#sent".into(), text(&follower(user, author), "follower")));
        assert_eq!(shard_author("7#03#requests"), Some(author));
        assert_eq!(follower_range(&(0..4096)), ("0000#".into(), "0fff$".into()));
    }

    #[test]
    fn keys_of_comments_have_exactly_this_format() {
        let (user, author) = (UserId::new(1042).unwrap(), UserId::new(7).unwrap());
        let (post, key) = (PostId::new(author, 3), |item: &Item| (text(item, "shard"), text(item, "item")));
        for (number, shard) in [(1, "7#3#comments#0"), (64, "7#3#comments#0"), (65, "7#3#comments#1")] {
            let id = CommentId::new(post, number);
            let (found, item) = key(&comment(id));
            assert_eq!((found.as_str(), item), (shard, format!("comment#{number:016}")));
            assert_eq!(comment_of(shard, &text(&comment(id), "item")), Some(id));
        }
        assert_eq!(
            (shard_author("7#3#comments#0"), comment_of("7#03", "user#1"), post_seq("comment#1")),
            (Some(author), None, None)
        );
        for (number, shard, lane) in [(1, 0, "00"), (17, 1, "16"), (64, 3, "63"), (65, 0, "00")] {
            let of = key(&comment_count(CommentId::new(post, number)));
            assert_eq!(of, (format!("7#3#counts#{shard}"), format!("lane#{lane}")));
            assert_eq!(comment_counts_post(&of.0), Some(post));
        }
        let parts = [0, 1, 16, 17, 64, 1_000].map(|last| comment_counts(post, last).len());
        assert_eq!((parts, comment_counts_post("7#3#comments#0")), ([0, 1, 1, 2, 4, 4], None));
        let item = key(&commented(post, user));
        assert_eq!(item, ("7#03".into(), "commented#0000000000000003#00000000000000001042".into()));
        assert_eq!((commented_of(&item.1), text(&comment_numbers(post), "counter")), (Some((3, user)), "c#7-3".into()));
        let (id, at) = (CommentId::new(post, 5), Timestamp::from_ms(6));
        let entry = comment_entry_item(user, id, at);
        let names = ["user", "post", "at"].map(|name| text(&entry, name));
        let of_post = "00000000000000000007#0000000000000003#0000000000000005";
        assert_eq!(names, ["1042#comments".into(), of_post.into(), format!("000000000000006#{of_post}")]);
        assert_eq!((entry_comment(of_post), entry_time(&names[2])), (Some(id), Some((at, id))));
        let entries = block_entries(user, author).map(|key| (text(&key, "shard"), text(&key, "follower")));
        assert_eq!(entries.each_ref().map(|(shard, _)| shard.as_str()), ["1042#blocks", "7#blocked"]);
        assert_eq!(entries.map(|(_, follower)| follower_of(&follower)), [Some(author), Some(user)]);
    }

    #[test]
    fn only_a_tombstone_expires() {
        let [user, author] = [1042, 7].map(|id| UserId::new(id).unwrap());
        let live =
            Edge { following: true, since: Timestamp::from_ms(5_000), rev: 9, base: 3, floor: 2, ..Edge::never(user, author) };
        let item = edge_item(&live);
        assert_eq!(
            ["user", "author", "since", "rev", "base", "floor"].map(|name| text(&item, name)).join(" "),
            "1042 7 5000 9 3 2"
        );
        assert_eq!((&item["following"], item.get("expires_at")), (&AttributeValue::Bool(true), None));
        assert_eq!(item.get("preference"), None);
        assert_eq!(text(&edge_item(&Edge { preference: -10, ..live.clone() }), "preference"), "-10");
        let relation = Relation { since: live.since, user };
        assert_eq!(relation_of(&text(&follower_item(user, author, live.since), "since")), Some(relation));
        let tombstone = Edge { following: false, rev: 3, ..live };
        assert_eq!(text(&edge_item(&tombstone), "expires_at"), (5 + TOMBSTONE_SECONDS).to_string());
        let changed_later = Edge { rev: 9, ..tombstone.clone() };
        assert_eq!(text(&edge_item(&changed_later), "expires_at"), (9 + TOMBSTONE_SECONDS).to_string());
        let since = Some(Timestamp::from_ms(1));
        let (muted, blocked) = (Edge { muted: since, ..tombstone.clone() }, Edge { blocked: since, ..tombstone.clone() });
        assert!([muted, blocked].iter().all(|kept| !edge_item(kept).contains_key("expires_at")));
        // The index of kept pairs is read as a whole, and a user may ask many authors.
        let requested = edge_item(&Edge { requested: since, ..tombstone });
        assert_eq!(
            (text(&requested, "requested_at"), requested.get("expires_at"), requested.get("kept")),
            ("1".into(), None, None)
        );
        assert_eq!(counter_item(followings_counter(user), 4)["count"], number(4_u64));
    }
}
