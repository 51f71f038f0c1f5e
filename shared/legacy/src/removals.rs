//! The rule for everything that a pass removes here because it is missing there.
//!
//! The legacy Redis is a store of others, and a missing key is no proof: it may have been evicted, rebuilt, or flushed.
//! So a member is given up only if a later pass misses it too, and only if few are missing: of its list, and of all
//! lists of the kind at the last pass. Otherwise its facts stay until an operator confirms the number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemark::domain::{SeqSet, Timestamp};

use crate::{legacy::Layout, records::SeenList, report::Tally};

/// The part of a list, and of all lists of a kind, that may be missing.
pub(crate) const PERCENT: u64 = 5;
/// Members that may be missing of each list, however short it is. Of a list of blogs not more than half, because a
/// deleted post does not come back as it was.
const OF_A_LIST: u64 = 3;
/// Members that may be missing of all lists of a kind, but no more than half of them.
const OF_ALL: u64 = 50;

/// Members of all lists of a kind that a pass looked for, and how many of them it missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Absence {
    pub(crate) seen: u64,
    pub(crate) missing: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Removals {
    /// When this pass began.
    pub(crate) pass: Timestamp,
    pub(crate) percent: u64,
    /// The numbers of missing members that an operator has confirmed.
    pub(crate) confirmed: BTreeMap<Layout, u64>,
    /// What the last whole pass missed.
    pub(crate) last: BTreeMap<Layout, Absence>,
}

impl Removals {
    /// The members that are given up now, of those that are `missing` in the list. Counts the others.
    pub(crate) fn due(&self, layout: Layout, list: &SeenList, missing: &SeqSet, tally: &mut Tally, key: &str) -> SeqSet {
        tally.seen += list.members.len();
        tally.missing += missing.len();
        let earlier = if list.missed_at < self.pass { list.missing.clone() } else { SeqSet::default() };
        let again = missing.minus(&missing.minus(&earlier));
        if again.is_empty() {
            tally.waiting += missing.len();
            return again;
        }
        let members = list.members.len();
        let least = if layout == Layout::AuthorBlogs { OF_A_LIST.min(members.div_ceil(2)) } else { OF_A_LIST };
        if missing.len() <= self.most(layout, members, least) && self.are_few(layout) {
            tally.waiting += missing.len() - again.len();
            return again;
        }
        tally.hold(missing.len(), key);
        SeqSet::default()
    }

    /// Whether few of all members of the kind were missing at the last pass.
    fn are_few(&self, layout: Layout) -> bool {
        let last = self.last.get(&layout);
        last.is_some_and(|last| last.missing <= self.most(layout, last.seen, OF_ALL.min(last.seen.div_ceil(2))))
    }

    fn most(&self, layout: Layout, of: u64, least: u64) -> u64 {
        (of * self.percent / 100).max(least).max(self.confirmed.get(&layout).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(members: u64, missing: u64) -> SeenList {
        let [members, missing] = [members, missing].map(|last| (1..=last).collect());
        SeenList { members, missing, missed_at: Timestamp::from_ms(1), ..SeenList::default() }
    }

    fn removals(seen: u64, missing: u64) -> Removals {
        let last = [Layout::UFollow, Layout::AuthorBlogs].map(|layout| (layout, Absence { seen, missing })).into();
        Removals { pass: Timestamp::from_ms(2), percent: PERCENT, confirmed: BTreeMap::new(), last }
    }

    /// The members that are given up, and those that wait and are held, of a list that misses `missing` members.
    fn judged(removals: &Removals, list: &SeenList, missing: u64) -> [u64; 3] {
        judged_of(Layout::UFollow, removals, list, missing)
    }

    fn judged_of(layout: Layout, removals: &Removals, list: &SeenList, missing: u64) -> [u64; 3] {
        let mut tally = Tally::default();
        let missing: SeqSet = (1..=missing).collect();
        let due = removals.due(layout, list, &missing, &mut tally, "u_follow:1").len();
        [due, tally.waiting, tally.held]
    }

    #[test]
    fn a_member_is_given_up_by_a_later_pass_alone() {
        assert_eq!(judged(&removals(1_000, 2), &list(100, 0), 2), [0, 2, 0]);
        assert_eq!(judged(&removals(1_000, 2), &list(100, 1), 2), [1, 1, 0]);
        assert_eq!(judged(&removals(1_000, 2), &list(100, 2), 1), [1, 0, 0], "one is back");
        let same_pass = SeenList { missed_at: Timestamp::from_ms(2), ..list(100, 2) };
        assert_eq!(judged(&removals(1_000, 2), &same_pass, 2), [0, 2, 0]);
        assert_eq!(judged(&Removals { last: BTreeMap::new(), ..removals(0, 0) }, &list(100, 2), 2), [0, 0, 2], "the first pass");
    }

    #[test]
    fn a_list_of_blogs_that_is_missing_as_a_whole_is_held_unless_it_had_one() {
        let judged = |members, missing| judged_of(Layout::AuthorBlogs, &removals(1_000, 3), &list(members, missing), missing);
        assert_eq!([judged(1, 1), judged(2, 1), judged(6, 3)], [[1, 0, 0], [1, 0, 0], [3, 0, 0]]);
        assert_eq!([judged(2, 2), judged(3, 3), judged(6, 4)], [[0, 0, 2], [0, 0, 3], [0, 0, 4]]);
    }

    #[test]
    fn a_mass_waits_for_a_confirmation_of_its_number() {
        for (members, most) in [(4, 3), (40, 3), (100, 5), (1_000, 50)] {
            assert_eq!(judged(&removals(10_000, 10), &list(members, most), most), [most, 0, 0], "{members}");
            assert_eq!(judged(&removals(10_000, 10), &list(members, most + 1), most + 1), [0, 0, most + 1], "{members}");
        }
        for (seen, most) in [(1, 1), (2, 1), (3, 2), (99, 50), (1_000, 50), (2_000, 100)] {
            assert_eq!(judged(&removals(seen, most), &list(9, 1), 1), [1, 0, 0], "{seen}");
            assert_eq!(judged(&removals(seen, most + 1), &list(9, 1), 1), [0, 0, 1], "{seen}");
        }
        let confirmed = |most| Removals { confirmed: [(Layout::UFollow, most)].into(), ..removals(100, 90) };
        assert_eq!(judged(&confirmed(89), &list(90, 90), 90), [0, 0, 90]);
        assert_eq!(judged(&confirmed(90), &list(90, 90), 90), [90, 0, 0]);
        assert_eq!(judged(&Removals { percent: 100, ..removals(100, 100) }, &list(90, 90), 90), [90, 0, 0]);
    }
}
