//! The results of edges, and their summary at the end of a load.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

use serde_json::Value;

use crate::{
    api::slug,
    edges::LineCounts,
    text::{largest, rate, short, thousands},
};

/// The number of accounts with refusals in the summary.
const LISTED: usize = 10;

/// The result of one edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The request created the edge.
    Made,
    /// The edge existed before.
    Existed,
    /// The API refused the edge, for the reason of this slug. A repetition has the same result.
    Refused(String),
    /// 429 or 503 for this edge. Send it again.
    Busy(String),
    Failed(String),
}

/// Returns one outcome for each requested author, in the same order. A result with `created: false` means that the
/// edge existed; a result without `created` counts as made.
pub(crate) fn read_results(asked: &[u64], body: &Value) -> Vec<Outcome> {
    let results = body["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let by_author: HashMap<u64, &Value> =
        results.iter().filter_map(|result| Some((result["author"].as_str()?.parse().ok()?, result))).collect();
    let missing = || Outcome::Failed("no result for this author in the response".to_owned());
    asked.iter().map(|author| by_author.get(author).map_or_else(missing, |result| read_result(result))).collect()
}

fn read_result(result: &Value) -> Outcome {
    match &result["error"] {
        Value::Null if result["following"] == true && result["created"] == false => Outcome::Existed,
        Value::Null if result["following"] == true => Outcome::Made,
        Value::Null => Outcome::Failed("not following, and no reason given".to_owned()),
        Value::String(reason) => Outcome::Refused(slug(reason).to_owned()),
        problem => {
            let name = match problem["type"].as_str() {
                Some(kind) => slug(kind).to_owned(),
                None => "without a type".to_owned(),
            };
            match problem["status"].as_u64() {
                Some(status @ (429 | 503)) => Outcome::Busy(format!("{status} {name}")),
                Some(status @ (401 | 403 | 500..)) => Outcome::Failed(format!("{status} {name}")),
                _ => Outcome::Refused(name),
            }
        }
    }
}

/// The results of a file's edges. Every edge is in exactly one of `asked`, `repeated`, `not_asked`. Every edge in
/// `asked` is in exactly one of `made`, `existed`, `refused`, `failed`.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Counts of the file's lines.
    pub lines: LineCounts,
    /// Edges that were sent.
    pub asked: u64,
    /// Edges that the load created.
    pub made: u64,
    /// Edges that existed before.
    pub existed: u64,
    pub refused: BTreeMap<String, u64>,
    pub refused_by: HashMap<u64, u64>,
    pub failed: BTreeMap<String, u64>,
    /// Edges that occur twice within one request. They are sent once.
    pub repeated: u64,
    /// Edges that were not sent because the stack became unavailable.
    pub not_asked: u64,
    /// True if the stack became unavailable and the load ended early.
    pub gave_up: bool,
    /// Requests that were sent again after a failure.
    pub retried: u64,
    /// The time from the first request to the last response.
    pub took: Duration,
}

