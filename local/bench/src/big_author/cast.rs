//! Who takes part. No two share a follower.

use tidemark::domain::UserId;

/// Followers of the author that a publish of the big one is compared with.
const FEW: usize = 10;
/// Followers of each author that publishes beside the big fan-out.
pub const FOLLOWERS_BESIDE: usize = 5;

/// An author and who follows.
#[derive(Debug, Clone)]
pub struct Author {
    /// The author.
    pub id: UserId,
    /// The followers.
    pub followers: Vec<UserId>,
}

/// Everybody.
#[derive(Debug, Clone)]
pub struct Cast {
    /// The author with many followers.
    pub big: Author,
    /// An author with ten.
    pub few: Author,
    /// An author with the big one's follower counts and no followers: publishing costs the same and reaches nobody.
    pub hollow: UserId,
    /// Small authors, whose posts pass the big one's.
    pub beside: Vec<Author>,
}

impl Cast {
    /// A cast with so many followers of the big author, and so many small authors. `None` when there are not so many ids.
    pub fn of(followers: usize, beside: usize) -> Option<Self> {
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

    /// All authors with followers.
    pub fn authors(&self) -> impl Iterator<Item = &Author> {
        [&self.few, &self.big].into_iter().chain(&self.beside)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nobody_plays_two_parts() {
        let cast = Cast::of(1_000, 50).unwrap();
        let all: Vec<UserId> =
            cast.authors().flat_map(|author| author.followers.iter().copied().chain([author.id])).chain([cast.hollow]).collect();
        assert_eq!(all.len(), 1_001 + 11 + 50 * 6 + 1);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
