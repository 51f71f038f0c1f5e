//! Settings of different resources that must fit together.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use tidemark_local::{
    schedule::Expression,
    template::{EventSource, Function, Queue, Template},
};
use tidemark_tests::{
    repository,
    template::{resources, template_document},
};

use super::{resolved, with};

/// The longest wait of a function for one operation of DynamoDB or SQS, with all attempts (`AWS_OPERATION_TIMEOUT_MS`
/// in shared/src/settings.rs).
const OPERATION_SECONDS: u64 = 8;

/// The time in seconds that API Gateway waits for a function.
const GATEWAY_SECONDS: u64 = 30;

/// Lambda's concurrency of an account: possible initial values, and the part that AWS requires to stay unreserved.
const ACCOUNT_CONCURRENCY: [u64; 2] = [10, 1_000];
const UNRESERVED: u64 = 100;

/// Each function with each of its sources.
fn sources(template: &Template) -> Vec<(&Function, &EventSource)> {
    let functions = template.functions.values();
    functions.flat_map(|function| function.events.iter().map(move |event| (function, &event.source))).collect()
}

/// The concurrency that `!If [ConcurrencyReserved, …, !Ref AWS::NoValue]` reserves. `None` if the function never has
/// a reservation.
fn reserved(value: &Value) -> &Value {
    if !value.is_null() {
        assert_eq!(value["Fn::If"][0], "ConcurrencyReserved");
        assert_eq!(value["Fn::If"][2], json!({ "Ref": "AWS::NoValue" }));
    }
    &value["Fn::If"][1]
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
    // Without a reservation the template deploys in any account.
    assert_eq!(document["Conditions"]["ConcurrencyReserved"]["Fn::Equals"], json!([{ "Ref": "ReserveConcurrency" }, "true"]));
    assert_eq!(document["Parameters"]["ReserveConcurrency"]["Default"], "false");
    assert!(ACCOUNT_CONCURRENCY[0] < UNRESERVED, "where nothing can be reserved");
    let mut sum = 0;
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let properties = &function["Properties"];
        let own = reserved(&properties["ReservedConcurrentExecutions"]);
        sum += number(&document, own, true).unwrap_or(0);
        for event in properties["Events"].as_object().into_iter().flat_map(serde_json::Map::values) {
            let most = &event["Properties"]["ScalingConfig"]["MaximumConcurrency"];
            match event["Type"].as_str().unwrap() {
                "SQS" => {
                    for at_most in [true, false] {
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
    assert!(sum + UNRESERVED <= ACCOUNT_CONCURRENCY[1], "{sum} reserved");
    let pattern = &document["Parameters"]["FanOutConcurrency"];
    assert_eq!(pattern["MinValue"], 2, "the smallest MaximumConcurrency of a queue");
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
                // Records for a legacy Redis wait for it. Those that always fail are not returned.
                let waits = function.binary == "migrate";
                assert!(if waits {
                    source.maximum_retries.is_none()
                } else {
                    source.maximum_retries.is_some_and(|most| (1..=20).contains(&most))
                });
                assert_eq!(queue(&template, source.on_failure.as_ref().unwrap()).retention_seconds, 1_209_600);
                assert!(source.from_oldest, "changes before the function's deployment count as well");
            }
            EventSource::Http(_) | EventSource::Schedule(_) => {}
        }
    }
    let document = template_document();
    for (id, queue) in resources(&document, "AWS::SQS::Queue") {
        assert_eq!(queue["Properties"]["SqsManagedSseEnabled"], true, "{id}");
    }
}

#[test]
fn tables_are_retained_restorable_encrypted_and_billed_by_request() {
    for (id, table) in resources(&template_document(), "AWS::DynamoDB::Table") {
        let properties = &table["Properties"];
        // Only the rollback of a failed first deployment deletes the empty tables.
        let policies = (&table["DeletionPolicy"], &table["UpdateReplacePolicy"]);
        assert_eq!(policies, (&json!("RetainExceptOnCreate"), &json!("Retain")), "{id}");
        assert_eq!(properties["BillingMode"], "PAY_PER_REQUEST", "{id}");
        assert_eq!(properties["DeletionProtectionEnabled"], json!({ "Ref": "DeletionProtection" }), "{id}");
        assert_eq!(properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true, "{id}");
        assert!(properties["SSESpecification"]["SSEEnabled"].is_object(), "{id}");
        assert!(properties["TableName"].is_null(), "{id}: a name of its own could not be replaced");
    }
}

#[test]
fn functions_are_small_arm_binaries_with_gradual_deployments() {
    let document = template_document();
    let globals = &document["Globals"]["Function"];
    assert_eq!((&globals["Runtime"], &globals["Architectures"]), (&json!("provided.al2023"), &json!(["arm64"])));
    assert_eq!((&globals["Tracing"], &globals["LoggingConfig"]["LogFormat"]), (&json!("Active"), &json!("JSON")));
    assert_eq!(globals["AutoPublishAlias"], "live");
    assert!(globals["DeploymentPreference"]["Alarms"]["Fn::If"][1].as_array().unwrap().len() <= 10, "CodeDeploy's limit");
    let mut binaries = BTreeSet::new();
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let network = &function["Properties"]["VpcConfig"];
        // They call the internet: the issuer's keys, and API Gateway's connections.
        let outside = ["LiveSenderFunction", "LiveAuthorizerFunction"].contains(&id.as_str());
        assert_eq!(*network, if outside { json!({ "Ref": "AWS::NoValue" }) } else { Value::Null }, "{id}");
        for name in ["Runtime", "Architectures", "CodeUri", "LoggingConfig", "DeploymentPreference"] {
            assert!(function["Properties"][name].is_null(), "{id} has a {name} of its own");
        }
        let build = &function["Metadata"];
        assert_eq!(build["BuildMethod"], "rust-cargolambda", "{id}");
        assert_eq!(function["Properties"]["AutoPublishAliasAllProperties"], true, "{id}");
        assert!(binaries.insert(build["BuildProperties"]["Binary"].as_str().unwrap().to_owned()), "{id}");
    }
}

