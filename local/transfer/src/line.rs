//! The lines of a file: one JSON object each, of a kind.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemark_domain::{CommentId, GroupId, ListId, NoticeId, Platform, PostId, Reference, Seq, Slot, Timestamp, UserId};

/// A time may be this far ahead of this machine's clock, because clocks differ.
const CLOCKS_DIFFER_MS: u64 = 24 * 3600 * 1000;

const MOST_TEXT: usize = 64 * 1024;
const MOST_DATA: usize = 4 * 1024;
const MOST_MEMBERS: usize = 500;
const MOST_COMMENT: usize = 2_000;

/// The last number, slot and revision of a notice: the numbers that come after it here must have room too.
const MOST_OF_PLATFORM: u64 = u32::MAX as u64;

/// A handle that was given up is kept from others for 30 days.
const HANDLE_RESTS_MS: u64 = 30 * 24 * 3600 * 1000;

macro_rules! lines {
    ($($(#[$doc:meta])* $kind:ident $line:ident in $phase:literal { $($(#[$meta:meta])* $name:ident: $type:ty),* $(,)? })*) => {
        /// What a line is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kind {
            $($kind),*
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The fields of its lines, without `kind`.
            #[cfg(test)]
            fn fields(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &[$(stringify!($name)),*]),* }
            }

            /// When lines of this kind are imported: what they rely on is there then.
            pub fn phase(self) -> u8 {
                match self { $(Self::$kind => $phase),* }
            }
        }

        #[derive(Debug, Clone)]
        pub enum Line {
            $($kind($line)),*
        }

        impl Line {
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),* }
            }

            /// The line without its end.
            pub fn to_json(&self) -> serde_json::Result<String> {
                match self { $(Self::$kind(line) => serde_json::to_string(line)),* }
            }

            fn read(kind: Kind, text: &str) -> serde_json::Result<Self> {
                Ok(match kind { $(Kind::$kind => Self::$kind(serde_json::from_str(text)?)),* })
            }
        }

        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $line {
                pub kind: Kind,
                $($(#[$meta])* pub $name: $type),*
            }
        )*
    };
}

