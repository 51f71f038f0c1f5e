//! openapi.yaml is what the code generates; it has the template's routes, the domain's ids and every kind of problem.

mod document;
mod examples;

use std::collections::BTreeMap;

use serde_json::Value;
use tidemark::{
    domain::{NoticeId, PostId, UserId},
    http::{Kind, Route},
};
use tidemark_local::template::HttpRoute;
use tidemark_tests::{repository, text_of, world};

use crate::template;

/// The routes of all functions.
pub(crate) fn routes() -> impl Iterator<Item = Route> {
    let functions = [
        tidemark_follow::routes(),
        tidemark_publish::routes(),
        tidemark_read_feed::routes(),
        tidemark_mark_read::routes(),
        tidemark_notice::routes(),
        tidemark_profile::routes(),
    ];
    functions.into_iter().flatten()
}

pub(crate) fn document() -> Value {
    serde_yaml_ng::from_str(&text_of("openapi.yaml")).unwrap()
}

/// Every operation of openapi.yaml as `METHOD /path`.
pub(crate) fn operations(document: &Value) -> BTreeMap<String, &Value> {
    let items = document["paths"].as_object().unwrap().iter();
    let operations = items.flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
    });
    operations.collect()
}

/// The value, or what its `$ref` names.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    value["$ref"].as_str().map_or(value, |pointer| document.pointer(pointer.strip_prefix('#').unwrap()).unwrap())
}

#[test]
fn openapi_yaml_and_the_table_of_routes_are_what_the_code_generates() {
    const TABLE: &str = "shared/http/src/routes.txt";
    let (base, examples) = (text_of("shared/http/openapi.base.yaml"), text_of(examples::FILE));
    let text = document::text(&document::document(&base, &serde_yaml_ng::from_str(&examples).unwrap(), routes()));
    let generated: Value = serde_yaml_ng::from_str(&text).unwrap();
    let table = document::routes(&generated);
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(repository().join("openapi.yaml"), text).unwrap();
        std::fs::write(repository().join(TABLE), table).unwrap();
    } else {
        assert!(document() == generated, "openapi.yaml is not what the code generates: run `make openapi`");
        assert_eq!(text_of(TABLE), table, "routes.txt is not what the code generates: run `make openapi`");
    }
}

#[test]
fn the_stack_serves_the_document_and_its_reference() {
    world(async |world| {
        let get = async |path| {
            let response = reqwest::get(format!("{}{path}", world.stack.base_url())).await.unwrap();
            response.error_for_status().unwrap().text().await.unwrap()
        };
        assert_eq!(get("/openapi.yaml").await, text_of("openapi.yaml"));
        assert!(get("/docs").await.contains("/docs/redoc.standalone.js"));
    });
}

#[test]
fn openapi_template_and_functions_have_the_same_routes() {
    let document = document();
    let operations = operations(&document);
    let mut of_functions: Vec<&str> = routes().map(|route| route.key).collect();
    of_functions.sort_unstable();
    assert_eq!(operations.keys().collect::<Vec<_>>(), of_functions);
    let named = template::routes(&template::resolved()).into_iter().filter(|route| route.path != "$default");
    let routes: Vec<(String, HttpRoute)> = named.map(|route| (format!("{} {}", route.method, route.path), route)).collect();
    assert_eq!(routes.len(), operations.len(), "each route once");
    let routes = BTreeMap::from_iter(routes);
    assert_eq!(operations.keys().collect::<Vec<_>>(), routes.keys().collect::<Vec<_>>());
    let ids: BTreeMap<&str, &String> = operations.iter().map(|(key, it)| (it["operationId"].as_str().unwrap(), key)).collect();
    assert_eq!(ids.len(), operations.len(), "each operationId once: {ids:?}");
    for (key, operation) in operations {
        let route = &routes[&key];
        let open = operation["security"].as_array().is_some_and(Vec::is_empty);
        assert_eq!(open, !route.authorized, "{key}: required authorization");

        let inside = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let declared = parameters.map(|parameter| resolved(&document, parameter)).filter(|parameter| parameter["in"] == "path");
        assert!(declared.clone().all(|parameter| parameter["required"] == true), "{key}");
        let declared = declared.map(|parameter| parameter["name"].as_str().unwrap());
        assert_eq!(inside.collect::<Vec<_>>(), declared.collect::<Vec<_>>(), "{key}");

        let responds = |status: &str| operation["responses"].get(status).is_some();
        assert_eq!(responds("401"), route.authorized, "{key}: 401");
        assert_eq!(responds("413"), operation.get("requestBody").is_some(), "{key}: 413");
        assert_eq!(responds("503"), key != "GET /v1/health", "{key}: 503");
        assert!(responds("400") && responds("429") && responds("500"), "{key}: responses that every route may return");
        let scoped = operation["security"].pointer("/0/Jwt/0").is_some();
        assert!(!scoped || responds("403"), "{key}: 403");
    }
}

#[test]
fn openapi_has_every_kind_of_problem() {
    let document = document();
    let operations = operations(&document);
    let responses: Vec<(&String, &Value)> =
        operations.values().flat_map(|operation| operation["responses"].as_object().unwrap()).collect();
    let of_no_route = [Kind::MethodNotAllowed];
    assert!(document["info"]["description"].as_str().unwrap().contains("`method-not-allowed`"));
    for kind in Kind::ALL.iter().filter(|kind| !of_no_route.contains(kind)) {
        let (status, slug) = (kind.status().to_string(), format!("`{}`:", kind.slug()));
        let mut told = responses.iter().filter(|(code, _)| **code == status).map(|(_, it)| resolved(&document, it));
        assert!(told.any(|it| it["description"].as_str().unwrap().contains(&slug)), "{slug} with {status}");
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
