//! The scores of a ranked feed.
//!
//! ```text
//! score = weight + preference + step + age
//! age   = time of the post in ms / half-life in ms
//! ```
//!
//! - `weight` (-100 to 100) is the author's, `preference` (-10 to 10) is the follower's.
//! - `step` is log2(1 + likes + 2 · favorites), as an integer: see [`Step`].
//! - `age` grows with the time of publication, so no score changes because time passes. A post that is a half-life
//!   newer has one point more, as much as twice the reactions.
//!
//! Scores are computed in this order, in 64-bit floating point: `(weight + step + preference) + age`, with an integer
//! in parentheses. `shared/views/src/lua/codec.lua` does the same, so equal facts give equal scores.

use std::{cmp::Ordering, time::Duration};

use super::{reactions::ReactionCounts, time::Timestamp};

/// The least and the greatest preference.
pub const PREFERENCES: std::ops::RangeInclusive<i8> = -10..=10;

/// After this many changes a step only rises, so reactions that come and go cannot change it without end.
const MOST_FALLS: u32 = 64;

/// The part of a post's score that follows from its reactions.
///
/// With `n = 1 + likes + 2 · favorites`, it rises to floor(log2 n) when that is greater than the step, and falls to
/// floor(log2 n) when `n` is at most half of what the step stands for. The distance between the two keeps a single
/// reaction from moving a post up and down. So at rest a step is floor(log2 n), or one more after reactions were taken
/// back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct Step {
    pub level: u8,
    /// The number of times that it has changed. It is the step's version.
    pub changes: u32,
}

impl Step {
    /// Returns the step that these counts imply, one change later; `None` if it stays as it is.
    #[must_use]
    pub fn after(self, counts: ReactionCounts) -> Option<Self> {
        let n = 1_u64.saturating_add(counts.likes).saturating_add(counts.favorites.saturating_mul(2));
        let level = n.ilog2() as u8;
        let rises = level > self.level;
        let falls = self.level > 0 && n <= 1 << (self.level - 1).min(63) && self.changes < MOST_FALLS;
        (rises || falls).then(|| Self { level, changes: self.changes.saturating_add(1) })
    }
}

/// The part of a post's score that is the same for all readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// From -100 to 100.
    pub weight: i8,
    pub step: Step,
}

impl Rank {
    pub fn points(self) -> i64 {
        i64::from(self.weight) + i64::from(self.step.level)
    }
}

/// A finite score, ordered by its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Score {
    /// Less than every score of a post.
    pub const MIN: Self = Self(f64::MIN);
    /// Greater than every score of a post.
    pub const MAX: Self = Self(f64::MAX);

    /// Returns `None` if the number is not finite.
    pub fn new(score: f64) -> Option<Self> {
        // Zero has one form, so that equal numbers are equal scores.
        score.is_finite().then_some(Self(score + 0.0))
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

/// The difference in age that is worth one point. At least a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HalfLife(u64);

impl HalfLife {
    pub fn new(length: Duration) -> Self {
        Self(u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    pub fn ms(self) -> u64 {
        self.0
    }

    /// Returns the score of a post for a reader with this preference for its author.
    pub fn score(self, at: Timestamp, rank: Rank, preference: i8) -> Score {
        let points = (rank.points() + i64::from(preference)) as f64;
        Score(points + at.ms() as f64 / self.0 as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(n: u64) -> ReactionCounts {
        ReactionCounts { likes: n - 1, ..ReactionCounts::default() }
    }

    #[test]
    fn a_step_rises_at_each_power_of_two_and_falls_at_half_of_it() {
        let mut step = Step::default();
        let mut at = |n: u64| {
            step = step.after(counts(n)).unwrap_or(step);
            step.level
        };
        assert_eq!([1, 2, 3, 4, 3, 4, 2, 3, 2, 1].map(&mut at), [0, 1, 1, 2, 2, 2, 1, 1, 1, 0]);
        assert_eq!([1_000, 513, 512, 257, 256, 128, 1].map(&mut at), [9, 9, 9, 9, 8, 7, 0]);
        let favorites = ReactionCounts { likes: 1, favorites: 1, reposts: 9, comments: 9 };
        assert_eq!(Step::default().after(favorites).map(|step| step.level), Some(2));
        let all = ReactionCounts { likes: u64::MAX, favorites: u64::MAX, ..ReactionCounts::default() };
        assert_eq!(Step::default().after(all), Some(Step { level: 63, changes: 1 }));
    }

    #[test]
    fn a_step_falls_a_bounded_number_of_times() {
        let mut step = Step::default();
        for round in 0..10_000 {
            step = step.after(counts(if round % 2 == 0 { 2 } else { 1 })).unwrap_or(step);
        }
        assert_eq!((step.level, step.changes <= MOST_FALLS + 1), (1, true), "{step:?}");
        assert_eq!(step.after(counts(8)).map(|step| step.level), Some(3), "it still rises");
    }

    proptest! {
        #[test]
        fn a_step_at_rest_is_the_logarithm_or_one_more(history in proptest::collection::vec(1..5_000u64, 1..40)) {
            let mut step = Step::default();
            for &n in &history {
                step = step.after(counts(n)).unwrap_or(step);
                prop_assert_eq!(step.after(counts(n)), None, "nothing is left to change");
                let log = n.ilog2() as u8;
                prop_assert!(step.level == log || (step.level == log + 1 && !n.is_power_of_two()), "{:?} at {}", step, n);
            }
        }
    }

    #[test]
    fn a_score_is_a_sum_and_a_half_life_is_one_point() {
        let half_life = HalfLife::new(Duration::from_secs(12 * 3600));
        let at = Timestamp::from_ms(1_795_000_000_123);
        let rank = Rank { weight: -3, step: Step { level: 5, changes: 9 } };
        let score = half_life.score(at, rank, 4).get();
        assert!((score - (6.0 + 1_795_000_000_123.0 / 43_200_000.0)).abs() < 1e-9, "{score}");
        let later = half_life.score(at.plus_ms(43_200_000), rank, 4).get();
        assert!((later - score - 1.0).abs() < 1e-9);
        assert!(Score::new(f64::NAN).is_none() && Score::new(f64::INFINITY).is_none());
        assert_eq!(Score::new(-0.0), Score::new(0.0));
        assert_eq!(HalfLife::new(Duration::ZERO).ms(), 1);
    }
}
