//! Logs and counts every request of the API.

use std::time::Duration;

use axum::{body::to_bytes, response::Response};
use http::{StatusCode, request::Parts};
use serde_json::Value;

use super::{BODY_LIMIT, Gateway};
use crate::REQUESTS;

/// Notes a request and its response. Responses to requests without a route are counted under the route `none`.
pub(super) async fn request(gateway: &Gateway, parts: &Parts, response: Response, took: Duration) -> Response {
    let (route, function) = match gateway.routes.find(parts.method.as_str(), parts.uri.path()) {
        Some((route, _)) => (route.key(), gateway.core.units.get(&route.function).map(|unit| &*unit.function.binary)),
        None => ("none".to_owned(), None),
    };
    let status = response.status();
    let degraded = response.headers().contains_key("degraded");
    gateway.core.metrics.request(&route, status.as_u16(), took, degraded);
    let (response, problem) = problem(response).await;
    tracing::info!(
        target: REQUESTS,
        method = parts.method.as_str(),
        path = parts.uri.path(),
        status = status.as_u16(),
        ms = took.as_secs_f64() * 1_000.0,
        function,
        problem,
        degraded,
    );
    response
}

/// The last segment of the problem's `type`, if the response is a problem.
async fn problem(response: Response) -> (Response, Option<String>) {
    if response.status() < StatusCode::BAD_REQUEST {
        return (response, None);
    }
    let (head, body) = response.into_parts();
    // The body is in memory already.
    let body = to_bytes(body, BODY_LIMIT).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Value>(&body).ok();
    let kind = problem.as_ref().and_then(|problem| problem["type"].as_str()?.rsplit('/').next().map(str::to_owned));
    (Response::from_parts(head, body.into()), kind)
}
