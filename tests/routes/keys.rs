//! An idempotency key stands for one request: with any other content, it is refused.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tidemark_tests::world;

use crate::openapi;

/// The requests of a route that takes a key.
struct Case {
    route: &'static str,
    path: &'static str,
    /// Another path or query of the route, if it has parameters.
    other_path: Option<&'static str>,
    /// Each form of the body with every field, and another value of each field. `null` stands for a field that has no
    /// other value, and for the only form of a route without a body.
    forms: Vec<(Value, Value)>,
}

/// In this order, because the notices that are edited and marked are published first.
fn cases() -> Vec<Case> {
    let case =
        |route: &'static str, path, forms: &[(Value, Value)]| Case { route, path, other_path: None, forms: forms.to_vec() };
    let (early, late) = ("2098-01-01T00:00:00Z", "2099-01-01T00:00:00Z");
    let post = json!({ "title": "a", "body": "b", "data": { "c": 1 }, "weight": 2, "of": "3-1" });
    let other_post = json!({ "title": "x", "body": "x", "data": { "c": 2 }, "weight": 3, "of": "3-2" });
    let notices = json!({ "platforms": [1, 2], "title": "a", "body": "b", "expires_at": late });
    let other_notices = json!({ "platforms": [2, 1], "title": "x", "body": "x", "expires_at": early });
    let edit = json!({ "title": "a", "body": "b", "expires_at": late, "renotify": true });
    let other_edit = json!({ "title": "x", "body": "x", "expires_at": early, "renotify": false });
    let marks = [
        (json!({ "posts": ["1-1"] }), json!({ "posts": ["1-2"] })),
        (json!({ "author": "1", "through": 1 }), json!({ "author": "2", "through": 2 })),
        (json!({ "all": true, "before": "2020-01-01T00:00:00Z" }), json!({ "all": null, "before": "2021-01-01T00:00:00Z" })),
    ];
    let notice_marks = (json!({ "platform": 1, "through": 1 }), json!({ "platform": 2, "through": 2 }));
    let (comment, other_comment) = (json!({ "text": "a" }), json!({ "text": "x" }));
    vec![
        case("POST /v1/posts", "/v1/posts", &[(post, other_post)]),
        Case {
            other_path: Some("/v1/posts/1-2/comments"),
            ..case("POST /v1/posts/{post}/comments", "/v1/posts/1-1/comments", &[(comment, other_comment)])
        },
        case("POST /v1/notices", "/v1/notices", &[(notices, other_notices)]),
        Case {
            other_path: Some("/v1/notices/2-1"),
            ..case("PUT /v1/notices/{notice}", "/v1/notices/1-1", &[(edit.clone(), other_edit.clone())])
        },
        Case {
            other_path: Some("/v1/notices?id=1-1"),
            ..case("PUT /v1/notices", "/v1/notices?id=1-1&id=2-1", &[(edit, other_edit)])
        },
        case("POST /v1/notices/reads", "/v1/notices/reads", &[notice_marks]),
        case("POST /v1/lists", "/v1/lists", &[(json!({ "name": "a" }), json!({ "name": "x" }))]),
        case("POST /v1/reads", "/v1/reads", &marks),
        case(
            "POST /v1/inbox/reads",
            "/v1/inbox/reads",
            &[(json!({ "before": early }), json!({ "before": "2021-01-01T00:00:00Z" }))],
        ),
        Case {
            other_path: Some("/v1/inbox/request/read"),
            ..case("PUT /v1/inbox/{group}/read", "/v1/inbox/like-1/read", &[(Value::Null, Value::Null)])
        },
    ]
}

#[test]
fn the_cases_have_every_route_that_takes_a_key_and_every_field() {
    let (document, cases) = (openapi::document(), cases());
    let takes_key = |operation: &Value| {
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters.any(|parameter| openapi::resolved(&document, parameter)["name"] == "Idempotency-Key")
    };
    let keyed = openapi::operations(&document).into_iter().filter(|(_, operation)| takes_key(operation));
    let (keyed, operations): (BTreeSet<String>, Vec<&Value>) = keyed.unzip();
    assert_eq!(keyed, cases.iter().map(|case| case.route.to_owned()).collect());
    assert_eq!(operations.len(), cases.len());
    for case in &cases {
        let names = |value: &Value| value.as_object().into_iter().flat_map(Map::keys).cloned().collect::<BTreeSet<String>>();
        let forms = openapi::forms(&document, openapi::operations(&document)[case.route]);
        let forms = if forms.is_empty() { vec![BTreeSet::new()] } else { owned(forms) };
        assert_eq!(case.forms.iter().map(|(body, _)| names(body)).collect::<Vec<_>>(), forms, "{}", case.route);
        for (body, other) in &case.forms {
            assert_eq!(names(body), names(other), "{}", case.route);
        }
        assert_eq!(case.route.contains('{') || case.path.contains('?'), case.other_path.is_some(), "{}", case.route);
    }
}

fn owned(forms: Vec<BTreeSet<&str>>) -> Vec<BTreeSet<String>> {
    forms.into_iter().map(|names| names.into_iter().map(str::to_owned).collect()).collect()
}

#[test]
fn a_key_with_any_other_content_is_refused_and_changes_nothing() {
    world(async |world| {
        let caller = world.stranger(Some("1 notices:write"));
        world.user(3).publish_all(["quoted", "not quoted"]).await;
        // The group that is read.
        caller.publish("liked").await;
        world.user(2).put("/v1/posts/1-1/like").await.ok();
        world.idle().await;
        for Case { route, path, other_path, forms } in cases() {
            let method = route.split(' ').next().unwrap();
            for (index, (body, other)) in forms.iter().enumerate() {
                let key = format!("key {index}");
                let send = async |path: &str, body: &Value| {
                    let body = if body.is_null() { String::new() } else { format!(" {body}") };
                    caller.request_with(&[("idempotency-key", key.as_str())], &format!("{method} {path}{body}")).await
                };
                let first = send(path, body).await.ok();
                let mut others: Vec<(&str, Value)> = other_path.iter().map(|path| (*path, body.clone())).collect();
                for (name, value) in other.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                    let mut changed = body.clone();
                    changed[name] = value.clone();
                    others.push((path, changed));
                }
                others.extend(forms.iter().filter(|(form, _)| form != body).map(|(form, _)| (path, form.clone())));
                for (path, changed) in others {
                    let response = send(path, &changed).await;
                    assert_eq!(response.problem(), (422, "/problems/idempotency-key-reused"), "{route} {path} {changed}");
                }
                assert_eq!(send(path, body).await.ok(), first, "{route}");
            }
        }
    });
}