impl Report {
    /// Counts the outcomes of one follower's batch.
    pub fn add(&mut self, follower: u64, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            self.asked += 1;
            match outcome {
                Outcome::Made => self.made += 1,
                Outcome::Existed => self.existed += 1,
                Outcome::Refused(reason) => {
                    *self.refused.entry(reason).or_default() += 1;
                    *self.refused_by.entry(follower).or_default() += 1;
                }
                Outcome::Busy(reason) | Outcome::Failed(reason) => *self.failed.entry(reason).or_default() += 1,
            }
        }
    }

    pub(crate) fn refused_total(&self) -> u64 {
        self.refused.values().sum()
    }

    pub(crate) fn failed_total(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Returns true if every edge was made, existed or was refused.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && !self.gave_up
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, name: &str, count: u64, remark: &str| {
            let line = format!("{name:<15}{:>12}  {remark}", thousands(count));
            writeln!(f, "{}", line.trim_end())
        };
        let lines = &self.lines;
        let LineCounts { edges, skipped, malformed, .. } = lines;
        let remark = format!("{} edges, {skipped} comments or blank, {malformed} malformed", thousands(*edges));
        row(f, "lines read", lines.lines, &remark)?;
        for (number, text) in &lines.first_malformed {
            writeln!(f, "{:29}line {number} is malformed: {text:?}", "")?;
        }
        let remark = if self.retried > 0 { format!("{} repeated requests", self.retried) } else { String::new() };
        row(f, "edges asked", self.asked, &remark)?;
        row(f, "made", self.made, "")?;
        row(f, "already there", self.existed, "")?;
        if self.repeated > 0 {
            row(f, "repeated", self.repeated, "the same edge again in one request, sent once")?;
        }
        for (name, reasons) in [("refused", &self.refused), ("failed", &self.failed)] {
            row(f, name, reasons.values().sum(), "")?;
            reasons.iter().try_for_each(|(reason, count)| row(f, "", *count, reason))?;
        }
        if self.gave_up {
            row(f, "not asked", self.not_asked, "the stack became unavailable; the rest of the file was not read")?;
        }
        let accounts = largest(&self.refused_by, LISTED);
        if !accounts.is_empty() {
            writeln!(f, "accounts with the most refusals ({} have some):", self.refused_by.len())?;
            for (user, count) in accounts {
                writeln!(f, "{:<15}{:>12}", format!("  {user}"), thousands(count))?;
            }
        }
        let speed = thousands(rate(self.asked, self.took));
        write!(f, "{} in all, {speed} edges a second", short(self.took))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_form_of_a_result_is_parsed() {
        let body = json!({"results": [
            {"author": "6", "following": false, "error": {"type": "/problems/internal", "status": 500}},
            {"author": "1", "following": true, "since": "2026-11-20T08:00:00.123Z", "created": true},
            {"author": "2", "following": true, "created": false},
            {"author": "3", "following": true},
            {"author": "4", "following": false, "error": {"type": "/problems/following-limit", "title": "t", "status": 422, "detail": "d"}},
            {"author": "5", "following": false, "error": "self-follow"},
            {"author": "7", "following": false, "error": {"type": "/problems/unavailable", "status": 503}},
            {"author": "8", "following": false},
        ]});
        assert_eq!(
            read_results(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &body),
            [
                Outcome::Made,
                Outcome::Existed,
                Outcome::Made,
                Outcome::Refused("following-limit".to_owned()),
                Outcome::Refused("self-follow".to_owned()),
                Outcome::Failed("500 internal".to_owned()),
                Outcome::Busy("503 unavailable".to_owned()),
                Outcome::Failed("not following, and no reason given".to_owned()),
                Outcome::Failed("no result for this author in the response".to_owned()),
            ]
        );
    }

    #[test]
    fn an_invalid_response_fails_every_edge() {
        assert!(read_results(&[1, 2], &json!(null)).iter().all(|outcome| matches!(outcome, Outcome::Failed(_))));
    }

    #[test]
    fn the_summary_counts_every_edge_once() {
        let lines = LineCounts { lines: 6, edges: 5, skipped: 1, ..LineCounts::default() };
        let mut report = Report { lines, took: Duration::from_secs(2), ..Report::default() };
        let limit = || Outcome::Refused("following-limit".to_owned());
        report.add(13, vec![Outcome::Made, Outcome::Existed, limit(), limit()]);
        report.add(7, vec![Outcome::Refused("self-follow".to_owned())]);
        assert_eq!(report.asked, report.made + report.existed + report.refused_total() + report.failed_total());
        assert!(report.is_good());
        let expected = "\
lines read                6  5 edges, 1 comments or blank, 0 malformed
edges asked               5
made                      1
already there             1
refused                   3
                          2  following-limit
                          1  self-follow
failed                    0
accounts with the most refusals (2 have some):
  13                      2
  7                       1
2.00 s in all, 3 edges a second";
        assert_eq!(report.to_string(), expected);
        report.add(7, vec![Outcome::Failed("500 internal".to_owned())]);
        assert!(!report.is_good());
    }
}
