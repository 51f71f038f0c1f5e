//! Requests of pages from other origins. API Gateway and the local stack handle them from the same template.

use tidemark_tests::{Response, User, parameter, world, world_with};

const PAGE: &str = "https://app.example.com";

async fn preflight(user: &User, path: &str, origin: &str) -> Response {
    let headers =
        [("origin", origin), ("access-control-request-method", "PUT"), ("access-control-request-headers", "authorization")];
    user.request_with(&headers, &format!("OPTIONS {path}")).await
}

/// The names of the headers that let a page read a response.
fn cors_headers(response: &Response) -> Vec<&str> {
    response.headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("access-control-")).collect()
}

#[test]
fn a_preflight_request_of_an_allowed_origin_needs_no_token() {
    world_with(parameter("CorsOrigins", "http://localhost:5173,https://app.example.com"), async |world| {
        let anybody = world.stranger(None);
        for path in ["/v1/feed", "/v1/posts/1-1/like", "/v1/nothing"] {
            for origin in [PAGE, "http://localhost:5173"] {
                let response = preflight(&anybody, path, origin).await;
                let allowed = ["origin", "methods", "headers"].map(|of| response.header(&format!("access-control-allow-{of}")));
                let headers = "authorization,content-type,idempotency-key,if-none-match";
                assert_eq!(allowed, [Some(origin), Some("GET,POST,PUT,DELETE"), Some(headers)]);
                assert_eq!((response.status, response.header("access-control-max-age")), (204, Some("7200")), "{path}");
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
    world_with(parameter("CorsOrigins", PAGE), async |world| {
        let (user, anybody) = (world.user(1), world.stranger(None));
        for (caller, request, status) in [
            (&user, "GET /v1/feed", 200),
            (&user, r#"POST /v1/posts {"title": "x"}"#, 201),
            (&user, "DELETE /v1/posts/1-1", 204),
            (&user, "GET /v1/feed?limit=0", 400),
            (&anybody, "GET /v1/feed", 401),
            (&user, "POST /v1/notices {}", 403),
            (&user, "GET /v1/nothing", 404),
            (&user, "PATCH /v1/feed", 405),
            (&anybody, "GET /v1/health", 200),
        ] {
            let response = caller.request_with(&[("origin", PAGE)], request).await;
            assert_eq!(response.status, status, "{request}");
            assert_eq!(response.header("access-control-allow-origin"), Some(PAGE), "{request}");
            let exposed = "ETag,Link,Location,Retry-After,RateLimit,RateLimit-Policy,Degraded";
            assert_eq!(response.header("access-control-expose-headers"), Some(exposed), "{request}");
            for headers in [&[("origin", "https://evil.example.com")][..], &[]] {
                assert_eq!(cors_headers(&caller.request_with(headers, request).await), [""; 0], "{request}");
            }
        }
    });
}

#[test]
fn every_origin_is_allowed_with_a_star_and_none_by_default() {
    world_with(parameter("CorsOrigins", "*"), async |world| {
        assert_eq!(preflight(&world.stranger(None), "/v1/feed", PAGE).await.header("access-control-allow-origin"), Some("*"));
        let response = world.user(1).request_with(&[("origin", "null")], "GET /v1/feed").await;
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    });
    world(async |world| {
        let response = preflight(&world.stranger(None), "/v1/feed", PAGE).await;
        assert_eq!((response.status, response.header("allow"), cors_headers(&response)), (204, Some("GET"), vec![]));
        let response = world.user(1).request_with(&[("origin", PAGE)], "GET /v1/feed").await;
        assert_eq!((response.status, cors_headers(&response)), (200, vec![]));
    });
}
