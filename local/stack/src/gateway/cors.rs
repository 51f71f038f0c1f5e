//! Responses to requests from pages of other origins, as API Gateway makes them.

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};

use crate::template::Cors;

/// Returns the response to a browser's preflight request; `None` for any other request. Another origin gets no header.
pub(super) fn preflight(cors: &Cors, request: &Parts) -> Option<Response> {
    let asked = [header::ORIGIN, header::ACCESS_CONTROL_REQUEST_METHOD];
    if request.method != Method::OPTIONS || !asked.iter().all(|name| request.headers.contains_key(name)) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    if let Some(origin) = allowed(cors, &request.headers) {
        set(&mut response, header::ACCESS_CONTROL_ALLOW_ORIGIN, &origin);
        set(&mut response, header::ACCESS_CONTROL_ALLOW_METHODS, &cors.allow_methods.join(","));
        set(&mut response, header::ACCESS_CONTROL_ALLOW_HEADERS, &cors.allow_headers.join(","));
        set(&mut response, header::ACCESS_CONTROL_MAX_AGE, &cors.max_age.to_string());
    }
    Some(response)
}

/// Lets a page of an allowed origin read the response.
pub(super) fn expose(cors: &Cors, request: &HeaderMap, response: &mut Response) {
    if let Some(origin) = allowed(cors, request) {
        set(response, header::ACCESS_CONTROL_ALLOW_ORIGIN, &origin);
        set(response, header::ACCESS_CONTROL_EXPOSE_HEADERS, &cors.expose_headers.join(","));
    }
}

/// The value of `Access-Control-Allow-Origin`, if the origin of the request is allowed.
fn allowed(cors: &Cors, request: &HeaderMap) -> Option<String> {
    let origin = request.get(header::ORIGIN)?.to_str().ok()?;
    cors.allow_origins.iter().find(|allowed| *allowed == "*" || *allowed == origin).cloned()
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
