//! The keys that the source systems keep in Redis, and how their members are parsed. This module does no I/O.
//!
//! | layout | key | type | members | becomes |
//! |---|---|---|---|---|
//! | `author-blogs` | `author:blogs:{author}` | set | blog ids | posts, with title and time from `blog:info` |
//! | `blog-info` | `blog:info:{blog}` | hash | `id`, `userId`, `title`, `createTime` (ms or RFC 3339) | posts that no author's set names |
//! | `user-read` | `user:read:{user}` | set | blog ids | read marks |
//! | `blog-read` | `blog:read:{user}` | sorted set | blog ids, any score | read marks |
//! | `blog-liked` | `blog:liked:{blog}` | sorted set | users, score ms | likes |
//! | `following` | `uf:flws:{user}` | sorted set | followees, score ms | follow edges |
//! | `u-follow` | `u_follow:{user}` | sorted set | followees, score unix seconds | follow edges |
//! | `fans` | `uf:fans:{user}` | sorted set | followers, score ms | follow edges |
//! | `u-fans` | `u_fans:{user}` | sorted set | followers, score unix seconds | follow edges |
//! | `follows` | `follows:{user}` | set | followees | follow edges; `untimed.rs` derives their times |
//! | `feed` | `focusFeedKey{user}` | sorted set | blog ids, score creation ms; `0` with score 1 marks an empty feed | follow edges of users who have no list of their own |
//! | `user-feed` | `feed:{user}` | sorted set | blog ids, score creation ms | the same |
//! | `notices` | `notice:{platform}:{notice}` | bitmap | bit at offset = user id, from the first byte's highest bit | read marks of notices |
//! | | `user:unread:{user}:{author}` | set | blog ids | not scanned: read with every new edge under the rule `listed` ([`Unread`]); its posts stay unread |
//! | | `user:unread:count:{user}` | hash | authors, number of unread posts | written, not read: counts are exact here |
//! | | `u_fans_num:{author}` | string | number of followers | the same |

use serde::{Deserialize, Serialize};

use tidemark_domain::{
    ids::{UserId, parse_decimal},
    notices::Platform,
    time::Timestamp,
};

/// The id of a post in the source systems.
pub(crate) type BlogId = u64;

/// The longest title of a post, in characters.
const MAX_TITLE: usize = 200;

/// A legacy time may be this far ahead of this system's clock, because clocks differ.
const CLOCKS_DIFFER_MS: u64 = 24 * 3600 * 1000;

/// A kind of legacy key. The order is the order of import: posts, then their read marks, then follows. So when a new
/// edge opens an author in a view, posts and read marks are stored, and the counts are right from the first moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    AuthorBlogs,
    BlogInfo,
    UserRead,
    BlogRead,
    BlogLiked,
    Following,
    UFollow,
    Fans,
    UFans,
    Follows,
    Feed,
    UserFeed,
    Notices,
}

/// Which posts of a followed author are unread after the import of a follow: in any case posts from after the follow
/// that have no read mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unread {
    /// `Complement` if the source has no `user:unread:*`, else `Listed`.
    #[default]
    Auto,
    /// Of these, the posts in `user:unread:{user}:{author}`.
    Listed,
    /// All of these.
    Complement,
}

impl Unread {
    pub(crate) const NAMED: [(&'static str, Self); 2] = [("listed", Self::Listed), ("complement", Self::Complement)];
}

/// The type of a key, which decides the command that reads its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Set,
    SortedSet,
}

/// The reason why an entry was not imported. `shared/legacy/docs/migration.md` explains each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    KeyWithoutId,
    WrongType,
    NotAnId,
    NotATime,
    TimeAhead,
    SelfFollow,
    FollowingLimit,
    Blocked,
    Erased,
    NoInfo,
    InfoIncomplete,
    TitleLength,
    OtherAuthor,
    UnknownPost,
    UnknownNotice,
    NotFollowed,
}

/// The content of a `blog:info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blog {
    pub id: BlogId,
    pub author: UserId,
    /// 1 to 200 characters.
    pub title: String,
    pub created_at: Timestamp,
}

/// The fields of `blog:info`, in the order that [`Blog::read`] expects.
pub(crate) const BLOG_FIELDS: [&str; 4] = ["id", "userId", "title", "createTime"];

