//! The measured values with their aims, and the results of checks.

use std::fmt;

use tidemark_tools::{text::thousands, verify::ledger::Ledger};

#[derive(Debug, Clone)]
struct Figure {
    what: String,
    value: String,
    aim: String,
}

#[derive(Debug, Clone)]
struct Check {
    what: String,
    holds: bool,
    detail: String,
}

/// The summary of a run. A failed check fails the run. A missed aim does not.
#[derive(Debug, Clone, Default)]
pub struct Report {
    figures: Vec<Figure>,
    checks: Vec<Check>,
    mismatches: Vec<String>,
}

impl Report {
    /// Adds a measurement without an aim.
    pub fn figure(&mut self, what: impl Into<String>, value: impl Into<String>) {
        self.figures.push(Figure { what: what.into(), value: value.into(), aim: String::new() });
    }

    /// Adds a ratio whose aim is at most `most`.
    pub fn ratio(&mut self, what: impl Into<String>, ratio: f64, most: f64) {
        let missed = if ratio > most { ", missed" } else { "" };
        self.figures.push(Figure { what: what.into(), value: format!("{ratio:.2}"), aim: format!("aim ≤ {most}{missed}") });
    }

    /// Checks that two numbers are equal.
    pub fn equal(&mut self, what: impl Into<String>, expected: u64, got: u64) {
        self.same(what, &thousands(expected), &thousands(got));
    }

    /// Checks that two texts are equal.
    pub fn same(&mut self, what: impl Into<String>, expected: &str, got: &str) {
        let detail = if expected == got { got.to_owned() } else { format!("{got}, not {expected}") };
        self.checks.push(Check { what: what.into(), holds: expected == got, detail });
    }

    /// Adds the comparisons made for many users.
    pub fn compared(&mut self, what: impl Into<String>, ledger: &Ledger) {
        let holds = ledger.mismatched() == 0 && ledger.comparisons() > 0;
        let detail = format!("{} comparisons, {} mismatches", thousands(ledger.comparisons()), thousands(ledger.mismatched()));
        self.checks.push(Check { what: what.into(), holds, detail });
        self.mismatches.extend(ledger.first().iter().map(ToString::to_string));
    }

    pub fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Figure { what, value, aim } in &self.figures {
            writeln!(f, "{what:<46} {value:>16}  {aim}")?;
        }
        for mismatch in &self.mismatches {
            writeln!(f, "MISMATCH {mismatch}")?;
        }
        for Check { what, holds, detail } in &self.checks {
            writeln!(f, "{} {what}: {detail}", if *holds { "ok    " } else { "FAILED" })?;
        }
        let failed = self.checks.iter().filter(|check| !check.holds).count();
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
