//! `GET /_local/metrics`, the line of each invocation, and its metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use regex_lite::Regex;
use serde_json::Value;
use tidemark::{domain::Timestamp, metrics::Metric};
use tidemark_local::{Fault, FaultAction, RedisData};
use tidemark_tests::{User, World};

async fn metrics(world: &World) -> String {
    let response = reqwest::get(format!("{}/_local/metrics", world.stack.base_url())).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4");
    response.text().await.unwrap()
}

/// The value of a sample, 0 if there is none.
fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// The milliseconds that the delivery of a post took.
async fn lag(author: &User, post: &str) -> f64 {
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

/// Runs a test on a stack whose functions write their lines to the receiver.
async fn with_lines(test: impl AsyncFnOnce(&World, &Receiver<String>)) {
    let (sender, lines) = channel();
    World::run_with(|options| options.lines = Some(sender), async |world| test(world, &lines).await).await;
}

fn read(lines: &Receiver<String>) -> Vec<Value> {
    lines.try_iter().map(|line| serde_json::from_str(&line).unwrap()).collect()
}

fn of_metrics(line: &Value) -> BTreeSet<(Metric, Vec<&str>)> {
    let metric = |name: &Value| *Metric::ALL.iter().find(|metric| metric.name() == name).unwrap();
    let directives = line["_aws"]["CloudWatchMetrics"].as_array().into_iter().flatten();
    directives
        .flat_map(|directive| {
            let [dimensions] = &directive["Dimensions"].as_array().unwrap()[..] else { panic!("one set: {directive}") };
            let dimensions: Vec<&str> = dimensions.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            assert!(dimensions.iter().all(|name| line[*name].is_string()), "{line}");
            let metrics = directive["Metrics"].as_array().unwrap().iter();
            metrics.map(move |definition| (metric(&definition["Name"]), dimensions.clone())).collect::<Vec<_>>()
        })
        .collect()
}

fn values(lines: &[Value], metric: Metric) -> Vec<f64> {
    let of_line = |line: &Value| match &line[metric.name()] {
        Value::Array(values) => values.iter().map(|value| value.as_f64().unwrap()).collect(),
        value => value.as_f64().into_iter().collect::<Vec<_>>(),
    };
    lines.iter().flat_map(of_line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_invocation_writes_one_line_without_personal_data() {
    with_lines(async |world, lines| {
        let reader = world.live_reader(1_234_567, [7654321]).await;
        let post = world.publish_and_deliver(7_654_321, "A secret title").await;
        assert_eq!(reader.feed_ids().await, [post.as_str()]);
        assert_eq!(reader.get("/v1/posts/x").await.field(), "post");
        assert_eq!(reader.get("/v1/nothing/secret").await.status, 404);
        let response = reqwest::Client::new().post(format!("{}/_local/schedules/reconcile", world.stack.base_url())).send().await;
        response.unwrap().error_for_status().unwrap();
        world.idle().await;

        let lines = read(lines);
        let metrics = metrics(world).await;
        let mut by_function: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line["function"].is_string()) {
            by_function.entry(line["function"].as_str().unwrap()).or_default().push(line);
        }
        let called = ["fan-out", "follow", "publish", "read-feed", "reconcile", "projector"];
        assert!(called.iter().all(|function| by_function.contains_key(function)), "{by_function:?}");
        for (function, lines) in &by_function {
            let sample = format!("tidemark_invocation_duration_seconds_count{{function=\"{function}\"}}");
            assert_eq!(lines.len() as f64, value(&metrics, &sample), "{function}");
            assert_eq!(lines.iter().filter(|line| line["cold_start"] == true).count(), 1, "{function} started once");
        }

        let always = ["timestamp", "level", "function", "request_id", "duration_ms", "cold_start"];
        let of_http = ["Route", "StatusClass", "status", "degraded", "RequestLatency"];
        let of_metrics: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.name()).chain(["_aws"]).collect();
        for line in by_function.values().flatten() {
            let own: &[&str] = if line["Route"].is_string() { &of_http } else { &["records", "failures"] };
            let expected: BTreeSet<&str> = always.iter().chain(own).copied().collect();
            let found = line.as_object().unwrap().keys().map(String::as_str).collect();
            assert!(expected.is_subset(&found), "{line}");
            assert!(found.difference(&expected).all(|name| of_metrics.contains(name)), "{line}");
            assert!(Timestamp::parse(line["timestamp"].as_str().unwrap()).is_some() && line["level"] == "INFO", "{line}");
            let text = line.to_string();
            assert!(["secret", "1234567", "7654321"].iter().all(|secret| !text.contains(secret)), "{line}");
        }
        let told = |route: &str, status: u16| {
            let class = format!("{}xx", status / 100);
            let is = |line: &&Value| line["Route"] == route && line["status"] == status && line["StatusClass"] == class.as_str();
            lines.iter().filter(is).count()
        };
        assert_eq!((told("POST /v1/posts", 201), told("GET /v1/feed", 200)), (1, 2));
        assert_eq!((told("GET /v1/posts/{post}", 400), told("$default", 404)), (1, 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_written_with_its_dimensions_and_delivery_lag_is_that_of_the_facts() {
    with_lines(async |world, lines| {
        let author = world.user(99);
        let refused = FaultAction::FailBefore("InternalException".to_owned());
        world.stack.faults().add(Fault::new("PutEvents", refused).times(12));
        world.follow(1..=5, 99).await;
        world.read_feeds(1..=5).await;
        let posts = [author.publish("One").await, author.publish("Two").await];
        world.idle().await;
        world.walk_over_all_users(false, Duration::ZERO).await;
        world.stack.stop_redis(RedisData::Lose).await.unwrap();
        assert_eq!(world.user(1).get("/v1/feed").await.header("degraded"), Some("redis"));
        world.stack.start_redis().await.unwrap();
        world.redis_recovers().await;
        world.user(1).feed_ids().await;
        world.idle().await;

        let lines = read(lines);
        let written: BTreeSet<(Metric, Vec<&str>)> = lines.iter().flat_map(of_metrics).collect();
        let sets = Metric::ALL.iter().flat_map(|metric| metric.dimension_sets().iter().map(|set| (*metric, set.to_vec())));
        let missing: Vec<_> = sets.clone().filter(|set| !written.contains(set)).collect();
        assert!(missing.iter().all(|(_, set)| set.contains(&"Kind")), "only a difference has a kind: {missing:?}");
        assert!(written.iter().all(|set| sets.clone().any(|known| known == *set)), "{written:?}");

        let lags = [lag(&author, &posts[0]).await, lag(&author, &posts[1]).await];
        let measured = values(&lines, Metric::DeliveryLag);
        assert_eq!(measured.len(), 2, "each delivery counts once");
        assert!(lags.iter().all(|lag| measured.contains(lag)), "{lags:?} {measured:?}");
        assert_eq!(values(&lines, Metric::FollowersDelivered).iter().sum::<f64>(), 10.0);
        let degraded = lines.iter().filter(|line| line["degraded"] == true).count();
        assert_eq!(values(&lines, Metric::DegradedResponses).iter().sum::<f64>(), degraded as f64);
        assert!(values(&lines, Metric::Rebuilds).iter().sum::<f64>() >= 1.0);
        let slow = |line: &&Value| line["RequestLatency"].as_f64() > line["duration_ms"].as_f64();
        assert_eq!(lines.iter().find(slow), None, "a request ends before its invocation");
    })
    .await;
}
