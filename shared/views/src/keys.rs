//! Formats of the Redis keys.
//!
//! | key | type | content | lifetime | written by | rebuilt from |
//! |---|---|---|---|---|---|
//! | `{bucket}:r:<user>` | hash | reader state: `@` → meta, `<author>` → [author state](tidemark_domain::AuthorState), `+1` to `+8` → recent entries of the feed | 60 h after the last read; 5 min without a feed | deliver, retract, begin, open_gate, seed, finish, drop, touch, rank, watch, unwatch, notify, claim | edges, heads, read facts |
//! | `{bucket}:f:<user>` | list | feed: [entries](tidemark_domain::FeedKey::entry), oldest first, of authors who are not muted, about 1,128 at most without the recent ones: every writer but retract, drop and open_gate cuts it | an hour longer than the state | deliver, retract, begin, seed, drop, open_gate, touch, rank | posts |
//! | `{bucket}:k:<user>` | sorted set | ranked feed: the entries of the feed → [score](tidemark_domain::rank); only of readers who have read it | an hour longer than the state, from the last ranked read on | rank, open_gate, retract, begin, seed, drop, touch | feed, posts, state |
//! | `{bucket}:k:<user>:moves` | hash | `@` → half-life ms and the last stamp; an entry, or a post that a page showed [beside](crate::Views::beside) the ranked feed → changes of the post's step, stamp of its last move; an author → stamp of the last change of the preference | the same | rank, beside, open_gate, retract, begin, seed, drop, touch | posts; moves are not rebuilt |
//! | `{bucket}:following:<user>` | sorted set | authors followed → since ms, and the marker `\0` → time from which the list is complete | 2 h after the fill or the last follow; 5 min if it was filled empty | fill, relate | edges by follower |
//! | `{bucket}:followers:<user>` | sorted set | newest 1,000 followers, the same way | the same | fill, relate | edges by followee |
//! | `{bucket}:following:<user>:gone`, `…:followers:<user>:gone` | sorted set | users who left a cached list → time; they block follows that arrive late; the marker `\0`, without which the list does not change any more | as the list, and 2 h after the last departure | fill, relate | |
//! | `{bucket}:following:<user>:lease`, `…:followers:<user>:lease` | string | token of the caller that fills the list | 10 s | lease; removed by fill, relate | |
//! | `{bucket}:counters:<user>` | string | five 32-bit counts and a checksum, little-endian | 2 h | store | counters, head |
//! | `{bucket}:counters:<user>:lease` | string | token of the caller that stores the counters | 10 s | lease; removed by store, apply, forget_counters | |
//! | `{bucket}:changed:<user>` | string | the user began or ended a follow or a block, reacted, or deleted a post of another user in this time | 5 s; 90 s if replicas are read | apply, forget_counters, note_change | |
//! | `{bucket}:l:<user>` | hash | token buckets: kind of request → time at which the bucket is full | 1 min; until a debt is paid | spend | |
//! | `{bucket}:a:<user>` | string | `1` if the user may call, `2` after an erasure | 1 h | lease | receipts |
//! | `{bucket}:p:<post>` | string | [summary](tidemark_domain::PostSummary) of a post, or that the post is deleted; the bucket is the author's | 7 days | remember | posts |
//! | `{bucket}:p:<post>:lease` | string | token of the caller that stores the post | 1 s | lease; removed by remember after a change | |
//! | `{bucket}:b:<post>` | string | [text](tidemark_domain::PostText) of a post in a revision | 7 days | remember | bodies |
//! | `{bucket}:q:<post>` | string | counts of a post: version, likes, favorites, reposts, comments | 10 min; at most 2 s after a reaction | count, outdate | reaction counts |
//! | `{bucket}:q:<post>:lease` | string | token of the caller that stores the counts | 1 s | lease; removed by count, outdate | |
//! | `{bucket}:q:<post>:recent` | string | number of reactions to a post in this moment | 2 s | outdate | |
//! | `{bucket}:q:<post>:rank` | string | a `rank` task was sent that has not begun | 900 ms from the reaction on | note_rank | |
//! | `{bucket}:s:<author>` | hash | posts whose step has changed and that no task has moved in ranked feeds: seq → changes of the step; `life`, `next`, `sent`, `by` | 1 h | moved, settle | steps of posts |
//! | `{bucket}:x:<user>` | hash | the user's reactions: `@` → token of this view, `<author>` → [state](tidemark_domain::ReactionState::encode), at most 1,000 authors | 60 h after the last fill or change | open, react | reactions |
//! | `{bucket}:w:<user>` | hash | live connections of a reader: `@` → when a change was noted, when a message was last built, when the next one may be built, [post](super::live) that changed; `<connection>` → expiry ms and, if it is known, the digest of the counts and the unread groups that it was told; at most 20 | 10 min after the last ping | watch, unwatch, notify, claim, told | pings of the clients |
//! | `{bucket}:wn:<user>` | hash | unread notices that live connections were told: `<platform>:<connection>` → the number, with the epoch, or empty if it is unknown; at most 10 platforms of a connection | 10 min after the last ping | name_platforms, watch, forget_notices, told_notices | pings of the clients |
//! | `{bucket}:h:<author>` | string | [head](tidemark_domain::AuthorHead) of an author; timelines, and feeds of readers who pull, are computed from it | 1 min | store, replace | head |
//! | `{bucket}:t:<author>` | string | [times](tidemark_domain::PostTimes) of the newest posts of an author with many followers; rebuilds use them | 1 h | store | posts |
//! | `{bucket}:h:<author>:lease`, `{bucket}:t:<author>:lease` | string | token of the caller that stores the record | 1 s | lease; removed by store, replace | |
//! | `{bucket}:n:<user>:<platform>` | string | read state of a user on a platform: version and [set of slots](super::record) | 24 h | store, replace | notice reads |
//! | `{bucket}:m:<user>:<author>` | string | marks of an author whom the user does not follow: version, whether the author blocks the user, [set of posts](super::record) | 1 h | store | read facts, edges |
//! | `{bucket}:m:<user>:<author>:lease` | string | token of the caller that stores the marks | 1 s | lease; removed by store, forget_marks | |
//! | `{n<platform>}:h` | string | [head](tidemark_domain::PlatformHead) of a platform: version, numbers, live notices | 1 min | store, replace | platform head |
//! | `{bucket}:n:<user>:<platform>:lease`, `{n<platform>}:h:lease` | string | token of the caller that stores the record | 1 s | lease; removed by store, replace | |
//! | `{n<platform>}:t:<seq>:<revision>` | string | time and title of a notice in one revision, which never change | 7 days | remember_titles | notices |
//! | `{n<platform>}:b:<seq>:<revision>` | string | text of a notice in one revision, or that it has none; only of notices that were read with `include=body` | 7 days | remember_notice_bodies | notices |
//! | `{bucket}:u:<user>` | string | what pages show of a user: version and [card](tidemark_domain::Card); also that there is no profile | 7 days; 10 min without a profile | store, replace | profiles |
//! | `{bucket}:u:<user>:lease` | string | token of the caller that stores the card | 1 s | lease; removed by store, replace | |
//! | `{hash}:i` | string | user id of a claim, and the claim, of which the key has a hash; they never change | 30 days | remember_identity | identities |
//! | `{post}:pages:<kind>` | string | number of followers handled (8 bytes, big-endian), and a bit for each page of a fan-out that is done | 7 days | progress | the pages, done again |
//!
//! "Written by" names the scripts of `lua/`, or the methods that send plain commands. `{bucket}` is one of 4,096: users
//! of one bucket share a slot, so one call serves many followers, on a cluster too.

