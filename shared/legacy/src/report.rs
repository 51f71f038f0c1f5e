//! The counts of a run, by layout.

use std::collections::BTreeMap;

use crate::legacy::{Layout, Reason, Unread};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most examples that are kept for each reason.
const EXAMPLES: usize = 5;
/// The most bytes of a key or member that are shown.
const SHOWN: usize = 80;
/// The most lists that are named because members wait for a confirmation.
const HELD: usize = 20;

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
    /// Seen members that a pass looked for in its lists.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seen: u64,
    /// How many of them it missed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) missing: u64,
    /// Those of them that the next pass removes here if it misses them too, and if few are missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) waiting: u64,
    /// Those of them that wait for an operator's confirmation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) held: u64,
    /// The first lists with such members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) held_lists: Vec<String>,
    /// Follows that were written although the source has no list of what is unread of the author for the follower.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) without_unread_list: u64,
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
    /// At most 80 bytes.
    pub(crate) key: String,
    /// At most 80 bytes; `None` if the reason is about the key itself.
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

    /// Counts missing members of a list that wait for a confirmation.
    pub(crate) fn hold(&mut self, members: u64, list: &str) {
        self.held += members;
        self.held_lists.extend((self.held_lists.len() < HELD).then(|| shown(list.as_bytes())));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.read += other.read;
        self.written += other.written;
        self.already_there += other.already_there;
        self.unreadable += other.unreadable;
        self.seen += other.seen;
        self.missing += other.missing;
        self.waiting += other.waiting;
        self.held += other.held;
        self.held_lists.extend(other.held_lists);
        self.held_lists.truncate(HELD);
        self.without_unread_list += other.without_unread_list;
        for (reason, more) in other.reasons {
            let found = self.reasons.entry(reason).or_default();
            found.count += more.count;
            found.examples.extend(more.examples);
            found.examples.truncate(EXAMPLES);
        }
    }

    /// Begins the layout again. Only the number of written facts stays.
    pub(crate) fn begin_again(&mut self) {
        let without_unread_list = self.without_unread_list;
        *self = Self { earlier: self.earlier + self.written, without_unread_list, ..Self::default() };
    }

    fn response(&self) -> Value {
        let (written, already_there) = (self.written + self.earlier, self.already_there.saturating_sub(self.earlier));
        json!(Self { written, already_there, earlier: 0, ..self.clone() })
    }
}

/// Renders the rule for unread posts, and how many follows it had to decide without an unread list.
pub(crate) fn unread(rule: Option<Unread>, report: &Report) -> Value {
    let edges: u64 = report.values().map(|tally| tally.without_unread_list).sum();
    json!({ "rule": rule, "edges_without_unread_list": edges })
}

/// Renders the report: the counts of each layout, and the totals.
pub(crate) fn response(report: &Report) -> (Value, Value) {
    let layouts: BTreeMap<Layout, Value> = report.iter().map(|(layout, tally)| (*layout, tally.response())).collect();
    let total = |name: &str| layouts.values().filter_map(|tally| tally[name].as_u64()).sum::<u64>();
    let totals: BTreeMap<&str, u64> = ["keys", "read", "written", "already_there", "unreadable", "waiting", "held"]
        .into_iter()
        .map(|name| (name, total(name)))
        .collect();
    (json!(layouts), json!(totals))
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN)]).escape_debug().to_string();
    text[..text.floor_char_boundary(SHOWN)].to_owned()
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
