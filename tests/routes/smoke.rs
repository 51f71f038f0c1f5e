//! `make smoke`.

use std::process::Output;

use tidemark_local::RedisData;
use tidemark_tests::{World, repository};

/// Runs the script with these tokens. Returns its exit status and output.
async fn smoke(world: &World, tokens: &[&str]) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::new("python3");
    command.arg(repository().join("local/smoke.py")).arg(world.stack.base_url());
    command.env_remove("TOKEN").env_remove("TOKEN2").envs(["TOKEN", "TOKEN2"].into_iter().zip(tokens));
    let Output { status, stdout, stderr } = command.output().await.expect("python3 runs");
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke_is_right_about_the_stack_and_leaves_nothing() {
    World::run(async |world| {
        let (reader, author) = (world.user(1), world.user(2));
        let found = async || {
            let relation = reader.get("/v1/relations/2").await.ok();
            (relation, reader.get("/v1/unread").await.ok(), author.get("/v1/authors/2/posts").await.ok()["items"].clone())
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

        reader.put("/v1/following/2").await.ok();
        assert_eq!(smoke(world, &[]).await.0, Some(0));
        assert_eq!(reader.get("/v1/relations/2").await.ok()["following"], true, "a follow of before stays");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn smoke_fails_at_the_first_wrong_response() {
    World::run(async |world| {
        let (status, text) = smoke(world, &["1", "1"]).await;
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("both tokens are of user 1"), "{text}");
        let (status, text) = smoke(world, &["0"]).await;
        assert!(status == Some(1) && text.contains("WRONG  reader         GET /v1/me: status 401"), "{text}");
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        let (status, text) = smoke(world, &[]).await;
        assert!(status == Some(1) && text.contains("WRONG  health"), "{text}");
        world.stack.start_redis().await.unwrap();
    })
    .await;
}
