//! The base of the tests: a whole stack for each test in a RAM-backed folder, and a client of the HTTP API.
//!
//! A test waits for [`World::idle`], until the stack reports that no work is left, or for a condition. A test that
//! sleeps tests that time: a rate, a pause or a lifetime.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod api;
mod elsewhere;
mod events;
pub mod items;
#[path = "../../shared/legacy/tests/redis.rs"]
mod legacy;
mod live;
mod model;
mod redis;
pub mod template;

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use tempfile::TempDir;
use tidemark::{domain::UserId, views::keys::SHORT_LEASE_LIFETIME};
use tidemark_local::{Options, RedisData, Stack, Weather};
use tidemark_reconcile_lib::{Plan, Reconcile, Report};
use tokio::sync::OnceCell;
use tracing_subscriber::EnvFilter;

pub use api::{Response, User, has, ids, ids_and_flags, texts};
pub use events::{Folded, told_lines};
pub use legacy::LegacyRedis;
pub use live::LiveConnection;
pub use model::{ACCEPTED, FOLLOWS, Group, Kind, Model, Post, REQUESTS, TITLE};
pub use redis::{Connection, Hang, RedisOutage, setup as redis_setup};

/// The time that a test waits for a condition. It is generous, because the machine may be slow or busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs an act that takes a lease in Redis and uses it, again if it took longer than a lease lives.
pub async fn while_leased<T>(mut act: impl AsyncFnMut() -> T) -> T {
    let started = Instant::now();
    loop {
        let began = Instant::now();
        let done = act().await;
        if began.elapsed() < SHORT_LEASE_LIFETIME {
            return done;
        }
        assert!(started.elapsed() < PATIENCE, "each attempt takes longer than a lease lives");
    }
}

const WORKERS: [&str; 2] = ["fan-out", "projector"];

/// Timeouts of functions for their stores, so long that a slow machine does not look like an unavailable store.
const PATIENT: [(&str, &str); 4] = [
    ("AWS_ATTEMPT_TIMEOUT_MS", "60000"),
    ("AWS_OPERATION_TIMEOUT_MS", "120000"),
    ("REDIS_CONNECT_TIMEOUT_MS", "8000"),
    ("REDIS_RESPONSE_TIMEOUT_MS", "8000"),
];

/// Gives functions their deployed timeouts, for tests in which a store does not respond.
pub fn deployed_timeouts(options: &mut Options) {
    options.least_timeout_seconds = 0;
    options.environment.retain(|name, _| PATIENT.iter().all(|(patient, _)| name != patient));
}

/// Does the same for Redis only, because a slow machine may exceed the deployed timeouts of DynamoDB.
pub fn deployed_redis_timeouts(options: &mut Options) {
    options.environment.retain(|name, _| !name.starts_with("REDIS_") || PATIENT.iter().all(|(patient, _)| name != patient));
}

/// The stack of one test.
pub struct World {
    pub stack: Stack,
    options: Options,
    http: reqwest::Client,
    data: TempDir,
    dynamodb: OnceCell<aws_sdk_dynamodb::Client>,
    emulator: Option<elsewhere::Lease>,
}

/// Runs a test on a new stack, in one thread. Afterwards asserts that no work is left and that the stack stops cleanly.
pub fn world(test: impl AsyncFnOnce(&World)) {
    world_with(|_| {}, test);
}

/// Does the same with other options.
pub fn world_with(configure: impl FnOnce(&mut Options), test: impl AsyncFnOnce(&World)) {
    in_one_thread(World::run_with(configure, test));
}

/// Runs a test on a runtime of one thread, as `#[tokio::test]` does.
pub fn in_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// Turns on the log that `RUST_LOG` selects.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// Reads an environment variable of the tests. An empty one counts as missing.
#[expect(clippy::disallowed_methods, reason = "only the tests use these variables")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// Reads a number from an environment variable of the tests, such as the duration of a test.
pub fn number_from(name: &str, otherwise: u64) -> u64 {
    variable(name).map_or(otherwise, |text| text.parse().expect(name))
}

