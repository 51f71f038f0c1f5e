//! `/docs`: the reference of the API, rendered in the browser, and the document itself.

use axum::response::{Html, IntoResponse, Response};
use http::{StatusCode, header};

/// The renderer is 1 MB of JavaScript, so it is neither committed nor in the binary: `make reference` fetches it.
const RENDERER: &str = "target/reference/redoc.standalone.js";

pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("reference.html"))
}

/// The renderer. The page says how to get it after a 404.
pub(super) async fn renderer() -> Response {
    match tokio::fs::read(RENDERER).await {
        Ok(script) => ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], script).into_response(),
        Err(_) => (StatusCode::NOT_FOUND, "run `make reference`").into_response(),
    }
}

pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], include_str!("../../../../openapi.yaml"))
}
