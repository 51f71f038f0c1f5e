//! `GET /_local/metrics`.

use std::time::Duration;

use regex_lite::Regex;
use tidemark::domain::Timestamp;
use tidemark_tests::{User, World};

pub(crate) async fn metrics(world: &World) -> String {
    let response = reqwest::get(format!("{}/_local/metrics", world.stack.base_url())).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4");
    response.text().await.unwrap()
}

/// The value of a sample, 0 if there is none.
pub(crate) fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// The milliseconds that the delivery of a post took.
pub(crate) async fn lag(author: &User, post: &str) -> f64 {
    let delivery = author.get(&format!("/v1/posts/{post}/delivery")).await.ok();
    let ms = |field: &str| Timestamp::parse(delivery[field].as_str().unwrap()).unwrap().ms() as f64;
    ms("finished_at") - ms("started_at")
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_invocations_and_deliveries() {
    World::run(async |world| {
        let author = world.user(2);
        world.follow([1], 2).await;
        world.idle().await;
        world.stack.pause("fan-out").await.unwrap();
        let posts = [author.publish("One").await, author.publish("Two").await];
        let text = metrics(world).await;
        assert_eq!(value(&text, r#"tidemark_queue_messages{queue="FanOutQueue",state="visible"}"#), 2.0, "{text}");
        let held_back = Duration::from_millis(300);
        tokio::time::sleep(held_back).await;
        world.resume("fan-out").await;
        assert_eq!(author.get("/v1/posts/x").await.field(), "post");

        let text = metrics(world).await;
        let count = |labels: &str| value(&text, &format!("tidemark_request_duration_seconds_count{{{labels}}}"));
        assert_eq!(count(r#"route="POST /v1/posts",status="201""#), 2.0, "{text}");
        assert_eq!(count(r#"route="GET /v1/posts/{post}",status="400""#), 1.0, "{text}");
        assert_eq!(value(&text, r#"tidemark_invocation_duration_seconds_count{function="publish"}"#), 3.0, "{text}");
        assert_eq!(value(&text, r#"tidemark_invocation_errors_total{function="publish"}"#), 0.0, "{text}");
        assert_eq!(value(&text, r#"tidemark_stream_records_behind{table="FollowingTable"}"#), 0.0, "{text}");

        // The sum is that of the times in the posts' deliveries.
        let lag = (lag(&author, &posts[0]).await + lag(&author, &posts[1]).await) / 1_000.0;
        assert_eq!(value(&text, "tidemark_delivery_lag_seconds_count"), 2.0, "{text}");
        assert!((value(&text, "tidemark_delivery_lag_seconds_sum") - lag).abs() < 1e-6, "{lag} {text}");
        assert!(lag >= held_back.as_secs_f64() * 2.0, "{lag}");
        assert_eq!(value(&text, r#"tidemark_delivery_lag_seconds_bucket{le="0.256"}"#), 0.0, "{text}");

        let sample = Regex::new(r#"^[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+$"#).unwrap();
        for line in text.lines().filter(|line| !line.starts_with("# HELP ") && !line.starts_with("# TYPE ")) {
            assert!(sample.is_match(line), "{line}");
        }
    })
    .await;
}
