//! Sets of sequence numbers: read posts, deleted posts.

use roaring::RoaringTreemap;

use super::ids::Seq;

/// The size of a window, in sequence numbers: one container of roaring, at most 8 KiB.
pub const WINDOW: u64 = 1 << 16;

/// A run-compressed roaring bitmap: "1 to a million except three" takes tens of bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeqSet(RoaringTreemap);

#[derive(Debug, thiserror::Error)]
#[error("not a serialized set of sequence numbers")]
pub struct DecodeSeqSetError(#[source] std::io::Error);

impl SeqSet {
    /// Decodes roaring's portable 64-bit format. No bytes are the empty set.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeSeqSetError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        RoaringTreemap::deserialize_from(bytes).map(Self).map_err(DecodeSeqSetError)
    }

    /// Encodes the set in roaring's portable 64-bit format, with runs compressed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut set = self.0.clone();
        set.optimize();
        let mut bytes = Vec::with_capacity(set.serialized_size());
        // Writing to a vector fails only if memory is exhausted.
        let written = set.serialize_into(&mut bytes);
        debug_assert!(written.is_ok());
        bytes
    }

    pub fn insert(&mut self, seq: Seq) -> bool {
        self.0.insert(seq)
    }

    pub fn remove(&mut self, seq: Seq) -> bool {
        self.0.remove(seq)
    }

    /// Adds or removes a number. Returns whether that changed the set.
    pub fn set(&mut self, seq: Seq, present: bool) -> bool {
        if present { self.0.insert(seq) } else { self.0.remove(seq) }
    }

    /// Adds all numbers from `first` to `last`, both included.
    pub fn insert_range(&mut self, first: Seq, last: Seq) {
        if first <= last {
            self.0.insert_range(first..=last);
        }
    }

    /// Removes all numbers above `last`.
    pub fn truncate(&mut self, last: Seq) {
        if let Some(first) = last.checked_add(1) {
            self.0.remove_range(first..);
        }
    }

    pub fn contains(&self, seq: Seq) -> bool {
        self.0.contains(seq)
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many numbers from `first` to `last`, both included, are in the set.
    pub(crate) fn count_between(&self, first: Seq, last: Seq) -> u64 {
        if first > last { 0 } else { self.0.range_cardinality(first..=last) }
    }

    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// Returns the smallest and the greatest number; `None` if the set is empty.
    pub fn bounds(&self) -> Option<(Seq, Seq)> {
        self.0.min().zip(self.0.max())
    }

    /// Returns the windows that have numbers of the set, ascending.
    pub fn windows(&self) -> impl Iterator<Item = u64> + '_ {
        let mut iter = self.0.iter();
        std::iter::from_fn(move || {
            let window = iter.next()? / WINDOW;
            iter.advance_to((window + 1) * WINDOW);
            Some(window)
        })
    }

    /// Returns the numbers of the set in one window.
    #[must_use]
    pub fn in_window(&self, window: u64) -> Self {
        let mut only = RoaringTreemap::new();
        only.insert_range(window * WINDOW..(window + 1) * WINDOW);
        Self(&self.0 & only)
    }

    pub fn iter(&self) -> impl Iterator<Item = Seq> + '_ {
        self.0.iter()
    }

    /// Returns the numbers above `after`, ascending.
    pub fn above(&self, after: Seq) -> impl Iterator<Item = Seq> + '_ {
        let mut iter = self.0.iter();
        iter.advance_to(after.saturating_add(1));
        iter
    }

    /// Returns the runs of numbers, each with its first and last, ascending. Zero is in none.
    pub fn ranges(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        let mut after = 0;
        std::iter::from_fn(move || {
            let first = self.above(after).next()?;
            after = self.contiguous_above(first - 1);
            Some((first, after))
        })
    }

    /// Returns the numbers in `after+1..=upto` that are not in the set, greatest first. Long runs cost few steps.
    pub fn absent_between(&self, after: Seq, upto: Seq) -> impl Iterator<Item = Seq> + '_ {
        let mut next = upto;
        std::iter::from_fn(move || {
            if next > after && self.contains(next) {
                next = self.run_start(next) - 1;
            }
            let absent = (next > after).then_some(next)?;
            next -= 1;
            Some(absent)
        })
    }

    /// The same, smallest first.
    pub fn absent_ascending(&self, after: Seq, upto: Seq) -> impl Iterator<Item = Seq> + '_ {
        let next = move |after| Some(self.contiguous_above(after) + 1).filter(|&seq| seq <= upto);
        std::iter::successors(next(after), move |&seq| next(seq))
    }

    /// Returns the smallest `n ≥ 1` for which every number in `n..=last` is in the set. `last` must be in the set.
    fn run_start(&self, last: Seq) -> Seq {
        let is_run = |first: Seq| self.count_between(first, last) == last - first + 1;
        // The step doubles while the range is a run. Then bisection finds the start: `low` is not part of the run.
        let (mut start, mut step) = (last, 1);
        while step < last && is_run(last - step) {
            start = last - step;
            step *= 2;
        }
        let mut low = last.saturating_sub(step);
        while start - low > 1 {
            let middle = low + (start - low) / 2;
            if is_run(middle) { start = middle } else { low = middle }
        }
        start
    }

    /// Returns the greatest `n ≥ after` for which every number in `after+1..=n` is in the set.
    pub(crate) fn contiguous_above(&self, after: Seq) -> Seq {
        let rank = self.0.rank(after);
        // In a contiguous run, the rank grows as fast as the number. Bisection finds where that ends.
        let (mut low, mut high) = (after, after.saturating_add(self.0.len().saturating_sub(rank)));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.0.rank(middle) - rank == middle - after {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }
}

