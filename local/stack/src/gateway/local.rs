//! `/_local/…`: requests that inspect and pause the stack. A deployment does not have them.

#![expect(clippy::result_large_err, reason = "the error is the response")]

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use prometheus::TEXT_FORMAT;
use serde_json::{Value, json};

use super::Gateway;
use crate::{
    core::{Unit, error_payload},
    redis,
    runner::InvokeError,
    status::Status,
    weather::{Weather, any_seed},
};

/// Shows the section of docs/problems.md that the `type` of a problem names.
pub(super) async fn problem(Path(slug): Path<String>) -> Response {
    let mut sections = include_str!("../../../../docs/problems.md").split("\n## ").skip(1);
    match sections.find(|section| section.lines().next() == Some(&slug)) {
        Some(section) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], section).into_response(),
        None => (StatusCode::NOT_FOUND, format!("no kind of problem is called {slug}\n")).into_response(),
    }
}

pub(super) async fn status(State(gateway): State<Arc<Gateway>>) -> Result<Json<Status>, (StatusCode, String)> {
    gateway.core.status().await.map(Json).map_err(internal)
}

pub(super) async fn metrics(State(gateway): State<Arc<Gateway>>) -> Result<impl IntoResponse, (StatusCode, String)> {
    let text = gateway.core.status().await.and_then(|status| Ok(gateway.core.metrics.text(&status)?));
    text.map(|text| ([(header::CONTENT_TYPE, TEXT_FORMAT)], text)).map_err(internal)
}

fn internal(error: anyhow::Error) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
}

/// Pauses a function's sources. Returns when no invocation by them is in flight.
pub(super) async fn pause(State(gateway): State<Arc<Gateway>>, Path(function): Path<String>) -> Result<Response, Response> {
    let unit = unit(&gateway, &function)?;
    unit.gate.pause().await;
    Ok(Json(json!({ "function": unit.function.binary, "paused": true })).into_response())
}

pub(super) async fn resume(State(gateway): State<Arc<Gateway>>, Path(function): Path<String>) -> Result<Response, Response> {
    let unit = unit(&gateway, &function)?;
    unit.gate.resume();
    Ok(Json(json!({ "function": unit.function.binary, "paused": false })).into_response())
}

/// Fires a function's schedule and returns the function's result. A JSON body replaces the schedule's input.
pub(super) async fn fire(
    State(gateway): State<Arc<Gateway>>,
    Path(function): Path<String>,
    body: Bytes,
) -> Result<Response, Response> {
    let unit = unit(&gateway, &function)?;
    let fired = gateway.core.fire(unit, input(&body)?).await;
    fired.map(result).ok_or_else(|| refusal(StatusCode::NOT_FOUND, format!("`{function}` has no schedule")))
}

/// Invokes the function with the body as its event, as `aws lambda invoke` does, and returns its result.
pub(super) async fn invoke(
    State(gateway): State<Arc<Gateway>>,
    Path(function): Path<String>,
    body: Bytes,
) -> Result<Response, Response> {
    let unit = unit(&gateway, &function)?;
    let event = input(&body)?.unwrap_or_else(|| json!({}));
    Ok(result(gateway.core.invoke(unit, event).await))
}

/// The environment of every function by its logical id. `sam local invoke --env-vars` reads this form.
pub(super) async fn environment(State(gateway): State<Arc<Gateway>>) -> Response {
    let environments: BTreeMap<_, _> = gateway.core.units.iter().map(|(id, unit)| (id, unit.environment.as_ref())).collect();
    Json(environments).into_response()
}

/// The query of a request for events.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    after: Option<String>,
}

/// The events that left after the one with the id `after`, or all, oldest first. An id that no event has is a mistake:
/// the response would otherwise be that of no events, or of all.
pub(super) async fn events(
    State(gateway): State<Arc<Gateway>>,
    query: Result<Query<After>, QueryRejection>,
) -> Result<Response, Response> {
    let query = query.map_err(|error| refusal(StatusCode::BAD_REQUEST, error.body_text()))?;
    let bus = Arc::clone(&gateway.core.bus);
    let listed = tokio::task::spawn_blocking(move || bus.after(query.after.as_deref())).await;
    match listed.map_err(anyhow::Error::from).and_then(|listed| Ok(listed?)) {
        Ok(Some(items)) => Ok(Json(json!({ "items": items })).into_response()),
        Ok(None) => Err(refusal(StatusCode::BAD_REQUEST, "no event has the id `after`")),
        Err(error) => Err(internal(error).into_response()),
    }
}

/// Empties Redis. Refuses to empty one that the stack did not start, because it may hold more than views.
pub(super) async fn flush(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.core.own_redis.is_empty() {
        let reason = "the stack does not empty the Redis at REDIS_URL, because the stack does not own it";
        return refusal(StatusCode::CONFLICT, reason);
    }
    match redis::flush(&gateway.core.own_redis).await {
        Ok(()) => Json(json!({ "flushed": true })).into_response(),
        Err(error) => refusal(StatusCode::BAD_GATEWAY, format!("{error:#}")),
    }
}

pub(super) async fn weather(State(gateway): State<Arc<Gateway>>) -> Response {
    let (weather, seed) = gateway.core.weather();
    let consumption = gateway.core.surroundings.conditions.consumption();
    let consumed = json!({ "read": consumption.read, "written": consumption.written, "throttled": consumption.throttled });
    let known = ["calm", "aws", "storm"];
    Json(json!({ "weather": weather, "seed": seed, "known": known, "consumed": consumed })).into_response()
}

/// The body of a request that changes the weather.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    weather: Weather,
    seed: Option<u64>,
}

/// Changes the weather. Without a seed, the stack picks one.
pub(super) async fn set_weather(State(gateway): State<Arc<Gateway>>, body: Bytes) -> Response {
    match serde_json::from_slice::<Change>(&body) {
        Ok(change) => {
            gateway.core.set_weather(change.weather, change.seed.unwrap_or_else(any_seed));
            weather(State(gateway)).await
        }
        Err(error) => {
            let reason = format!("expected {{\"weather\": \"calm\" | \"aws\" | \"storm\", \"seed\"?: number >= 0}}: {error}");
            refusal(StatusCode::BAD_REQUEST, reason)
        }
    }
}

/// Parses a body as JSON. An empty body is `None`.
fn input(body: &Bytes) -> Result<Option<Value>, Response> {
    if body.is_empty() {
        return Ok(None);
    }
    let input = serde_json::from_slice(body);
    input.map_err(|error| refusal(StatusCode::BAD_REQUEST, format!("the input is not JSON: {error}")))
}

fn unit<'a>(gateway: &'a Gateway, function: &str) -> Result<&'a Unit, Response> {
    let missing = || refusal(StatusCode::NOT_FOUND, format!("the template has no function `{function}`"));
    gateway.core.unit(function).ok_or_else(missing)
}

fn result(result: Result<Value, InvokeError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, Json(error_payload(&error))).into_response(),
    }
}

fn refusal(status: StatusCode, reason: impl Into<Value>) -> Response {
    (status, Json(json!({ "error": reason.into() }))).into_response()
}
