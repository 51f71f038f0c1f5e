//! `GET /v1/health` and `make smoke`.

use std::process::Output;

use serde_json::json;
use tidemark_local::RedisData;
use tidemark_tests::{World, repository, world};

/// Runs the script with these tokens. Returns its exit status and output.
async fn smoke(world: &World, tokens: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new("python3");
    command.arg(repository().join("local/smoke.py")).arg(world.stack.base_url());
    command.env_remove("TOKEN").env_remove("TOKEN2").envs(["TOKEN", "TOKEN2"].into_iter().zip(tokens));
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
