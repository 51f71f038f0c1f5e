//! Profiles and handles of users.

use std::{fmt, str::FromStr};

use crate::{ParseIdError, Timestamp, UserId};

/// The time that a handle that was given up is free for its last owner only.
pub const HANDLE_REST_SECONDS: u64 = 30 * 24 * 3600;

/// A unique name: 3 to 30 of `a-z`, `0-9` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(String);

impl Handle {
    pub fn as_str(&self) -> &str {
        &self.0
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
        let plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        match plain && (3..=30).contains(&text.len()) {
            true => Ok(Self(text.to_owned())),
            false => Err(ParseIdError("must be 3 to 30 characters of a-z, 0-9 and _")),
        }
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
        for other in ["", "ab", &"x".repeat(31), "Ada", "a-b", "a b", "grüß", "ada\n"] {
            assert!(other.parse::<Handle>().is_err(), "{other:?}");
        }
    }
}