use std::time::Duration;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tidemark_domain::{FanOutKind, NoticeId, Platform, PostId, UserId};

use crate::{List, NoticeRecord};

/// The name of a view. Its keys, also that of its lease, are deleted together. [`crate::View`] is the content of a
/// reader's view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// State and feed of a reader, with the ranked feed and its moves: all that a rebuild deletes.
    Reader(UserId),
    /// The ranked feed and its moves alone. The next ranked read fills them again.
    Ranked(UserId),
    /// The list of authors that the user follows, with its departures.
    Following(UserId),
    Followers(UserId),
    Counters(UserId),
    Reactions(UserId),
    Connections(UserId),
    Head(UserId),
    /// The times of the author's newest posts.
    Times(UserId),
    /// The user's token buckets.
    Limits(UserId),
    /// Whether the user may call.
    Access(UserId),
    /// The author's moved posts.
    Moved(UserId),
    Card(UserId),
    /// The user's marks of an author whom the user does not follow.
    Marks(UserId, UserId),
    Summary(PostId),
    Text(PostId),
    /// The post's reaction counts, the number of recent reactions, and that a rank task is enqueued.
    Counts(PostId),
    /// The head of a platform.
    Platform(Platform),
    NoticeReads(UserId, Platform),
    /// The notice's title in a revision.
    Title(NoticeId, u64),
    /// The notice's text in a revision.
    NoticeBody(NoticeId, u64),
    Key(String),
}

