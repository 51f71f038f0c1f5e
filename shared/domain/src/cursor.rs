//! Opaque page cursors: the place where a page ended, exclusive.

use crate::{FeedKey, GroupId, GroupPlace, PostId, Relation, Score, Seq, Since, Timestamp, Trail, UserId};

/// The place below which the next page begins. Each kind of list has a variant, which is invalid for the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// A place in a feed, and the posts of the feed's trail that the rest of the walk may return.
    Feed(FeedKey, Trail),
    Ranked(RankedPlace, Trail),
    /// Of a feed in any order: its state when a first page was made.
    Since(Since),
    /// Of a feed from the oldest post on: what the pages so far have returned.
    Oldest(Since),
    Author(Seq),
    Relation(Relation),
    /// A user's lists of authors, below this number.
    List(u32),
    Notice(Seq),
    /// A user's likes or favorites, below the reaction of this time to this post.
    Reacted(FeedKey),
    /// An export: a section, and what identifies the last object in it, if there was one.
    Export(u64, Option<[u64; 4]>),
    /// A post's comments, after this number in the order of the request.
    Comment(u64),
    Group(GroupPlace),
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
    /// Returns whether a post with this score is below the place.
    pub fn is_above(&self, score: Score, key: &FeedKey) -> bool {
        (score, key) < (self.score, &self.key)
    }
}

impl Cursor {
    /// Encodes the cursor: a byte for the kind, big-endian numbers of eight bytes, and the trail, if the kind has one.
    pub fn to_bytes(&self) -> Vec<u8> {
        let of_key = |key: &FeedKey| [key.at.ms(), key.post.author.get(), key.post.seq];
        let (kind, numbers, trail) = match self {
            Self::Feed(key, trail) => (1, of_key(key).to_vec(), Some(trail)),
            Self::Author(seq) => (2, vec![*seq], None),
            Self::Relation(relation) => (3, vec![relation.since.ms(), relation.user.get()], None),
            Self::Notice(seq) => (4, vec![*seq], None),
            Self::Reacted(key) => (5, of_key(key).to_vec(), None),
            Self::List(number) => (6, vec![(*number).into()], None),
            Self::Export(section, after) => (7, std::iter::once(*section).chain(after.iter().flatten().copied()).collect(), None),
            Self::Ranked(RankedPlace { since, score, key }, trail) => {
                (8, [&[*since, score.get().to_bits()], of_key(key).as_slice()].concat(), Some(trail))
            }
            Self::Since(Since { newest, trail }) => (9, of_key(newest).to_vec(), Some(trail)),
            Self::Oldest(Since { newest, trail }) => (10, of_key(newest).to_vec(), Some(trail)),
            Self::Comment(number) => (12, vec![*number], None),
            Self::Group(GroupPlace { at, id }) => (11, [&[at.ms()], id.to_numbers().as_slice()].concat(), None),
        };
        let mut bytes = vec![kind];
        bytes.extend(numbers.into_iter().flat_map(u64::to_be_bytes));
        bytes.extend(trail.map(Trail::to_bytes).unwrap_or_default());
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let before_trail = match kind {
            1 | 9 | 10 => 3 * 8,
            8 => 5 * 8,
            _ => rest.len(),
        };
        let (numbers, trail) = rest.split_at_checked(before_trail)?;
        let (chunks, []) = numbers.as_chunks::<8>() else { return None };
        let numbers: Vec<u64> = chunks.iter().map(|chunk| u64::from_be_bytes(*chunk)).collect();
        let time = |ms| (ms <= Timestamp::MAX.ms()).then(|| Timestamp::from_ms(ms));
        let key = |at, author, seq| Some(FeedKey { at: time(at)?, post: PostId::new(UserId::new(author)?, seq) });
        let trail = || Trail::from_bytes(trail);
        match (kind, numbers.as_slice()) {
            (1, &[at, author, seq]) => Some(Self::Feed(key(at, author, seq)?, trail()?)),
            (2, &[seq]) => Some(Self::Author(seq)),
            (3, &[since, user]) => Some(Self::Relation(Relation { since: time(since)?, user: UserId::new(user)? })),
            (4, &[seq]) => Some(Self::Notice(seq)),
            (5, &[at, author, seq]) => Some(Self::Reacted(key(at, author, seq)?)),
            (6, &[number]) => Some(Self::List(u32::try_from(number).ok()?)),
            (7, &[section]) => Some(Self::Export(section, None)),
            (7, &[section, a, b, c, d]) => Some(Self::Export(section, Some([a, b, c, d]))),
            (8, &[since, score, at, author, seq]) => {
                let (score, key) = (Score::new(f64::from_bits(score))?, key(at, author, seq)?);
                Some(Self::Ranked(RankedPlace { since, score, key }, trail()?))
            }
            (9, &[at, author, seq]) => Some(Self::Since(Since { newest: key(at, author, seq)?, trail: trail()? })),
            (10, &[at, author, seq]) => Some(Self::Oldest(Since { newest: key(at, author, seq)?, trail: trail()? })),
            (12, &[number]) => Some(Self::Comment(number)),
            (11, &[at, kind, number]) => {
                Some(Self::Group(GroupPlace { at: time(at)?, id: GroupId::from_numbers([kind, number])? }))
            }
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
        let trail = Trail::of([key], None);
        let ranked = |score| Cursor::Ranked(RankedPlace { since: 1 << 52, score, key }, trail.clone());
        let score = Score::new(-41_550.123_456_789).unwrap();
        for cursor in [
            Cursor::Feed(key, trail.clone()),
            Cursor::Feed(key, trail.clone().of_facts()),
            Cursor::Since(Since { newest: key, trail: trail.clone() }),
            Cursor::Oldest(Since { newest: key, trail: trail.clone() }),
            Cursor::Reacted(key),
            Cursor::Author(12),
            Cursor::Relation(relation),
            Cursor::Notice(12),
            Cursor::List(12),
            Cursor::Comment(12),
            Cursor::Export(1, None),
            Cursor::Export(2, Some([1, 2, 3, 4])),
            Cursor::Group(GroupPlace { at: Timestamp::from_ms(9), id: GroupId::REQUEST }),
            ranked(score),
        ] {
            let bytes = cursor.to_bytes();
            assert_eq!((Cursor::from_bytes(&bytes), Cursor::from_bytes(&bytes[1..])), (Some(cursor), None));
        }
        assert_eq!(Cursor::from_bytes(&[]), None);
        assert_eq!(Cursor::from_bytes(&[5; 9]), None);
        let feed = Cursor::Feed(key, trail.clone()).to_bytes();
        assert_eq!(Cursor::from_bytes(&feed[..feed.len() - 1]), None, "half a post");
        for not_finite in [f64::NAN, f64::INFINITY] {
            let mut bytes = ranked(score).to_bytes();
            bytes[9..17].copy_from_slice(&not_finite.to_bits().to_be_bytes());
            assert_eq!(Cursor::from_bytes(&bytes), None);
        }
    }
}
