//! The authors and followers of the measurement. Authors do not share followers.

use tidemark::domain::UserId;

/// Followers of the author that is compared with the big author.
const FEW: usize = 10;
/// Followers of each author that publishes during the big fan-out.
pub(crate) const FOLLOWERS_BESIDE: usize = 5;

/// An author and the author's followers.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    pub(crate) id: UserId,
    pub(crate) followers: Vec<UserId>,
}

/// All authors and followers.
#[derive(Debug, Clone)]
pub(crate) struct Cast {
    /// The author with many followers.
    pub(crate) big: Author,
    /// An author with ten followers.
    pub(crate) few: Author,
    /// An author with the big author's follower counts and no followers. A publish has the same cost and no delivery.
    pub(crate) hollow: UserId,
    /// Small authors, whose posts pass the big author's.
    pub(crate) beside: Vec<Author>,
}

impl Cast {
    /// A cast with these numbers of followers of the big author and of small authors. `None` if ids run out.
    pub(crate) fn of(followers: usize, beside: usize) -> Option<Self> {
        let mut ids = (1..=u64::MAX).filter_map(UserId::new);
        let mut author = |followers| {
            let id = ids.next()?;
            let followers: Vec<UserId> = ids.by_ref().take(followers).collect();
            Some(Author { id, followers })
        };
        let (hollow, few) = (author(0)?.id, author(FEW)?);
        let beside = (0..beside).map(|_| author(FOLLOWERS_BESIDE)).collect::<Option<_>>()?;
        Some(Self { big: author(followers)?, few, hollow, beside })
    }

    pub(crate) fn authors(&self) -> impl Iterator<Item = &Author> {
        [&self.few, &self.big].into_iter().chain(&self.beside)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_user_has_two_roles() {
        let cast = Cast::of(1_000, 50).unwrap();
        let all: Vec<UserId> =
            cast.authors().flat_map(|author| author.followers.iter().copied().chain([author.id])).chain([cast.hollow]).collect();
        assert_eq!(all.len(), 1_001 + 11 + 50 * 6 + 1);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
