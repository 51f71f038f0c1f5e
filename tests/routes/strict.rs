//! A body says exactly what is done: a field that the route does not know is refused, and nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidemark_tests::{World, texts, world};

use crate::openapi;

const ADMIN: &str = "1 notices:write";

/// A value as text. Maps have no order of their own.
fn text(value: &AttributeValue) -> String {
    match value {
        AttributeValue::M(map) => {
            format!("{:?}", map.iter().map(|(name, value)| (name, text(value))).collect::<BTreeMap<_, _>>())
        }
        AttributeValue::L(list) => format!("{:?}", list.iter().map(text).collect::<Vec<_>>()),
        value => format!("{value:?}"),
    }
}

/// Every item of every table, as text.
async fn facts(world: &World) -> BTreeSet<String> {
    let (dynamodb, mut all) = (world.dynamodb().await, BTreeSet::new());
    for table in dynamodb.list_tables().send().await.unwrap().table_names() {
        let items = dynamodb.scan().table_name(table).send().await.unwrap().items.unwrap_or_default();
        all.extend(items.into_iter().map(|item| format!("{table} {}", text(&AttributeValue::M(item)))));
    }
    all
}

/// Posts, a notice and a list, to which the paths of requests lead.
async fn prepared(world: &World) {
    let admin = world.stranger(Some(ADMIN));
    admin.follow([2]).await;
    admin.publish("one").await;
    world.user(2).publish("two").await;
    admin.post("/v1/notices", &json!({ "platforms": [1], "title": "notice" })).await.ok();
    admin.post("/v1/lists", &json!({ "name": "list" })).await.ok();
    world.idle().await;
}

/// The request of a route, with ids of what [`prepared`] has made.
fn request_of(key: &str) -> String {
    let key = ["{post}", "{notice}", "{list}"].iter().fold(key.to_owned(), |key, id| key.replace(id, "1-1"));
    key.replace("{handle}", "ada").replace("{user}", "2").replace("{author}", "2")
}

#[test]
fn every_route_refuses_fields_that_it_does_not_know_and_changes_nothing() {
    world(async |world| {
        prepared(world).await;
        let (admin, before, document) = (world.stranger(Some(ADMIN)), facts(world).await, openapi::document());
        let (mut wrong, mut bodies) = (Vec::new(), 0);
        for (key, operation) in openapi::operations(&document) {
            let example = operation.pointer("/requestBody/content/application~1json/example");
            bodies += usize::from(example.is_some());
            for (field, extra) in [("befor", json!(1)), ("Title", json!(null)), ("dаta", json!({})), ("data.x", json!([]))] {
                let mut body = example.cloned().unwrap_or_else(|| json!({}));
                body[field] = extra;
                let response = admin.request(&format!("{} {body}", request_of(&key))).await;
                // The response to HEAD has no body.
                let named = key.starts_with("HEAD")
                    || response.body["errors"].as_array().is_some_and(|errors| texts(errors, "field") == [field]);
                if response.status != 400 || !named {
                    wrong.push(format!("{key} {field}: {} {}", response.status, response.body));
                }
            }
        }
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        assert_eq!(bodies, 14, "routes with bodies");
        world.idle().await;
        assert_eq!(facts(world).await, before);
    });
}

#[test]
fn a_misspelled_field_never_does_the_widest_thing_or_nothing_in_silence() {
    world(async |world| {
        prepared(world).await;
        let (admin, before) = (world.stranger(Some(ADMIN)), facts(world).await);
        let mistakes: &[(&str, &[&str])] = &[
            (r#"POST /v1/reads {"all": true, "befor": "2020-01-01T00:00:00Z"}"#, &["befor"]),
            (r#"POST /v1/posts {"title": "t", "visibility": "followers"}"#, &["visibility"]),
            (r#"POST /v1/notices {"platforms": [1], "title": "t", "expire_at": "2099-01-01T00:00:00Z"}"#, &["expire_at"]),
            (r#"PUT /v1/notices/1-1 {"title": "t", "renotfy": true}"#, &["renotfy"]),
            (r#"PUT /v1/following/3 {"prefrence": 3}"#, &["prefrence"]),
            // Several at once, next to other errors, and without any name.
            (r#"POST /v1/posts {"titel": "t", "weigth": 1}"#, &["titel", "weigth"]),
            (r#"POST /v1/posts {"title": 7, "": 1}"#, &["body"]),
            // Routes that take no body.
            (r#"PUT /v1/posts/2-1/read {"read": false}"#, &["read"]),
            (r#"DELETE /v1/me {"dry_run": true}"#, &["dry_run"]),
            (r#"DELETE /v1/posts/1-1 {"if_revision": 7}"#, &["if_revision"]),
        ];
        for (request, fields) in mistakes {
            let response = admin.request(request).await;
            assert_eq!(response.field(), fields[0], "{request}");
            assert_eq!(texts(response.body["errors"].as_array().unwrap(), "field"), *fields, "{request}");
        }
        let many: Value = (0..2_000).map(|number| (format!("f{number}"), json!(1))).collect();
        let refused = admin.post("/v1/posts", &many).await;
        assert_eq!((refused.status, refused.body["errors"].as_array().unwrap().len()), (400, 20));
        world.idle().await;
        assert_eq!(facts(world).await, before);

        // Bodies that say nothing are no mistake, and `data` may hold anything.
        for request in ["PUT /v1/posts/2-1/read {}", "PUT /v1/posts/2-1/read null", "PUT /v1/following/2 {}"] {
            admin.request(request).await.ok();
        }
        let data = json!({ "befor": { "visibility": [{ "any": "thing" }] } });
        let post = admin.post("/v1/posts", &json!({ "title": "t", "data": data })).await.ok();
        assert_eq!(post["data"], data);
    });
}