/// Creates a folder, in RAM if the machine has a RAM file system.
pub fn data_dir() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() }.expect("a folder for the test's data")
}

async fn aws_config(endpoint: &str) -> aws_config::SdkConfig {
    let credentials = aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test");
    aws_config::defaults(aws_config::BehaviorVersion::latest())
        .region("us-east-1")
        .credentials_provider(credentials)
        .endpoint_url(endpoint)
        .load()
        .await
}

/// Sets a parameter of the template.
pub fn parameter(name: &'static str, value: impl ToString) -> impl FnOnce(&mut Options) {
    move |options| drop(options.parameters.insert(name.to_owned(), value.to_string()))
}

/// Sets the limits of posts, follows, reactions, marks and reads a minute.
pub fn request_limits(per_minute: [u32; 5]) -> impl FnOnce(&mut Options) {
    let kinds = ["Posts", "Follows", "Reactions", "Marks", "Reads"];
    move |options| {
        options.parameters.extend(kinds.iter().zip(per_minute).map(|(kind, limit)| (format!("Limit{kind}"), limit.to_string())));
    }
}

pub fn user_id(id: u64) -> UserId {
    UserId::new(id).expect("a user id")
}

/// Builds a stream record of the edges by follower with these keys.
pub fn stream_record(number: &str, keys: serde_json::Value) -> serde_json::Value {
    let change = serde_json::json!({
        "ApproximateCreationDateTime": 1, "Keys": keys, "SequenceNumber": number, "SizeBytes": 1, "StreamViewType": "KEYS_ONLY",
    });
    serde_json::json!({
        "eventID": number, "eventName": "MODIFY", "eventSource": "aws:dynamodb", "eventVersion": "1.1", "awsRegion": "local",
        "eventSourceARN": "arn:aws:dynamodb:local:0:table/FollowingTable/stream/1", "dynamodb": change,
    })
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_owned()
}

/// The text of a file of the repository.
pub fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder of the repository with this extension.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path, extension) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

impl World {
    /// Does the same as [`world`] on the runtime of the caller.
    pub async fn run(test: impl AsyncFnOnce(&Self)) {
        Self::run_with(|_| {}, test).await;
    }

    /// Does the same as [`world_with`] on the runtime of the caller.
    pub async fn run_with(configure: impl FnOnce(&mut Options), test: impl AsyncFnOnce(&Self)) {
        if let Some(reason) = redis::reason_to_skip(&redis_setup()) {
            println!("not on a cluster: {reason}");
            return;
        }
        let world = Self::start(configure).await;
        test(&world).await;
        world.finish().await;
    }

    /// Starts a new stack.
    pub async fn start(configure: impl FnOnce(&mut Options)) -> Self {
        log();
        let data = data_dir();
        let mut options = Options::new(data.path());
        options.template = repository().join("template.yaml");
        options.schedules = false;
        options.retry_delay = Duration::from_millis(100);
        options.redis = redis_setup();
        if let Some(weather) = variable("TIDEMARK_WEATHER") {
            options.weather = weather.parse().expect("TIDEMARK_WEATHER");
        }
        options.least_timeout_seconds = PATIENCE.as_secs();
        options.environment.extend(PATIENT.map(|(name, ms)| (name.to_owned(), ms.to_owned())));
        options.bin_dir = variable("TIDEMARK_TEST_PROCESSES").map(PathBuf::from);
        options.all_processes = options.bin_dir.is_some();
        configure(&mut options);
        options.all_processes &= options.lines.is_none();
        let emulator = elsewhere::Lease::take(&mut options).await;
        let stack = Stack::start(options.clone()).await.expect("the stack starts");
        Self { stack, options, http: reqwest::Client::new(), data, dynamodb: OnceCell::new(), emulator }
    }

