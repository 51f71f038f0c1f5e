//! The errors of the gateway itself, in the form of the functions' errors (RFC 9457).

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

#[derive(Clone, Debug)]
pub(crate) enum Problem {
    Unauthorized,
    NotFound,
    MethodNotAllowed(Vec<String>),
    BodyTooLarge(usize),
    Internal,
    /// The function did not return in time.
    TimedOut,
}

impl Problem {
    fn parts(&self) -> (StatusCode, &'static str, &'static str, String) {
        match self {
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "Authentication is required",
                "Send `Authorization: Bearer <user id>`.".to_owned(),
            ),
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "Not found", "no such route".to_owned()),
            Self::MethodNotAllowed(methods) => {
                let detail = format!("This path takes {}.", methods.join(", "));
                (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The path does not take this method", detail)
            }
            Self::BodyTooLarge(limit) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
                format!("A body may have at most {limit} bytes."),
            ),
            Self::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", "The function failed.".to_owned())
            }
            Self::TimedOut => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "The service is unavailable",
                "The function did not answer in time.".to_owned(),
            ),
        }
    }

    pub(crate) fn response(&self, request_id: &str) -> Response {
        let (status, slug, title, detail) = self.parts();
        let body = json!({
            "type": format!("/problems/{slug}"), "title": title, "status": status.as_u16(), "detail": detail, "request_id": request_id,
        });
        let mut response = (status, Body::from(body.to_string())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self {
            Self::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::MethodNotAllowed(methods) => {
                if let Ok(allow) = HeaderValue::from_str(&methods.join(", ")) {
                    headers.insert(header::ALLOW, allow);
                }
            }
            Self::TimedOut => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::NotFound | Self::BodyTooLarge(_) | Self::Internal => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use tidemark::{http, ports::StoreError};

    use super::*;

    #[test]
    fn problems_that_functions_return_too_have_the_same_form_here() {
        let contention = StoreError::Contention { operation: "test" };
        let pairs = [
            (Problem::Unauthorized, http::Problem::unauthorized()),
            (Problem::NotFound, http::Problem::not_found("x")),
            (Problem::BodyTooLarge(1), http::Problem::too_large("x")),
            (Problem::Internal, StoreError::DamagedItem { table: "test", key: String::new(), detail: String::new() }.into()),
            (Problem::TimedOut, contention.into()),
        ];
        for (here, there) in pairs {
            let (status, slug, title, _) = here.parts();
            let (code, name) = (there.status(), there.slug());
            assert_eq!((status.as_u16(), slug, json!(title)), (code, name, json!(there.of_item())["title"].take()));
        }
    }
}
