//! Profiles and handles of users.

use std::{fmt, str::FromStr};

use crate::{ParseIdError, Timestamp, UserId};

/// The time that a handle that was given up is free for its last owner only.
pub const HANDLE_REST_SECONDS: u64 = 30 * 24 * 3600;

/// A unique name: 3 to 30 of `a-z`, `0-9` and `_`, at least one of them a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(String);

impl Handle {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a stored handle. It may be older than the rule that a handle has a letter.
    pub fn stored(text: &str) -> Option<Self> {
        let plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        (plain && (3..=30).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    /// Reads a handle as people write it: perhaps with capital letters, and after an `@`.
    pub fn mentioned(text: &str) -> Result<Self, ParseIdError> {
        text.strip_prefix('@').unwrap_or(text).to_ascii_lowercase().parse()
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Handle {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let has_letter = |handle: &Self| handle.0.bytes().any(|byte| byte.is_ascii_lowercase());
        let handle = Self::stored(text).filter(has_letter);
        handle.ok_or(ParseIdError("must be 3 to 30 characters of a-z, 0-9 and _, with a letter"))
    }
}

/// The part of a profile that pages show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// 1 to 100 characters.
    pub name: String,
    pub handle: Option<Handle>,
    /// An `https` URL.
    pub picture: Option<String>,
}

/// The part of a profile that the user sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileContent {
    pub card: Card,
    /// At most 500 characters.
    pub bio: Option<String>,
    /// A JSON object as text, for the application.
    pub data: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub user: UserId,
    /// Grows by one with every change.
    pub version: u32,
    pub content: ProfileContent,
    pub updated_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_plain_texts_are_handles() {
        for handle in ["ada", "a_1", &"x".repeat(30)] {
            assert_eq!(handle.parse::<Handle>().unwrap().as_str(), handle);
        }
        for other in ["", "ab", &"x".repeat(31), "Ada", "a-b", "a b", "grüß", "ada\n", "1234", "___", "1_2"] {
            assert!(other.parse::<Handle>().is_err(), "{other:?}");
        }
        assert_eq!(Handle::stored("1234").map(|handle| handle.to_string()), Some("1234".to_owned()));
        assert_eq!(Handle::stored("Ada"), None);
    }

    #[test]
    fn a_mentioned_handle_may_have_an_at_sign_and_capitals() {
        for text in ["grace", "@grace", "@Grace", "GRACE"] {
            assert_eq!(Handle::mentioned(text).unwrap().as_str(), "grace", "{text}");
        }
        for other in ["@@grace", "@", "1234", "@1234", "gr@ce", "ＧRACE"] {
            assert!(Handle::mentioned(other).is_err(), "{other}");
        }
    }
}
