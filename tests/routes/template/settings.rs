//! Settings of different resources that must fit together, also for what AWS does and the local stack does not: log
//! filters, recursion, names, namespaces.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Seek as _},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tidemark::{
    domain::Timestamp,
    metrics::{Line, Metric, Metrics as _},
    telemetry::{EmbeddedMetrics, lines},
};
use tidemark_local::{
    schedule::Expression,
    template::{EventSource, Function, Queue, Template},
};
use tidemark_tests::{
    has, repository,
    template::{entries, permissions, resources, statements, template_document},
    text_of,
};
use tracing_subscriber::EnvFilter;

use super::{resolved, with};

/// A function's longest wait for an operation of DynamoDB or SQS, with all attempts (`AWS_OPERATION_TIMEOUT_MS`).
const OPERATION_SECONDS: u64 = 8;

/// The time in seconds that API Gateway waits for a function.
const GATEWAY_SECONDS: u64 = 30;

/// Lambda's concurrency of an account, and the part that AWS requires to stay unreserved.
const ACCOUNT_CONCURRENCY: u64 = 1_000;
const UNRESERVED: u64 = 100;

fn sources(template: &Template) -> Vec<(&Function, &EventSource)> {
    let functions = template.functions.values();
    functions.flat_map(|function| function.events.iter().map(move |event| (function, &event.source))).collect()
}

/// The concurrency that `!If [ConcurrencyReserved, …, !Ref AWS::NoValue]` reserves. Null without a reservation.
fn reserved(value: &Value) -> &Value {
    let own = &value["Fn::If"][1];
    assert!(value.is_null() || *value == json!({ "Fn::If": ["ConcurrencyReserved", own, { "Ref": "AWS::NoValue" }] }), "{value}");
    own
}

/// A number in the template. For a parameter it is `MaxValue` if `most` is set, and `Default` otherwise.
fn number(document: &Value, value: &Value, most: bool) -> Option<u64> {
    match value.get("Ref").and_then(Value::as_str) {
        Some(parameter) => document["Parameters"][parameter][if most { "MaxValue" } else { "Default" }].as_u64(),
        None => value.as_u64(),
    }
}

fn queue<'a>(template: &'a Template, name: &str) -> &'a Queue {
    template.queues.values().find(|queue| queue.name == name).unwrap()
}

#[test]
fn a_function_times_out_after_its_calls_and_before_its_caller() {
    let template = resolved();
    for (function, source) in sources(&template) {
        let timeout = function.timeout_seconds;
        assert!(timeout > OPERATION_SECONDS, "{} times out before its DynamoDB call", function.binary);
        match source {
            EventSource::Http(_) => assert!(timeout < GATEWAY_SECONDS, "{} outlasts API Gateway", function.binary),
            EventSource::Sqs(source) => {
                let visible = u64::from(queue(&template, &source.queue).visibility_seconds);
                assert!(visible >= 6 * timeout + source.batching_window.as_secs(), "{}: {visible} s", source.queue);
            }
            EventSource::Schedule(source) => {
                let Expression::Rate(every) = &source.expression else { continue };
                assert!(Duration::from_secs(timeout) < *every, "{} is still running when it is due again", function.binary);
            }
            EventSource::Stream(_) => {}
        }
    }
}

