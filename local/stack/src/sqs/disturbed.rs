//! Requests to the queues under faults or weather.

use axum::body::{Body, Bytes};
use http::{Response, request::Parts};
use serde_json::{Value, json};

use super::Service;
use crate::{
    http_server::{Reply, access_key, json_response, operation, status_of},
    weather::Call,
};

/// In a storm, the probabilities that a send fails before it is done, that every entry of a batch fails, and that the
/// response is lost.
const STORM_FAILS: f64 = 0.02;
const STORM_LEAVES: f64 = 0.01;
const STORM_LOSES: f64 = 0.03;

pub(super) async fn response(service: &Service, parts: &Parts, body: Bytes) -> Reply {
    let (function, operation) = (access_key(parts), operation(parts).unwrap_or_default());
    // An open receive does not count as work, because it only waits.
    let _open = (operation != "ReceiveMessage").then(|| service.surroundings.open.enter());
    let faults = &service.surroundings.faults;
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let Some(fault) = faults.take(&Call { function, operation, body: text }) else {
        return in_weather(service, parts, operation, body).await;
    };
    let request = async { Some(service.handle(parts, body.clone()).await) };
    faults.apply(fault, function, request, refusal, || all_failed(text)).await
}

/// In a storm, makes sends fail and loses their responses.
async fn in_weather(service: &Service, parts: &Parts, operation: &str, body: Bytes) -> Reply {
    let conditions = &service.surroundings.conditions;
    if !matches!(operation, "SendMessage" | "SendMessageBatch") {
        return Some(service.handle(parts, body).await);
    }
    if conditions.storm(STORM_FAILS) {
        return Some(refusal("InternalError"));
    }
    if operation == "SendMessageBatch" && conditions.storm(STORM_LEAVES) {
        return Some(all_failed(std::str::from_utf8(&body).unwrap_or_default()));
    }
    let response = service.handle(parts, body).await;
    (!conditions.storm(STORM_LOSES)).then_some(response)
}

fn refusal(code: &str) -> Response<Body> {
    let body = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": "a planted fault" });
    json_response(status_of(code), body.to_string())
}

/// The response to a batch in which every entry has failed.
fn all_failed(body: &str) -> Response<Body> {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let entries = request.get("Entries").and_then(Value::as_array).into_iter().flatten();
    let failed: Vec<Value> = entries
        .map(|entry| json!({ "Id": entry["Id"], "Code": "InternalError", "Message": "a planted fault", "SenderFault": false }))
        .collect();
    json_response(200, json!({ "Successful": [], "Failed": failed }).to_string())
}
