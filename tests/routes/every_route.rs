//! What every route does in the same way: errors, caching, and requests of pages from other origins.

use serde_json::json;
use tidemark::http::Kind;
use tidemark_tests::{Response, User, parameter, texts, world, world_with};

#[test]
fn a_request_without_identity_is_refused_by_the_gateway() {
    world(async |world| {
        let refused = |response: Response, who: &str| {
            assert_eq!(response.refusal(), (401, "Unauthorized"), "{who}");
            assert!(response.header("www-authenticate").is_some_and(|text| text.starts_with("Bearer")), "{who}");
        };
        for request in ["GET /v1/feed", "PUT /v1/following/2", "POST /v1/posts"] {
            refused(world.stranger(None).request(request).await, request);
            for token in ["", "0", "-1", "01", "abc", "alice", "18446744073709551616", "eyJhbGciOiJub25lIn0.e30."] {
                refused(world.stranger(Some(token)).request(request).await, &format!("{token} {request}"));
            }
        }
        for header in ["1", "Basic MTox", "Token 1"] {
            refused(world.stranger(None).request_with(&[("authorization", header)], "GET /v1/feed").await, header);
        }
        assert_eq!(world.stranger(Some("7 notices:write")).get("/v1/feed").await.status, 200);
    });
}

#[test]
fn an_unknown_route_and_an_unknown_method_are_different_errors_and_need_no_token() {
    world(async |world| {
        for user in [world.user(1), world.stranger(None), world.stranger(Some("nobody"))] {
            for path in ["/v1", "/v1/nothing", "/v1/feed/", "//v1/feed", "/feed", "/v1/posts/1-1/unknown", "/v1/posts//read"] {
                for method in ["GET", "PUT", "OPTIONS"] {
                    let response = user.request(&format!("{method} {path}")).await;
                    assert_eq!(response.problem(), (404, "/problems/not-found"), "{path}");
                }
            }
            // The WebSocket API has a path of its own.
            for request in ["GET /v1/live", "POST /v1/live", "DELETE /v1/live"] {
                assert_eq!(user.request(request).await.problem(), (404, "/problems/not-found"));
            }
            for (path, allowed) in ALLOWED {
                for method in ["GET", "PUT", "POST", "DELETE", "PATCH", "TRACE", "HEAD", "OPTIONS"] {
                    if allowed.split(", ").any(|known| known == method) {
                        continue;
                    }
                    let response = user.request(&format!("{method} {path}")).await;
                    let status = if method == "OPTIONS" { 204 } else { 405 };
                    assert_eq!((response.status, response.header("allow")), (status, Some(allowed)), "{method} {path}");
                    if status == 405 && method != "HEAD" {
                        assert_eq!(response.problem(), (405, "/problems/method-not-allowed"), "{method} {path}");
                    }
                }
            }
        }
    });
}

/// Paths with routes of one function and of several.
const ALLOWED: [(&str, &str); 5] = [
    ("/v1/feed", "GET"),
    ("/v1/following/2", "DELETE, PUT"),
    ("/v1/posts/1-1", "DELETE, GET, PUT"),
    ("/v1/posts/1-1/read", "DELETE, PUT"),
    ("/v1/health", "GET, HEAD"),
];

#[test]
fn every_route_refuses_query_parameters_that_it_does_not_have() {
    world(async |world| {
        let user = world.stranger(Some("1 notices:write"));
        for route in crate::openapi::routes() {
            let request = ["{post}", "{notice}", "{list}"].iter().fold(route.key.to_owned(), |key, id| key.replace(id, "1-1"));
            let request = request.replace("{handle}", "ada").replace("{user}", "2").replace("{author}", "2");
            for (query, field) in
                [("limits=5", "limits"), ("Limit=5", "Limit"), ("x=1&x=2", "x"), ("=1", "query"), ("%C3%A9", "é")]
            {
                let response = user.request(&format!("{request}?{query}")).await;
                if request.starts_with("HEAD") {
                    assert_eq!((response.status, response.body), (400, json!(null)));
                    continue;
                }
                assert_eq!(response.field(), field, "{request}?{query}");
                assert_eq!(response.body["errors"].as_array().unwrap().len(), 1, "{}", response.body);
            }
        }
        let both = user.get("/v1/feed?a=1&b=2").await;
        assert_eq!(texts(both.body["errors"].as_array().unwrap(), "field"), ["a", "b"]);
        user.get("/v1/users?user=1&user=2&").await.ok();
    });
}

#[test]
fn responses_without_a_tag_are_not_cached() {
    world(async |world| {
        let user = world.user(1);
        for path in ["/v1/me", "/v1/nothing", "/v1/feed?limit=0", "/v1/authors/2/posts"] {
            assert_eq!(user.get(path).await.header("cache-control"), Some("no-store"), "{path}");
        }
    });
}

#[test]
fn the_type_of_a_problem_leads_to_its_description() {
    world(async |world| {
        let get = async |slug: &str| reqwest::get(format!("{}/problems/{slug}", world.stack.base_url())).await.unwrap();
        for kind in Kind::ALL {
            let response = get(kind.slug()).await;
            assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
            assert!(response.text().await.unwrap().contains(&format!("Status {}: {}.", kind.status(), kind.title())));
        }
        assert_eq!(world.user(1).get("/v1/nothing").await.body["type"], "/problems/not-found");
        assert_eq!(get("unknown").await.status(), 404);
    });
}

// API Gateway and the local stack handle requests of other origins from the same template.
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
                assert_eq!(allowed, [Some(origin), Some("GET,HEAD,POST,PUT,DELETE"), Some(headers)]);
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
            (&anybody, "HEAD /v1/health", 200),
        ] {
            let response = caller.request_with(&[("origin", PAGE)], request).await;
            assert_eq!(response.status, status, "{request}");
            assert_eq!(response.header("access-control-allow-origin"), Some(PAGE), "{request}");
            let exposed = "ETag,Link,Location,Retry-After,RateLimit,RateLimit-Policy,Degraded";
            assert_eq!(response.header("access-control-expose-headers"), Some(exposed), "{request}");
            let refused = !["GET", "HEAD"].contains(&request.split(' ').next().unwrap());
            let of_another = caller.request_with(&[("origin", "https://evil.example.com")], request).await;
            assert_eq!((cors_headers(&of_another), of_another.status == 403), (vec![], refused), "{request}");
            assert_eq!(cors_headers(&caller.request_with(&[], request).await), [""; 0], "{request}");
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
