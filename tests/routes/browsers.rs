//! Requests of pages from other origins. API Gateway and the local stack handle them from the same template.

use reqwest::Method;
use tidemark_local::Options;
use tidemark_tests::{Response, User, parameter, world, world_with};

const PAGE: &str = "https://app.example.com";
const EXPOSED: &str = "ETag,Link,Location,Retry-After,RateLimit,RateLimit-Policy,Degraded";

fn origins(list: &str) -> impl FnOnce(&mut Options) {
    parameter("CorsOrigins", list)
}

async fn preflight(user: &User, path: &str, origin: &str) -> Response {
    let headers =
        [("origin", origin), ("access-control-request-method", "PUT"), ("access-control-request-headers", "authorization")];
    user.send(Method::OPTIONS, path, &headers, None).await
}

/// The names of the headers that let a page read a response.
fn cors_headers(response: &Response) -> Vec<&str> {
    response.headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("access-control-")).collect()
}

#[test]
fn a_preflight_request_of_an_allowed_origin_needs_no_token() {
    world_with(origins("http://localhost:5173,https://app.example.com"), async |world| {
        let anybody = world.stranger(None);
        for path in ["/v1/feed", "/v1/posts/1-1/like", "/v1/nothing"] {
            for origin in [PAGE, "http://localhost:5173"] {
                let response = preflight(&anybody, path, origin).await;
                assert_eq!(response.status, 204, "{path}");
                assert_eq!(response.header("access-control-allow-origin"), Some(origin));
                assert_eq!(response.header("access-control-allow-methods"), Some("GET,POST,PUT,DELETE"));
                let headers = "authorization,content-type,idempotency-key,if-none-match";
                assert_eq!(response.header("access-control-allow-headers"), Some(headers));
                assert_eq!(response.header("access-control-max-age"), Some("7200"));
            }
            for other in ["https://evil.example.com", "https://app.example.com.evil.example", "http://app.example.com", "null"] {
                let response = preflight(&anybody, path, other).await;
                assert_eq!((response.status, cors_headers(&response)), (204, vec![]), "{other}");
            }
        }
    });
}

#[test]
fn a_page_of_an_allowed_origin_can_read_every_response_and_every_error() {
    world_with(origins(PAGE), async |world| {
        let (user, anybody) = (world.user(1), world.stranger(None));
        let get = |path: &'static str| (Method::GET, path, None);
        for (caller, (method, path, body), status) in [
            (&user, get("/v1/feed"), 200),
            (&user, (Method::POST, "/v1/posts", Some("{\"title\":\"x\"}")), 201),
            (&user, (Method::DELETE, "/v1/posts/1-1", None), 204),
            (&user, get("/v1/feed?limit=0"), 400),
            (&anybody, get("/v1/feed"), 401),
            (&user, (Method::POST, "/v1/notices", Some("{}")), 403),
            (&user, get("/v1/nothing"), 404),
            (&user, (Method::PATCH, "/v1/feed", None), 405),
            (&anybody, get("/v1/health"), 200),
        ] {
            let send =
                async |origin: &str| caller.send(method.clone(), path, &[("origin", origin)], body.map(str::to_owned)).await;
            let response = send(PAGE).await;
            assert_eq!(response.status, status, "{method} {path}");
            assert_eq!(response.header("access-control-allow-origin"), Some(PAGE), "{method} {path}");
            assert_eq!(response.header("access-control-expose-headers"), Some(EXPOSED), "{method} {path}");
            assert_eq!(cors_headers(&send("https://evil.example.com").await), [""; 0], "{method} {path}");
            let without = caller.send(method.clone(), path, &[], body.map(str::to_owned)).await;
            assert_eq!(cors_headers(&without), [""; 0], "{method} {path}");
        }
    });
}

#[test]
fn every_origin_is_allowed_with_a_star_and_none_by_default() {
    world_with(origins("*"), async |world| {
        assert_eq!(preflight(&world.stranger(None), "/v1/feed", PAGE).await.header("access-control-allow-origin"), Some("*"));
        let response = world.user(1).send(Method::GET, "/v1/feed", &[("origin", "null")], None).await;
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    });
    world(async |world| {
        let response = preflight(&world.stranger(None), "/v1/feed", PAGE).await;
        assert_eq!((response.status, response.header("allow"), cors_headers(&response)), (204, Some("GET"), vec![]));
        let response = world.user(1).send(Method::GET, "/v1/feed", &[("origin", PAGE)], None).await;
        assert_eq!((response.status, cors_headers(&response)), (200, vec![]));
    });
}
