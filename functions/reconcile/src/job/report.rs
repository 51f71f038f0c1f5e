//! The report of a run.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tracing::warn;

use crate::diff::{DamagedItem, Difference, FactDifference};
use tidemark_app::ports::Metrics;
use tidemark_domain::Timestamp;

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
    /// The number of differences of each kind.
    pub found: BTreeMap<String, u64>,
    /// The number of each kind that no longer exists after its repair.
    pub repaired: BTreeMap<String, u64>,
    /// Looks and repairs that failed.
    pub failed: u64,
    /// The position where the next run continues; `None` at the end.
    pub next: Option<String>,
}

impl Report {
    pub fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    pub(super) fn found<'a>(&mut self, differences: impl Iterator<Item = &'a Difference>) {
        for difference in differences {
            let known = self.differences.contains(difference);
            if self.differences.len() < LISTED {
                self.differences.insert(difference.clone());
            }
            if !known {
                if let Difference::Fact(FactDifference::ItemDamaged { item }) = difference {
                    warn!(table = item.table, key = item.key, "an item that cannot be read");
                }
                *self.found.entry(difference.kind()).or_default() += 1;
            }
        }
    }

    /// Adds items that cannot be read.
    pub(super) fn damaged(&mut self, items: impl IntoIterator<Item = DamagedItem>) {
        for item in items {
            self.found([Difference::from(item)].iter());
        }
    }

    pub(super) fn repaired<'a>(&mut self, differences: impl Iterator<Item = &'a Difference>) {
        for difference in differences {
            *self.repaired.entry(difference.kind()).or_default() += 1;
        }
    }

    /// Sends the counts of all kinds together, and of each kind.
    pub fn emit(&self, metrics: &dyn Metrics, at: Timestamp, job: &str) {
        let sum = |of: &BTreeMap<String, u64>| of.values().sum();
        let all = [
            ("DifferencesFound", sum(&self.found)),
            ("DifferencesRepaired", sum(&self.repaired)),
            ("LookedAt", self.looked_at),
            ("Failed", self.failed),
        ];
        metrics.count(at, job, None, &all);
        for (kind, found) in &self.found {
            let repaired = self.repaired.get(kind).copied().unwrap_or(0);
            metrics.count(at, job, Some(kind), &[("DifferencesFound", *found), ("DifferencesRepaired", repaired)]);
        }
    }
}