    /// Stops the stack and starts it again on the same data.
    pub async fn restart(self) -> Self {
        self.stack.stop().await.expect("the stack stops");
        let stack = Stack::start(self.options.clone()).await.expect("the stack starts again");
        Self { stack, dynamodb: OnceCell::new(), ..self }
    }

    /// Does the same with another value of a template parameter.
    pub async fn restart_with(mut self, parameter: &str, value: &str) -> Self {
        self.options.parameters.insert(parameter.to_owned(), value.to_owned());
        self.restart().await
    }

    /// Does the same with another template, in its JSON form.
    pub async fn restart_with_template(mut self, template: &serde_json::Value) -> Self {
        self.options.template = self.data.path().join("template.json");
        std::fs::write(&self.options.template, template.to_string()).expect("the template is written");
        self.restart().await
    }

    /// Asserts that no work is left, and stops the stack.
    pub async fn finish(self) {
        self.idle().await;
        self.stack.stop().await.expect("the stack stops");
        drop((self.data, self.emulator));
    }

    /// A caller with this user id.
    pub fn user(&self, id: u64) -> User {
        User::new(self.http.clone(), self.stack.base_url(), Some(id.to_string()))
    }

    /// A caller with this `Authorization` header, or without one.
    pub fn stranger(&self, token: Option<&str>) -> User {
        User::new(self.http.clone(), self.stack.base_url(), token.map(str::to_owned))
    }

    /// A user who follows these authors.
    pub async fn reader(&self, id: u64, authors: impl IntoIterator<Item: Display>) -> User {
        let reader = self.user(id);
        reader.follow(authors).await;
        reader
    }

    /// A user who follows these authors and has a view.
    pub async fn live_reader(&self, id: u64, authors: impl IntoIterator<Item: Display>) -> User {
        let reader = self.reader(id, authors).await;
        reader.feed_ids().await;
        reader
    }

    /// A caller who may write notices.
    pub fn administrator(&self) -> User {
        self.stranger(Some("900 notices:write"))
    }

    /// Waits until nothing is queued, in flight or unread. One invocation may take as long as [`PATIENCE`].
    pub async fn idle(&self) {
        self.stack.idle_within(2 * PATIENCE).await.expect("the stack becomes idle");
    }

