//! Logs and metrics: one JSON object on each line, in the form that CloudWatch reads. docs/LOGGING.md lists the logged
//! events and the data that is never logged.

use std::io::Write;

use serde_json::{Value, json};
use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, fmt, fmt::MakeWriter, util::SubscriberInitExt};

use tidemark_app::ports::Metrics;
use tidemark_domain::Timestamp;

/// Starts logging at the level in `RUST_LOG`; `info` if it is absent.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A second call is refused, and the first logger remains.
    let _ = lines(filter, std::io::stdout).try_init();
}

/// A subscriber that writes each event that passes the filter as one line of JSON. Each line has `timestamp` (RFC 3339)
/// and `level`: Lambda treats a line without one of them as `INFO`.
pub fn lines(
    filter: EnvFilter,
    to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync + 'static {
    fmt().json().with_env_filter(filter).with_current_span(false).with_ansi(false).with_writer(to).finish()
}

/// Writes counts as lines of CloudWatch's embedded metric format, with the dimensions `Job` or `Job` and `Kind`.
#[derive(Debug, Clone)]
pub struct EmbeddedMetrics {
    /// The CloudWatch namespace of the metrics.
    pub namespace: String,
}

impl Metrics for EmbeddedMetrics {
    fn count(&self, at: Timestamp, job: &str, kind: Option<&str>, counts: &[(&'static str, u64)]) {
        let line = self.line(at, job, kind, counts).to_string();
        if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
            tracing::warn!(%error, "metrics could not be written");
        }
    }
}

/// Writes counts to the debug log, where CloudWatch does not read metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoggedMetrics;

impl Metrics for LoggedMetrics {
    fn count(&self, _at: Timestamp, job: &str, kind: Option<&str>, counts: &[(&'static str, u64)]) {
        tracing::debug!(job, kind, ?counts, "counted");
    }
}

impl EmbeddedMetrics {
    /// The line for these counts.
    pub fn line(&self, at: Timestamp, job: &str, kind: Option<&str>, counts: &[(&'static str, u64)]) -> Value {
        let metrics: Vec<Value> = counts.iter().map(|(name, _)| json!({ "Name": name, "Unit": "Count" })).collect();
        let dimensions = if kind.is_some() { json!([["Job", "Kind"]]) } else { json!([["Job"]]) };
        let directive = json!({ "Namespace": self.namespace, "Dimensions": dimensions, "Metrics": metrics });
        let mut record = json!({
            "timestamp": at,
            "level": "INFO",
            "_aws": { "Timestamp": at.ms(), "CloudWatchMetrics": [directive] },
            "Job": job,
        });
        if let Some(kind) = kind {
            record["Kind"] = json!(kind);
        }
        for (name, count) in counts {
            record[*name] = json!(count);
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_embedded_metric_format() {
        let at = Timestamp::from_ms(1_700_000_000_123);
        let expected = json!({
            "timestamp": "2023-11-14T22:13:20.123Z",
            "level": "INFO",
            "_aws": {
                "Timestamp": 1_700_000_000_123_u64,
                "CloudWatchMetrics": [{
                    "Namespace": "Tidemark/one",
                    "Dimensions": [["Job", "Kind"]],
                    "Metrics": [{ "Name": "DifferencesFound", "Unit": "Count" }],
                }],
            },
            "Job": "users",
            "Kind": "entry-missing",
            "DifferencesFound": 3,
        });
        let metrics = EmbeddedMetrics { namespace: "Tidemark/one".to_owned() };
        assert_eq!(metrics.line(at, "users", Some("entry-missing"), &[("DifferencesFound", 3)]), expected);
        let all = metrics.line(at, "users", None, &[("DifferencesFound", 0), ("Failed", 1)]);
        assert_eq!((&all["_aws"]["CloudWatchMetrics"][0]["Dimensions"], &all["Failed"]), (&json!([["Job"]]), &json!(1)));
    }
}