lines! {
    /// The user id of a claim (`UserIds=mapped`).
    Identity IdentityLine in 0 { claim: String, user: UserId }

    /// A user who has left. The id stays erased.
    Erased ErasedLine in 0 { user: UserId, started_at: Timestamp, finished_at: Timestamp }

    /// `name` and `updated_at` are null if a private user has no profile.
    Profile ProfileLine in 1 {
        user: UserId,
        name: Option<String>,
        #[serde(default)]
        handle: Option<String>,
        #[serde(default)]
        picture: Option<String>,
        #[serde(default)]
        bio: Option<String>,
        #[serde(default)]
        data: Option<Box<RawValue>>,
        updated_at: Option<Timestamp>,
        #[serde(default)]
        private: bool,
    }

    /// A handle that the user has given up, and until when others cannot have it.
    Handle HandleLine in 1 { user: UserId, handle: String, until: Timestamp }

    Block BlockLine in 2 { user: UserId, other: UserId, since: Timestamp }

    Post PostLine in 3 {
        user: UserId,
        id: PostId,
        title: String,
        #[serde(default)]
        body: Option<String>,
        #[serde(default)]
        data: Option<Box<RawValue>>,
        created_at: Timestamp,
        #[serde(default = "one")]
        revision: u32,
        #[serde(default)]
        edited_at: Option<Timestamp>,
        #[serde(default)]
        weight: i8,
        /// The post that it quotes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<PostId>,
    }

    /// A post that reposts another, `of`.
    Repost RepostLine in 3 { user: UserId, id: PostId, of: PostId, created_at: Timestamp }

    /// The number of a deleted post. One that was a repost has its original in `of`.
    Deleted DeletedLine in 3 {
        user: UserId,
        id: PostId,
        created_at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<PostId>,
    }

    /// Posts up to `through`, and ranges of numbers, each with its first and last.
    Read ReadLine in 4 {
        user: UserId,
        author: UserId,
        #[serde(default)]
        through: Seq,
        ranges: Vec<(Seq, Seq)>,
    }

    /// `base` and `floor` are present if they are not what `since` implies, `accepted` if the author has accepted a
    /// request.
    Follow FollowLine in 5 {
        user: UserId,
        author: UserId,
        since: Timestamp,
        #[serde(default)]
        preference: i8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<Seq>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        floor: Option<Seq>,
        #[serde(default, skip_serializing_if = "is_false")]
        accepted: bool,
    }

    /// `direction` says whether `user` has `sent` it to `other` or `received` it.
    Request RequestLine in 6 {
        user: UserId,
        other: UserId,
        direction: Direction,
        since: Timestamp,
        #[serde(default, skip_serializing_if = "is_zero")]
        preference: i8,
    }

    Mute MuteLine in 7 { user: UserId, other: UserId, since: Timestamp }

    List ListLine in 7 { user: UserId, id: ListId, name: String, authors: Vec<UserId> }

    Like LikeLine in 8 { user: UserId, post: PostId, at: Timestamp }

    Favorite FavoriteLine in 8 { user: UserId, post: PostId, at: Timestamp }

    /// `text` is null if it was withdrawn. Then `user` is absent if that user has left.
    Comment CommentLine in 8 {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<UserId>,
        id: CommentId,
        post: PostId,
        text: Option<String>,
        created_at: Timestamp,
    }

    /// Until when the user has read a group of the inbox; without `id`, the whole inbox.
    InboxRead InboxReadLine in 8 {
        user: UserId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<GroupId>,
        at: Timestamp,
    }

    /// The last numbers that a platform has given.
    Platform PlatformLine in 9 { platform: Platform, latest_seq: Seq, latest_slot: Slot, latest_at: Timestamp }

    Notice NoticeLine in 9 {
        id: NoticeId,
        title: String,
        #[serde(default)]
        body: Option<String>,
        created_at: Timestamp,
        #[serde(default)]
        expires_at: Option<Timestamp>,
        #[serde(default = "one_of_many")]
        revision: u64,
        /// Its place in read states. Each is given once.
        #[serde(default)]
        slot: Option<Slot>,
    }

    /// `ranges` has the numbers of live notices that are read.
    NoticeRead NoticeReadLine in 10 {
        user: UserId,
        platform: Platform,
        #[serde(default)]
        through: Seq,
        #[serde(default)]
        through_slot: Option<Slot>,
        ranges: Vec<(Seq, Seq)>,
    }
}

/// The last phase.
pub const LAST_PHASE: u8 = 10;

/// The phase of posts, which are imported in the order of their numbers.
pub const POSTS: u8 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Sent,
    Received,
}

fn one() -> u32 {
    1
}

fn one_of_many() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i8) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(is: &bool) -> bool {
    !is
}

