//! Errors that every route returns in the same way.

use reqwest::Method;
use tidemark_tests::world;

#[tokio::test]
async fn a_request_without_identity_is_refused() {
    world(async |world| {
        for token in [None, Some("0"), Some("abc"), Some("01"), Some("18446744073709551616")] {
            for (method, path) in [(Method::GET, "/v1/feed"), (Method::PUT, "/v1/following/2"), (Method::POST, "/v1/posts")] {
                let answer = world.stranger(token).send(method, path, &[], None).await;
                assert_eq!(answer.problem(), (401, "/problems/unauthorized"), "{token:?} {path}");
            }
        }
        assert_eq!(world.stranger(Some("7 notices:write")).get("/v1/feed").await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn an_unknown_route_and_an_unknown_method_are_different_errors() {
    world(async |world| {
        let user = world.user(1);
        for path in ["/", "/v1", "/v1/nothing", "/v1/feed/", "/v1/posts/1-1/unknown"] {
            if path != "/" {
                assert_eq!(user.get(path).await.problem(), (404, "/problems/not-found"), "{path}");
            }
        }
        for (method, path) in [(Method::DELETE, "/v1/feed"), (Method::GET, "/v1/following/2"), (Method::PATCH, "/v1/posts/1-1")] {
            let answer = user.send(method, path, &[], None).await;
            assert_eq!(answer.problem(), (405, "/problems/method-not-allowed"), "{path}");
            assert!(answer.header("allow").is_some());
        }
    })
    .await;
}

#[tokio::test]
async fn unreadable_and_oversized_bodies_are_refused() {
    world(async |world| {
        let user = world.user(1);
        for body in ["", "{", "null", "[]", "\"x\"", "{\"title\": "] {
            let answer = user.send(Method::POST, "/v1/posts", &[], Some(body.to_owned())).await;
            assert_eq!(answer.field(), "body", "{body}");
        }
        let huge = format!("{{\"title\":\"x\",\"body\":\"{}\"}}", "y".repeat(300 * 1024));
        let answer = user.send(Method::POST, "/v1/posts", &[], Some(huge)).await;
        assert_eq!(answer.problem(), (413, "/problems/body-too-large"));
        let binary = user.send(Method::POST, "/v1/posts", &[], Some("{\"title\":\"\u{0}ok\"}".to_owned())).await;
        assert_eq!(binary.field(), "body", "a raw control character is not JSON");
    })
    .await;
}

#[tokio::test]
async fn ids_in_paths_are_checked() {
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
    })
    .await;
}
