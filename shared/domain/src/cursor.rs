//! Opaque page cursors: the place where a page ended, exclusive.

use crate::{FeedKey, PostId, Relation, Score, Seq, Timestamp, UserId};

/// The place below which the next page begins. Each kind of list has a variant, which is invalid for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    Feed(FeedKey),
    Author(Seq),
    Relation(Relation),
    /// A user's lists of authors, below this number.
    List(u32),
    Notice(Seq),
    /// A user's likes or favorites, below the reaction of this time to this post.
    Reacted(FeedKey),
    Ranked(RankedPlace),
    /// An export: a section, and what identifies the last object in it, if there was one.
    Export(u64, Option<[u64; 3]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedPlace {
    /// The stamp of the last move before the walk began. Posts that have moved since are left out.
    pub since: u64,
    pub score: Score,
    /// The post at this place. It decides between equal scores.
    pub key: FeedKey,
}

impl RankedPlace {
    /// Returns whether a post with this score is above the place.
    pub fn is_below(&self, score: Score, key: &FeedKey) -> bool {
        (score, key) > (self.score, &self.key)
    }

    /// Returns whether a post with this score is below the place.
    pub fn is_above(&self, score: Score, key: &FeedKey) -> bool {
        (score, key) < (self.score, &self.key)
    }
}

impl Cursor {
    /// Encodes the cursor: a byte for the kind, then big-endian numbers of eight bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let (kind, numbers) = match self {
            Self::Feed(key) => (1, vec![key.at.ms(), key.post.author.get(), key.post.seq]),
            Self::Author(seq) => (2, vec![seq]),
            Self::Relation(relation) => (3, vec![relation.since.ms(), relation.user.get()]),
            Self::Notice(seq) => (4, vec![seq]),
            Self::List(number) => (6, vec![number.into()]),
            Self::Reacted(key) => (5, vec![key.at.ms(), key.post.author.get(), key.post.seq]),
            Self::Ranked(RankedPlace { since, score, key }) => {
                (6, vec![since, score.get().to_bits(), key.at.ms(), key.post.author.get(), key.post.seq])
            }
            Self::Export(section, after) => (7, std::iter::once(section).chain(after.into_iter().flatten()).collect()),
        };
        std::iter::once(kind).chain(numbers.into_iter().flat_map(u64::to_be_bytes)).collect()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let (chunks, []) = rest.as_chunks::<8>() else { return None };
        let numbers: Vec<u64> = chunks.iter().map(|chunk| u64::from_be_bytes(*chunk)).collect();
        let time = |ms| (ms <= Timestamp::MAX.ms()).then(|| Timestamp::from_ms(ms));
        let key = |at, author, seq| Some(FeedKey { at: time(at)?, post: PostId::new(UserId::new(author)?, seq) });
        match (kind, numbers.as_slice()) {
            (1, &[at, author, seq]) => Some(Self::Feed(key(at, author, seq)?)),
            (2, &[seq]) => Some(Self::Author(seq)),
            (3, &[since, user]) => Some(Self::Relation(Relation { since: time(since)?, user: UserId::new(user)? })),
            (4, &[seq]) => Some(Self::Notice(seq)),
            (6, &[number]) => Some(Self::List(u32::try_from(number).ok()?)),
            (5, &[at, author, seq]) => Some(Self::Reacted(key(at, author, seq)?)),
            (6, &[since, score, at, author, seq]) => {
                let (score, key) = (Score::new(f64::from_bits(score))?, key(at, author, seq)?);
                Some(Self::Ranked(RankedPlace { since, score, key }))
            }
            (7, &[section]) => Some(Self::Export(section, None)),
            (7, &[section, a, b, c]) => Some(Self::Export(section, Some([a, b, c]))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_decode_to_themselves_and_other_bytes_are_rejected() {
        let key = FeedKey { at: Timestamp::from_ms(9), post: "7-3".parse().unwrap() };
        let relation = Relation { since: Timestamp::from_ms(9), user: UserId::MIN };
        let ranked = |score| Cursor::Ranked(RankedPlace { since: 1 << 52, score, key });
        let score = Score::new(-41_550.123_456_789).unwrap();
        for cursor in [
            Cursor::Feed(key),
            Cursor::Author(12),
            Cursor::Relation(relation),
            Cursor::Notice(12),
            Cursor::List(12),
            Cursor::Export(1, None),
            Cursor::Export(2, Some([1, 2, 3])),
            ranked(score),
        ] {
            assert_eq!(Cursor::from_bytes(&cursor.to_bytes()), Some(cursor));
            assert_eq!(Cursor::from_bytes(&cursor.to_bytes()[1..]), None);
        }
        assert_eq!(Cursor::from_bytes(&[]), None);
        assert_eq!(Cursor::from_bytes(&[5; 9]), None);
        for not_finite in [f64::NAN, f64::INFINITY] {
            let mut bytes = ranked(score).to_bytes();
            bytes[9..17].copy_from_slice(&not_finite.to_bits().to_be_bytes());
            assert_eq!(Cursor::from_bytes(&bytes), None);
        }
    }
}
