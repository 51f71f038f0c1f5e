//! Errors that every route returns in the same way.

use reqwest::Method;
use tidemark::http::Kind;
use tidemark_tests::{Response, world};

#[test]
fn a_request_without_identity_is_refused_by_the_gateway() {
    world(async |world| {
        for token in [None, Some("0"), Some("abc"), Some("01"), Some("18446744073709551616")] {
            for (method, path) in [(Method::GET, "/v1/feed"), (Method::PUT, "/v1/following/2"), (Method::POST, "/v1/posts")] {
                let response = world.stranger(token).send(method, path, &[], None).await;
                assert_eq!(response.refusal(), (401, "Unauthorized"), "{token:?} {path}");
                assert!(response.header("www-authenticate").is_some_and(|text| text.starts_with("Bearer")));
            }
        }
        assert_eq!(world.stranger(Some("7 notices:write")).get("/v1/feed").await.status, 200);
    });
}

#[test]
fn an_unknown_route_and_an_unknown_method_are_different_errors_and_need_no_token() {
    world(async |world| {
        for user in [world.user(1), world.stranger(None), world.stranger(Some("nobody"))] {
            for path in ["/v1", "/v1/nothing", "/v1/feed/", "//v1/feed", "/feed", "/v1/posts/1-1/unknown", "/v1/posts//read"] {
                for method in [Method::GET, Method::PUT, Method::OPTIONS] {
                    let response = user.send(method, path, &[], None).await;
                    assert_eq!(response.problem(), (404, "/problems/not-found"), "{path}");
                }
            }
            // The WebSocket API has a path of its own.
            for method in [Method::GET, Method::POST, Method::DELETE] {
                assert_eq!(user.send(method, "/v1/live", &[], None).await.problem(), (404, "/problems/not-found"));
            }
            for (path, allowed) in ALLOWED {
                for method in ["GET", "PUT", "POST", "DELETE", "PATCH", "TRACE", "HEAD"] {
                    if !allowed.contains(&method) {
                        let response = user.send(method.parse().unwrap(), path, &[], None).await;
                        assert_eq!(
                            (response.status, response.header("allow")),
                            (405, Some(allowed.join(", ").as_str())),
                            "{method} {path}"
                        );
                        if method != "HEAD" {
                            assert_eq!(response.problem(), (405, "/problems/method-not-allowed"), "{method} {path}");
                        }
                    }
                }
                let response = user.send(Method::OPTIONS, path, &[], None).await;
                assert_eq!((response.status, response.header("allow")), (204, Some(allowed.join(", ").as_str())), "{path}");
            }
        }
    });
}

/// Paths with routes of one function and of several.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("/v1/feed", &["GET"]),
    ("/v1/following/2", &["DELETE", "PUT"]),
    ("/v1/posts/1-1", &["DELETE", "GET", "PUT"]),
    ("/v1/posts/1-1/read", &["DELETE", "PUT"]),
    ("/v1/health", &["GET"]),
];

#[test]
fn every_route_refuses_query_parameters_that_it_does_not_have() {
    world(async |world| {
        let user = world.stranger(Some("1 notices:write"));
        for route in crate::openapi::routes() {
            let (method, path) = route.key.split_once(' ').unwrap();
            let path = [
                ("{post}", "1-1"),
                ("{notice}", "1-1"),
                ("{list}", "1-1"),
                ("{handle}", "ada"),
                ("{user}", "2"),
                ("{author}", "2"),
            ]
            .iter()
            .fold(path.to_owned(), |path, (name, value)| path.replace(name, value));
            for (query, field) in
                [("limits=5", "limits"), ("Limit=5", "Limit"), ("x=1&x=2", "x"), ("=1", "query"), ("%C3%A9", "é")]
            {
                let response = user.send(method.parse().unwrap(), &format!("{path}?{query}"), &[], None).await;
                assert_eq!(response.field(), field, "{method} {path}?{query}");
                assert_eq!(response.body["errors"].as_array().unwrap().len(), 1, "{}", response.body);
            }
        }
        for path in ["/v1/feed?limit=1&limit=2", "/v1/feed?status=all&limit=1&status=unread&limit=1"] {
            assert_eq!(user.get(path).await.body["errors"][0]["message"], "must be given once", "{path}");
        }
        let both = user.get("/v1/feed?a=1&b=2").await;
        assert_eq!([&both.body["errors"][0]["field"], &both.body["errors"][1]["field"]], ["a", "b"]);
        user.get("/v1/users?user=1&user=2&").await.ok();
    });
}

