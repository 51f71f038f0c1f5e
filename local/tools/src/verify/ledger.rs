//! Counts comparisons and keeps the first mismatches.

use std::fmt::{self, Debug};

/// The numbers of mismatches that are shown in detail, of all users and of one user. The second limit leaves space
/// for other users' mismatches.
const SHOWN: usize = 20;
const SHOWN_OF_ONE: usize = 5;

/// A difference between the stack and the independent count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The user whose view it is.
    pub user: u64,
    /// The name of the comparison.
    pub what: String,
    /// The value of the independent count.
    pub expected: String,
    /// The value of the stack.
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
    made: Ledger,
}

impl Checks {
    pub fn of(user: u64) -> Self {
        Self { user, made: Ledger::default() }
    }

    pub fn equal<T: PartialEq + Debug>(&mut self, what: &str, expected: T, got: T) {
        let holds = expected == got;
        self.holds(what, holds, || (format!("{expected:?}"), format!("{got:?}")));
    }

    /// Counts a comparison made elsewhere. `detail` returns the expected and the actual value.
    pub fn holds(&mut self, what: &str, holds: bool, detail: impl FnOnce() -> (String, String)) {
        self.made.comparisons += 1;
        if holds {
            return;
        }
        self.made.mismatched += 1;
        if self.made.first.len() < SHOWN_OF_ONE {
            let (expected, got) = detail();
            self.made.first.push(Mismatch { user: self.user, what: what.to_owned(), expected, got });
        }
    }

    /// Counts a request with an unexpected response as a mismatch.
    pub fn failed(&mut self, error: &anyhow::Error) {
        self.holds("request", false, || ("a response".to_owned(), format!("{error:#}")));
    }

    pub fn mismatched(&self) -> u64 {
        self.made.mismatched
    }
}

/// Comparisons, and the first that did not match.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    comparisons: u64,
    mismatched: u64,
    first: Vec<Mismatch>,
}

impl Ledger {
    pub fn add(&mut self, Checks { made, .. }: Checks) {
        self.comparisons += made.comparisons;
        self.mismatched += made.mismatched;
        let room = SHOWN.saturating_sub(self.first.len());
        self.first.extend(made.first.into_iter().take(room));
    }

    pub fn comparisons(&self) -> u64 {
        self.comparisons
    }

    pub fn mismatched(&self) -> u64 {
        self.mismatched
    }

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
