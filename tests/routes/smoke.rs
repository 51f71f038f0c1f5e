//! `GET /v1/health` and `make smoke`.

use std::{collections::HashMap, process::Output};

use axum::{Form, Json, Router, http::HeaderMap, routing::post};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;
use tidemark_local::RedisData;
use tidemark_tests::{World, repository, world};

/// Runs the script with these tokens, on the stack at `TIDEMARK_ADDR`. Returns its exit status and output.
async fn smoke(world: &World, tokens: &[&str]) -> (Option<i32>, String) {
    let url = world.stack.base_url();
    let address = ("TIDEMARK_ADDR", url.trim_start_matches("http://"));
    smoke_with(None, ["TOKEN", "TOKEN2"].into_iter().zip(tokens.iter().copied()).chain([address])).await
}

async fn smoke_with<'a>(url: Option<&str>, variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new("python3");
    command.arg(repository().join("local/smoke.py")).args(url);
    for variable in ["TOKEN", "TOKEN2", "TOKEN_URL", "CLIENT_ID", "CLIENT_ID2"] {
        command.env_remove(variable);
    }
    command.envs(variables);
    let Output { status, stdout, stderr } = command.output().await.expect("python3 runs");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke_is_right_about_the_stack_leaves_nothing_and_fails_at_the_first_wrong_response() {
    World::run(async |world| {
        let (reader, author) = (world.user(1), world.user(2));
        let found = async || {
            let (relation, unread) = (reader.get("/v1/relations/2").await.ok(), reader.get("/v1/unread").await.ok());
            (relation, unread, author.get("/v1/authors/2/posts").await.items())
        };
        let before = found().await;
        for tokens in [&[][..], &["2"], &["1", "2"]] {
            let (status, text) = smoke(world, tokens).await;
            assert_eq!(status, Some(0), "{tokens:?}\n{text}");
            let lines = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
            assert!(lines("ok ") >= 14 && text.contains("p95"), "{text}");
        }
        world.idle().await;
        assert_eq!(found().await, before);

        // A follow of before stays.
        reader.follow([2]).await;
        assert_eq!(smoke(world, &[]).await.0, Some(0));
        reader.get("/v1/relations/2").await.has(json!({ "following": true }));

        let fails = async |tokens: &[&str], words: &str| {
            let (status, text) = smoke(world, tokens).await;
            assert!(status == Some(1) && text.contains(words), "{text}");
        };
        fails(&["1", "1"], "both tokens are of user 1").await;
        fails(&["0"], "WRONG  reader         GET /v1/me: status 401").await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        fails(&[], "WRONG  health").await;
        world.stack.start_redis().await.unwrap();
    })
    .await;
}

/// The issuer gives user 1's token to the client `reader:`, and user 2's to `author`.
async fn issuer() -> String {
    let token = async |headers: HeaderMap, Form(form): Form<HashMap<String, String>>| {
        let login = headers["authorization"].to_str().unwrap().strip_prefix("Basic ").unwrap();
        let login = String::from_utf8(BASE64_STANDARD.decode(login).unwrap()).unwrap();
        assert_eq!((&*form["grant_type"], &*form["audience"]), ("client_credentials", "tidemark feed"));
        Json(match &*login {
            "reader%3A:s%2F1" => json!({ "access_token": "1", "token_type": "Bearer" }),
            "author:s2" => json!({ "access_token": "2", "token_type": "Bearer" }),
            _ => json!({ "error": "invalid_client" }),
        })
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/token", post(token))).await.unwrap() });
    format!("http://{address}/token?audience=tidemark%20feed")
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke_gets_its_tokens_from_the_issuer_as_a_canary_does() {
    World::run(async |world| {
        let (url, issuer) = (world.stack.base_url(), issuer().await);
        let reader = [("TOKEN_URL", issuer.as_str()), ("CLIENT_ID", "reader:"), ("CLIENT_SECRET", "s/1")];
        let (status, text) = smoke_with(Some(&url), reader).await;
        assert!(status == Some(0) && text.contains("1, who is the author too"), "{text}");
        let author = [("CLIENT_ID2", "author"), ("CLIENT_SECRET2", "s2")];
        let (status, text) = smoke_with(Some(&url), reader.into_iter().chain(author)).await;
        assert!(status == Some(0) && text.contains("1, author 2"), "{text}");
        let (status, text) = smoke_with(Some(&url), [reader[0], reader[1], ("CLIENT_SECRET", "wrong")]).await;
        assert!(status == Some(1) && text.contains("gives no token to reader:") && !text.contains("wrong"), "{text}");
    })
    .await;
}

#[test]
fn health_names_unavailable_stores() {
    world(async |world| {
        let health = async || world.stranger(None).get("/v1/health").await.ok();
        let well = json!({ "status": "ok", "redis": "ok", "dynamodb": "ok", "sqs": "ok" });
        assert_eq!(health().await, well);
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        assert_eq!(health().await, json!({ "status": "degraded", "redis": "down", "dynamodb": "ok", "sqs": "ok" }));
        world.stack.start_redis().await.unwrap();
        assert_eq!(health().await, well);
    });
}
