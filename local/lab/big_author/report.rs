//! The measured values with their aims, and the results of checks.

use std::fmt::{self, Display};

use tidemark_tools::{text::thousands, verify::ledger::Ledger};

/// The summary of a run. A failed check fails the run. A missed aim does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    /// What was measured, its value, and its aim if it has one.
    figures: Vec<[String; 3]>,
    mismatches: Vec<String>,
    /// Whether a check holds, and what was checked.
    checks: Vec<(bool, String)>,
}

impl Report {
    /// Adds a measurement without an aim.
    pub(crate) fn figure(&mut self, what: impl Into<String>, value: impl Into<String>) {
        self.figures.push([what.into(), value.into(), String::new()]);
    }

    /// Adds a ratio whose aim is at most `most`.
    pub(crate) fn ratio(&mut self, what: &str, ratio: f64, most: f64) {
        let missed = if ratio > most { ", missed" } else { "" };
        self.figures.push([what.to_owned(), format!("{ratio:.2}"), format!("aim ≤ {most}{missed}")]);
    }

    /// Checks that two numbers are equal.
    pub(crate) fn equal(&mut self, what: impl Display, expected: u64, got: u64) {
        self.same(what, &thousands(expected), &thousands(got));
    }

    /// Checks that two texts are equal.
    pub(crate) fn same(&mut self, what: impl Display, expected: &str, got: &str) {
        let wrong = if expected == got { String::new() } else { format!(", not {expected}") };
        self.checks.push((expected == got, format!("{what}: {got}{wrong}")));
    }

    /// Adds the comparisons made for many users.
    pub(crate) fn compared(&mut self, what: &str, ledger: &Ledger) {
        let &Ledger { comparisons, mismatched, .. } = ledger;
        let detail = format!("{what}: {} comparisons, {} mismatches", thousands(comparisons), thousands(mismatched));
        self.checks.push((mismatched == 0 && comparisons > 0, detail));
        self.mismatches.extend_from_slice(&ledger.first);
    }

    pub(crate) fn is_good(&self) -> bool {
        self.checks.iter().all(|(holds, _)| *holds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for [what, value, aim] in &self.figures {
            writeln!(f, "{what:<46} {value:>16}  {aim}")?;
        }
        for mismatch in &self.mismatches {
            writeln!(f, "MISMATCH {mismatch}")?;
        }
        for (holds, check) in &self.checks {
            writeln!(f, "{} {check}", if *holds { "ok    " } else { "FAILED" })?;
        }
        let failed = self.checks.iter().filter(|(holds, _)| !holds).count();
        write!(f, "{} checks, {failed} failed", self.checks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_fail_a_report_and_missed_aims_do_not() {
        let mut report = Report::default();
        report.ratio("ratio", 4.0, 3.0);
        report.equal("delivered", 1_000, 1_000);
        assert!(report.is_good());
        assert!(report.to_string().contains("aim ≤ 3, missed"));
        report.equal("delivered", 1_000, 999);
        assert!(!report.is_good());
        assert!(report.to_string().contains("FAILED delivered: 999, not 1,000"));
    }

    #[test]
    fn a_report_without_comparisons_fails() {
        let mut report = Report::default();
        report.compared("views", &Ledger::default());
        assert!(!report.is_good());
    }
}
