//! Every Redis key, formatted here and nowhere else.
//!
//! | key | type | content | lifetime | written by | rebuilt from |
//! |---|---|---|---|---|---|
//! | `{bucket}:r:<user>` | hash | reader state: `@` → meta, `<author>` → [author state](tidemark_domain::author_state) | 60 h after the last read; 5 min without a feed | deliver, retract, begin, admit, seed, finish, drop, touch | edges, heads, read facts |
//! | `{bucket}:f:<user>` | list | feed: [entries](tidemark_domain::FeedKey::entry), oldest first, at most 1,128 | an hour longer than the state | deliver, retract, begin, seed, drop, touch | posts |
//! | `{bucket}:following:<user>` | sorted set | authors followed → since ms, and the marker `\0` → time from which it is complete | 2 h; 5 min when empty | fill, relate | edges by follower |
//! | `{bucket}:fans:<user>` | sorted set | newest 1,000 followers, the same way | 2 h; 5 min when empty | fill, relate | edges by followee |
//! | `{bucket}:following:<user>:gone`, `…:fans:<user>:gone` | sorted set | who left a cached list → when, against follows that arrive late | 2 h | relate | |
//! | `{bucket}:following:<user>:lease`, `…:fans:<user>:lease` | string | token of who fills the list | 10 s | lease | |
//! | `{bucket}:counters:<user>` | string | five 32-bit counts and a checksum, little-endian | 2 h | store | counters, head |
//! | `{bucket}:counters:<user>:lease` | string | token of who stores them | 10 s | counters | |
//! | `{bucket}:changed:<user>` | string | the user has followed or unfollowed somebody lately, or reacted to somebody | 3 s; 90 s where replicas are read | apply, forget_counters | |
//! | `{bucket}:p:<post>` | string | [summary](tidemark_domain::PostSummary) of a post, or that it is deleted; the author's bucket | 7 days | remember, bury | posts |
//! | `{bucket}:x:<user>` | hash | the user's reactions: `@` → token of this view, `<author>` → [state](tidemark_domain::ReactionState::encode), at most 1,000 authors | 60 h after the last fill or change | open, fill, change | reactions |
//! | `{bucket}:h:<author>` | string | [head](tidemark_domain::AuthorHead) of an author who is not, or was not always, pushed | 1 min | advance | head |
//! | `{bucket}:n:<user>:<platform>` | string | what a user has read on a platform: version and [bitmap of slots](super::notices) | 24 h | store, replace | notice reads |
//! | `{n<platform>}:h` | string | [head](tidemark_domain::PlatformHead) of a platform: version, numbers, live notices | 1 min | store, replace | platform head |
//! | `{bucket}:n:<user>:<platform>:lease`, `{n<platform>}:h:lease` | string | token of who stores it | 1 s | store, replace | |
//! | `{n<platform>}:t:<seq>:<revision>` | string | time and title of a notice in one revision, which never change | 7 days | remember | notices |
//! | `{post}:pages:<kind>` | bitmap | pages of a fan-out that are done | 7 days | progress | doing the pages again |
//! | `{post}:handled:<kind>` | number | followers handled in them | 7 days | progress | doing the pages again |
//!
//! The hash tag is the user's bucket, one of 4,096, not the user: users of one bucket share a slot, so that one call serves many followers, on a cluster too.

use std::time::Duration;

use tidemark_app::ports::{FanOutKind, List, NoticeRecord};
use tidemark_domain::{NoticeId, Platform, PostId, UserId};

/// What is kept, and forgotten, together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// A reader's state and feed.
    Reader(UserId),
    /// Whom the user follows, who has left it and who fills it.
    Following(UserId),
    /// Who follows the user, likewise.
    Fans(UserId),
    /// The user's counters and who counts them.
    Counters(UserId),
    /// The user's reactions.
    Reactions(UserId),
    /// The author's head.
    Head(UserId),
    /// The post's summary.
    Summary(PostId),
    /// The platform's head and who stores it.
    Platform(Platform),
    /// What the user has read on the platform, and who stores it.
    NoticeReads(UserId, Platform),
    /// The notice's title in this revision.
    Title(NoticeId, u64),
    /// One key.
    Key(String),
}