#[test]
fn sources_stay_within_the_reservation_and_the_reservation_within_the_account() {
    let document = template_document();
    // Without a reservation the template deploys in any account, also in one whose initial concurrency is 10.
    assert_eq!(document["Conditions"]["ConcurrencyReserved"]["Fn::Equals"], json!([{ "Ref": "ReserveConcurrency" }, "true"]));
    assert_eq!(document["Parameters"]["ReserveConcurrency"]["Default"], "false");
    let mut sum = 0;
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let properties = &function["Properties"];
        let own = reserved(&properties["ReservedConcurrentExecutions"]);
        sum += number(&document, own, true).unwrap_or(0);
        for event in entries(&properties["Events"]).values() {
            let most = &event["Properties"]["ScalingConfig"]["MaximumConcurrency"];
            match event["Type"].as_str().unwrap() {
                "SQS" => {
                    // Without a reservation, only the account bounds the streams' invocations and these.
                    for at_most in [true, false].into_iter().filter(|_| id != "ProjectorFunction") {
                        let (most, own) = (number(&document, most, at_most).unwrap(), number(&document, own, at_most).unwrap());
                        assert!((2..=own).contains(&most), "{id} may be asked {most} times at once and has {own}");
                    }
                }
                // A pass over legacy lists stops if another one runs. The function also mirrors several streams.
                "ScheduleV2" if id == "MigrateFunction" => assert!(own.is_null()),
                "ScheduleV2" => assert_eq!(own, &json!({ "Ref": "ReconcileConcurrency" }), "{id}"),
                _ => {}
            }
        }
    }
    assert!(sum + UNRESERVED <= ACCOUNT_CONCURRENCY, "{sum} reserved");
    assert_eq!(document["Parameters"]["FanOutConcurrency"]["MinValue"], 2, "the smallest MaximumConcurrency of a queue");
}

#[test]
fn failed_messages_and_records_end_in_a_queue_with_the_longest_retention() {
    let template = with(&[("LegacyWriteBack", "true")]);
    for (function, source) in sources(&template) {
        match source {
            EventSource::Sqs(source) => {
                assert!(source.report_failures, "{} reports failures by message", function.binary);
                assert!(source.batch_size <= 10 || source.batching_window > Duration::ZERO, "{}", function.binary);
                let from = queue(&template, &source.queue);
                let redrive = from.redrive.as_ref().unwrap();
                assert!(redrive.max_receives >= 5, "a throttled or killed worker uses up a receive");
                let to = queue(&template, &redrive.target);
                assert!(to.retention_seconds > from.retention_seconds && to.redrive.is_none());
            }
            EventSource::Stream(source) => {
                assert!(source.report_failures && source.bisect);
                // Records wait for a Redis that is away. Those that always fail are not returned.
                assert_eq!(source.maximum_retries, None, "{}", function.binary);
                assert_eq!(queue(&template, source.on_failure.as_ref().unwrap()).retention_seconds, 1_209_600);
                assert!(source.from_oldest, "changes before the function's deployment count as well");
            }
            EventSource::Http(_) | EventSource::Schedule(_) => {}
        }
    }
    for (id, queue) in resources(&template_document(), "AWS::SQS::Queue") {
        // Otherwise with a key of the operator's own.
        assert_eq!(queue["Properties"]["SqsManagedSseEnabled"], json!({ "Fn::If": ["OwnKey", false, true] }), "{id}");
    }
}

#[test]
fn tables_are_retained_restorable_encrypted_and_billed_by_request() {
    // Only the rollback of a failed first deployment deletes the empty tables. A named table could not be replaced.
    let expected = json!({
        "DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain",
        "Properties": {
            "BillingMode": "PAY_PER_REQUEST", "DeletionProtectionEnabled": { "Ref": "DeletionProtection" }, "TableName": null,
            "PointInTimeRecoverySpecification": { "PointInTimeRecoveryEnabled": true }, "SSESpecification": {},
        },
    });
    for (id, table) in resources(&template_document(), "AWS::DynamoDB::Table") {
        assert!(has(&table, &expected), "{id}: {table}");
    }
}

#[test]
fn functions_are_small_arm_binaries_with_gradual_deployments() {
    let document = template_document();
    let globals = &document["Globals"]["Function"];
    let expected = json!({
        "Runtime": "provided.al2023", "Architectures": ["arm64"], "LoggingConfig": { "LogFormat": "JSON" },
        "AutoPublishAlias": "live",
    });
    assert!(has(globals, &expected), "{globals}");
    assert_eq!(globals["Tracing"], json!({ "Fn::If": ["Traced", "Active", "PassThrough"] }));
    assert!(globals["DeploymentPreference"]["Alarms"]["Fn::If"][1].as_array().unwrap().len() <= 10, "CodeDeploy's limit");
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let network = &function["Properties"]["VpcConfig"];
        // They call the internet: the issuer's keys, and API Gateway's connections.
        let outside = ["LiveSenderFunction", "LiveAuthorizerFunction"].contains(&id.as_str());
        assert_eq!(*network, if outside { json!({ "Ref": "AWS::NoValue" }) } else { Value::Null }, "{id}");
        for name in ["Runtime", "Architectures", "CodeUri", "LoggingConfig", "DeploymentPreference"] {
            assert!(function["Properties"][name].is_null(), "{id} has a {name} of its own");
        }
        assert_eq!(function["Metadata"]["BuildMethod"], "rust-cargolambda", "{id}");
        assert_eq!(function["Properties"]["AutoPublishAliasAllProperties"], true, "{id}");
    }
}

