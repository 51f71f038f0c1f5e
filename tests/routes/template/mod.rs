//! Compares the template with the code and the documents: routes and sample events here, other checks in the modules
//! below.

mod deployment;
mod documents;
mod settings;
mod workflows;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tidemark_local::template::{Bindings, EventSource, HttpRoute, Template};
use tidemark_tests::{has, repository, text_of};

/// The template as the local stack resolves it, with the default of every parameter.
pub(crate) fn resolved() -> Template {
    with(&[])
}

/// The template with other values of parameters.
fn with(parameters: &[(&str, &str)]) -> Template {
    load(parameters).unwrap()
}

fn load(parameters: &[(&str, &str)]) -> Result<Template, String> {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let bindings = Bindings { parameters, ..Bindings::default() };
    Template::load(&repository().join("template.yaml"), &bindings).map_err(|error| format!("{error:#}"))
}

pub(crate) fn routes(template: &Template) -> Vec<HttpRoute> {
    let events = template.functions.values().flat_map(|function| &function.events);
    let route = |source: &EventSource| if let EventSource::Http(route) = source { Some(route.clone()) } else { None };
    events.filter_map(|event| route(&event.source)).collect()
}

#[test]
fn the_template_resolves_with_every_combination_of_own_resources() {
    let network = [("VpcId", "vpc-1"), ("SubnetIds", "subnet-1,subnet-2")];
    let redis = [("RedisUrl", "rediss://user:secret@redis.example.com:6380"), ("RedisCluster", "true")];
    let others =
        [("JwtScope", "feed"), ("TableEncryption", "KMS"), ("AlarmEmail", "a@b.c"), ("RedisReplicas", "0"), ("Alarms", "false")];
    for given in [vec![], network.to_vec(), redis.to_vec(), [network, redis].concat(), others.to_vec()] {
        let own = given.iter().find(|(name, _)| *name == "RedisUrl");
        for function in with(&given).functions.values() {
            let url = &function.environment["REDIS_URL"];
            if ["live-sender", "live-authorizer"].contains(&function.binary.as_str()) {
                assert!(url.is_empty(), "{} is outside of the VPC and does not get the password", function.binary);
                continue;
            }
            let of_stack = "rediss://tidemark:{{resolve:secretsmanager:RedisPassword:SecretString}}@";
            assert!(own.map_or_else(|| url.starts_with(of_stack), |(_, own)| url == own), "{url}");
            assert_eq!(function.environment["REDIS_CLUSTER"], "true");
        }
    }
}

#[test]
fn with_iam_functions_have_no_secret() {
    let resources = &tidemark_tests::template::template_document()["Resources"];
    let (by_password, by_iam) = (&resources["RedisUser"]["Properties"], &resources["RedisIamUser"]["Properties"]);
    assert_eq!(by_password["AccessString"], by_iam["AccessString"]);
    assert_eq!(by_iam["UserId"], by_iam["UserName"], "ElastiCache requires it of a user with IAM");
    for (id, function) in with(&[("RedisAuth", "iam")]).functions {
        if !function.environment["REDIS_URL"].is_empty() {
            assert!(function.environment["REDIS_URL"].starts_with("rediss://RedisIamUser@"), "{id}");
            assert_eq!(function.environment["REDIS_IAM_CACHE"], "Redis", "{id}");
        }
        assert!(!function.environment.values().any(|value| value.contains("secretsmanager")), "{id}");
    }
    assert!(with(&[]).functions.values().all(|function| function.environment["REDIS_IAM_CACHE"].is_empty()));
}

#[test]
fn the_bounds_of_the_rollout_are_those_of_cloudformation() {
    for (name, good, bad) in [
        ("RolloutPercent", ["0", "10", "100"], ["-1", "101", "ten"]),
        ("RolloutUsers", ["", "7", "7,18446744073709551615"], ["0", "7, 8", "7,"]),
        ("LegacyFollow", ["true", "false", "false"], ["", "yes", "1"]),
        ("LegacyWriteBack", ["true", "false", "false"], ["", "yes", "1"]),
    ] {
        good.iter().for_each(|value| drop(with(&[(name, value)])));
        for value in bad {
            let error = load(&[(name, value)]).err().unwrap();
            assert!(error.contains(&format!("parameter `{name}`")), "{name} {value}: {error}");
        }
    }
    assert!(load(&[("RolloutUsers", &vec!["7"; 501].join(","))]).is_err(), "1,001 characters");
}

#[test]
fn legacy_sources_are_off_unless_they_are_turned_on() {
    for (parameters, expected) in [(&[][..], 0), (&[("LegacyFollow", "true")], 1), (&[("LegacyWriteBack", "true")], 3)] {
        let off = |source: &EventSource| matches!(source, EventSource::Schedule(schedule) if !schedule.enabled);
        let sources = &with(parameters).functions["MigrateFunction"].events;
        assert_eq!(sources.iter().filter(|event| !off(&event.source)).count(), expected, "{parameters:?}");
    }
}

