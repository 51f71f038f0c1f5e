//! Settings that are each right by themselves and have to fit together.

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

use super::resolved;

/// Longest that the functions wait for one operation of DynamoDB or SQS, with all attempts (`AWS_OPERATION_TIMEOUT_MS` in shared/src/settings.rs).
const OPERATION_SECONDS: u64 = 8;

/// What API Gateway waits for a function.
const GATEWAY_SECONDS: u64 = 30;

/// Lambda's concurrency in an account: what there is to begin with in one or another, and what it wants left unreserved.
const ACCOUNT_CONCURRENCY: [u64; 2] = [10, 1_000];
const UNRESERVED: u64 = 100;

/// Functions with one of their sources each.
fn sources(template: &Template) -> Vec<(&Function, &EventSource)> {
    let functions = template.functions.values();
    functions.flat_map(|function| function.events.iter().map(move |event| (function, &event.source))).collect()
}

/// What `!If [ConcurrencyReserved, …, !Ref AWS::NoValue]` reserves; nothing when nothing is reserved in any case.
fn reserved(value: &Value) -> &Value {
    if !value.is_null() {
        assert_eq!(
            (&value["Fn::If"][0], &value["Fn::If"][2]),
            (&json!("ConcurrencyReserved"), &json!({ "Ref": "AWS::NoValue" }))
        );
    }
    &value["Fn::If"][1]
}

/// A number in the template; a parameter stands for `most`, its largest value.
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
fn functions_give_up_after_their_calls_and_before_their_callers() {
    let template = resolved();
    for (function, source) in sources(&template) {
        let timeout = function.timeout_seconds;
        assert!(timeout > OPERATION_SECONDS, "{} gives up before DynamoDB does", function.binary);
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
fn sources_ask_for_no_more_than_what_is_reserved_and_accounts_have_it() {
    let document = template_document();
    // Without a reservation it deploys in any account, however little that has.
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
                "ScheduleV2" => assert_eq!(own, &json!(1), "{id} does not overlap itself where that is reserved"),
                _ => {}
            }
        }
    }
    assert!(sum + UNRESERVED <= ACCOUNT_CONCURRENCY[1], "{sum} reserved");
    let pattern = &document["Parameters"]["FanOutConcurrency"];
    assert_eq!(pattern["MinValue"], 2, "the least that a queue can be limited to");
}

#[test]
fn what_cannot_be_worked_on_ends_in_a_queue_that_keeps_it_longest() {
    let template = resolved();
    for (function, source) in sources(&template) {
        match source {
            EventSource::Sqs(source) => {
                assert!(source.report_failures, "{} fails message by message", function.binary);
                assert!(source.batch_size <= 10 || source.batching_window > Duration::ZERO, "{}", function.binary);
                let from = queue(&template, &source.queue);
                let redrive = from.redrive.as_ref().unwrap();
                assert!(redrive.max_receives >= 5, "a worker that is throttled or killed has used up a receive");
                let to = queue(&template, &redrive.target);
                assert!(to.retention_seconds > from.retention_seconds && to.redrive.is_none());
            }
            EventSource::Stream(source) => {
                assert!(
                    source.report_failures
                        && source.bisect
                        && source.maximum_retries.is_some_and(|most| (1..=20).contains(&most))
                );
                assert_eq!(queue(&template, source.on_failure.as_ref().unwrap()).retention_seconds, 1_209_600);
                assert!(source.from_oldest, "what happened before the function was there counts as well");
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
fn tables_are_kept_restorable_encrypted_and_paid_by_use() {
    for (id, table) in resources(&template_document(), "AWS::DynamoDB::Table") {
        let properties = &table["Properties"];
        // A first deployment that fails takes the empty tables with it; nothing else does.
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
fn functions_are_small_arm_binaries_that_take_over_step_by_step() {
    let document = template_document();
    let globals = &document["Globals"]["Function"];
    assert_eq!((&globals["Runtime"], &globals["Architectures"]), (&json!("provided.al2023"), &json!(["arm64"])));
    assert_eq!((&globals["Tracing"], &globals["LoggingConfig"]["LogFormat"]), (&json!("Active"), &json!("JSON")));
    assert_eq!(globals["AutoPublishAlias"], "live");
    assert!(globals["DeploymentPreference"]["Alarms"].as_array().unwrap().len() <= 10, "what CodeDeploy takes");
    let mut binaries = BTreeSet::new();
    for (id, function) in resources(&document, "AWS::Serverless::Function") {
        for name in ["Runtime", "Architectures", "CodeUri", "LoggingConfig", "DeploymentPreference", "VpcConfig"] {
            assert!(function["Properties"][name].is_null(), "{id} has a {name} of its own");
        }
        let build = &function["Metadata"];
        assert_eq!(build["BuildMethod"], "rust-cargolambda", "{id}");
        assert_eq!(function["Properties"]["AutoPublishAliasAllProperties"], true, "{id}");
        assert!(binaries.insert(build["BuildProperties"]["Binary"].as_str().unwrap().to_owned()), "{id}");
    }
}

/// Cargo puts all binaries of the workspace into one folder, where the second of a name takes the place of the first.
#[test]
fn no_two_binaries_have_one_name() {
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

/// SAM publishes a version when the template or the code changes, and does not look at the values of parameters.
#[test]
fn a_changed_parameter_publishes_new_versions() {
    let document = template_document();
    let configured = document["Globals"]["Function"].to_string();
    let parameters = document["Parameters"].as_object().unwrap();
    // A secret is in no description, a list cannot be; how to deploy is no configuration.
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
    let users: Vec<String> = document["Resources"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, body)| body.to_string().contains("RedisPassword"))
        .map(|(id, _)| id.clone())
        .collect();
    assert_eq!(users, ["RedisDefaultUser", "RedisUser"], "by reference, as are the functions in Globals");
    let text = document.to_string();
    assert_eq!(
        text.matches("RedisPassword}").count(),
        text.matches("{{resolve:secretsmanager:${RedisPassword}:SecretString}}").count()
    );
    let redis = &document["Resources"]["Redis"]["Properties"];
    assert_eq!((&redis["TransitEncryptionEnabled"], &redis["TransitEncryptionMode"]), (&json!(true), &json!("required")));
    assert_eq!(redis["AtRestEncryptionEnabled"], true);
}
