//! Logs and metrics: one JSON object on each line, in CloudWatch's form. docs/logging.md lists the logged events, and
//! the data that must not be logged.

use std::{collections::BTreeMap, io::Write};

use serde_json::{Map, Value, json};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, fmt::MakeWriter, layer::SubscriberExt as _, registry, registry::LookupSpan,
    util::SubscriberInitExt as _,
};

use crate::{SystemClock, settings::xray_daemon, traces::Subsegments};
use tidemark_app::metrics::{Line, Metrics, Unit};

/// Starts logging at the level in `RUST_LOG`; `info` if it is absent. Starts [traces](crate::traces) if they are on.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let calls = xray_daemon().and_then(|daemon| Subsegments::to(&daemon, SystemClock::wall).ok());
    let calls = calls.map(|subsegments| subsegments.with_filter(Subsegments::filter()));
    // A second call is refused, and the first logger remains.
    let _ = lines(filter, std::io::stdout).with(calls).try_init();
}

/// A subscriber that writes each event that passes the filter as one line of JSON. Each line has `timestamp` (RFC 3339)
/// and `level`: Lambda treats a line without one of them as `INFO`.
pub fn lines(
    filter: EnvFilter,
    to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync {
    let lines = fmt::layer().json().with_current_span(false).with_ansi(false).with_writer(to);
    registry().with(lines.with_filter(filter))
}

/// Writes lines in CloudWatch's embedded metric format.
pub struct EmbeddedMetrics {
    /// The CloudWatch namespace of the metrics.
    namespace: String,
    out: Box<dyn Fn(&str) + Send + Sync>,
}

impl EmbeddedMetrics {
    /// Calls `out` with each line.
    pub fn new(namespace: String, out: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { namespace, out: Box::new(out) }
    }

    pub fn to_stdout(namespace: String) -> Self {
        Self::new(namespace, |line| {
            if let Err(error) = writeln!(std::io::stdout().lock(), "{line}") {
                tracing::warn!(%error, "metrics could not be written");
            }
        })
    }

    fn record(&self, line: &Line) -> Map<String, Value> {
        let mut record = Map::new();
        record.insert("timestamp".to_owned(), json!(line.at));
        record.insert("level".to_owned(), json!("INFO"));
        let mut by_dimensions: BTreeMap<&[&str], Vec<Value>> = BTreeMap::new();
        for (metric, values) in &line.values {
            let unit = match metric.unit() {
                Unit::Count => "Count",
                Unit::Milliseconds => "Milliseconds",
            };
            let definitions = by_dimensions.entry(line.dimensions_of(*metric)).or_default();
            definitions.push(json!({ "Name": metric.name(), "Unit": unit }));
            let value = if let [value] = values[..] { json!(value) } else { json!(values) };
            record.insert(metric.name().to_owned(), value);
        }
        let directives = by_dimensions
            .into_iter()
            .map(|(dimensions, metrics)| json!({ "Namespace": self.namespace, "Dimensions": [dimensions], "Metrics": metrics }));
        let directives: Vec<Value> = directives.collect();
        if !directives.is_empty() {
            record.insert("_aws".to_owned(), json!({ "Timestamp": line.at.ms(), "CloudWatchMetrics": directives }));
        }
        record.extend(line.properties.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        record
    }
}

impl Metrics for EmbeddedMetrics {
    fn write(&self, line: &Line) {
        (self.out)(&Value::Object(self.record(line)).to_string());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Arc,
            mpsc::{Receiver, channel},
        },
        time::Duration,
    };

    use tidemark_app::{
        Recorder,
        metrics::{Metric, Property},
    };
    use tidemark_domain::Timestamp;

    use super::*;

    fn record(properties: &[(&'static str, &str)], values: &[(Metric, &[f64])]) -> Value {
        let text = |(name, value): &(&'static str, &str)| (*name, Property::Text((*value).to_owned()));
        let line = Line {
            at: Timestamp::from_ms(1_700_000_000_123),
            properties: properties.iter().map(text).collect(),
            values: values.iter().map(|(metric, values)| (*metric, values.to_vec())).collect(),
        };
        Value::Object(EmbeddedMetrics::to_stdout("Tidemark/one".to_owned()).record(&line))
    }

    #[test]
    fn a_line_has_the_embedded_metric_format() {
        let expected = json!({
            "timestamp": "2023-11-14T22:13:20.123Z",
            "level": "INFO",
            "_aws": {
                "Timestamp": 1_700_000_000_123_u64,
                "CloudWatchMetrics": [
                    {
                        "Namespace": "Tidemark/one",
                        "Dimensions": [[]],
                        "Metrics": [{ "Name": "DeliveryLag", "Unit": "Milliseconds" }, { "Name": "Rebuilds", "Unit": "Count" }],
                    },
                    {
                        "Namespace": "Tidemark/one",
                        "Dimensions": [["Route", "StatusClass"]],
                        "Metrics": [{ "Name": "RequestLatency", "Unit": "Milliseconds" }],
                    },
                ],
            },
            "function": "publish",
            "Route": "POST /v1/posts",
            "StatusClass": "2xx",
            "RequestLatency": 6.25,
            "DeliveryLag": [3.0, 4.0],
            "Rebuilds": 2.0,
        });
        let properties = [("function", "publish"), ("Route", "POST /v1/posts"), ("StatusClass", "2xx")];
        let values: [(Metric, &[f64]); 3] =
            [(Metric::RequestLatency, &[6.25]), (Metric::DeliveryLag, &[3.0, 4.0]), (Metric::Rebuilds, &[2.0])];
        assert_eq!(record(&properties, &values), expected);
        assert_eq!(record(&[], &[])["_aws"], Value::Null, "a line without metrics is a line of the log");
    }

    #[test]
    fn a_count_of_one_kind_does_not_count_among_those_of_the_job() {
        let found: [(Metric, &[f64]); 1] = [(Metric::DifferencesFound, &[3.0])];
        let dimensions = |properties: &[(&'static str, &str)]| {
            record(properties, &found)["_aws"]["CloudWatchMetrics"][0]["Dimensions"].clone()
        };
        assert_eq!(dimensions(&[("Job", "users")]), json!([["Job"]]));
        assert_eq!(dimensions(&[("Job", "users"), ("Kind", "entry-missing")]), json!([["Job", "Kind"]]));
    }

    fn recorder() -> (Recorder, Receiver<Value>) {
        let (sender, lines) = channel();
        let out = move |line: &str| sender.send(serde_json::from_str(line).unwrap()).unwrap();
        (Recorder::new(Arc::new(EmbeddedMetrics::new("Tidemark/one".to_owned(), out)), Arc::new(SystemClock)), lines)
    }

    #[test]
    fn an_invocation_that_is_cut_off_writes_its_line_with_what_was_recorded() {
        let (recorder, lines) = recorder();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _invocation = recorder.invocation("fan-out", "r-1");
            recorder.count(Metric::Rebuilds, 2);
            panic!("a bug");
        }));
        assert!(panicked.is_err());
        recorder.invocation("fan-out", "r-2").worked(3, 1);
        let [first, second] = [lines.recv().unwrap(), lines.recv().unwrap()];
        let shared = |line: &Value| [line["request_id"].clone(), line["aborted"].clone(), line["cold_start"].clone()];
        assert_eq!(shared(&first), [json!("r-1"), json!(true), json!(true)]);
        assert_eq!((&first["Rebuilds"], &first["ColdStarts"]), (&json!(2.0), &json!(1.0)));
        assert_eq!(shared(&second), [json!("r-2"), Value::Null, json!(false)]);
        assert_eq!((&second["records"], &second["failures"], &second["Rebuilds"]), (&json!(3), &json!(1), &Value::Null));
        assert!(lines.try_recv().is_err(), "one line each");
    }

    #[test]
    fn counts_are_added_up_and_a_line_has_at_most_a_hundred_times() {
        let (recorder, lines) = recorder();
        let invocation = recorder.invocation("fan-out", "r-1");
        for number in 1..=101 {
            recorder.time(Metric::DeliveryLag, Duration::from_millis(number));
            recorder.count(Metric::FollowersDelivered, 10);
        }
        invocation.worked(1, 0);
        let [full, rest] = [lines.recv().unwrap(), lines.recv().unwrap()];
        assert_eq!(full["DeliveryLag"], json!((1..=100).map(f64::from).collect::<Vec<_>>()));
        assert_eq!((&rest["DeliveryLag"], &rest["function"]), (&json!(101.0), &json!("fan-out")));
        let followers = [full, rest].map(|line| line["FollowersDelivered"].as_f64().unwrap());
        assert_eq!(followers.iter().sum::<f64>(), 1_010.0);
    }
}