#[test]
fn responses_without_a_tag_are_not_cached() {
    world(async |world| {
        let user = world.user(1);
        let kept = |response: &Response| response.header("cache-control").unwrap().to_owned();
        for path in ["/v1/me", "/v1/nothing", "/v1/feed?limit=0", "/v1/authors/2/posts"] {
            assert_eq!(kept(&user.get(path).await), "no-store", "{path}");
        }
        let feed = user.get("/v1/feed").await;
        assert_eq!(kept(&feed), "private, no-cache");
        let again = user.send(Method::GET, "/v1/feed", &[("if-none-match", feed.header("etag").unwrap())], None).await;
        assert_eq!((again.status, kept(&again)), (304, "private, no-cache".to_owned()));
    });
}

#[test]
fn the_type_of_a_problem_leads_to_its_description() {
    world(async |world| {
        let problem = world.user(1).get("/v1/nothing").await.body;
        for kind in Kind::ALL {
            let url = format!("{}/problems/{}", world.stack.base_url(), kind.slug());
            let response = reqwest::get(url).await.unwrap();
            assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
            assert!(response.text().await.unwrap().contains(&format!("Status {}: {}.", kind.status(), kind.title())));
        }
        assert_eq!(problem["type"], "/problems/not-found");
        assert_eq!(reqwest::get(format!("{}/problems/unknown", world.stack.base_url())).await.unwrap().status(), 404);
    });
}

#[test]
fn unreadable_and_oversized_bodies_are_refused() {
    world(async |world| {
        let user = world.user(1);
        for body in ["", "{", "null", "[]", "\"x\"", "{\"title\": "] {
            let response = user.send(Method::POST, "/v1/posts", &[], Some(body.to_owned())).await;
            assert_eq!(response.field(), "body", "{body}");
        }
        let huge = format!("{{\"title\":\"x\",\"body\":\"{}\"}}", "y".repeat(300 * 1024));
        let response = user.send(Method::POST, "/v1/posts", &[], Some(huge)).await;
        assert_eq!(response.problem(), (413, "/problems/body-too-large"));
        let unused = user.send(Method::GET, "/v1/feed", &[], Some("y".repeat(256 * 1024 + 1))).await;
        assert_eq!(unused.problem(), (413, "/problems/body-too-large"), "also on a route without a body");
        let binary = user.send(Method::POST, "/v1/posts", &[], Some("{\"title\":\"\u{0}ok\"}".to_owned())).await;
        assert_eq!(binary.field(), "body", "a raw control character is not JSON");
    });
}

#[test]
fn ids_in_paths_are_checked() {
    world(async |world| {
        let user = world.user(1);
        for id in ["0", "01", "x", "-1", "18446744073709551616", "%20"] {
            assert_eq!(user.put(&format!("/v1/following/{id}")).await.field(), "author", "{id}");
            assert_eq!(user.get(&format!("/v1/unread/{id}")).await.field(), "author", "{id}");
        }
        for id in ["1", "1-0", "x-1", "1-1-1"] {
            assert_eq!(user.get(&format!("/v1/posts/{id}")).await.field(), "post", "{id}");
        }
        assert_eq!(user.put("/v1/following/18446744073709551615").await.status, 200);
    });
}