/// The owner of a key that a scan has found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    User(UserId),
    Post(PostId),
    Platform(Platform),
    NoticeReads(UserId, Platform),
    Marks(UserId, UserId),
    /// A notice in a revision: its title, or its text.
    Title(NoticeId, u64),
    NoticeBody(NoticeId, u64),
    /// No owner: the key has a known form, but its hash tag is not the bucket of its user.
    Astray(String),
}

/// The time that a view lives after its reader's last read.
pub(crate) const STATE_LIFETIME: Duration = Duration::from_secs(60 * 3600);

/// The time that a view without a feed lives. Its reader follows no authors, or only authors without posts to show.
pub(crate) const SILENT_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The time that a feed lives. It must outlive the state that refers to it.
pub(crate) const FEED_LIFETIME: Duration = Duration::from_secs(61 * 3600);

/// How much longer than the state.
pub const FEED_OUTLIVES: Duration = FEED_LIFETIME.saturating_sub(STATE_LIFETIME);

/// The time that a reader's reactions live after the last write.
pub(crate) const REACTIONS_LIFETIME: Duration = STATE_LIFETIME;

/// The time that a live connection is registered after its last ping.
pub(crate) const CONNECTION_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// How long a relation list lives after its fill or the last follow, and counters after they were stored.
pub(crate) const RELATIONS_LIFETIME: Duration = Duration::from_secs(2 * 3600);

/// The time that an empty relation list is kept.
pub(crate) const EMPTY_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// The longest time for filling a list or counting.
pub(crate) const LEASE_LIFETIME: Duration = Duration::from_secs(10);

/// The time that Redis remembers that a user has begun or ended a follow or a block, has reacted, or has deleted a post
/// of another user. It is longer than counts from before the reaction are used.
pub(crate) const CHANGED_LIFETIME: Duration = Duration::from_secs(5);

/// The same if replicas are read. A replica without contact to its primary for `repl-timeout` (60 s) reports this, and
/// its response is not used. So no response is more stale than that.
pub(crate) const CHANGED_LIFETIME_REPLICAS: Duration = Duration::from_secs(90);

pub(crate) const POST_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The time that a head is kept. A wrong head disappears after this time.
pub(crate) const HEAD_LIFETIME: Duration = Duration::from_secs(60);

/// The time that the times of an author's posts are kept after they were last stored.
pub(crate) const TIMES_LIFETIME: Duration = Duration::from_secs(3600);

/// The time that a read state of notices lives after the last write.
pub(crate) const NOTICE_READS_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The time that marks of an author who is not followed live after the last write. A caller may read posts of any
/// number of authors, so it is short.
pub(crate) const MARKS_LIFETIME: Duration = Duration::from_secs(3600);

/// How long an author's moved posts are kept after the last change. Usually a task takes them within a minute.
pub(crate) const MOVED_LIFETIME: Duration = Duration::from_secs(3600);

/// The greatest delay of a task for moved posts, after which the next change sends another.
pub(crate) const MOVED_GRACE: Duration = Duration::from_secs(30);

/// The time that reaction counts are kept.
pub(crate) const COUNTS_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// The time that reaction counts are used after a reaction if there are many. It is shorter than `CHANGED_LIFETIME`.
pub(crate) const CHANGED_COUNTS_LIFETIME: Duration = Duration::from_secs(2);

/// The number of reactions to a post in `CHANGED_COUNTS_LIFETIME` after which readers may see older counts.
pub(crate) const MANY_REACTIONS: u64 = 20;

/// The time that Redis keeps whether a user may call.
pub(crate) const ACCESS_LIFETIME: Duration = Duration::from_secs(3600);