/// The member that marks an empty feed. It is not a blog.
pub(crate) const EMPTY_FEED_MARKER: &[u8] = b"0";

impl Layout {
    /// All layouts, in the order of import.
    pub const ALL: [Self; 13] = [
        Self::AuthorBlogs,
        Self::BlogInfo,
        Self::UserRead,
        Self::BlogRead,
        Self::BlogLiked,
        Self::Following,
        Self::UFollow,
        Self::Fans,
        Self::UFans,
        Self::Follows,
        Self::Feed,
        Self::UserFeed,
        Self::Notices,
    ];

    /// The prefix of every key of the layout. An id follows; in keys of notices, a platform and an id.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::AuthorBlogs => "author:blogs:",
            Self::BlogInfo => "blog:info:",
            Self::UserRead => "user:read:",
            Self::BlogRead => "blog:read:",
            Self::BlogLiked => "blog:liked:",
            Self::Following => "uf:flws:",
            Self::UFollow => "u_follow:",
            Self::Fans => "uf:fans:",
            Self::UFans => "u_fans:",
            Self::Follows => "follows:",
            Self::Feed => "focusFeedKey",
            Self::UserFeed => "feed:",
            Self::Notices => "notice:",
        }
    }

    /// The type of its keys, unless they are bitmaps or hashes.
    pub(crate) fn shape(self) -> Shape {
        if matches!(self, Self::AuthorBlogs | Self::UserRead | Self::Follows) { Shape::Set } else { Shape::SortedSet }
    }

    /// The milliseconds in a unit of its scores.
    pub(crate) fn unit_ms(self) -> u64 {
        if matches!(self, Self::UFollow | Self::UFans) { 1_000 } else { 1 }
    }

    pub(crate) fn is_of_follows(self) -> bool {
        (Self::Following..=Self::UserFeed).contains(&self)
    }

    /// The key of one user, author or blog.
    pub fn key(self, id: u64) -> String {
        format!("{}{id}", self.prefix())
    }

    /// Why a key is none of this layout, whose keys all are short.
    pub(crate) fn judge(self, key: &str) -> Result<(), Reason> {
        if self == Self::Notices { notice(key).map(drop) } else { self.id_of(key).map(drop) }
    }

    pub(crate) fn id_of(self, key: &str) -> Result<UserId, Reason> {
        key.strip_prefix(self.prefix()).and_then(|id| id.parse().ok()).ok_or(Reason::KeyWithoutId)
    }
}

/// Platform and id of a notice in the source systems, which number notices across platforms.
pub(crate) type LegacyNotice = (Platform, u64);

/// Parses `notice:{platform}:{notice}`. The platform must be a number from 1 to 65535.
pub fn notice(key: &str) -> Result<LegacyNotice, Reason> {
    let parts = key.strip_prefix(Layout::Notices.prefix()).and_then(|rest| rest.split_once(':'));
    let read = |(platform, notice): (&str, &str)| Some((platform.parse().ok()?, id(notice.as_bytes()).ok()?));
    parts.and_then(read).ok_or(Reason::KeyWithoutId)
}

/// The offsets of the set bits in `bytes`, whose first bit has offset `first`.
pub fn bits(first: u64, bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let set = (first..).step_by(8).zip(bytes).filter(|(_, byte)| **byte != 0);
    set.flat_map(|(offset, byte)| (0..8).filter(move |bit| byte & (0x80 >> bit) != 0).map(move |bit| offset + bit))
}

/// The blogs of an author that a user has not read.
pub(crate) fn unread_key(user: UserId, author: UserId) -> String {
    format!("user:unread:{user}:{author}")
}

/// The pattern of the two kinds of keys that a source with unread lists has.
pub(crate) const UNREAD_KEYS: &str = "user:unread:*";

/// The number of unread blogs by author.
pub(crate) fn unread_counts_key(user: UserId) -> String {
    format!("user:unread:count:{user}")
}

pub(crate) fn fans_number_key(author: UserId) -> String {
    format!("u_fans_num:{author}")
}

