//! Behaviour of AWS that the local stack does not have: names, log filters, recursion, namespaces.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Seek as _},
    sync::Arc,
};

use serde_json::{Value, json};
use tidemark::{
    domain::Timestamp,
    ports::{Line, Metric, Metrics as _},
    telemetry::{EmbeddedMetrics, lines},
};
use tidemark_tests::{
    template::{entries, permissions, resources, statements, template_document},
    text_of,
};
use tracing_subscriber::EnvFilter;

use super::resolved;

/// The levels of Lambda's log filter, least detailed first.
const LEVELS: [&str; 6] = ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

fn detail(level: &str) -> Option<usize> {
    LEVELS.iter().position(|known| known.eq_ignore_ascii_case(level))
}

/// Returns true if Lambda's filter passes a line. One without a level or an RFC 3339 timestamp counts as `INFO`.
fn passes(line: &Value, filter: &str) -> bool {
    let dated = line["timestamp"].as_str().and_then(Timestamp::parse);
    let level = line["level"].as_str().and_then(detail).filter(|_| dated.is_some());
    level.or(detail("INFO")) <= detail(filter)
}

/// The lines that a function prints at this `RUST_LOG`.
fn printed(rust_log: &str, log: impl FnOnce()) -> Vec<Value> {
    let file = Arc::new(tempfile::tempfile().unwrap());
    tracing::subscriber::with_default(lines(EnvFilter::new(rust_log), file.clone()), log);
    (&*file).rewind().unwrap();
    BufReader::new(&*file).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// The messages of the metric filters, with the level at which the code logs them.
fn watched_messages() -> BTreeMap<String, String> {
    let files = ["functions/reconcile/src/job/flow.rs", "shared/redis-link/src/breaker.rs", "shared/http/src/lib.rs"];
    let code: String = files.map(text_of).concat();
    let filters = resources(&template_document(), "AWS::Logs::MetricFilter");
    let level = |filter: &Value| {
        let pattern = filter["Properties"]["FilterPattern"].as_str().unwrap();
        let message = pattern.strip_prefix("{ $.fields.message = \"").unwrap().strip_suffix("\" }").unwrap().to_owned();
        let before = &code[..code.find(&format!("\"{message}\")")).unwrap()];
        let called = |level: &str| before.rfind(&format!("{level}!("));
        let level = ["error", "warn", "info", "debug", "trace"].into_iter().max_by_key(|level| called(level)).unwrap();
        (message, level.to_owned())
    };
    filters.values().map(level).collect()
}

#[test]
fn messages_of_metric_filters_are_logged_at_every_allowed_log_level() {
    let document = template_document();
    let messages = watched_messages();
    assert_eq!(messages.len(), 3);
    let (sender, received) = std::sync::mpsc::channel();
    let metrics = EmbeddedMetrics::new("Tidemark/one".to_owned(), move |line| sender.send(line.to_owned()).unwrap());
    let values = [(Metric::DifferencesFound, vec![1.0])].into();
    metrics.write(&Line { at: Timestamp::from_ms(1_700_000_000_123), properties: Vec::new(), values });
    let metrics: Value = serde_json::from_str(&received.recv().unwrap()).unwrap();
    let allowed = document["Parameters"]["LogLevel"]["AllowedValues"].as_array().unwrap();
    for chosen in allowed.iter().map(|level| level.as_str().unwrap()) {
        let either = |value: &Value| match value["Ref"].as_str() {
            Some("LogLevel") => chosen.to_owned(),
            _ => value.as_str().unwrap().to_owned(),
        };
        let globals = &document["Globals"]["Function"];
        let filter = either(&globals["LoggingConfig"]["ApplicationLogLevel"]);
        let own = either(&globals["Environment"]["Variables"]["RUST_LOG"]);
        assert!(passes(&metrics, &filter), "{chosen}: metrics");
        for (message, level) in &messages {
            let lines = printed(&own, || match level.as_str() {
                "error" => tracing::error!("{message}"),
                "warn" => tracing::warn!("{message}"),
                _ => tracing::info!("{message}"),
            });
            let [line] = &lines[..] else { panic!("{chosen}: {message} is not logged") };
            assert_eq!(line["fields"]["message"], **message, "the field that the filter reads");
            assert!(passes(line, &filter), "{chosen}: {message}");
            // The line passes on its level alone too, in case an operator sets a filter by LogLevel.
            assert!(passes(line, chosen) && detail(line["level"].as_str().unwrap()) == detail(level), "{chosen}: {line}");
        }
    }
    let quiet = json!({ "level": "ERROR", "fields": { "message": "request failed" } });
    assert!(!passes(&quiet, "WARN"), "without a timestamp it counts as INFO");
}

#[test]
fn only_functions_that_send_to_their_own_queue_allow_recursive_loops() {
    let document = template_document();
    let template = resolved();
    let statements = statements(&document);
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let source = entries(&function["Properties"]["Events"]).into_values().find(|event| event["Type"] == "SQS");
        let sends_to_itself = source.is_some_and(|source| {
            let queue = source["Properties"]["Queue"]["Fn::GetAtt"].as_str().unwrap().replace(".Arn", "");
            permissions(&statements[&template.functions[&id].binary]).contains(&("sqs:SendMessage".to_owned(), queue))
        });
        let allowed = &function["Properties"]["RecursiveLoop"];
        assert_eq!(allowed == "Allow", sends_to_itself, "{id}: Lambda stops such a loop after 16 turns: {allowed}");
    }
    assert_eq!(template.functions["FanOutFunction"].binary, "fan-out");
}

#[test]
fn no_resource_has_a_name_that_a_second_stack_would_share() {
    let document = template_document();
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        for (name, event) in entries(&function["Properties"]["Events"]) {
            let named = event["Type"] == "ScheduleV2" && event["Properties"]["OmitName"] != true;
            assert!(!named, "{id}: SAM names the schedule {id}{name}");
        }
    }
    let named = "TableName QueueName FunctionName TopicName AlarmName DashboardName RoleName ManagedPolicyName LogGroupName
        ReplicationGroupId";
    for (id, resource) in document["Resources"].as_object().unwrap() {
        let own = named.split_whitespace().filter(|name| resource["Properties"][*name].is_string());
        assert_eq!(own.count(), 0, "{id} has a fixed name");
    }
}

#[test]
fn each_stack_has_its_own_metrics_namespace() {
    let document = template_document();
    let own = json!({ "Fn::Sub": "Tidemark/${AWS::StackName}" });
    assert_eq!(document["Globals"]["Function"]["Environment"]["Variables"]["METRICS_NAMESPACE"], own);
    assert_eq!(resolved().function("reconcile").unwrap().environment["METRICS_NAMESPACE"], "Tidemark/tidemark-local");
    for namespace in namespaces(&document["Resources"]) {
        let of_aws = namespace.as_str().is_some_and(|name| name.starts_with("AWS/"));
        assert!(of_aws || *namespace == own, "{namespace}");
    }
    let dashboard = document["Resources"]["Dashboard"].to_string();
    assert_eq!(dashboard.matches("Tidemark").count(), dashboard.matches("Tidemark/${AWS::StackName}").count());
}

/// Every metrics namespace below a value.
fn namespaces(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => {
            let own = ["Namespace", "MetricNamespace"].iter().filter_map(|name| fields.get(*name));
            own.chain(fields.values().flat_map(namespaces)).collect()
        }
        Value::Array(items) => items.iter().flat_map(namespaces).collect(),
        _ => Vec::new(),
    }
}