pub(crate) const CARD_LIFETIME: Duration = POST_LIFETIME;

/// The time that Redis keeps that a user has no profile. A caller may ask about any number of users, so it is short.
pub(crate) const NO_CARD_LIFETIME: Duration = Duration::from_secs(10 * 60);

pub(crate) const IDENTITY_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// The longest time for reading what records store: posts, counts, heads, times, marks, cards or notices.
pub const SHORT_LEASE_LIFETIME: Duration = Duration::from_secs(1);

pub(crate) const PROGRESS_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// A key of a user.
fn of(name: &str, user: UserId) -> String {
    format!("{{{}}}:{name}:{user}", user.bucket())
}

/// The key of a record, and that of the lease for storing it.
fn with_lease(key: String) -> [String; 2] {
    let lease = format!("{key}:lease");
    [key, lease]
}

pub fn reader_state(user: UserId) -> String {
    of("r", user)
}

pub const ANY_READER_STATE: &str = "{*}:r:*";

pub fn feed(user: UserId) -> String {
    of("f", user)
}

/// The ranked feed of a reader, and its moves.
pub fn ranked(user: UserId) -> [String; 2] {
    let key = of("k", user);
    [key.clone(), format!("{key}:moves")]
}

/// The head of an author, and the lease for filling it.
pub fn head(author: UserId) -> [String; 2] {
    with_lease(of("h", author))
}

/// The times of an author's newest posts, and the lease for storing them.
pub fn times(author: UserId) -> [String; 2] {
    with_lease(of("t", author))
}

/// The live connections of a reader.
pub fn connections(user: UserId) -> String {
    of("w", user)
}

/// The unread notices that the live connections of a reader were told.
pub fn told_notices(user: UserId) -> String {
    of("wn", user)
}

pub fn reactions(user: UserId) -> String {
    of("x", user)
}

/// The summary of a post, and the lease for storing the post.
pub fn post(post: PostId) -> [String; 2] {
    with_lease(format!("{{{}}}:p:{post}", post.author.bucket()))
}

pub fn text(post: PostId) -> String {
    format!("{{{}}}:b:{post}", post.author.bucket())
}

/// Counts, the lease for storing them, the number of reactions in this moment, and that a rank task was sent.
pub fn counts(post: PostId) -> [String; 4] {
    let key = format!("{{{}}}:q:{post}", post.author.bucket());
    [key.clone(), format!("{key}:lease"), format!("{key}:recent"), format!("{key}:rank")]
}

/// A relation list, its departures, and the lease for filling it.
pub fn list(list: List) -> [String; 3] {
    let key = match list {
        List::Following(user) => of("following", user),
        List::Followers(user) => of("followers", user),
    };
    [key.clone(), format!("{key}:gone"), format!("{key}:lease")]
}

/// The counters and the lease for storing them.
pub fn counters(user: UserId) -> [String; 2] {
    with_lease(of("counters", user))
}

/// A user's card and the lease for storing it.
pub fn card(user: UserId) -> [String; 2] {
    with_lease(of("u", user))
}

/// The user id of a claim.
pub fn identity(claim: &str) -> String {
    let hash: String = Sha256::digest(claim).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{{{hash}}}:i")
}

/// A user's marks of an author whom the user does not follow, and the lease for storing them.
pub fn marks(user: UserId, author: UserId) -> [String; 2] {
    with_lease(format!("{}:{author}", of("m", user)))
}

/// The token buckets of a user.
pub fn limits(user: UserId) -> String {
    of("l", user)
}

pub fn access(user: UserId) -> String {
    of("a", user)
}

/// The posts of an author whose steps have changed.
pub fn moved(author: UserId) -> String {
    of("s", author)
}

/// The note of a user's recent change. A mute, a preference and a change of a list leave none.
pub fn changed(user: UserId) -> String {
    of("changed", user)
}

/// The head of a platform or a user's read state on it, and the lease for storing it.
pub fn notice_record(record: NoticeRecord) -> [String; 2] {
    with_lease(match record {
        NoticeRecord::Head(platform) => format!("{{n{platform}}}:h"),
        NoticeRecord::Reads(user, platform) => format!("{}:{platform}", of("n", user)),
    })
}