/// Cargo puts all binaries of the workspace into one folder. A second binary with the same name would replace the
/// first.
#[test]
fn binaries_have_different_names() {
    let entries = |folder: &str| {
        let entries = std::fs::read_dir(repository().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let functions = resources(&template_document(), "AWS::Serverless::Function");
    let binary = |function: &Value| function["Metadata"]["BuildProperties"]["Binary"].as_str().unwrap().to_owned();
    let tools = ["local/tools/src/bin", "local/bench/src/bin"].into_iter().flat_map(entries).map(stem);
    let mut names: Vec<String> = functions.values().map(binary).chain(tools).collect();
    assert!(names.len() > functions.len(), "{names:?}");
    names.sort();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// SAM publishes a version when the template or the code changes. It does not compare the values of parameters.
#[test]
fn a_changed_parameter_publishes_new_versions() {
    let document = template_document();
    let configured = document["Globals"]["Function"].to_string();
    let parameters = document["Parameters"].as_object().unwrap();
    // Secrets and lists cannot be in a description. Deployment settings do not configure a function.
    let named = |name: &str| !["RedisUrl", "SubnetIds", "DeploymentPreference"].contains(&name);
    let wanted: Vec<&String> =
        parameters.keys().filter(|name| named(name) && configured.contains(&format!("{{\"Ref\":\"{name}\"}}"))).collect();
    assert!(wanted.len() >= 6, "{wanted:?}");
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        let description = function["Properties"]["VersionDescription"]["Fn::Sub"].as_str().unwrap();
        for name in &wanted {
            assert!(description.contains(&format!("${{{name}}}")), "{id} keeps its version when {name} changes");
        }
    }
}

#[test]
fn the_password_of_redis_is_in_no_parameter_output_or_dashboard() {
    let document = template_document();
    assert_eq!(document["Parameters"]["RedisUrl"]["NoEcho"], true);
    for section in ["Outputs", "Parameters", "Conditions"] {
        assert!(!document[section].to_string().contains("RedisPassword"), "{section}");
    }
    let resources = document["Resources"].as_object().unwrap().iter();
    let users: Vec<&String> =
        resources.filter(|(_, body)| body.to_string().contains("RedisPassword")).map(|(id, _)| id).collect();
    assert_eq!(users, ["RedisDefaultUser", "RedisUser"], "each user refers to the secret, as do the functions in Globals");
    let text = document.to_string();
    assert_eq!(
        text.matches("RedisPassword}").count(),
        text.matches("{{resolve:secretsmanager:${RedisPassword}:SecretString}}").count()
    );
    let redis = &document["Resources"]["Redis"]["Properties"];
    assert_eq!((&redis["TransitEncryptionEnabled"], &redis["TransitEncryptionMode"]), (&json!(true), &json!("required")));
    assert_eq!(redis["AtRestEncryptionEnabled"], true);
}
