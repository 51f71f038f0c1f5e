//! Responses that API Gateway makes itself, with a body of its own.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    NoToken,
    InvalidToken,
    /// The token has none of the scopes that the route needs.
    MissingScope(Vec<String>),
    /// The template has no `$default` route.
    NotFound,
    BodyTooLarge,
    /// The function failed or did not return in time.
    FunctionFailed,
    /// Lambda refuses another execution.
    Throttled,
}

/// In seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl Refusal {
    pub(crate) fn response(&self) -> Response {
        // The value of `WWW-Authenticate` (RFC 6750).
        let challenge = |scope: &str, error, description| {
            Some(format!("Bearer scope=\"{scope}\" error=\"{error}\" error_description=\"{description}\""))
        };
        let (status, message, challenge) = match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, "Unauthorized", Some("Bearer".to_owned())),
            Self::InvalidToken => {
                let challenge = challenge("", "invalid_token", "the local stack takes a user id: Bearer 7");
                (StatusCode::UNAUTHORIZED, "Unauthorized", challenge)
            }
            Self::MissingScope(scopes) => {
                let challenge = challenge(&scopes.join(" "), "insufficient_scope", "the token has none of the scopes");
                (StatusCode::FORBIDDEN, "Forbidden", challenge)
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "Not Found", None),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large", None),
            Self::FunctionFailed => (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error", None),
            Self::Throttled => (StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable", None),
        };
        let mut response = (status, Json(json!({ "message": message }))).into_response();
        if let Some(challenge) = challenge.and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if matches!(self, Self::Throttled) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
