//! Responses that API Gateway makes itself, with a body of its own.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The request has no token.
    NoToken,
    /// The token is not valid.
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
    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::InvalidToken => StatusCode::UNAUTHORIZED,
            Self::MissingScope(_) => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::FunctionFailed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::NoToken | Self::InvalidToken => "Unauthorized",
            Self::MissingScope(_) => "Forbidden",
            Self::NotFound => "Not Found",
            Self::BodyTooLarge => "Request Entity Too Large",
            Self::FunctionFailed => "Internal Server Error",
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
        let mut response = (self.status(), Body::from(json!({ "message": self.message() }).to_string())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(challenge) = self.challenge().and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
