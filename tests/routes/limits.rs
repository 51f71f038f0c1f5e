//! Requests of one user beyond a limit.

use std::time::Duration;

use serde_json::json;
use tidemark::domain::Budget;
use tidemark_local::RedisData;
use tidemark_tests::{request_limits, until, world_with};

const POST: &str = r#"POST /v1/posts {"title": "x"}"#;

#[test]
fn a_user_beyond_a_limit_is_refused_until_the_bucket_fills_again() {
    world_with(request_limits([60, 0, 0, 0, 0]), async |world| {
        let author = world.user(1);
        let mut published = 0;
        let refused = loop {
            let response = author.request(POST).await;
            if response.status == 429 {
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
        world.user(2).request(POST).await.ok();
        author.put("/v1/posts/1-1/like").await.ok();
        tokio::time::sleep(Duration::from_secs(1)).await;
        author.request(POST).await.ok();
    });
}

/// The parameter `name` with each of these values.
fn query(name: &str, values: impl Iterator<Item: std::fmt::Display>) -> String {
    values.map(|value| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[test]
fn a_request_takes_as_many_tokens_as_the_subjects_it_names() {
    let text = |values: &[u64]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
    let users: Vec<u64> = (1_000..1_040).collect();
    let posts: Vec<String> = (1..=40).map(|seq| format!("2-{seq}")).collect();
    let requests = [
        ("marks", format!("POST /v1/reads {}", json!({ "posts": posts }))),
        ("follows", format!("POST /v1/following {}", json!({ "authors": text(&users) }))),
        ("posts", format!("DELETE /v1/notices?{}", query("id", (1..=40).map(|seq| format!("1-{seq}"))))),
        ("posts", format!("PUT /v1/notices?{} {}", query("id", (1..=40).map(|seq| format!("1-{seq}"))), json!({ "title": "x" }))),
        ("reads", format!("GET /v1/notices/unread?{}", query("platform", 1..=40))),
        ("reads", format!("GET /v1/posts?{}", query("post", posts.iter()))),
        ("reads", format!("GET /v1/relations?{}", query("user", users.iter()))),
        ("reads", format!("GET /v1/users?{}", query("user", users.iter()))),
    ];
    world_with(request_limits([100; 5]), async |world| {
        for (caller, (kind, request)) in (11..).zip(requests) {
            let caller = world.stranger(Some(&format!("{caller} notices:write")));
            for _ in 0..2 {
                assert_ne!(caller.request(&request).await.status, 429, "{request}");
            }
            let refused = caller.request(&request).await;
            assert_eq!(refused.problem(), (429, "/problems/too-many-requests"), "80 of 100 tokens are taken: {request}");
            // A bucket of 100 tokens gets one in 600 ms. The requests before took time.
            let number = |name| refused.header(name).unwrap().rsplit('=').next().unwrap().parse::<u64>().unwrap();
            assert!((1..=12).contains(&number("retry-after")), "{:?}", refused.headers);
            let left = refused.header("ratelimit").unwrap();
            assert!(left.starts_with(&format!("\"{kind}\";r=2")) || left.contains(";r=3"), "{left}");
        }
    });
}

#[test]
fn a_refusal_of_the_caller_comes_before_other_problems() {
    for (limits, first, refusal) in [
        ([0, 0, 0, 0, 1], "GET /v1/unread", (429, "/problems/too-many-requests")),
        ([0; 5], "DELETE /v1/me", (403, "/problems/erased")),
    ] {
        world_with(request_limits(limits), async |world| {
            let user = world.user(7);
            user.request(first).await.ok();
            for path in ["/v1/feed?limit=0", "/v1/feed?cursor=x", "/v1/unread?x=1", "/v1/authors/1/posts?limit=x"] {
                assert_eq!(user.get(path).await.problem(), refusal, "{path}");
            }
        });
    }
}

#[test]
fn every_kind_of_request_has_its_own_bucket() {
    let edit = r#"PUT /v1/posts/1-1 {"title": "x"}"#;
    let profile = r#"PUT /v1/me/profile {"name": "x"}"#;
    let many = r#"POST /v1/following {"authors": ["3"]}"#;
    let all = r#"POST /v1/reads {"all": true}"#;
    let kinds: [(&str, &[&str]); 5] = [
        ("posts", &[POST, edit, "DELETE /v1/posts/1-1", profile, "POST /v1/notices"]),
        ("follows", &["PUT /v1/following/2", "DELETE /v1/following/2", many]),
        ("reactions", &["PUT /v1/posts/1-1/like", "DELETE /v1/posts/1-1/favorite"]),
        ("marks", &["PUT /v1/posts/1-1/read", all, "DELETE /v1/notices/1-1/read"]),
        ("reads", &["GET /v1/feed", "GET /v1/posts/1-1", "GET /v1/users/1/counters"]),
    ];
    // One request a minute of each kind.
    world_with(request_limits([1; 5]), async |world| {
        let of_kinds = kinds.iter().flat_map(|(kind, requests)| requests.iter().map(move |request| (kind, request)));
        for (user, (kind, request)) in (11..).zip(of_kinds) {
            let caller = world.user(user);
            for (_, requests) in kinds {
                assert_ne!(caller.request(requests[0]).await.status, 429, "the first request of each kind");
            }
            let refused = caller.request(request).await;
            assert_eq!(refused.status, 429, "{request}");
            assert_eq!(refused.header("ratelimit-policy"), Some(&*format!("\"{kind}\";q=1;w=60")), "{request}");
        }
        for _ in 0..2 {
            assert_eq!(world.stranger(None).get("/v1/health").await.status, 200, "health has no limit");
        }
    });
}

#[test]
fn exactly_the_requests_that_change_nothing_take_from_the_reads() {
    for route in crate::openapi::routes().filter(|route| !route.key.ends_with(" /v1/health")) {
        let budget = route.policy.budget.expect(route.key);
        assert_eq!(budget == Budget::Reads, route.key.starts_with("GET "), "{}", route.key);
    }
}

#[test]
fn without_redis_nothing_is_limited() {
    world_with(request_limits([1; 5]), async |world| {
        let caller = world.user(1);
        caller.get("/v1/feed").await.ok();
        assert_eq!(caller.get("/v1/feed").await.status, 429);
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        for _ in 0..3 {
            caller.get("/v1/feed").await.ok();
            caller.follow([2]).await;
        }
        world.stack.start_redis().await.unwrap();
        // A bucket that was lost is full.
        until("reads are limited again", async || caller.get("/v1/feed").await.status == 429).await;
    });
}