impl Line {
    /// Parses and checks a line, without the facts. The error is a reason for the operator.
    pub fn parse(text: &str, now: Timestamp) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Tag {
            kind: Option<serde_json::Value>,
        }
        let tag: Tag = serde_json::from_str(text).map_err(|error| reason(&error))?;
        let kind = tag.kind.ok_or("`kind` is missing")?;
        let known: Kind = serde_json::from_value(kind.clone()).map_err(|_| format!("unknown kind {kind}"))?;
        let line = Self::read(known, text).map_err(|error| reason(&error))?;
        line.check(Timestamp::from_ms(now.ms() + CLOCKS_DIFFER_MS))?;
        Ok(line)
    }

    /// The post that a bad line is about, if it says which.
    pub fn post_of_bad(text: &str) -> Option<PostId> {
        #[derive(Deserialize)]
        struct Named {
            kind: Kind,
            user: UserId,
            id: PostId,
        }
        let Named { kind, user, id } = serde_json::from_str(text).ok()?;
        (kind.phase() == POSTS && id.author == user).then_some(id)
    }

    /// By whom lines are grouped: lines of one owner depend on one another.
    pub fn owner(&self) -> u64 {
        match self {
            Self::Identity(line) => line.user.get(),
            Self::Erased(line) => line.user.get(),
            Self::Profile(line) => line.user.get(),
            Self::Handle(line) => line.user.get(),
            Self::Block(line) => line.user.get(),
            Self::Post(line) => line.user.get(),
            Self::Repost(line) => line.user.get(),
            Self::Deleted(line) => line.user.get(),
            Self::Read(line) => line.user.get(),
            Self::Follow(line) => line.user.get(),
            Self::Request(line) => line.pair().0.get(),
            Self::Mute(line) => line.user.get(),
            Self::List(line) => line.user.get(),
            Self::Like(line) => line.user.get(),
            Self::Favorite(line) => line.user.get(),
            Self::Comment(line) => line.post.author.get(),
            Self::InboxRead(line) => line.user.get(),
            Self::Platform(line) => line.platform.get().into(),
            Self::Notice(line) => line.id.platform.get().into(),
            Self::NoticeRead(line) => line.user.get(),
        }
    }

    /// The repost or quote that the line is: its id, what it names, and its time.
    pub fn reference(&self) -> Option<(PostId, Reference, Timestamp)> {
        match self {
            Self::Repost(line) => Some((line.id, Reference::Repost(line.of), line.created_at)),
            Self::Post(line) => line.of.map(|of| (line.id, Reference::Quote(of), line.created_at)),
            _ => None,
        }
    }

    /// The times of what has happened.
    fn times(&self) -> Vec<(&'static str, Timestamp)> {
        match self {
            Self::Identity(_) | Self::Handle(_) | Self::Read(_) | Self::List(_) | Self::NoticeRead(_) => Vec::new(),
            Self::Erased(line) => vec![("started_at", line.started_at), ("finished_at", line.finished_at)],
            Self::Profile(line) => line.updated_at.map(|at| ("updated_at", at)).into_iter().collect(),
            Self::Block(BlockLine { since, .. })
            | Self::Mute(MuteLine { since, .. })
            | Self::Follow(FollowLine { since, .. })
            | Self::Request(RequestLine { since, .. }) => vec![("since", *since)],
            Self::Post(PostLine { created_at, .. })
            | Self::Repost(RepostLine { created_at, .. })
            | Self::Deleted(DeletedLine { created_at, .. })
            | Self::Comment(CommentLine { created_at, .. })
            | Self::Notice(NoticeLine { created_at, .. }) => vec![("created_at", *created_at)],
            Self::InboxRead(InboxReadLine { at, .. })
            | Self::Like(LikeLine { at, .. })
            | Self::Favorite(FavoriteLine { at, .. }) => vec![("at", *at)],
            Self::Platform(line) => vec![("latest_at", line.latest_at)],
        }
    }

    fn check(&self, latest: Timestamp) -> Result<(), String> {
        if let Some((name, _)) = self.times().into_iter().find(|(_, at)| *at > latest) {
            return Err(format!("`{name}` is more than a day ahead"));
        }
        match self {
            Self::Erased(_) | Self::InboxRead(_) | Self::Like(_) | Self::Favorite(_) => Ok(()),
            Self::Identity(line) => {
                wrong(line.claim.is_empty() || line.claim.len() > 255, || "`claim` must have 1 to 255 bytes".into())
            }
            Self::Handle(line) => {
                wrong(line.until > latest.plus_ms(HANDLE_RESTS_MS), || "`until` is more than a month ahead".into())
            }
            Self::Platform(PlatformLine { latest_seq, latest_slot, .. }) => {
                at_most("latest_seq", *latest_seq)?;
                at_most("latest_slot", *latest_slot)
            }
            Self::Profile(line) => line.check(),
            Self::Block(BlockLine { user, other, .. }) | Self::Mute(MuteLine { user, other, .. }) => apart(*user, *other),
            Self::Follow(FollowLine { user, author: other, preference, .. })
            | Self::Request(RequestLine { user, other, preference, .. }) => {
                wrong(!(-10..=10).contains(preference), || "`preference` must be an integer from -10 to 10".into())?;
                apart(*user, *other)
            }
            Self::Post(line) => line.check(),
            Self::Repost(RepostLine { user, id, of, .. }) => {
                of_user(*user, *id)?;
                wrong(id == of, || "a post cannot repost itself".into())
            }
            Self::Deleted(line) => of_user(line.user, line.id),
            Self::Comment(line) => {
                wrong(line.id.post != line.post, || "`id` is of another post than `post`".into())?;
                wrong(line.text.is_some() && line.user.is_none(), || "a comment that stands has a `user`".into())?;
                line.text.as_ref().map_or(Ok(()), |text| length("text", text, MOST_COMMENT))
            }
            Self::Read(line) => ranges(&line.ranges),
            Self::NoticeRead(line) => ranges(&line.ranges),
            Self::List(line) => {
                wrong(line.user != line.id.user, || "`id` is of another user than `user`".into())?;
                wrong(line.authors.len() > MOST_MEMBERS, || format!("a list has at most {MOST_MEMBERS} authors"))?;
                length("name", &line.name, 100)
            }
            Self::Notice(line) => {
                at_most("id", line.id.seq)?;
                at_most("slot", line.slot.unwrap_or(0))?;
                at_most("revision", line.revision)?;
                bytes("body", line.body.as_deref(), MOST_TEXT)?;
                length("title", &line.title, 200)
            }
        }
    }
}

