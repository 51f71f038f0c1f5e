//! Tests of the whole stack, without the functions' own behaviour.

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::Options;

fn options(folder: &Path) -> Options {
    let mut options = Options::new(folder);
    options.template = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml");
    options.schedules = false;
    options
}

async fn start_with(change: impl FnOnce(&mut Options)) -> (TempDir, Stack) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    change(&mut options);
    (folder, Stack::start(options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_refuses_requests_before_any_function_as_api_gateway_does() {
    let scoped = |options: &mut Options| drop(options.parameters.insert("JwtScope".to_owned(), "feed".to_owned()));
    let (_folder, stack) = start_with(scoped).await;
    let client = reqwest::Client::new();
    let refusal = async |request: reqwest::RequestBuilder| {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        assert_eq!(headers["content-type"], "application/json");
        let challenge = headers.get("www-authenticate").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        (status, response.json::<Value>().await.unwrap(), challenge)
    };
    let feed = |token: Option<&str>| {
        let request = client.get(format!("{}/v1/feed", stack.base_url()));
        token.into_iter().fold(request, |request, token| request.header("authorization", token))
    };

    assert_eq!(refusal(feed(None)).await, (401, json!({ "message": "Unauthorized" }), "Bearer".to_owned()));
    for token in ["", "Bearer", "Bearer 0", "Bearer x", "Basic 1"] {
        let (status, body, challenge) = refusal(feed(Some(token))).await;
        assert_eq!((status, body), (401, json!({ "message": "Unauthorized" })), "{token}");
        assert!(challenge.contains("invalid_token"), "{token}: {challenge}");
    }
    let (status, body, challenge) = refusal(feed(Some("Bearer 1 other"))).await;
    assert_eq!((status, body), (403, json!({ "message": "Forbidden" })));
    assert!(challenge.contains("scope=\"feed\"") && challenge.contains("insufficient_scope"), "{challenge}");
    assert_eq!(feed(Some("Bearer 1 feed")).send().await.unwrap().status().as_u16(), 200);
    let large = client.post(format!("{}/v1/posts", stack.base_url())).header("authorization", "Bearer 1 feed");
    let (status, body, _) = refusal(large.body(vec![b'x'; (10 << 20) + 1])).await;
    assert_eq!((status, body), (413, json!({ "message": "Request Entity Too Large" })));
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_functions_may_work_on_are_refused_at_once() {
    for (concurrency, expected) in [(0, 503), (1, 200)] {
        let (_folder, stack) = start_with(|options| options.concurrency = concurrency).await;
        let feed = format!("{}/v1/feed", stack.base_url());
        // A request that has ended makes room for the next.
        for _ in 0..2 {
            let response = reqwest::Client::new().get(&feed).header("authorization", "Bearer 1").send().await.unwrap();
            assert_eq!(response.status().as_u16(), expected);
            assert_eq!(response.headers().contains_key("retry-after"), expected == 503);
        }
        let status = reqwest::get(format!("{}/_local/status", stack.base_url())).await.unwrap().status();
        assert!(status.is_success(), "the stack's own routes have no limit");
        stack.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_were_lost_stay_lost_after_a_restart() {
    let (folder, stack) = start_with(|_| ()).await;
    stack.pause("projector").await.unwrap();
    let follow = format!("{}/v1/following/2", stack.base_url());
    let response = reqwest::Client::new().put(follow).header("authorization", "Bearer 1").send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert!(stack.status().await.unwrap().streams["FollowingTable"].behind > 0);
    stack.lose_records("projector").unwrap();
    stack.stop().await.unwrap();
    let stored = rusqlite::Connection::open(folder.path().join("local.sqlite")).unwrap();
    let known = "SELECT MAX(sequence) FROM positions WHERE source LIKE 'Projector%'";
    assert!(stored.query_row(known, [], |row| row.get::<_, Option<i64>>(0)).unwrap() > Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_local_routes_report_and_pause_the_stack() {
    let (_folder, stack) = start_with(|_| ()).await;
    stack.idle_within(Duration::from_secs(60)).await.unwrap();
    let client = reqwest::Client::new();
    let url = |path: &str| format!("{}{path}", stack.base_url());

    let status: Value = client.get(url("/_local/status")).send().await.unwrap().json().await.unwrap();
    assert_eq!(status["idle"], true);
    assert_eq!(status["queues"]["FanOutQueue"], json!({ "visible": 0, "in_flight": 0, "delayed": 0 }));
    assert_eq!(status["streams"]["FollowingTable"], json!({ "behind": 0 }));
    assert_eq!(status["redis_url"], stack.redis_url());
    let environment: Value = client.get(url("/_local/environment")).send().await.unwrap().json().await.unwrap();
    assert_eq!(environment["PublishFunction"]["REDIS_URL"], stack.redis_url());
    assert_eq!(environment["PublishFunction"]["AWS_ENDPOINT_URL_DYNAMODB"], stack.dynamodb_endpoint());
    assert_eq!(environment.as_object().unwrap().len(), stack.template().functions.len());
    assert!(status["functions"]["fan-out"]["has_sources"] == true && status["functions"]["follow"]["has_sources"] == false);
    for (path, kind) in [("/", "text/html"), ("/style.css", "text/css"), ("/app.js", "text/javascript")] {
        let response = client.get(url(path)).send().await.unwrap();
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with(kind));
        let page = response.text().await.unwrap();
        assert!(!["src=\"http", "href=\"http", "url(http", "from \"http"].iter().any(|other| page.contains(other)), "{path}");
    }

    let post = async |path: &str| client.post(url(path)).send().await.unwrap().status().as_u16();
    assert_eq!(post("/_local/sources/fan-out/pause").await, 200);
    assert!(stack.status().await.unwrap().functions["fan-out"].paused);
    assert_eq!(post("/_local/sources/FanOutFunction/resume").await, 200);
    assert!(!stack.status().await.unwrap().functions["fan-out"].paused);
    assert_eq!(post("/_local/sources/nobody/pause").await, 404);
    assert_eq!(post("/_local/schedules/follow").await, 404);
    let keys = async || ask::<u64>(&stack, &["DBSIZE"]).await.unwrap();
    let feed = client.get(url("/v1/feed")).header("authorization", "Bearer 1").send().await.unwrap();
    assert_eq!((feed.status().as_u16(), keys().await > 0), (200, true));
    assert_eq!((post("/_local/redis/flush").await, keys().await), (200, 0));
    assert!(stack.app("publish").is_some() && stack.app("nobody").is_none());
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_weather_can_be_set_at_the_start_and_changed_later() {
    let (_folder, stack) = start_with(|options| (options.weather, options.weather_seed) = (Weather::Aws, Some(11))).await;
    let (client, url) = (reqwest::Client::new(), format!("{}/_local/weather", stack.base_url()));
    let seen = async || {
        let response: Value = client.get(&url).send().await.unwrap().json().await.unwrap();
        (response["weather"].clone(), response["seed"].clone())
    };
    assert_eq!(seen().await, (json!("aws"), json!(11)));
    let put = async |body: &str| {
        let response = client.put(&url).body(body.to_owned()).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    for bad in ["", "[]", "{}", r#"{"weather":"fog"}"#, r#"{"weather":"storm","seed":-1}"#, r#"{"weather":"storm","sed":1}"#] {
        let (status, body) = put(bad).await;
        assert_eq!(status, 400, "{bad}");
        assert!(body["error"].as_str().unwrap().contains("calm"), "{body}");
    }
    assert_eq!(seen().await, (json!("aws"), json!(11)), "the weather stays the same");
    let (status, body) = put(r#"{"weather":"storm","seed":7}"#).await;
    assert_eq!((status, &body["weather"], &body["seed"]), (200, &json!("storm"), &json!(7)));
    assert_eq!((stack.weather(), &body["consumed"]["read"]), ((Weather::Storm, 7), &json!(0.0)));
    assert_eq!(serde_json::to_value(stack.status().await.unwrap()).unwrap()["weather"], "storm");
    assert_eq!(put(r#"{"weather":"calm"}"#).await.0, 200);
    assert_eq!(stack.weather().0, Weather::Calm);
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_drops_connections_to_redis_and_calm_weather_does_not() {
    let (_folder, stack) = start_with(|_| ()).await;
    stack.set_weather(Weather::Storm, 2);
    let mut connection = ::redis::Client::open(stack.redis_url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while ::redis::cmd("PING").query_async::<()>(&mut connection).await.is_ok_and(|()| Instant::now() < deadline) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(Instant::now() < deadline, "no connection was dropped");
    stack.set_weather(Weather::Calm, 2);
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_belongs_to_one_stack_and_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let stack = Stack::start(options(folder.path())).await.unwrap();
    let error = format!("{:#}", Stack::start(options(folder.path())).await.unwrap_err());
    assert!(error.contains("in use by another stack"), "{error}");

    ask::<()>(&stack, &["SET", "lost", "1"]).await.unwrap();
    stack.stop_redis(RedisData::Lose).await.unwrap();
    stack.start_redis().await.unwrap();
    assert!(!ask::<bool>(&stack, &["EXISTS", "lost"]).await.unwrap());
    ask::<()>(&stack, &["SET", "kept", "1"]).await.unwrap();
    let dead = stack.queue("FanOutDeadLetters").unwrap().name.clone();
    stack.core.queues.send(&dead, "kept".to_owned()).await.unwrap();
    stack.stop().await.unwrap();

    let stack = Stack::start(options(folder.path())).await.unwrap();
    assert!(ask::<bool>(&stack, &["EXISTS", "kept"]).await.unwrap());
    let status = stack.status().await.unwrap();
    assert_eq!(status.queues["FanOutDeadLetters"].visible, 1);
    assert!(status.idle, "no function consumes dead letters");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_option_is_one_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let error = async |change: &dyn Fn(&mut Options)| {
        let mut wrong = options(folder.path());
        change(&mut wrong);
        format!("{:#}", Stack::start(wrong).await.unwrap_err())
    };

    let text = error(&|options| options.redis_server = "/nowhere/redis-server".into()).await;
    assert!(text.contains("make setup") && text.contains("install valkey-server or redis-server"), "{text}");
    assert!(error(&|options| options.redis_url = Some("redis://127.0.0.1:1".to_owned())).await.contains("REDIS_URL"));
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = taken.local_addr().unwrap();
    assert!(error(&|options| options.addr = addr).await.contains(&addr.to_string()));
    assert!(error(&|options| options.template = folder.path().join("none.yaml")).await.contains("none.yaml"));
    let processes = |options: &mut Options| (options.all_processes, options.bin_dir) = (true, Some(folder.path().to_owned()));
    assert!(error(&processes).await.contains("the binary"));
    let unknown = error(&|options| options.process_functions = ["fan-out".to_owned(), "fanout".to_owned()].into()).await;
    assert!(unknown.contains("no function is called `fanout`, only fan-out, follow,"), "{unknown}");
}

async fn ask<T: ::redis::FromRedisValue>(stack: &Stack, command: &[&str]) -> ::redis::RedisResult<T> {
    let mut connection = ::redis::Client::open(stack.redis_url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    ::redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_can_hang_and_restart_with_older_data() {
    let (_folder, stack) = start_with(|_| ()).await;
    let client = ::redis::Client::open(stack.redis_url()).unwrap();
    let patient = ::redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut kept = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();

    let started = Instant::now();
    stack.hang_redis(Duration::from_millis(300)).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(300), "the call returns when Redis hangs");
    ::redis::cmd("SET").arg("late").arg("1").query_async::<()>(&mut kept).await.unwrap();
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(280), "Redis runs the command at the end of the hang: {elapsed:?}");

    let error = stack.restart_redis_from_dump().await.unwrap_err();
    assert!(format!("{error:#}").contains("no snapshot"), "{error:#}");
    stack.start_redis().await.unwrap();
    ask::<()>(&stack, &["SET", "key", "old"]).await.unwrap();
    stack.dump_redis().await.unwrap();
    for _ in 0..2 {
        ask::<()>(&stack, &["SET", "key", "new"]).await.unwrap();
        stack.restart_redis_from_dump().await.unwrap();
        assert_eq!(ask::<String>(&stack, &["GET", "key"]).await.unwrap(), "old");
    }
    stack.stop_redis(RedisData::Lose).await.unwrap();
    stack.start_redis().await.unwrap();
    assert_eq!(ask::<u64>(&stack, &["DBSIZE"]).await.unwrap(), 0, "Redis is empty after a restart without the snapshot");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_lacks_writes_after_its_cut_off() {
    let (_folder, stack) = start_with(|_| ()).await;
    let replication = async || ask::<String>(&stack, &["INFO", "replication"]).await.unwrap();
    let id = |info: &str, name: &str| info.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned())).unwrap();
    assert!(stack.promote_redis_replica().await.is_err(), "no replica exists yet");
    for _ in 0..2 {
        ask::<()>(&stack, &["SET", "key", "old"]).await.unwrap();
        stack.start_redis_replica().await.unwrap();
        // The first replica changes the server's id, so the test reads the id after it.
        let before = id(&replication().await, "master_replid:");
        ask::<()>(&stack, &["SET", "key", "new"]).await.unwrap();
        stack.promote_redis_replica().await.unwrap();
        assert_eq!(ask::<String>(&stack, &["GET", "key"]).await.unwrap(), "old");
        let after = replication().await;
        assert_ne!(id(&after, "master_replid:"), before);
        assert_eq!(id(&after, "master_replid2:"), before, "the replica continues its master's history");
    }
    stack.stop_redis(RedisData::Keep).await.unwrap();
    stack.start_redis().await.unwrap();
    assert_eq!(ask::<String>(&stack, &["GET", "key"]).await.unwrap(), "old", "the replica is the stack's Redis now");
    stack.stop().await.unwrap();
}