impl FromIterator<Seq> for SeqSet {
    fn from_iter<I: IntoIterator<Item = Seq>>(seqs: I) -> Self {
        Self(seqs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn absent_numbers_are_those_that_are_not_in_the_set(
            members in btree_set(1..60u64, 0..60), after in 0..70u64, upto in 0..70u64,
        ) {
            let set: SeqSet = members.iter().copied().collect();
            let mut expected: Vec<u64> = (after + 1..=upto).filter(|seq| !members.contains(seq)).collect();
            prop_assert_eq!(set.absent_ascending(after, upto).collect::<Vec<_>>(), expected.clone());
            expected.reverse();
            prop_assert_eq!(set.absent_between(after, upto).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_long_run_is_skipped() {
        let mut set = SeqSet::default();
        set.insert_range(5, 3_000_000_000);
        let absent: BTreeSet<u64> = set.absent_between(0, 3_000_000_002).collect();
        assert_eq!(absent, [1, 2, 3, 4, 3_000_000_001, 3_000_000_002].into());
    }

    #[test]
    fn a_million_numbers_except_three_stay_small_and_decode_to_themselves() {
        let mut set = SeqSet::default();
        set.insert_range(1, 1_000_000);
        for seq in [3, 70_000, 999_999] {
            assert!(set.remove(seq));
        }
        let bytes = set.to_bytes();
        assert!(bytes.len() < 400, "{} bytes", bytes.len());
        assert_eq!(SeqSet::from_bytes(&bytes).unwrap(), set);
        assert_eq!(SeqSet::from_bytes(&[]).unwrap(), SeqSet::default());
        assert!(SeqSet::from_bytes(b"nonsense").is_err());
    }

    #[test]
    fn windows_have_numbers_of_the_set_and_together_are_the_set() {
        let set: SeqSet = [1, 65_535, 65_536, 200_000, 3 << 32].into_iter().collect();
        let windows: Vec<u64> = set.windows().collect();
        assert_eq!(windows, [0, 1, 3, 3 << 16]);
        assert_eq!(set.in_window(0).iter().collect::<Vec<_>>(), [1, 65_535]);
        assert_eq!(windows.iter().fold(SeqSet::default(), |all, &window| all.union(&set.in_window(window))), set);
        assert!(set.in_window(2).is_empty());
    }

    #[test]
    fn contiguous_above_stops_at_the_first_gap() {
        let set: SeqSet = (1..=10).chain(12..=20).collect();
        assert_eq!([0, 4, 10, 11, 25].map(|after| set.contiguous_above(after)), [10, 10, 10, 20, 25]);
        assert_eq!(SeqSet::default().contiguous_above(5), 5);
    }
}
