//! The times of an author's newest posts. They place these posts in a feed without a read of the posts themselves.

use crate::{FeedKey, PostId, Seq, Timestamp, UserId, feed::FeedCap};

/// As many posts of an author as a rebuilt feed has.
pub const MOST_TIMES: usize = FeedCap::GREATEST.filled();

/// The times at which an author's newest posts were published. Neither a time nor the order of posts ever changes, so
/// these stay right: the author's head says which of the posts are deleted, and which are newer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostTimes {
    /// All known posts are above this number.
    pub above: Seq,
    /// All known posts are at or below this number.
    pub upto: Seq,
    /// Ascending. A post between the two numbers that is missing here was in no feed when the times were read.
    pub times: Vec<(Seq, Timestamp)>,
}

impl PostTimes {
    /// Returns whether the post's time is known, or that no feed shows it.
    pub fn knows(&self, seq: Seq) -> bool {
        self.above < seq && seq <= self.upto
    }

    /// Returns the time of a post; `None` if it is unknown, or no feed shows the post.
    pub fn at(&self, seq: Seq) -> Option<Timestamp> {
        self.times.binary_search_by_key(&seq, |(known, _)| *known).ok().map(|index| self.times[index].1)
    }

    /// Adds the posts up to `upto`, ascending and above those that are known. Keeps as many as a feed does.
    #[must_use]
    pub fn with(mut self, upto: Seq, newer: impl IntoIterator<Item = (Seq, Timestamp)>) -> Self {
        self.times.extend(newer);
        self.upto = upto.max(self.upto);
        let excess = self.times.len().saturating_sub(MOST_TIMES);
        if let Some((last, _)) = self.times.drain(..excess).next_back() {
            self.above = last;
        }
        self
    }

    /// Returns the places of these posts of the author that are known and that feeds show.
    pub fn keys(&self, author: UserId, seqs: &[Seq]) -> Vec<FeedKey> {
        let key = |&seq: &Seq| Some(FeedKey { at: self.at(seq)?, post: PostId::new(author, seq) });
        seqs.iter().filter_map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_posts_push_out_the_oldest_ones() {
        let at = |seq: Seq| (seq, Timestamp::from_ms(seq * 10));
        let times = PostTimes::default().with(5, [1, 2, 4].map(at));
        let known: Vec<bool> = (0..8).map(|seq| times.knows(seq)).collect();
        assert_eq!(known, [false, true, true, true, true, true, false, false], "post 3 is known to be in no feed");
        assert_eq!([times.at(3), times.at(4), times.at(6)], [None, Some(Timestamp::from_ms(40)), None]);
        let cap = MOST_TIMES as u64;
        let times = times.with(cap + 7, (8..=cap + 7).map(at));
        assert_eq!((times.above, times.upto, times.times.len()), (4, cap + 7, MOST_TIMES));
        assert_eq!([times.knows(4), times.knows(5), times.knows(cap + 7)], [false, true, true]);
        let times = times.with(cap + 8, [at(cap + 8)]);
        assert_eq!((times.above, times.times.len()), (8, MOST_TIMES));
        let author = UserId::MIN;
        assert_eq!(times.keys(author, &[8, 7, cap + 8]).len(), 1);
    }
}