pub fn notice_title(notice: NoticeId, revision: u64) -> String {
    format!("{{n{}}}:t:{}:{revision}", notice.platform, notice.seq)
}

pub fn notice_body(notice: NoticeId, revision: u64) -> String {
    format!("{{n{}}}:b:{}:{revision}", notice.platform, notice.seq)
}

pub fn pages_done(kind: FanOutKind, post: PostId) -> String {
    format!("{{{post}}}:pages:{}", kind_name(kind))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    String,
    List,
    Hash,
    SortedSet,
}

impl KeyType {
    /// The type as the command `TYPE` returns it.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Hash => "hash",
            Self::SortedSet => "zset",
        }
    }
}

pub fn of_view(view: &View) -> Vec<(String, KeyType)> {
    let strings = |keys: &[String]| keys.iter().map(|key| (key.clone(), KeyType::String)).collect();
    let one = |key: String, kind| vec![(key, kind)];
    let ranked_keys = |user| ranked(user).into_iter().zip([KeyType::SortedSet, KeyType::Hash]);
    let list_keys = |of| list(of).into_iter().zip([KeyType::SortedSet, KeyType::SortedSet, KeyType::String]).collect();
    match *view {
        View::Reader(user) => {
            let keys = [(reader_state(user), KeyType::Hash), (feed(user), KeyType::List)];
            keys.into_iter().chain(ranked_keys(user)).collect()
        }
        View::Ranked(user) => ranked_keys(user).collect(),
        View::Following(user) => list_keys(List::Following(user)),
        View::Followers(user) => list_keys(List::Followers(user)),
        View::Counters(user) => strings(&counters(user)),
        View::Connections(user) => vec![(connections(user), KeyType::Hash), (told_notices(user), KeyType::Hash)],
        View::Reactions(user) => one(reactions(user), KeyType::Hash),
        View::Head(author) => strings(&head(author)),
        View::Times(author) => strings(&times(author)),
        View::Limits(user) => one(limits(user), KeyType::Hash),
        View::Access(user) => one(access(user), KeyType::String),
        View::Moved(author) => one(moved(author), KeyType::Hash),
        View::Card(user) => strings(&card(user)),
        View::Summary(id) => strings(&post(id)),
        View::Marks(user, author) => strings(&marks(user, author)),
        View::Text(id) => one(text(id), KeyType::String),
        View::Counts(id) => strings(&counts(id)),
        View::Platform(platform) => strings(&notice_record(NoticeRecord::Head(platform))),
        View::NoticeReads(user, platform) => strings(&notice_record(NoticeRecord::Reads(user, platform))),
        View::Title(notice, revision) => one(notice_title(notice, revision), KeyType::String),
        View::NoticeBody(notice, revision) => one(notice_body(notice, revision), KeyType::String),
        View::Key(ref key) => one(key.clone(), KeyType::String),
    }
}

/// Every view that is named by a user alone. Marks (of an author) and read states of notices (of a platform) are not.
pub fn of_user(user: UserId) -> Vec<View> {
    let kinds = [
        View::Reader,
        View::Following,
        View::Followers,
        View::Counters,
        View::Reactions,
        View::Connections,
        View::Head,
        View::Times,
        View::Card,
        View::Limits,
        View::Access,
        View::Moved,
    ];
    kinds.into_iter().map(|kind| kind(user)).chain([View::Key(changed(user))]).collect()
}

/// Every view that may belong to a post.
pub fn of_post(id: PostId) -> Vec<View> {
    let progress = [FanOutKind::Deliver, FanOutKind::Retract].map(|kind| View::Key(pages_done(kind, id)));
    [View::Summary(id), View::Text(id), View::Counts(id)].into_iter().chain(progress).collect()
}

/// The type that the name of a key says; `None` if it is no view, or in another bucket than its user's.
pub(crate) fn type_of(key: &str) -> Option<KeyType> {
    let views = match owner(key) {
        Some(Owner::User(user)) => of_user(user),
        Some(Owner::Post(post)) => of_post(post),
        Some(Owner::Platform(platform)) => vec![View::Platform(platform)],
        Some(Owner::NoticeReads(user, platform)) => vec![View::NoticeReads(user, platform)],
        Some(Owner::Marks(user, author)) => vec![View::Marks(user, author)],
        Some(Owner::Title(notice, revision)) => vec![View::Title(notice, revision)],
        Some(Owner::NoticeBody(notice, revision)) => vec![View::NoticeBody(notice, revision)],
        Some(Owner::Astray(_)) => return None,
        None => return key.ends_with("}:i").then_some(KeyType::String),
    };
    views.iter().flat_map(of_view).find_map(|(known, kind)| (known == key).then_some(kind))
}

