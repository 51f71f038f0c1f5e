//! [`Segment`]: a part of the users, whom a walk of its own looks at.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidemark_views::keys::Owner;

/// The name of the stored position of the walk over users.
pub(super) const USERS: &str = "users";

/// The most segments of a walk.
pub const MOST_SEGMENTS: u32 = 32;

/// A part of the users: number `number` of `of` parts. Its text is `3/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Segment {
    pub(crate) number: u32,
    pub(crate) of: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a segment, such as 0/4 to 3/4")]
pub struct ParseSegmentError;

impl Segment {
    /// The only segment of a walk that is not divided.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    pub fn all(of: u32) -> impl Iterator<Item = Self> {
        (0..of).map(move |number| Self { number, of })
    }

    /// The name of its stored position.
    pub fn name(self) -> String {
        if self == Self::WHOLE { USERS.to_owned() } else { format!("{USERS} {self}") }
    }

    /// Whether the owner of a key is in this part.
    pub(super) fn has(self, owner: &Owner) -> bool {
        let key = match owner {
            Owner::User(user) | Owner::NoticeReads(user, _) | Owner::Marks(user, _) => u64::from(user.bucket()),
            Owner::Post(post) => u64::from(post.author.bucket()),
            Owner::Platform(platform) => platform.get().into(),
            Owner::Title(notice, _) => notice.platform.get().into(),
            Owner::Astray(_) => 0,
        };
        key % u64::from(self.of) == u64::from(self.number)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl From<Segment> for String {
    fn from(segment: Segment) -> Self {
        segment.to_string()
    }
}

impl TryFrom<String> for Segment {
    type Error = ParseSegmentError;

    fn try_from(text: String) -> Result<Self, ParseSegmentError> {
        let (number, of) = text.split_once('/').ok_or(ParseSegmentError)?;
        let (number, of) = number.parse().ok().zip(of.parse().ok()).ok_or(ParseSegmentError)?;
        if number < of && of <= MOST_SEGMENTS { Ok(Self { number, of }) } else { Err(ParseSegmentError) }
    }
}
