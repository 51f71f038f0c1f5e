//! Outcomes of requests, and their quantiles.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Serialize;
use tidemark_tools::verify::latency::quantile;

use super::traffic::Kind;

/// A request that has ended, of one of the kinds that are told apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<K = Kind> {
    pub(crate) kind: K,
    /// From the moment at which it was due to the end of its response.
    pub(crate) took: Duration,
    /// `None` if there was no response.
    pub(crate) status: Option<u16>,
}

impl<K> Outcome<K> {
    pub(crate) fn is_error(&self) -> bool {
        self.status.is_none_or(|status| status >= 400)
    }
}

/// The times of some requests, with those of errors. Times in milliseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) requests: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) most_ms: f64,
    /// Errors by status; `none` for requests without a response.
    pub(crate) errors: BTreeMap<String, u64>,
}

impl Summary {
    pub(crate) fn of<'a, K: 'a>(outcomes: impl IntoIterator<Item = &'a Outcome<K>>) -> Self {
        let (mut times, mut errors) = (Vec::new(), BTreeMap::new());
        for outcome in outcomes {
            times.push(outcome.took);
            if outcome.is_error() {
                let status = outcome.status.map_or("none".to_owned(), |status| status.to_string());
                *errors.entry(status).or_default() += 1;
            }
        }
        times.sort_unstable();
        let at = |share| ms(quantile(&times, share));
        let requests = times.len() as u64;
        Self { requests, p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), most_ms: at(1.0), errors }
    }

    /// The summaries of the kinds that occur.
    pub(crate) fn by_kind<K: Ord + Copy>(outcomes: &[Outcome<K>]) -> BTreeMap<K, Self> {
        let kinds: BTreeSet<K> = outcomes.iter().map(|outcome| outcome.kind).collect();
        kinds.into_iter().map(|kind| (kind, Self::of(outcomes.iter().filter(|outcome| outcome.kind == kind)))).collect()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The errors in one cell of a table.
    pub(crate) fn errors_text(&self) -> String {
        let texts: Vec<String> = self.errors.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        if texts.is_empty() { "0".to_owned() } else { texts.join(", ") }
    }
}

/// Milliseconds with two decimals.
pub(crate) fn ms(time: Duration) -> f64 {
    two_decimals(time.as_secs_f64() * 1e3)
}

pub(crate) fn two_decimals(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_by_status_and_in_the_times() {
        let outcome = |ms, status| Outcome { kind: Kind::Feed, took: Duration::from_millis(ms), status };
        let mut outcomes: Vec<Outcome> = (1..=997).map(|ms| outcome(ms, Some(200))).collect();
        outcomes.extend([outcome(2_000, Some(503)), outcome(3_000, None), outcome(3_000, None)]);
        let summary = Summary::of(&outcomes);
        assert_eq!((summary.requests, summary.failed()), (1_000, 3));
        assert_eq!((summary.p50_ms, summary.p99_ms, summary.p999_ms, summary.most_ms), (500.0, 990.0, 3_000.0, 3_000.0));
        assert_eq!(summary.errors_text(), "1 × 503, 2 × none");
        assert_eq!(Summary::by_kind(&outcomes).len(), 1);
        assert_eq!(Summary::of::<Kind>([]).errors_text(), "0");
    }
}
