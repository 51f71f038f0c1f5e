//! The counts of a run, by layout.

use std::collections::BTreeMap;

use crate::legacy::{Layout, Reason};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most examples that are kept for each reason.
const EXAMPLES: usize = 5;
/// The most characters of a key or member that are shown.
const SHOWN: usize = 80;

/// Counts of members, hashes and bits. Every entry that was read is written, already there, or unreadable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) keys: u64,
    pub(crate) read: u64,
    /// Facts that were written; in a dry run, facts that would be written.
    pub(crate) written: u64,
    pub(crate) already_there: u64,
    pub(crate) unreadable: u64,
    pub(crate) reasons: BTreeMap<Reason, Found>,
    /// Facts that were written before the layout began again. Their entries are read once more and found already there.
    #[serde(default, skip_serializing_if = "is_zero")]
    earlier: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The number of times that a reason occurred, and its first examples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) count: u64,
    pub(crate) examples: Vec<Example>,
}

/// The key or member for which a reason occurred.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Example {
    /// At most 80 characters.
    pub(crate) key: String,
    /// At most 80 characters; `None` if the reason is about the key itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) member: Option<String>,
}

pub(crate) type Report = BTreeMap<Layout, Tally>;

impl Tally {
    pub(crate) fn wrote(&mut self, entries: u64) {
        self.read += entries;
        self.written += entries;
    }

    pub(crate) fn found(&mut self, entries: u64) {
        self.read += entries;
        self.already_there += entries;
    }

    pub(crate) fn refuse(&mut self, reason: Reason, key: &[u8], member: Option<&[u8]>) {
        self.read += 1;
        self.unreadable += 1;
        let found = self.reasons.entry(reason).or_default();
        found.count += 1;
        if found.examples.len() < EXAMPLES {
            found.examples.push(Example { key: shown(key), member: member.map(shown) });
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.read += other.read;
        self.written += other.written;
        self.already_there += other.already_there;
        self.unreadable += other.unreadable;
        for (reason, more) in other.reasons {
            let found = self.reasons.entry(reason).or_default();
            found.count += more.count;
            found.examples.extend(more.examples);
            found.examples.truncate(EXAMPLES);
        }
    }

    /// Begins the layout again. Only the number of written facts stays.
    pub(crate) fn begin_again(&mut self) {
        *self = Self { earlier: self.earlier + self.written, ..Self::default() };
    }

    fn response(&self) -> Value {
        let (written, already_there) = (self.written + self.earlier, self.already_there.saturating_sub(self.earlier));
        json!(Self { written, already_there, earlier: 0, ..self.clone() })
    }
}

/// Renders the report: the counts of each layout, and the totals.
pub(crate) fn response(report: &Report) -> (Value, Value) {
    let layouts: BTreeMap<Layout, Value> = report.iter().map(|(layout, tally)| (*layout, tally.response())).collect();
    let total = |name: &str| layouts.values().filter_map(|tally| tally[name].as_u64()).sum::<u64>();
    let totals: BTreeMap<&str, u64> =
        ["keys", "read", "written", "already_there", "unreadable"].into_iter().map(|name| (name, total(name))).collect();
    (json!(layouts), json!(totals))
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]);
    text.escape_debug().to_string().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_counted_once_and_the_first_examples_are_kept() {
        let mut tally = Tally::default();
        tally.wrote(3);
        tally.found(2);
        let mut damaged = Tally::default();
        for member in 0..8_u8 {
            damaged.refuse(Reason::NotAnId, b"user:read:1", Some(&[b'a' + member, 0xff]));
        }
        tally.add(damaged.clone());
        tally.add(damaged);
        assert_eq!((tally.read, tally.written, tally.already_there, tally.unreadable), (21, 3, 2, 16));
        let found = &tally.reasons[&Reason::NotAnId];
        assert_eq!((found.count, found.examples.len()), (16, EXAMPLES));
        assert_eq!(found.examples[0].member.as_deref(), Some("a\u{fffd}"));
        assert_eq!(shown(&[b'x'; 10_000]).len(), SHOWN);
    }

    #[test]
    fn a_layout_that_begins_again_counts_no_entry_twice() {
        let mut report = Report::new();
        let tally = report.entry(Layout::UFollow).or_default();
        tally.wrote(40);
        tally.found(5);
        tally.begin_again();
        // All entries are read again: 40 were written before, 10 are new, 5 were there before the first run.
        tally.found(45);
        tally.wrote(10);
        let (_, totals) = response(&report);
        assert_eq!((&totals["read"], &totals["written"], &totals["already_there"]), (&json!(55), &json!(50), &json!(5)));
    }
}