#[test]
fn the_environments_of_samconfig_give_valid_values_for_parameters() {
    let text = text_of("samconfig.toml");
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("parameter_overrides = ")).collect();
    assert_eq!(lines.len(), 3);
    for line in lines {
        let pairs = line.trim_matches('"').split(' ').map(|pair| pair.split_once('=').unwrap());
        with(&pairs.collect::<Vec<_>>());
    }
}

#[test]
fn only_health_and_the_default_route_need_no_authorization_and_one_function_has_the_default_route() {
    let (default, named): (Vec<_>, Vec<_>) = routes(&resolved()).into_iter().partition(|route| route.path == "$default");
    assert!(default.len() == 1 && default[0].method == "ANY" && !default[0].authorized, "{default:?}");
    for route in named {
        assert_eq!(route.authorized, route.path != "/v1/health", "{} {}", route.method, route.path);
        assert!(route.method != "ANY" && !route.path.contains("+}"), "{} {}", route.method, route.path);
    }
}

#[test]
fn pages_may_use_every_method_and_read_every_header_of_the_api() {
    assert!(with(&[("CorsOrigins", "")]).cors.is_none());
    let template = with(&[("CorsOrigins", "https://a.example,http://localhost:5173")]);
    let cors = template.cors.as_ref().unwrap();
    assert_eq!(cors.allow_origins, ["https://a.example", "http://localhost:5173"]);
    let sorted = |list: &[String]| list.iter().map(|name| name.to_lowercase()).collect::<BTreeSet<_>>();
    let used = routes(&template).into_iter().map(|route| route.method.to_lowercase()).filter(|method| method != "any");
    assert_eq!(sorted(&cors.allow_methods), used.collect());

    let document = crate::openapi::document();
    let operations = crate::openapi::operations(&document).into_values();
    let operations = operations.flat_map(|operation| operation["responses"].as_object().unwrap().values());
    let shared = document["components"]["responses"].as_object().unwrap().values();
    let headers = operations.chain(shared).filter_map(|response| response["headers"].as_object()).flat_map(|it| it.keys());
    // A page needs no challenge: it knows how it sends its token.
    let documented = headers.map(|name| name.to_lowercase()).filter(|name| name != "www-authenticate");
    assert_eq!(sorted(&cors.expose_headers), documented.collect());

    let parameters = document["components"]["parameters"].as_object().unwrap().values().filter(|it| it["in"] == "header");
    let sent = parameters.map(|it| it["name"].as_str().unwrap().to_lowercase());
    let always = ["authorization", "content-type"].map(str::to_owned);
    assert_eq!(sorted(&cors.allow_headers), sent.chain(always).collect());
}

#[test]
fn every_route_and_trigger_has_a_sample_event() {
    let template = resolved();
    for function in template.functions.values() {
        let samples = samples(&function.binary);
        assert!(!samples.is_empty(), "{} has no sample event", function.binary);
        let of_source = |source: &str| samples.values().any(|sample| sample["Records"][0]["eventSource"] == source);
        let mut sampled: BTreeSet<&str> = samples.values().filter_map(|sample| sample["routeKey"].as_str()).collect();
        for event in &function.events {
            let found = match &event.source {
                EventSource::Http(route) if route.path == "$default" => true,
                EventSource::Http(route) => sampled.remove(format!("{} {}", route.method, route.path).as_str()),
                EventSource::Sqs(_) => of_source("aws:sqs"),
                EventSource::Stream(_) => of_source("aws:dynamodb"),
                EventSource::Schedule(schedule) => samples.values().any(|sample| *sample == schedule.input),
            };
            assert!(found, "no sample in events/{} for {}", function.binary, event.name);
        }
        for (key, _) in template.live.iter().filter(|(_, id)| **id == function.logical_id) {
            let found = samples.values().any(|sample| sample["requestContext"]["routeKey"] == **key);
            assert!(found, "no sample in events/{} for {key}", function.binary);
        }
        assert!(sampled.is_empty(), "{} does not have the routes of these samples: {sampled:?}", function.binary);
        for (path, sample) in samples.iter().filter(|(_, sample)| sample.get("routeKey").is_some()) {
            let method = sample["routeKey"].as_str().unwrap().split(' ').next();
            let http = json!({ "method": method, "path": sample["rawPath"] });
            let context = json!({ "routeKey": sample["routeKey"], "http": http });
            assert!(has(&sample["requestContext"], &context), "{path:?} has not {context}");
        }
    }
}

fn samples(function: &str) -> BTreeMap<PathBuf, Value> {
    let read = |path: &Path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Ok(dir) = std::fs::read_dir(repository().join("events").join(function)) else { return BTreeMap::new() };
    dir.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), read(&path))).collect()
}
