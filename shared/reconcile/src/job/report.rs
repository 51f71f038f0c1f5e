//! The report of a run.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

use serde::Serialize;
use serde_json::json;
use tidemark_app::{
    Recorder,
    metrics::{Metric, Property},
};
use tidemark_domain::UserId;
use tracing::warn;

use crate::diff::{Difference, Kind, Subject};

/// The most differences that are listed. The others are only counted.
const LISTED: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The users, posts, records and keys that were looked at.
    pub looked_at: u64,
    /// The differences that lasted, each once, at most a thousand.
    pub differences: BTreeSet<Difference>,
    pub found: BTreeMap<Kind, u64>,
    /// The number of each kind that no longer exists after its repair.
    pub repaired: BTreeMap<Kind, u64>,
    /// Looks and repairs that failed.
    pub failed: u64,
    /// The position where the next run continues; `None` at the end.
    pub next: Option<String>,
    /// The result of the job `fan-outs`.
    #[serde(flatten)]
    pub(super) fan_outs: Option<FlowReport>,
    /// A hash of each difference that is counted: a run may find more differences than it can list.
    #[serde(skip)]
    counted: HashSet<u64>,
    /// The readers whose views were forgotten.
    #[serde(skip)]
    forgotten: BTreeSet<UserId>,
    /// Whether views of further readers are left to the next run.
    #[serde(skip)]
    pub(super) is_postponed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct FlowReport {
    /// Fan-outs that are older than `overdue_ms`.
    pub unfinished: usize,
    /// Finished, or sent again.
    pub resumed: usize,
    pub pages_sent: usize,
    /// Left to their workers: they move, wait in the queue, or were sent recently.
    pub moving: usize,
    /// Resumed as often as allowed, in this run or before.
    pub given_up: u64,
    /// No longer among those that were given up before.
    #[serde(skip)]
    pub revived: u64,
    /// Stream records in the projector's failure queue; `None` if their number is unknown.
    pub stuck_records: Option<u64>,
}

impl Report {
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Adds differences. One that is already counted changes nothing.
    pub(super) fn found(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for difference in differences {
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&difference);
            if !self.counted.insert(hash) {
                continue;
            }
            if let Subject::Item(item) = &difference.subject {
                warn!(table = item.table, key = item.key, "an item that cannot be read");
            }
            *self.found.entry(difference.kind).or_default() += 1;
            if self.differences.len() < LISTED {
                if let Subject::View(_) = &difference.subject {
                    warn!(difference = json!(difference).to_string(), "a view does not agree with the facts");
                }
                self.differences.insert(difference);
            }
        }
    }

    /// Returns whether a reader's view may be forgotten, and counts it: there may be `most` of them.
    pub(super) fn may_forget(&mut self, reader: UserId, most: usize) -> bool {
        let may = self.forgotten.contains(&reader) || self.forgotten.len() < most;
        if may {
            self.forgotten.insert(reader);
        }
        self.is_postponed |= !may;
        may
    }

    pub(super) fn repaired<'a>(&mut self, differences: impl IntoIterator<Item = &'a Difference>) {
        for difference in differences {
            *self.repaired.entry(difference.kind).or_default() += 1;
        }
    }

    /// Writes a line of the counts of all kinds together, and one of each kind, which is a dimension.
    pub fn emit(&self, recorder: &Recorder, job: &str) {
        let write = |kind: Option<Kind>, counts: &[(Metric, u64)]| {
            let named = [("Job", Some(job)), ("Kind", kind.map(Kind::id))];
            let properties = named.into_iter().filter_map(|(name, value)| Some((name, Property::Text(value?.to_owned()))));
            let values = counts.iter().map(|(metric, count)| (*metric, vec![*count as f64]));
            recorder.write(properties.collect(), values.collect());
        };
        let sum = |of: &BTreeMap<Kind, u64>| of.values().sum();
        let all = [
            (Metric::DifferencesFound, sum(&self.found)),
            (Metric::DifferencesRepaired, sum(&self.repaired)),
            (Metric::LookedAt, self.looked_at),
            (Metric::Failed, self.failed),
        ];
        write(None, &all);
        for (kind, found) in &self.found {
            let repaired = self.repaired.get(kind).copied().unwrap_or(0);
            write(Some(*kind), &[(Metric::DifferencesFound, *found), (Metric::DifferencesRepaired, repaired)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemark_views::keys::View;

    use super::*;
    use crate::diff::Part;

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    #[test]
    fn each_difference_is_counted_once_and_a_thousand_are_listed() {
        let views = (1..=LISTED as u64 + 10).map(|id| View::Reader(user(id)));
        let lost: Vec<_> = views.map(|view| Difference::of_view(Kind::ViewOrphan, view, "feed", Part::Whole {})).collect();
        let mut report = Report::default();
        report.found(lost.clone());
        report.found(lost);
        assert_eq!((report.found[&Kind::ViewOrphan], report.differences.len()), (LISTED as u64 + 10, LISTED));
    }

    #[test]
    fn a_run_forgets_the_views_of_a_bounded_number_of_readers() {
        let mut report = Report::default();
        assert!([1, 2, 1].iter().all(|id| report.may_forget(user(*id), 2)) && !report.is_postponed);
        assert!(!report.may_forget(user(3), 2) && report.is_postponed && report.may_forget(user(2), 2));
    }
}