/// Parses the id of a user or blog: a decimal number from 1 to 2^64−1 without sign or leading zeros.
pub fn id(member: &[u8]) -> Result<u64, Reason> {
    std::str::from_utf8(member).ok().and_then(parse_decimal).filter(|id| *id > 0).ok_or(Reason::NotAnId)
}

/// Parses the id of a user, as [`id`] does.
pub fn user(member: &[u8]) -> Result<UserId, Reason> {
    UserId::new(id(member)?).ok_or(Reason::NotAnId)
}

/// The time in a score of units of `unit_ms` milliseconds. The score must be a whole number of units since 1970, and
/// the time must not be more than a day after `now`.
pub(crate) fn time_of_score(score: f64, unit_ms: u64, now: Timestamp) -> Result<Timestamp, Reason> {
    // From 2^53 on, a double does not represent every whole number. No valid time is that large.
    if !(0.0..9_007_199_254_740_992.0).contains(&score) || score.fract() != 0.0 {
        return Err(Reason::NotATime);
    }
    time((score as u64).checked_mul(unit_ms).ok_or(Reason::NotATime)?, now)
}

fn time(ms: u64, now: Timestamp) -> Result<Timestamp, Reason> {
    if ms > Timestamp::MAX.ms() {
        Err(Reason::NotATime)
    } else if ms > now.ms().saturating_add(CLOCKS_DIFFER_MS) {
        Err(Reason::TimeAhead)
    } else {
        Ok(Timestamp::from_ms(ms))
    }
}

impl Blog {
    /// Parses the values of [`BLOG_FIELDS`]. Fails if there is no value, if one is missing, or if one cannot be parsed.
    pub fn read(id: BlogId, fields: &[Option<Vec<u8>>], now: Timestamp) -> Result<Self, Reason> {
        if fields.iter().all(Option::is_none) {
            return Err(Reason::NoInfo);
        }
        let text = |index: usize| {
            let bytes = fields.get(index).and_then(Option::as_ref).ok_or(Reason::InfoIncomplete)?;
            std::str::from_utf8(bytes).map_err(|_| Reason::InfoIncomplete)
        };
        if text(0)? != id.to_string() {
            return Err(Reason::InfoIncomplete);
        }
        let author = user(text(1)?.as_bytes())?;
        let title = text(2)?;
        if !(1..=MAX_TITLE).contains(&title.chars().count()) {
            return Err(Reason::TitleLength);
        }
        let created = text(3)?;
        let ms = parse_decimal(created).or_else(|| Timestamp::parse(created).map(Timestamp::ms)).ok_or(Reason::NotATime)?;
        Ok(Self { id, author, title: title.to_owned(), created_at: time(ms, now)? })
    }

    /// The order of an author's blogs: by time, then by id.
    pub fn order(&self) -> (Timestamp, BlogId) {
        (self.created_at, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_ms(1_800_000_000_000)
    }

    #[test]
    fn keys_are_exactly_these() {
        let keys: Vec<String> = Layout::ALL[..12].iter().map(|layout| layout.key(1042)).collect();
        let blogs_and_reads = "author:blogs:1042 blog:info:1042 user:read:1042 blog:read:1042 blog:liked:1042";
        let relations = "uf:flws:1042 u_follow:1042 uf:fans:1042 u_fans:1042 follows:1042 focusFeedKey1042 feed:1042";
        assert_eq!(keys.join(" "), format!("{blogs_and_reads} {relations}"));
        for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Notices) {
            assert_eq!(layout.id_of(&layout.key(1042)), Ok(UserId::new(1042).unwrap()));
            for bad in ["", "0", "01", "x", "18446744073709551616", "1:2"] {
                assert_eq!(layout.id_of(&format!("{}{bad}", layout.prefix())), Err(Reason::KeyWithoutId), "{layout:?} {bad}");
            }
        }
        assert_eq!(notice("notice:3:57"), Ok((Platform::new(3).unwrap(), 57)));
        for bad in ["notice:", "notice:3", "notice:0:1", "notice:65536:1", "notice:3:0", "notice:3:x", "notice:3:1:2"] {
            assert_eq!(notice(bad), Err(Reason::KeyWithoutId), "{bad}");
        }
        assert_eq!(unread_key(UserId::MIN, UserId::new(7).unwrap()), "user:unread:1:7");
        assert_eq!(unread_counts_key(UserId::MIN), "user:unread:count:1");
        assert_eq!(fans_number_key(UserId::MIN), "u_fans_num:1");
    }