    /// Returns the slowest of ten request times without a failure. A test adds some of it to its time limits.
    pub async fn pace(&self) -> Duration {
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let started = Instant::now();
            self.user(1).get("/v1/authors/1/posts?limit=1").await.ok();
            slowest = slowest.max(started.elapsed());
        }
        slowest
    }

    /// Runs a whole walk of reconcile over all users. An invocation would stop at its deadline on a slow machine.
    pub async fn walk_over_all_users(&self, dry_run: bool, settle: Duration) -> Report {
        let plan = Plan { dry_run, share: 1.0, settle, slice: 100_000, ..Plan::default() };
        let reconcile = Reconcile::new(self.stack.app("reconcile").expect("reconcile runs in this process"));
        reconcile.walk(&plan, None, false, &|| false).await.expect("the stores respond").expect("a walk")
    }

    /// Pauses the functions that update views after a request: deliveries, and projections of follows.
    pub async fn pause_workers(&self) {
        for worker in WORKERS {
            self.stack.pause(worker).await.expect("the stack has the function");
        }
    }

    pub fn resume_workers(&self) {
        for worker in WORKERS {
            self.stack.resume(worker).expect("the stack has the function");
        }
    }

    /// Ends the weather, and waits until no work is left.
    pub async fn calm_down(&self) {
        self.stack.set_weather(Weather::Calm, 1);
        self.idle().await;
    }

    /// Resumes a function, and waits until no work is left.
    pub async fn resume(&self, function: &str) {
        self.stack.resume(function).expect("the stack has the function");
        self.idle().await;
    }

    /// Publishes a post and waits until no work is left. Returns the post's id.
    pub async fn publish_and_deliver(&self, author: u64, title: &str) -> String {
        let post = self.user(author).publish(title).await;
        self.idle().await;
        post
    }

    /// Publishes so many rounds of posts, one of each author, in their order. Waits until no work is left.
    pub async fn deliver_posts(&self, authors: impl IntoIterator<Item = u64> + Clone, posts_of_each: usize) {
        for _ in 0..posts_of_each {
            for author in authors.clone() {
                self.user(author).publish("x").await;
            }
        }
        self.idle().await;
    }

    /// Waits until the changes of an outage have reached Redis, and every function calls Redis again.
    pub async fn redis_recovers(&self) {
        self.idle().await;
        self.redis_is_asked_again().await;
    }

    /// Runs a check after Redis has lost its views, without Redis, and after its return.
    pub async fn at_each_loss_of_redis(&self, check: impl AsyncFn()) {
        self.flush_redis().await;
        check().await;
        self.stack.stop_redis(RedisData::Lose).await.expect("Redis stops");
        check().await;
        self.stack.start_redis().await.expect("Redis starts");
        self.redis_is_asked_again().await;
        check().await;
    }

    /// Waits until every function calls Redis again. After an outage, each function avoids Redis for some time. While
    /// changes of the outage wait for the projector, responses come from facts.
    pub async fn redis_is_asked_again(&self) {
        for function in self.stack.template().functions.values() {
            let Some(app) = self.stack.app(&function.binary) else { continue };
            let reads = ["follow", "mark-read", "notice", "read-feed"].contains(&function.binary.as_str());
            until(&format!("{} calls Redis", function.binary), async || {
                app.stores.views.ping().await.is_ok() && !(reads && app.readers.check_views().await.is_err())
            })
            .await;
        }
    }

    pub async fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        let connect = async || aws_sdk_dynamodb::Client::new(&aws_config(self.stack.dynamodb_endpoint()).await);
        self.dynamodb.get_or_init(connect).await.clone()
    }

    /// Makes `followers` follow `author`.
    pub async fn follow(&self, followers: impl IntoIterator<Item = u64>, author: u64) {
        for follower in followers {
            self.user(follower).follow([author]).await;
        }
    }

    /// Does the same with 16 requests at a time.
    pub async fn follow_at_once(&self, followers: impl IntoIterator<Item = u64>, author: u64) {
        let follow = async |follower| self.user(follower).follow([author]).await;
        stream::iter(followers).for_each_concurrent(16, follow).await;
    }

    /// The number of followers that the facts count.
    pub async fn follower_count(&self, author: u64) -> u64 {
        let facts = &self.stack.app("follow").expect("follow runs in this process").stores.facts;
        facts.follower_counts(user_id(author)).await.expect("counts").iter().sum()
    }

    /// Asserts that each of these readers has this number of unread posts.
    pub async fn assert_unread(&self, readers: impl IntoIterator<Item = u64>, posts: u64) {
        for reader in readers {
            assert_eq!(self.user(reader).unread_total().await, posts, "reader {reader}");
        }
    }

    /// Runs a job of reconcile.
    pub async fn reconcile(&self, job: serde_json::Value) -> serde_json::Value {
        self.stack.fire("reconcile", Some(job)).await.expect("reconcile returns a report")
    }

    /// Resumes every unfinished fan-out and erasure, as reconcile does for those that are overdue.
    pub async fn resume_fan_outs(&self) -> serde_json::Value {
        self.reconcile(serde_json::json!({ "job": "fan-outs", "overdue_ms": 0 })).await
    }

    /// Reads the whole feed of each of these readers, who then have a view.
    pub async fn read_feeds(&self, readers: impl IntoIterator<Item = u64>) {
        for reader in readers {
            self.user(reader).feed_ids().await;
        }
    }
}
