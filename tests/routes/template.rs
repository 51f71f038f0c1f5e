//! The template, the functions, openapi.yaml and the sample events agree, both ways.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::Value;
use tidemark::domain::{NoticeId, PostId, UserId};
use tidemark_local::template::{Bindings, EventSource, HttpRoute, Template};
use tidemark_tests::repository;

fn template() -> Template {
    Template::load(&repository().join("template.yaml"), &Bindings::default()).unwrap()
}

/// Every route in the template, as `METHOD /path`.
fn routes(template: &Template) -> BTreeMap<String, HttpRoute> {
    let events = template.functions.values().flat_map(|function| &function.events);
    let routes = events.filter_map(|event| match &event.source {
        EventSource::Http(route) => Some((format!("{} {}", route.method, route.path), route.clone())),
        EventSource::Sqs(_) | EventSource::Stream(_) | EventSource::Schedule(_) => None,
    });
    routes.collect()
}

fn document() -> Value {
    let text = std::fs::read_to_string(repository().join("openapi.yaml")).unwrap();
    serde_yaml_ng::from_str(&text).unwrap()
}

/// Every operation of openapi.yaml, as `METHOD /path`, with what its path says beside it.
fn operations(document: &Value) -> BTreeMap<String, (&Value, &Value)> {
    let mut operations = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            operations.insert(format!("{} {path}", method.to_uppercase()), (operation, item));
        }
    }
    operations
}

#[test]
fn functions_and_template_have_the_same_routes() {
    let functions = [
        tidemark_follow::ROUTES,
        tidemark_publish::ROUTES,
        tidemark_read_feed::ROUTES,
        tidemark_mark_read::ROUTES,
        tidemark_notice::ROUTES,
    ];
    let owned: BTreeSet<String> = functions.into_iter().flatten().map(|route| (*route).to_owned()).collect();
    assert_eq!(owned, routes(&template()).into_keys().collect());
}

#[test]
fn openapi_and_template_have_the_same_routes() {
    let (template, document) = (template(), document());
    let (routes, operations) = (routes(&template), operations(&document));
    assert_eq!(operations.keys().collect::<Vec<_>>(), routes.keys().collect::<Vec<_>>());
    let mut ids = BTreeSet::new();
    for (key, (operation, item)) in operations {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{key}");
        let route = &routes[&key];
        let open = operation["security"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(open, !route.authorized, "{key}: who may call");

        let inside = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let declared = item["parameters"].as_array().into_iter().flatten().map(|parameter| {
            let parameter = document.pointer(parameter["$ref"].as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
            assert_eq!((&parameter["in"], &parameter["required"]), (&"path".into(), &true.into()), "{key}");
            parameter["name"].as_str().unwrap()
        });
        assert_eq!(inside.collect::<Vec<_>>(), declared.collect::<Vec<_>>(), "{key}");

        let answers = |status: &str| operation["responses"].get(status).is_some();
        assert_eq!(answers("401"), route.authorized, "{key}: 401");
        assert_eq!(answers("413"), operation.get("requestBody").is_some(), "{key}: 413");
        assert_eq!(answers("503"), key != "GET /v1/health", "{key}: 503");
        assert!(answers("429") && answers("500"), "{key}: what any route may answer");
        let scoped = operation["security"].pointer("/0/Jwt/0").is_some();
        assert!(!scoped || answers("403"), "{key}: 403");
    }
}

#[test]
fn openapi_takes_the_ids_that_the_domain_takes() {
    let document = document();
    let agree = |schema: &str, texts: &[&str], parses: fn(&str) -> bool| {
        let pattern = document["components"]["schemas"][schema]["pattern"].as_str().unwrap();
        let pattern = regex_lite::Regex::new(pattern).unwrap();
        for text in texts {
            assert_eq!(pattern.is_match(text), parses(text), "{schema} {text:?}");
        }
    };
    let mut numbers = vec![String::new(), "+1".to_owned(), " 1".to_owned(), "1\n".to_owned(), "a".to_owned(), "١".to_owned()];
    for around in [0, 10, 65_535, (1 << 53) - 1, (1 << 53) + 20, u128::from(u64::MAX), u128::from(u64::MAX) * 10] {
        numbers.extend((around.saturating_sub(3)..around + 4).flat_map(|number| [number.to_string(), format!("0{number}")]));
    }
    // One digit more or less at every place of the largest.
    for largest in [u64::MAX, (1 << 53) - 1, 65_535] {
        for place in 0..largest.ilog10() + 1 {
            let step = u128::from(10_u64.pow(place));
            numbers.extend([u128::from(largest) + step, u128::from(largest) - step].map(|number| number.to_string()));
        }
    }
    let texts: Vec<&str> = numbers.iter().map(String::as_str).collect();
    agree("UserId", &texts, |text| text.parse::<UserId>().is_ok());
    let (firsts, seconds) = (numbers.iter().map(|n| format!("{n}-1")), numbers.iter().map(|n| format!("7-{n}")));
    let pairs: Vec<String> = firsts.chain(seconds).chain(["7", "7-", "-7", "7-7-7", "7--7"].map(str::to_owned)).collect();
    let texts: Vec<&str> = pairs.iter().map(String::as_str).collect();
    agree("PostId", &texts, |text| text.parse::<PostId>().is_ok());
    agree("NoticeId", &texts, |text| text.parse::<NoticeId>().is_ok());
}

#[test]
fn every_route_and_trigger_has_a_sample_event() {
    let template = template();
    for function in template.functions.values() {
        let samples = samples(&function.binary);
        assert!(!samples.is_empty(), "{} has no sample event", function.binary);
        let mut sampled: BTreeSet<&str> = samples.values().filter_map(|sample| sample["routeKey"].as_str()).collect();
        for event in &function.events {
            let found = match &event.source {
                EventSource::Http(route) => sampled.remove(format!("{} {}", route.method, route.path).as_str()),
                EventSource::Sqs(_) => from(&samples, "eventSource", "aws:sqs"),
                EventSource::Stream(_) => from(&samples, "eventSource", "aws:dynamodb"),
                EventSource::Schedule(schedule) => samples.values().any(|sample| *sample == schedule.input),
            };
            assert!(found, "no sample in events/{} for {}", function.binary, event.name);
        }
        assert!(sampled.is_empty(), "{} has no such routes: {sampled:?}", function.binary);
        for (path, sample) in samples.iter().filter(|(_, sample)| sample.get("routeKey").is_some()) {
            let context = &sample["requestContext"];
            let method_and_path = (&context["http"]["method"], &context["http"]["path"]);
            let method = sample["routeKey"].as_str().unwrap().split(' ').next().unwrap();
            assert_eq!(
                (&context["routeKey"], method_and_path),
                (&sample["routeKey"], (&method.into(), &sample["rawPath"])),
                "{path:?}"
            );
        }
    }
}

fn from(samples: &BTreeMap<PathBuf, Value>, key: &str, source: &str) -> bool {
    samples.values().any(|sample| sample["Records"][0][key] == source)
}

fn samples(function: &str) -> BTreeMap<PathBuf, Value> {
    let read = |path: &Path| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Ok(dir) = std::fs::read_dir(repository().join("events").join(function)) else { return BTreeMap::new() };
    dir.map(|entry| entry.unwrap().path()).map(|path| (path.clone(), read(&path))).collect()
}