/// Whose key it is that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A user.
    User(UserId),
    /// A post.
    Post(PostId),
    /// A platform.
    Platform(Platform),
    /// A user as a reader of a platform.
    NoticeReads(UserId, Platform),
    /// A notice in a revision.
    Title(NoticeId, u64),
    /// Nobody: one of our keys, in another bucket than its user's.
    Astray(String),
}

/// How long a view lives after its reader's last read.
pub const STATE_LIFETIME: Duration = Duration::from_secs(60 * 3600);

/// How long a view without a feed lives: its reader follows nobody, or silent authors only.
pub const SILENT_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// How long a feed lives: always longer than the state that says there is one.
pub const FEED_LIFETIME: Duration = Duration::from_secs(61 * 3600);

/// How long a reader's reactions are kept after they were last written.
pub const REACTIONS_LIFETIME: Duration = STATE_LIFETIME;

/// How long relation lists and counters are kept.
pub const RELATIONS_LIFETIME: Duration = Duration::from_secs(2 * 3600);

/// How long an empty relation list is remembered.
pub const EMPTY_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// How long filling a list or counting may take.
pub const LEASE_LIFETIME: Duration = Duration::from_secs(10);

/// How long it is known that a user has changed an edge: longer than a first page is kept in memory.
pub const CHANGED_LIFETIME: Duration = Duration::from_secs(3);

/// The same where replicas are read. A replica that has heard nothing of its primary for `repl-timeout` (60 s) says so, and is not believed; one that
/// is further behind than that does not exist.
pub const CHANGED_LIFETIME_REPLICAS: Duration = Duration::from_secs(90);

/// How long summaries of posts are kept.
pub const POST_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a head is kept: whatever goes wrong with one is over after that.
pub const HEAD_LIFETIME: Duration = Duration::from_secs(60);

/// How long a read state of notices is kept after it was last written.
pub const NOTICE_READS_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// How long reading a platform's head or a read state of notices may take.
pub const NOTICE_LEASE_LIFETIME: Duration = Duration::from_secs(1);

/// How long progress is kept.
pub const PROGRESS_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The reader state hash.
pub fn reader_state(user: UserId) -> String {
    format!("{{{}}}:r:{user}", user.bucket())
}

/// The pattern of all reader state hashes.
pub const ANY_READER_STATE: &str = "{*}:r:*";

/// The feed.
pub fn feed(user: UserId) -> String {
    format!("{{{}}}:f:{user}", user.bucket())
}

/// The head of an author whose readers pull.
pub fn head(author: UserId) -> String {
    format!("{{{}}}:h:{author}", author.bucket())
}

/// What a user thinks of authors' posts.
pub fn reactions(user: UserId) -> String {
    format!("{{{}}}:x:{user}", user.bucket())
}

/// The summary of a post.
pub fn post(post: PostId) -> String {
    format!("{{{}}}:p:{post}", post.author.bucket())
}

/// A relation list, who left it, and the lease for filling it.
pub fn list(list: List) -> [String; 3] {
    let key = match list {
        List::Following(user) => format!("{{{}}}:following:{user}", user.bucket()),
        List::Fans(user) => format!("{{{}}}:fans:{user}", user.bucket()),
    };
    [key.clone(), format!("{key}:gone"), format!("{key}:lease")]
}

/// The counters and the lease for storing them.
pub fn counters(user: UserId) -> [String; 2] {
    let key = format!("{{{}}}:counters:{user}", user.bucket());
    [key.clone(), format!("{key}:lease")]
}

/// The note that a user has changed an edge lately.
pub fn changed(user: UserId) -> String {
    format!("{{{}}}:changed:{user}", user.bucket())
}

