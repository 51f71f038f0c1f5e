//! openapi.yaml and the template have the same routes; openapi.yaml and the domain accept the same ids.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tidemark::domain::{NoticeId, PostId, UserId};
use tidemark_local::template::{Bindings, EventSource, HttpRoute, Template};
use tidemark_tests::repository;

/// Every route in the template, as `METHOD /path`.
fn routes() -> BTreeMap<String, HttpRoute> {
    let template = Template::load(&repository().join("template.yaml"), &Bindings::default()).unwrap();
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

/// Every operation of openapi.yaml as `METHOD /path`, with the entries that apply to its whole path.
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
fn openapi_and_template_have_the_same_routes() {
    let (routes, document) = (routes(), document());
    let operations = operations(&document);
    assert_eq!(operations.keys().collect::<Vec<_>>(), routes.keys().collect::<Vec<_>>());
    let mut ids = BTreeSet::new();
    for (key, (operation, item)) in operations {
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{key}");
        let route = &routes[&key];
        let open = operation["security"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(open, !route.authorized, "{key}: required authorization");

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
        assert!(answers("429") && answers("500"), "{key}: responses that every route may return");
        let scoped = operation["security"].pointer("/0/Jwt/0").is_some();
        assert!(!scoped || answers("403"), "{key}: 403");
    }
}

#[test]
fn openapi_and_the_domain_accept_the_same_ids() {
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
    // The largest id with one digit more or less at each place.
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