impl ProfileLine {
    fn check(&self) -> Result<(), String> {
        wrong(self.name.is_some() != self.updated_at.is_some(), || "`name` and `updated_at` belong together".into())?;
        let rest = [&self.handle, &self.picture, &self.bio].into_iter().flatten().count() + usize::from(self.data.is_some());
        wrong(self.name.is_none() && rest > 0, || "a profile needs a `name`".into())?;
        wrong(self.name.is_none() && !self.private, || "the line says nothing: no `name`, and not `private`".into())?;
        self.name.as_ref().map_or(Ok(()), |name| length("name", name, 100))?;
        let picture = self.picture.as_deref();
        wrong(picture.is_some_and(|url| !url.starts_with("https://") || url.chars().count() > 2_048), || {
            "`picture` must be an https URL of at most 2,048 characters".into()
        })?;
        wrong(self.bio.as_ref().is_some_and(|bio| bio.chars().count() > 500), || {
            "`bio` must have at most 500 characters".into()
        })?;
        object(self.data.as_deref())
    }
}

impl PostLine {
    fn check(&self) -> Result<(), String> {
        of_user(self.user, self.id)?;
        wrong(self.of == Some(self.id), || "a post cannot quote itself".into())?;
        wrong(self.revision == 0, || "`revision` begins with 1".into())?;
        wrong((self.revision > 1) != self.edited_at.is_some(), || "`revision` and `edited_at` do not agree".into())?;
        wrong(!(-100..=100).contains(&self.weight), || "`weight` must be an integer from -100 to 100".into())?;
        length("title", &self.title, 200)?;
        bytes("body", self.body.as_deref(), MOST_TEXT)?;
        object(self.data.as_deref())
    }
}

impl RequestLine {
    /// The user who asks, and the author.
    pub fn pair(&self) -> (UserId, UserId) {
        match self.direction {
            Direction::Sent => (self.user, self.other),
            Direction::Received => (self.other, self.user),
        }
    }
}

fn wrong(is_wrong: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_wrong { Err(why()) } else { Ok(()) }
}

fn at_most(name: &str, number: u64) -> Result<(), String> {
    wrong(number > MOST_OF_PLATFORM, || format!("`{name}` must be at most {MOST_OF_PLATFORM}"))
}

fn of_user(user: UserId, post: PostId) -> Result<(), String> {
    wrong(user != post.author, || "`id` is of another author than `user`".into())
}

fn apart(one: UserId, other: UserId) -> Result<(), String> {
    wrong(one == other, || "the two users are the same".into())
}

fn length(name: &str, text: &str, most: usize) -> Result<(), String> {
    wrong(!(1..=most).contains(&text.chars().count()), || format!("`{name}` must have 1 to {most} characters"))
}

fn bytes(name: &str, text: Option<&str>, most: usize) -> Result<(), String> {
    wrong(text.is_some_and(|text| text.len() > most), || format!("`{name}` must have at most {most} bytes"))
}

