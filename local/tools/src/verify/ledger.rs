//! Counting comparisons and keeping the first mismatches.

use std::fmt::{self, Debug};

/// How many mismatches are shown in detail, of all users and of one, so that one user's do not hide the others'.
const SHOWN: usize = 20;
const SHOWN_OF_ONE: usize = 5;

/// One thing that is not as the independent count says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Whose view it is.
    pub user: u64,
    /// What was compared.
    pub what: String,
    /// What the independent count says.
    pub expected: String,
    /// What the stack says.
    pub got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}: {}: expected {}, got {}", self.user, self.what, self.expected, self.got)
    }
}

/// The comparisons made for one user.
#[derive(Debug, Clone)]
pub struct Checks {
    user: u64,
    comparisons: u64,
    mismatched: u64,
    first: Vec<Mismatch>,
}

impl Checks {
    /// None yet.
    pub fn of(user: u64) -> Self {
        Self { user, comparisons: 0, mismatched: 0, first: Vec::new() }
    }

    /// Compares two values.
    pub fn equal<T: PartialEq + Debug>(&mut self, what: &str, expected: T, got: T) {
        let holds = expected == got;
        self.holds(what, holds, || (format!("{expected:?}"), format!("{got:?}")));
    }

    /// Counts a comparison made elsewhere; `detail` gives what was expected and what came.
    pub fn holds(&mut self, what: &str, holds: bool, detail: impl FnOnce() -> (String, String)) {
        self.comparisons += 1;
        if holds {
            return;
        }
        self.mismatched += 1;
        if self.first.len() < SHOWN_OF_ONE {
            let (expected, got) = detail();
            self.first.push(Mismatch { user: self.user, what: what.to_owned(), expected, got });
        }
    }

    /// A request that was not answered as it had to be: what it would have shown counts as a mismatch.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.holds("request", false, || ("an answer".to_owned(), format!("{error:#}")));
    }

    /// How many comparisons did not hold.
    pub fn mismatched(&self) -> u64 {
        self.mismatched
    }

    /// How many comparisons were made.
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// The first mismatches.
    pub fn first(&self) -> &[Mismatch] {
        &self.first
    }
}

/// All comparisons of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    comparisons: u64,
    mismatched: u64,
    first: Vec<Mismatch>,
}

impl Ledger {
    /// Adds one user's.
    pub fn add(&mut self, checks: Checks) {
        self.comparisons += checks.comparisons;
        self.mismatched += checks.mismatched;
        let room = SHOWN.saturating_sub(self.first.len());
        self.first.extend(checks.first.into_iter().take(room));
    }

    /// How many comparisons were made.
    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// How many did not hold.
    pub fn mismatched(&self) -> u64 {
        self.mismatched
    }

    /// The first mismatches.
    pub fn first(&self) -> &[Mismatch] {
        &self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_comparison_counts_and_the_first_mismatches_are_kept() {
        let mut ledger = Ledger::default();
        for user in 0..30 {
            let mut checks = Checks::of(user);
            checks.equal("same", 1, 1);
            checks.equal("unread_total", 5, 4);
            ledger.add(checks);
        }
        assert_eq!((ledger.comparisons(), ledger.mismatched(), ledger.first().len()), (60, 30, SHOWN));
        assert_eq!(ledger.first()[0].to_string(), "user 0: unread_total: expected 5, got 4");
    }
}
