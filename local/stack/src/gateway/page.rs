//! The page at `/`: plain files, compiled into the stack. Any static host can serve the folder `page/` as it is. And
//! `/docs`: the reference of the API, rendered in the browser, and the document itself.

use axum::{
    Router,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};

const SCRIPT: &str = "text/javascript; charset=utf-8";
/// Path, content type and content.
const FILES: [(&str, &str, &str); 22] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("page/style.css")),
    ("/sample.json", "application/json", include_str!("page/sample.json")),
    ("/api.js", SCRIPT, include_str!("page/api.js")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/author.js", SCRIPT, include_str!("page/author.js")),
    ("/comments.js", SCRIPT, include_str!("page/comments.js")),
    ("/composer.js", SCRIPT, include_str!("page/composer.js")),
    ("/delivery.js", SCRIPT, include_str!("page/delivery.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/feed.js", SCRIPT, include_str!("page/feed.js")),
    ("/inbox.js", SCRIPT, include_str!("page/inbox.js")),
    ("/live.js", SCRIPT, include_str!("page/live.js")),
    ("/notices.js", SCRIPT, include_str!("page/notices.js")),
    ("/people.js", SCRIPT, include_str!("page/people.js")),
    ("/person.js", SCRIPT, include_str!("page/person.js")),
    ("/post.js", SCRIPT, include_str!("page/post.js")),
    ("/profile.js", SCRIPT, include_str!("page/profile.js")),
    ("/relations.js", SCRIPT, include_str!("page/relations.js")),
    ("/sample.js", SCRIPT, include_str!("page/sample.js")),
    ("/system.js", SCRIPT, include_str!("page/system.js")),
    ("/timeline.js", SCRIPT, include_str!("page/timeline.js")),
];
/// The page loads its own files and pictures of profiles only. It may call any API, because its settings name one.
const POLICY: &str = "default-src 'self'; img-src https: data:; connect-src *; base-uri 'none'; frame-ancestors 'none'";

/// The renderer is 1 MB of JavaScript, so it is neither committed nor in the binary: `make reference` fetches it.
const RENDERER: &str = "target/reference/redoc.standalone.js";

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        let headers =
            [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache"), (header::CONTENT_SECURITY_POLICY, POLICY)];
        router.route(path, get(async move || (headers, content)))
    })
}

pub(super) async fn reference() -> Html<&'static str> {
    Html(include_str!("reference.html"))
}

/// The renderer. The page says how to get it after a 404.
pub(super) async fn renderer() -> Response {
    match tokio::fs::read(RENDERER).await {
        Ok(script) => ([(header::CONTENT_TYPE, SCRIPT)], script).into_response(),
        Err(_) => (StatusCode::NOT_FOUND, "run `make reference`").into_response(),
    }
}

pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/yaml")], include_str!("../../../../openapi.yaml"))
}