/// The head of a platform, or what a user has read on it, and the lease for storing it.
pub fn notice_record(record: NoticeRecord) -> [String; 2] {
    let key = match record {
        NoticeRecord::Head(platform) => format!("{{n{platform}}}:h"),
        NoticeRecord::Reads(user, platform) => format!("{{{}}}:n:{user}:{platform}", user.bucket()),
    };
    [key.clone(), format!("{key}:lease")]
}

/// Time and title of a notice.
pub fn notice_title(notice: NoticeId, revision: u64) -> String {
    format!("{{n{}}}:t:{}:{revision}", notice.platform, notice.seq)
}

/// The bitmap of pages done.
pub fn pages_done(kind: FanOutKind, post: PostId) -> String {
    format!("{{{post}}}:pages:{}", kind_name(kind))
}

/// The number of followers handled.
pub fn handled(kind: FanOutKind, post: PostId) -> String {
    format!("{{{post}}}:handled:{}", kind_name(kind))
}

/// The type of a key, as Redis calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyType {
    /// A string.
    String,
    /// A list.
    List,
    /// A hash.
    Hash,
    /// A sorted set.
    SortedSet,
}

impl KeyType {
    /// What `TYPE` answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::List => "list",
            Self::Hash => "hash",
            Self::SortedSet => "zset",
        }
    }
}

/// The keys of a view, with their types.
pub fn of_view(view: &View) -> Vec<(String, KeyType)> {
    let list_keys = |of: List| list(of).into_iter().zip([KeyType::SortedSet, KeyType::SortedSet, KeyType::String]).collect();
    let record_keys = |of: NoticeRecord| notice_record(of).map(|key| (key, KeyType::String)).to_vec();
    match view {
        View::Reader(user) => vec![(reader_state(*user), KeyType::Hash), (feed(*user), KeyType::List)],
        View::Following(user) => list_keys(List::Following(*user)),
        View::Fans(user) => list_keys(List::Fans(*user)),
        View::Counters(user) => counters(*user).map(|key| (key, KeyType::String)).to_vec(),
        View::Reactions(user) => vec![(reactions(*user), KeyType::Hash)],
        View::Head(author) => vec![(head(*author), KeyType::String)],
        View::Summary(id) => vec![(post(*id), KeyType::String)],
        View::Platform(platform) => record_keys(NoticeRecord::Head(*platform)),
        View::NoticeReads(user, platform) => record_keys(NoticeRecord::Reads(*user, *platform)),
        View::Title(notice, revision) => vec![(notice_title(*notice, *revision), KeyType::String)],
        View::Key(key) => vec![(key.clone(), KeyType::String)],
    }
}

/// Every view that a user can have.
pub fn of_user(user: UserId) -> Vec<View> {
    let kinds = [View::Reader, View::Following, View::Fans, View::Counters, View::Reactions, View::Head];
    kinds.into_iter().map(|kind| kind(user)).chain([View::Key(changed(user))]).collect()
}

/// Every view that a post can have.
pub fn of_post(id: PostId) -> Vec<View> {
    let progress = |kind| [pages_done(kind, id), handled(kind, id)].map(View::Key);
    let progress = [FanOutKind::Deliver, FanOutKind::Retract].into_iter().flat_map(progress);
    std::iter::once(View::Summary(id)).chain(progress).collect()
}