/// Whether a key is a view, also one in another bucket than its user's. Others may share the server.
pub fn is_view(key: &str) -> bool {
    owner(key).is_some() || (key.starts_with('{') && key.ends_with("}:i"))
}

/// The owner of a key; `None` for the user id of a claim, which names no user, and for a key that is no view.
pub fn owner(key: &str) -> Option<Owner> {
    let (tag, rest) = key.strip_prefix('{')?.split_once("}:")?;
    if let Some(owner) = tag.strip_prefix('n').and_then(|platform| of_platform(platform.parse().ok()?, rest)) {
        return Some(owner);
    }
    let (name, rest) = rest.split_once(':')?;
    let record = rest.strip_suffix(":lease").unwrap_or(rest);
    let first = rest.split(':').next()?;
    let of_user = |user: &str| user.parse().ok().map(|user: UserId| (user, Owner::User(user)));
    let pair = || record.split_once(':').and_then(|(user, other)| Some((user.parse::<UserId>().ok()?, other)));
    let (user, owner) = match name {
        "r" | "f" | "x" | "w" | "wn" | "l" | "a" | "s" | "changed" => of_user(rest)?,
        "h" | "t" => of_user(record)?,
        "following" | "followers" | "counters" | "u" | "k" => of_user(first)?,
        "n" => {
            let (user, platform) = pair()?;
            (user, Owner::NoticeReads(user, platform.parse().ok()?))
        }
        "m" => {
            let (user, author) = pair()?;
            (user, Owner::Marks(user, author.parse().ok()?))
        }
        "p" | "b" | "q" => first.parse().ok().map(|post: PostId| (post.author, Owner::Post(post)))?,
        "pages" => return tag.parse().ok().map(Owner::Post),
        _ => return None,
    };
    Some(if tag == user.bucket().to_string() { owner } else { Owner::Astray(key.to_owned()) })
}

/// The owner of a key with a platform's hash tag; `None` if the key is neither a head nor a title nor a text.
fn of_platform(platform: Platform, rest: &str) -> Option<Owner> {
    let parts: Vec<&str> = rest.split(':').collect();
    match parts[..] {
        ["h"] | ["h", "lease"] => Some(Owner::Platform(platform)),
        [name @ ("t" | "b"), seq, revision] => {
            let notice = format!("{platform}-{seq}").parse().ok()?;
            // Only the canonical form, so that the owner's key is exactly the key that was found.
            let revision = revision.parse().ok().filter(|parsed: &u64| parsed.to_string() == revision)?;
            Some(if name == "t" { Owner::Title(notice, revision) } else { Owner::NoticeBody(notice, revision) })
        }
        _ => None,
    }
}