/// Cargo puts all binaries of the workspace into one folder. A second one with the same name would replace the first.
#[test]
fn binaries_have_different_names() {
    let functions = resources(&template_document(), "AWS::Serverless::Function");
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (id, function) in &functions {
        let binary = function["Metadata"]["BuildProperties"]["Binary"].as_str().unwrap();
        assert!(names.insert(binary.to_owned()), "{id}: a second {binary}");
    }
    let tools =
        ["local/tools/src/bin", "shared/legacy/tools/src/bin"].map(|folder| repository().join(folder).read_dir().unwrap());
    let tools = tools.into_iter().flatten().map(|entry| entry.unwrap().path());
    let tools = tools.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let lab = text_of("local/lab/Cargo.toml");
    let lab = lab.split("[[bin]]\nname = \"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
    for name in tools.chain(lab) {
        assert!(names.insert(name.clone()), "a second {name}");
    }
    assert!(names.len() > functions.len(), "{names:?}");
}

#[test]
fn the_password_of_redis_is_in_no_parameter_output_or_dashboard() {
    let document = template_document();
    assert_eq!(document["Parameters"]["RedisUrl"]["NoEcho"], true);
    for section in ["Outputs", "Parameters", "Conditions"] {
        assert!(!document[section].to_string().contains("RedisPassword"), "{section}");
    }
    let users = entries(&document["Resources"]).into_iter().filter(|(_, body)| body.to_string().contains("RedisPassword"));
    let users: Vec<String> = users.map(|(id, _)| id).collect();
    assert_eq!(users, ["RedisUser"], "the user refers to the secret, as do the functions in Globals");
    let text = document.to_string();
    let resolved = text.matches("{{resolve:secretsmanager:${RedisPassword}:SecretString}}").count();
    assert_eq!(text.matches("RedisPassword}").count(), resolved);
    let redis = &document["Resources"]["Redis"]["Properties"];
    let encrypted =
        json!({ "TransitEncryptionEnabled": true, "TransitEncryptionMode": "required", "AtRestEncryptionEnabled": true });
    assert!(has(redis, &encrypted), "{redis}");
}

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
    let files = ["shared/reconcile/src/job/flow.rs", "shared/redis-link/src/breaker.rs", "shared/http/src/lib.rs"];
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
fn no_resource_has_a_name_or_a_metrics_namespace_that_a_second_stack_would_share() {
    let document = template_document();
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        for (name, event) in entries(&function["Properties"]["Events"]) {
            let named = event["Type"] == "ScheduleV2" && event["Properties"]["OmitName"] != true;
            assert!(!named, "{id}: SAM names the schedule {id}{name}");
        }
    }
    let named = "TableName QueueName FunctionName TopicName AlarmName DashboardName RoleName ManagedPolicyName LogGroupName
        ReplicationGroupId";
    let own = json!({ "Fn::Sub": "Tidemark/${AWS::StackName}" });
    for (id, resource) in document["Resources"].as_object().unwrap() {
        let names = named.split_whitespace().filter(|name| resource["Properties"][*name].is_string());
        assert_eq!(names.count(), 0, "{id} has a fixed name");
        for namespace in namespaces(resource) {
            let of_aws = namespace.as_str().is_some_and(|name| name.starts_with("AWS/"));
            assert!(of_aws || *namespace == own, "{id}: {namespace}");
        }
    }
    assert_eq!(document["Globals"]["Function"]["Environment"]["Variables"]["METRICS_NAMESPACE"], own);
    assert_eq!(resolved().function("reconcile").unwrap().environment["METRICS_NAMESPACE"], "Tidemark/tidemark-local");
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