    #[test]
    fn layouts_and_reasons_have_kebab_names() {
        let names: Vec<String> = Layout::ALL.iter().map(|layout| serde_json::to_string(layout).unwrap()).collect();
        assert_eq!(names[0], "\"author-blogs\"");
        assert_eq!(names[6], "\"u-follow\"");
        assert_eq!(serde_json::to_string(&Reason::NotATime).unwrap(), "\"not-a-time\"");
        assert!(Layout::ALL.is_sorted(), "`ALL` has the order of the enum");
    }

    #[test]
    fn ids_are_decimals_of_64_bits_without_zero() {
        assert_eq!(id(b"18446744073709551615"), Ok(u64::MAX));
        for bad in [&b"0"[..], b"", b"007", b"-1", b"1.5", b"18446744073709551616", b"abc", b"1\0", b"\xff"] {
            assert_eq!(id(bad), Err(Reason::NotAnId), "{bad:?}");
        }
    }

    #[test]
    fn bits_are_counted_from_the_highest_bit_of_the_first_byte() {
        assert_eq!(bits(0, &[0b1000_0001, 0, 0b0100_0000]).collect::<Vec<_>>(), [0, 7, 17]);
        assert_eq!(bits(8_192, &[0xff]).collect::<Vec<_>>(), (8_192..8_200).collect::<Vec<_>>());
    }

    #[test]
    fn scores_are_whole_units_and_not_in_the_future() {
        assert_eq!(time_of_score(1_700_000_000.0, 1000, now()), Ok(Timestamp::from_ms(1_700_000_000_000)));
        assert_eq!(time_of_score(1_700_000_000_123.0, 1, now()), Ok(Timestamp::from_ms(1_700_000_000_123)));
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1.5, 1e300, 9_007_199_254_740_992.0] {
            assert_eq!(time_of_score(bad, 1, Timestamp::MAX), Err(Reason::NotATime), "{bad}");
        }
        assert_eq!(time_of_score(1_700_000_000_000.0, 1000, now()), Err(Reason::NotATime), "milliseconds instead of seconds");
        assert_eq!(time_of_score(2_000_000_000_000.0, 1, now()), Err(Reason::TimeAhead));
    }

    #[test]
    fn an_incomplete_blog_info_is_refused_with_a_reason() {
        let info = |fields: [&str; 4]| fields.map(|field| (field != "-").then(|| field.as_bytes().to_vec()));
        let read = |fields: [&str; 4]| {
            Blog::read(7, &info(fields), now()).map(|blog| (blog.author.get(), blog.title, blog.created_at.ms()))
        };
        assert_eq!(read(["7", "3", "Hello", "1700000000000"]), Ok((3, "Hello".to_owned(), 1_700_000_000_000)));
        assert_eq!(read(["7", "3", "Hello", "2023-11-14T22:13:20Z"]), Ok((3, "Hello".to_owned(), 1_700_000_000_000)));
        assert_eq!(read(["-"; 4]), Err(Reason::NoInfo));
        for missing in 0..4 {
            let mut fields = ["7", "3", "Hello", "1700000000000"];
            fields[missing] = "-";
            assert_eq!(read(fields), Err(Reason::InfoIncomplete));
        }
        let [longest, longer] = [200, 201].map(|characters| "é".repeat(characters));
        assert_eq!(read(["7", "3", &longest, "1700000000000"]).unwrap().1, longest);
        for (fields, reason) in [
            (["8", "3", "Hello", "1700000000000"], Reason::InfoIncomplete),
            (["7", "0", "Hello", "1700000000000"], Reason::NotAnId),
            (["7", "3", "", "1700000000000"], Reason::TitleLength),
            (["7", "3", &longer, "1700000000000"], Reason::TitleLength),
            (["7", "3", "Hello", "yesterday"], Reason::NotATime),
            (["7", "3", "Hello", "9700000000000"], Reason::TimeAhead),
        ] {
            assert_eq!(read(fields), Err(reason), "{fields:?}");
        }
    }
}