fn kind_name(kind: FanOutKind) -> &'static str {
    match kind {
        FanOutKind::Deliver => "deliver",
        FanOutKind::Retract => "retract",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_exactly_this_format() {
        let user = UserId::new(1042).unwrap();
        let post = PostId::new(user, 7);
        assert_eq!(reader_state(user), "{831}:r:1042");
        assert_eq!(feed(user), "{831}:f:1042");
        assert_eq!(ranked(user), ["{831}:k:1042", "{831}:k:1042:moves"]);
        assert_eq!(head(user), ["{831}:h:1042", "{831}:h:1042:lease"]);
        assert_eq!(times(user), ["{831}:t:1042", "{831}:t:1042:lease"]);
        assert_eq!(reactions(user), "{831}:x:1042");
        assert_eq!(connections(user), "{831}:w:1042");
        assert_eq!(told_notices(user), "{831}:wn:1042");
        assert_eq!(super::post(post), ["{831}:p:1042-7", "{831}:p:1042-7:lease"]);
        assert_eq!(text(post), "{831}:b:1042-7");
        assert_eq!(counts(post), ["{831}:q:1042-7", "{831}:q:1042-7:lease", "{831}:q:1042-7:recent", "{831}:q:1042-7:rank"]);
        assert_eq!(
            list(List::Following(user)),
            ["{831}:following:1042", "{831}:following:1042:gone", "{831}:following:1042:lease"]
        );
        assert_eq!(list(List::Followers(user))[0], "{831}:followers:1042");
        assert_eq!(changed(user), "{831}:changed:1042");
        assert_eq!(moved(user), "{831}:s:1042");
        assert_eq!(card(user), ["{831}:u:1042", "{831}:u:1042:lease"]);
        assert_eq!(identity("alice"), "{2bd806c97f0e00af1a1fc3328fa763a9}:i");
        assert_eq!(counters(user), ["{831}:counters:1042", "{831}:counters:1042:lease"]);
        let notice: NoticeId = "7-300".parse().unwrap();
        assert_eq!(notice_record(NoticeRecord::Head(notice.platform)), ["{n7}:h", "{n7}:h:lease"]);
        let reads = notice_record(NoticeRecord::Reads(user, notice.platform));
        assert_eq!(reads, ["{831}:n:1042:7", "{831}:n:1042:7:lease"]);
        assert_eq!(notice_title(notice, 12), "{n7}:t:300:12");
        assert_eq!(notice_body(notice, 12), "{n7}:b:300:12");
        assert_eq!(pages_done(FanOutKind::Deliver, post), "{1042-7}:pages:deliver");
        assert_eq!(pages_done(FanOutKind::Retract, post), "{1042-7}:pages:retract");
    }

    #[test]
    fn the_owner_of_every_key_is_found() {
        let user = UserId::new(1042).unwrap();
        let post = PostId::new(user, 7);
        let of = |views: Vec<View>| views.iter().flat_map(of_view).map(|(key, _)| owner(&key)).collect::<Vec<_>>();
        assert_eq!(of(of_user(user)), vec![Some(Owner::User(user)); 25]);
        assert_eq!(of(of_post(post)), vec![Some(Owner::Post(post)); 9]);
        let (platform, notice) = ("7".parse().unwrap(), "7-300".parse().unwrap());
        assert_eq!(of(vec![View::Platform(platform)]), vec![Some(Owner::Platform(platform)); 2]);
        assert_eq!(of(vec![View::NoticeReads(user, platform)]), vec![Some(Owner::NoticeReads(user, platform)); 2]);
        assert_eq!(of(vec![View::Marks(user, UserId::MIN)]), vec![Some(Owner::Marks(user, UserId::MIN)); 2]);
        assert_eq!(of(vec![View::Title(notice, 12)]), [Some(Owner::Title(notice, 12))]);
        assert_eq!(of(vec![View::NoticeBody(notice, 12)]), [Some(Owner::NoticeBody(notice, 12))]);
        let of_platform = [View::Platform(platform), View::Title(notice, 12), View::NoticeBody(notice, 12)];
        let own = of_user(user).into_iter().chain(of_post(post)).chain(of_platform);
        for (key, kind) in own.flat_map(|view| of_view(&view)) {
            assert_eq!(type_of(&key), Some(kind), "{key}");
        }
        assert_eq!(["{830}:r:1042", "session:7", "@"].map(type_of), [None; 3]);
        assert_eq!([&*identity("x"), "{1042-7}:pages:deliver", "{830}:r:1042"].map(is_view), [true; 3]);
        assert_eq!(["session:7", "@", "i", "{831}:r:x"].map(is_view), [false; 4]);
        for stray in [
            "{830}:r:1042",
            "{830}:following:1042:gone",
            "{x}:p:1042-7",
            "{830}:n:1042:7",
            "{830}:n:1042:7:lease",
            "{n7}:n:1042:7",
        ] {
            assert_eq!(owner(stray), Some(Owner::Astray(stray.to_owned())));
        }
        for other in [
            "",
            "r:1042",
            "{831}:r:x",
            "{831}:z:1042",
            "{7}:pages:deliver",
            "session:7",
            "{n0}:h",
            "{n07}:h",
            "{n7}:t:0:1",
            "{n7}:t:1:01",
            "{n7}:b:1:01",
            "{831}:n:1042",
            "{831}:n:1042:0",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