fn object(data: Option<&RawValue>) -> Result<(), String> {
    wrong(data.is_some_and(|data| !data.get().starts_with('{')), || "`data` must be a JSON object".into())?;
    bytes("data", data.map(RawValue::get), MOST_DATA)
}

fn ranges(ranges: &[(Seq, Seq)]) -> Result<(), String> {
    let is_range = |(first, last): &(Seq, Seq)| (1..=*last).contains(first) && *last <= tidemark_domain::ids::MAX_SEQ;
    wrong(!ranges.iter().all(is_range), || "`ranges` must have pairs of a first and a last number".into())
}

/// The text of an error without its place in the line, which would look like the number of a line.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Line, String> {
        Line::parse(text, Timestamp::from_ms(1_800_000_000_000))
    }

    #[test]
    fn a_line_is_written_as_it_was_read() {
        for line in [
            r#"{"kind":"follow","user":"1","author":"2","since":"2026-11-20T08:00:00.123Z","preference":0}"#,
            r#"{"kind":"follow","user":"1","author":"2","since":"2026-11-20T08:00:00.123Z","preference":0,"accepted":true}"#,
            r#"{"kind":"mute","user":"1","other":"2","since":"2026-11-20T08:00:00.123Z"}"#,
            r#"{"kind":"request","user":"1","other":"2","direction":"sent","since":"2026-11-20T08:00:00.123Z"}"#,
            r#"{"kind":"post","user":"2","id":"2-1","title":"a","body":null,"data":{"b": 1.50},"created_at":"2026-11-20T08:00:00.000Z","revision":1,"edited_at":null,"weight":0}"#,
            r#"{"kind":"read","user":"1","author":"2","through":3,"ranges":[[1,3],[5,5]]}"#,
            r#"{"kind":"notice-read","user":"1","platform":7,"through":0,"through_slot":null,"ranges":[]}"#,
            r#"{"kind":"repost","user":"2","id":"2-2","of":"3-1","created_at":"2026-11-20T08:00:00.000Z"}"#,
            r#"{"kind":"deleted","user":"2","id":"2-3","created_at":"2026-11-20T08:00:00.000Z","of":"3-1"}"#,
            r#"{"kind":"comment","user":"1","id":"2-1-4","post":"2-1","text":"a","created_at":"2026-11-20T08:00:00.000Z"}"#,
            r#"{"kind":"comment","id":"2-1-5","post":"2-1","text":null,"created_at":"2026-11-20T08:00:00.000Z"}"#,
            r#"{"kind":"inbox-read","user":"1","id":"like-7","at":"2026-11-20T08:00:00.000Z"}"#,
            r#"{"kind":"inbox-read","user":"1","at":"2026-11-20T08:00:00.000Z"}"#,
        ] {
            assert_eq!(parse(line).unwrap().to_json().unwrap(), line);
        }
    }

    #[test]
    fn a_bad_line_has_a_reason() {
        let follow = |rest: &str| format!(r#"{{"kind":"follow","user":"1","author":"2"{rest}}}"#);
        let notice = |id: &str, rest: &str| {
            format!(r#"{{"kind":"notice","id":"{id}","title":"a","created_at":"2026-11-20T08:00:00.123Z"{rest}}}"#)
        };
        let platform = |seq: &str, slot: &str, day: &str| {
            format!(
                r#"{{"kind":"platform","platform":1,"latest_seq":{seq},"latest_slot":{slot},"latest_at":"{day}T08:00:00.123Z"}}"#
            )
        };
        for (line, expected) in [
            ("{", "EOF while parsing an object"),
            ("7", "invalid type: integer `7`, expected struct Tag"),
            (r#"{"user":"1"}"#, "`kind` is missing"),
            (r#"{"kind":"folow"}"#, "unknown kind \"folow\""),
            (&follow(""), "missing field `since`"),
            (&follow(r#","since":"yesterday""#), "must be an RFC 3339 time"),
            (&follow(r#","since":"2126-11-20T08:00:00.123Z""#), "`since` is more than a day ahead"),
            (&follow(r#","since":"2026-11-20T08:00:00.123Z","preference":11"#), "`preference` must be an integer from -10 to 10"),
            (
                &follow(r#","since":"2026-11-20T08:00:00.123Z","preferred":1"#),
                "unknown field `preferred`, expected one of `kind`, `user`",
            ),
            (r#"{"kind":"mute","user":"1","other":"1","since":"2026-11-20T08:00:00.123Z"}"#, "the two users are the same"),
            (r#"{"kind":"read","user":"1","author":"2","ranges":[[3,1]]}"#, "`ranges` must have pairs"),
            (&platform("9007199254740991", "1", "2026-11-20"), "`latest_seq` must be at most"),
            (&platform("1", "9007199254740991", "2026-11-20"), "`latest_slot` must be at most"),
            (&platform("1", "1", "9999-11-20"), "`latest_at` is more than a day ahead"),
            (&notice("1-9007199254740991", ""), "`id` must be at most"),
            (&notice("1-1", r#","slot":18446744073709551615"#), "`slot` must be at most"),
            (&notice("1-1", r#","revision":18446744073709551615"#), "`revision` must be at most"),
            (r#"{"kind":"handle","user":"1","handle":"ada","until":"9999-11-20T08:00:00.123Z"}"#, "`until` is more than"),
            (
                r#"{"kind":"erased","user":"1","started_at":"2026-11-20T08:00:00.123Z","finished_at":"9999-11-20T08:00:00.123Z"}"#,
                "`finished_at` is more than",
            ),
            (r#"{"kind":"profile","user":"1","name":"a","updated_at":"9999-11-20T08:00:00.123Z"}"#, "`updated_at` is more than"),
            (r#"{"kind":"deleted","user":"1","id":"2-1","created_at":"2026-11-20T08:00:00.123Z"}"#, "`id` is of another author"),
        ] {
            let reason = parse(line).unwrap_err();
            assert!(reason.starts_with(expected) && !reason.contains("line 1"), "{line}: {reason}");
        }
    }

    #[test]
    fn a_bad_line_of_a_post_says_which() {
        let named = |line| Line::post_of_bad(line).map(|id| id.to_string());
        assert_eq!(named(r#"{"kind":"post","user":"1","id":"1-2","title":7}"#), Some("1-2".to_owned()));
        assert_eq!(named(r#"{"kind":"deleted","user":"1","id":"1-2"}"#), Some("1-2".to_owned()));
        for other in [r#"{"kind":"post","user":"1","id":"2-2"}"#, r#"{"kind":"like","user":"1","id":"1-2"}"#, "{", "7"] {
            assert_eq!(named(other), None);
        }
    }

    #[test]
    fn the_documentation_has_a_row_with_all_fields_for_each_kind() {
        let rows: Vec<&str> =
            include_str!("../../../docs/in-and-out.md").lines().filter(|line| line.starts_with("| `")).collect();
        for kind in Kind::ALL {
            let name = serde_json::to_string(kind).unwrap().replace('"', "`");
            let of_kind = |row: &&&str| row.split(" | ").next().is_some_and(|kinds| kinds.contains(&name));
            let row = rows.iter().find(of_kind).unwrap_or_else(|| panic!("no row of {name}"));
            let fields = row.split(" | ").nth(1).unwrap();
            for field in kind.fields() {
                assert!(fields.contains(&format!("`{field}`")), "{field} of {name}");
            }
        }
    }

    #[test]
    fn what_a_line_relies_on_has_an_earlier_phase() {
        let phase = |kind: Kind| kind.phase();
        assert!(phase(Kind::Profile) < phase(Kind::Block) && phase(Kind::Block) < phase(Kind::Post));
        assert!(phase(Kind::Post) < phase(Kind::Read) && phase(Kind::Read) < phase(Kind::Follow));
        assert!(phase(Kind::Follow) < phase(Kind::List) && phase(Kind::Request) < phase(Kind::Mute));
        assert!(phase(Kind::Repost) == phase(Kind::Post) && phase(Kind::Post) < phase(Kind::Comment));
        assert!(phase(Kind::Notice) < phase(Kind::NoticeRead));
        assert_eq!(Kind::ALL.iter().map(|kind| kind.phase()).max(), Some(LAST_PHASE));
    }
}
