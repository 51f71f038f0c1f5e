//! Requests of one user beyond a limit.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemark_local::RedisData;
use tidemark_tests::{Response, User, request_limits, until, world_with};

async fn send(user: &User, method: &Method, path: &str) -> Response {
    let body = match (method, path) {
        (&Method::POST, "/v1/posts") | (&Method::PUT, "/v1/posts/1-1") => json!({ "title": "x" }),
        (&Method::POST, "/v1/following") => json!({ "authors": ["3"] }),
        (&Method::POST, "/v1/reads") => json!({ "all": true }),
        (&Method::PUT, "/v1/me/profile") => json!({ "name": "x" }),
        _ => Value::Null,
    };
    user.send(method.clone(), path, &[], (!body.is_null()).then(|| body.to_string())).await
}

fn is_refused(response: &Response) -> bool {
    response.status == 429
}

#[test]
fn a_user_beyond_a_limit_is_refused_until_the_bucket_fills_again() {
    world_with(request_limits([60, 0, 0, 0, 0]), async |world| {
        let author = world.user(1);
        let mut published = 0;
        let refused = loop {
            let response = author.post("/v1/posts", &json!({ "title": "x" })).await;
            if is_refused(&response) {
                break response;
            }
            published += 1;
            assert!(published < 600, "nothing was refused");
        };
        assert!(published >= 60, "a minute's worth at once, not {published}");
        assert_eq!(refused.problem(), (429, "/problems/too-many-requests"));
        for (name, value) in
            [("retry-after", "1"), ("ratelimit", "\"posts\";r=0;t=1"), ("ratelimit-policy", "\"posts\";q=60;w=60")]
        {
            assert_eq!(refused.header(name), Some(value));
        }
        assert_eq!(author.get("/v1/authors/1/posts").await.ok()["total"], published, "a refused request changes nothing");
        world.user(2).post("/v1/posts", &json!({ "title": "x" })).await.ok();
        author.put("/v1/posts/1-1/like").await.ok();
        tokio::time::sleep(Duration::from_secs(1)).await;
        author.post("/v1/posts", &json!({ "title": "x" })).await.ok();
    });
}

#[test]
fn a_refusal_of_the_caller_comes_before_other_problems() {
    const WRONG: [&str; 4] = ["/v1/feed?limit=0", "/v1/feed?cursor=x", "/v1/unread?x=1", "/v1/authors/1/posts?limit=x"];
    world_with(request_limits([0, 0, 0, 0, 1]), async |world| {
        let user = world.user(7);
        user.get("/v1/unread").await.ok();
        for path in WRONG {
            assert_eq!(user.get(path).await.problem(), (429, "/problems/too-many-requests"), "{path}");
        }
    });
    world_with(request_limits([0; 5]), async |world| {
        let user = world.user(7);
        user.delete("/v1/me").await.ok();
        for path in WRONG {
            assert_eq!(user.get(path).await.problem(), (403, "/problems/erased"), "{path}");
        }
    });
}

#[test]
fn every_kind_of_request_has_its_own_bucket() {
    let kinds: [&[(Method, &str)]; 5] = [
        &[
            (Method::POST, "/v1/posts"),
            (Method::PUT, "/v1/posts/1-1"),
            (Method::DELETE, "/v1/posts/1-1"),
            (Method::PUT, "/v1/me/profile"),
            (Method::POST, "/v1/notices"),
        ],
        &[(Method::PUT, "/v1/following/2"), (Method::DELETE, "/v1/following/2"), (Method::POST, "/v1/following")],
        &[(Method::PUT, "/v1/posts/1-1/like"), (Method::DELETE, "/v1/posts/1-1/favorite")],
        &[(Method::PUT, "/v1/posts/1-1/read"), (Method::POST, "/v1/reads"), (Method::DELETE, "/v1/notices/1-1/read")],
        &[(Method::GET, "/v1/feed"), (Method::GET, "/v1/posts/1-1"), (Method::GET, "/v1/users/1/counters")],
    ];
    // One request a minute of each kind.
    world_with(request_limits([1; 5]), async |world| {
        let mut user = 10;
        for (kind, routes) in kinds.iter().enumerate() {
            for (method, path) in *routes {
                user += 1;
                let caller = world.user(user);
                for other in &kinds {
                    let (method, path) = &other[0];
                    assert!(!is_refused(&send(&caller, method, path).await), "the first request of each kind");
                }
                let refused = send(&caller, method, path).await;
                assert_eq!(refused.status, 429, "{method} {path}");
                let name = ["posts", "follows", "reactions", "marks", "reads"][kind];
                assert_eq!(refused.header("ratelimit-policy"), Some(&*format!("\"{name}\";q=1;w=60")), "{method} {path}");
            }
        }
        assert_eq!(world.stranger(None).get("/v1/health").await.status, 200);
        assert_eq!(world.stranger(None).get("/v1/health").await.status, 200, "health has no limit");
    });
}

#[test]
fn without_redis_nothing_is_limited() {
    world_with(request_limits([1; 5]), async |world| {
        let caller = world.user(1);
        caller.get("/v1/feed").await.ok();
        assert!(is_refused(&caller.get("/v1/feed").await));
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        for _ in 0..3 {
            caller.get("/v1/feed").await.ok();
            caller.put("/v1/following/2").await.ok();
        }
        world.stack.start_redis().await.unwrap();
        // A bucket that was lost is full.
        until("reads are limited again", async || is_refused(&caller.get("/v1/feed").await)).await;
    });
}
