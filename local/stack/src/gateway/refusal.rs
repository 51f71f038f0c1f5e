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
}

impl Refusal {
    fn status_and_message(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoToken | Self::InvalidToken => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::MissingScope(_) => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NotFound => (StatusCode::NOT_FOUND, "Not Found"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
            Self::FunctionFailed => (StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error"),
        }
    }

    /// The value of `WWW-Authenticate` (RFC 6750).
    fn challenge(&self) -> Option<String> {
        let error = |scope: &str, error, description| {
            format!("Bearer scope=\"{scope}\" error=\"{error}\" error_description=\"{description}\"")
        };
        match self {
            Self::NoToken => Some("Bearer".to_owned()),
            Self::InvalidToken => Some(error("", "invalid_token", "the local stack takes a user id: Bearer 7")),
            Self::MissingScope(scopes) => {
                Some(error(&scopes.join(" "), "insufficient_scope", "the token has none of the scopes"))
            }
            Self::NotFound | Self::BodyTooLarge | Self::FunctionFailed => None,
        }
    }

    pub(crate) fn response(&self) -> Response {
        let (status, message) = self.status_and_message();
        let mut response = (status, Json(json!({ "message": message }))).into_response();
        if let Some(challenge) = self.challenge().and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
