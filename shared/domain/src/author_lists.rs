//! Lists of followed authors. The lists of a user are one fact. Whether an author is on a list is part of the edge.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::ids::{ParseIdError, PostId, UserId};

pub const MOST_LISTS: usize = 50;

/// The id of a list: `{user}-{number}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListId {
    pub user: UserId,
    /// Counts from 1. It is never given again.
    pub number: u32,
}

impl fmt::Display for ListId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.user, self.number)
    }
}

impl FromStr for ListId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let PostId { author: user, seq } = text.parse()?;
        let number = u32::try_from(seq).map_err(|_| ParseIdError("must be {user}-{number}"))?;
        Ok(Self { user, number })
    }
}

/// A list of followed authors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorList {
    pub number: u32,
    /// 1 to 100 characters.
    pub name: String,
    /// Names the request that made the list.
    pub token: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserLists {
    /// Grows by one with every change.
    pub version: u64,
    /// The last number that was given.
    pub last: u32,
    /// In the order of their numbers.
    pub lists: Vec<AuthorList>,
}

impl UserLists {
    pub fn has(&self, number: u32) -> bool {
        self.lists.iter().any(|list| list.number == number)
    }

    /// Makes a list, unless the request with this token has made it. Returns its number; `None` if the user has
    /// [`MOST_LISTS`] lists.
    pub fn make(&mut self, name: &str, token: u64) -> Option<u32> {
        if let Some(list) = self.lists.iter().find(|list| list.token == token) {
            return Some(list.number);
        }
        if self.lists.len() >= MOST_LISTS {
            return None;
        }
        self.version += 1;
        self.last += 1;
        self.lists.push(AuthorList { number: self.last, name: name.to_owned(), token });
        Some(self.last)
    }

    /// Deletes a list. Returns whether the user had it.
    pub fn delete(&mut self, number: u32) -> bool {
        let before = self.lists.len();
        self.lists.retain(|list| list.number != number);
        let deleted = self.lists.len() < before;
        self.version += u64::from(deleted);
        deleted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_id_is_a_user_and_a_number() {
        let id: ListId = "7-12".parse().unwrap();
        assert_eq!((id.user.get(), id.number, id.to_string()), (7, 12, "7-12".to_owned()));
        for text in ["7", "7-0", "-1", "7-4294967296", "7-1-1", "a-1", ""] {
            assert!(text.parse::<ListId>().is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_never_given_again_and_a_request_makes_one_list() {
        let mut lists = UserLists::default();
        assert_eq!((lists.make("a", 10), lists.make("b", 20), lists.make("b", 20)), (Some(1), Some(2), Some(2)));
        assert!(lists.delete(2) && !lists.delete(2) && lists.has(1) && !lists.has(2));
        assert_eq!((lists.make("b", 30), lists.version), (Some(3), 4));
        for list in 2..MOST_LISTS as u64 {
            assert!(lists.make("x", 30 + list).is_some());
        }
        assert_eq!((lists.make("x", 99), lists.make("x", 31 + 1)), (None, Some(4)));
    }
}