/// Whose a key is; `None` when it is none of these.
pub fn owner(key: &str) -> Option<Owner> {
    let (tag, rest) = key.strip_prefix('{')?.split_once("}:")?;
    if let Some(owner) = tag.strip_prefix('n').and_then(|platform| of_platform(platform.parse().ok()?, rest)) {
        return Some(owner);
    }
    let (name, rest) = rest.split_once(':')?;
    let in_bucket = |user: UserId, owner: Owner| {
        if tag == user.bucket().to_string() { owner } else { Owner::Astray(key.to_owned()) }
    };
    match name {
        "r" | "f" | "x" | "h" | "changed" => rest.parse().ok().map(|user| in_bucket(user, Owner::User(user))),
        "following" | "fans" | "counters" => {
            let user = rest.split(':').next()?.parse().ok()?;
            Some(in_bucket(user, Owner::User(user)))
        }
        "n" => {
            let (user, platform) = rest.strip_suffix(":lease").unwrap_or(rest).split_once(':')?;
            let (user, platform) = (user.parse().ok()?, platform.parse().ok()?);
            Some(in_bucket(user, Owner::NoticeReads(user, platform)))
        }
        "p" => rest.parse().ok().map(|post: PostId| in_bucket(post.author, Owner::Post(post))),
        "pages" | "handled" => tag.parse().ok().map(Owner::Post),
        _ => None,
    }
}

/// Whose a key in a platform's slot is; `None` when it is neither its head nor a title.
fn of_platform(platform: Platform, rest: &str) -> Option<Owner> {
    let parts: Vec<&str> = rest.split(':').collect();
    match parts[..] {
        ["h"] | ["h", "lease"] => Some(Owner::Platform(platform)),
        ["t", seq, revision] => {
            let notice = format!("{platform}-{seq}").parse().ok()?;
            // As it is formatted, so that what is looked at is the key that was found.
            let revision = revision.parse().ok().filter(|parsed: &u64| parsed.to_string() == revision)?;
            Some(Owner::Title(notice, revision))
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
    fn keys_are_exactly_these() {
        let user = UserId::new(1042).unwrap();
        let post = PostId::new(user, 7);
        assert_eq!(reader_state(user), "{831}:r:1042");
        assert_eq!(feed(user), "{831}:f:1042");
        assert_eq!(head(user), "{831}:h:1042");
        assert_eq!(reactions(user), "{831}:x:1042");
        assert_eq!(super::post(post), "{831}:p:1042-7");
        assert_eq!(
            list(List::Following(user)),
            ["{831}:following:1042", "{831}:following:1042:gone", "{831}:following:1042:lease"]
        );
        assert_eq!(list(List::Fans(user))[0], "{831}:fans:1042");
        assert_eq!(changed(user), "{831}:changed:1042");
        assert_eq!(counters(user), ["{831}:counters:1042", "{831}:counters:1042:lease"]);
        let notice: NoticeId = "7-300".parse().unwrap();
        assert_eq!(notice_record(NoticeRecord::Head(notice.platform)), ["{n7}:h", "{n7}:h:lease"]);
        let reads = notice_record(NoticeRecord::Reads(user, notice.platform));
        assert_eq!(reads, ["{831}:n:1042:7", "{831}:n:1042:7:lease"]);
        assert_eq!(notice_title(notice, 12), "{n7}:t:300:12");
        assert_eq!(pages_done(FanOutKind::Deliver, post), "{1042-7}:pages:deliver");
        assert_eq!(handled(FanOutKind::Retract, post), "{1042-7}:handled:retract");
    }

    #[test]
    fn every_key_is_found_to_be_its_owners() {
        let user = UserId::new(1042).unwrap();
        let post = PostId::new(user, 7);
        let of = |views: Vec<View>| views.iter().flat_map(of_view).map(|(key, _)| owner(&key)).collect::<Vec<_>>();
        assert_eq!(of(of_user(user)), vec![Some(Owner::User(user)); 13]);
        assert_eq!(of(of_post(post)), vec![Some(Owner::Post(post)); 5]);
        let (platform, notice) = ("7".parse().unwrap(), "7-300".parse().unwrap());
        assert_eq!(of(vec![View::Platform(platform)]), vec![Some(Owner::Platform(platform)); 2]);
        assert_eq!(of(vec![View::NoticeReads(user, platform)]), vec![Some(Owner::NoticeReads(user, platform)); 2]);
        assert_eq!(of(vec![View::Title(notice, 12)]), [Some(Owner::Title(notice, 12))]);
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
            "{831}:n:1042",
            "{831}:n:1042:0",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
