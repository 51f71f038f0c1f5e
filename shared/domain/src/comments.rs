//! Comments: their ids and numbers, and who may withdraw one.

use std::{fmt, str::FromStr};

use super::{
    ids::{MAX_SEQ, ParseIdError, PostId, UserId, parse_decimal},
    time::Timestamp,
    visibility::Viewer,
};

/// A comment's number within its post: 1, 2, 3, …
pub type CommentNumber = u64;

/// A comment: its post and its number, written `{author}-{seq}-{number}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommentId {
    pub post: PostId,
    pub number: CommentNumber,
}

impl CommentId {
    pub fn new(post: PostId, number: CommentNumber) -> Self {
        Self { post, number }
    }
}

impl fmt::Display for CommentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.post, self.number)
    }
}

impl FromStr for CommentId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let parts = text.rsplit_once('-').and_then(|(post, number)| {
            let number = parse_decimal(number).filter(|number| (1..=MAX_SEQ).contains(number))?;
            Some(Self::new(post.parse().ok()?, number))
        });
        parts.ok_or(ParseIdError("must be {author}-{seq}-{number}, three decimal numbers without sign or leading zeros"))
    }
}

/// A comment that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    pub id: CommentId,
    pub author: UserId,
    pub text: String,
    pub created_at: Timestamp,
}

/// The order of a page of comments, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentOrder {
    Newest,
    Oldest,
}

/// The numbers of a post's comments that were given to requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommentNumbers {
    /// The last number, and when it was given.
    pub last: CommentNumber,
    pub given_at: Timestamp,
    /// Numbers of requests that have ended without a comment. The next requests take them.
    pub free: Vec<CommentNumber>,
}

/// The numbers in one block of comments. A block costs its partition two write units for each KB of each comment, and
/// takes all of them in a moment if 1,000 comments a second come.
pub const BLOCK: CommentNumber = 64;

/// A request that has its number for longer has probably ended. If it has not, it finds its number taken, and takes
/// another.
const UNUSED_MS: u64 = 2_000;

/// The most numbers that are free at once. The item of a post's numbers stays below one write unit.
const MOST_FREE: usize = 24;

impl CommentNumbers {
    /// Returns numbers of requests that have ended without a comment: those of `range` that `found` lacks, if a higher
    /// number is older than a request. `found` has all comments of the range, deleted ones too, with their times.
    pub fn unused(
        &self,
        range: std::ops::RangeInclusive<CommentNumber>,
        found: &[(CommentNumber, Timestamp)],
        now: Timestamp,
    ) -> Vec<CommentNumber> {
        let mut found = found.to_vec();
        found.sort_unstable();
        let is_old = |at: Timestamp| at.plus_ms(UNUSED_MS) < now;
        // Above the last comment of the range, only the time of the last number shows the age of a number.
        let above_is_old = *range.end() == self.last && is_old(self.given_at);
        let missing = range.filter(|number| found.binary_search_by_key(number, |(known, _)| *known).is_err());
        let unused = missing.filter(|number| {
            let above = found.partition_point(|(known, _)| known < number);
            !self.free.contains(number) && (above_is_old || found[above..].iter().any(|(_, at)| is_old(*at)))
        });
        unused.take(MOST_FREE.saturating_sub(self.free.len())).collect()
    }
}

/// Returns whether a user may withdraw a comment of `author`; `None` if it names no author any more. Its own author may
/// also if the post can no longer be seen.
pub fn may_withdraw(viewer: Viewer, author: Option<UserId>, post: PostId) -> bool {
    author == Some(viewer.user) || post.author == viewer.user || viewer.moderates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_ids_are_the_post_and_a_number() {
        let id: CommentId = "2-7-3".parse().unwrap();
        assert_eq!((id.post.to_string().as_str(), id.number, id.to_string().as_str()), ("2-7", 3, "2-7-3"));
        for bad in ["2-7", "2-7-", "2-7-0", "2-7-03", "0-7-3", "2-7-3-4", "2-7-9007199254740992"] {
            assert!(bad.parse::<CommentId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_number_without_a_comment_is_unused_once_a_higher_one_is_old() {
        let at = Timestamp::from_ms;
        let numbers = CommentNumbers { last: 6, given_at: at(10_000), free: vec![5] };
        let found = [(1, at(1_000)), (3, at(9_000)), (4, at(1_500))];
        // Number 4 is older than 3, because it was used again.
        for (now, unused) in [(3_000, vec![]), (3_501, vec![2]), (12_000, vec![2]), (12_001, vec![2, 6])] {
            assert_eq!(numbers.unused(1..=6, &found, at(now)), unused, "{now}");
        }
        assert_eq!(numbers.unused(2..=3, &found[1..2], at(12_001)), [2]);
        assert_eq!(numbers.unused(1..=5, &found, at(12_001)), [2], "the end of the range is not the last number");
        let many = CommentNumbers { last: 1_000, given_at: at(0), free: (1..=20).collect() };
        assert_eq!(many.unused(1..=1_000, &[], at(9_000)), [21, 22, 23, 24]);
    }

    #[test]
    fn the_author_of_a_comment_that_of_the_post_and_a_moderator_may_withdraw_it() {
        let [commenter, author, other] = [1, 2, 3].map(|id| UserId::new(id).unwrap());
        let post = PostId::new(author, 7);
        let may = |user, moderates| may_withdraw(Viewer { user, moderates }, Some(commenter), post);
        assert!(may(commenter, false) && may(author, false) && may(other, true));
        assert!(!may(other, false) && !may_withdraw(commenter.into(), None, post));
    }
}
