//! Counts comparisons and keeps the first mismatches.

use std::fmt::Debug;

/// The numbers of mismatches that are shown in detail, of all users and of one user. The second leaves space for other
/// users.
const SHOWN: usize = 20;
const SHOWN_OF_ONE: usize = 5;

/// The comparisons made for one user.
#[derive(Debug, Clone)]
pub struct Checks {
    user: u64,
    pub(super) made: Ledger,
}

impl Checks {
    pub fn of(user: u64) -> Self {
        Self { user, made: Ledger::default() }
    }

    /// Makes comparisons for a user. An error of `work` counts as a mismatch, and there is no value.
    pub async fn make<T>(user: u64, work: impl AsyncFnOnce(&mut Self) -> anyhow::Result<T>) -> (Self, Option<T>) {
        let mut checks = Self::of(user);
        let value = work(&mut checks).await.inspect_err(|error| checks.failed(error)).ok();
        (checks, value)
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
            self.made.first.push(format!("user {}: {what}: expected {expected}, got {got}", self.user));
        }
    }

    /// Counts a request with an unexpected response as a mismatch.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        self.holds("request", false, || ("a response".to_owned(), format!("{error:#}")));
    }
}

/// Comparisons, and the first that did not match.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub comparisons: u64,
    pub mismatched: u64,
    /// Texts of the first mismatches: user, comparison, the independent count's value, the stack's value.
    pub first: Vec<String>,
}

impl Ledger {
    pub fn add(&mut self, Checks { made, .. }: Checks) {
        self.comparisons += made.comparisons;
        self.mismatched += made.mismatched;
        let room = SHOWN.saturating_sub(self.first.len());
        self.first.extend(made.first.into_iter().take(room));
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
        assert_eq!((ledger.comparisons, ledger.mismatched, ledger.first.len()), (60, 30, SHOWN));
        assert_eq!(ledger.first[0], "user 0: unread_total: expected 5, got 4");
    }
}
