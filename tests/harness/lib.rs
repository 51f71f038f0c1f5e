//! What the tests stand on: a whole stack per test on a RAM-backed folder, and a client that speaks the HTTP contract.
//!
//! Nothing here retries or guesses a wait: [`World::idle`] waits for the stack's own word that no work is left.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod api;
mod legacy;
mod model;
mod redis;
pub mod template;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tidemark_reconcile::Reconcile;

use tempfile::TempDir;
use tidemark_local::{Options, Stack};

pub use api::{Answer, User};
pub use legacy::LegacyRedis;
pub use model::{Kind, Model, Post};
pub use redis::{Away, Connection, Hang, setup as redis_setup};

/// How long a test waits for what has to happen. It proves nothing: a machine may be slow, or busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// How long functions wait for their stores in tests: a slow machine must not look like a store that is unavailable, nor like a function that hangs.
const PATIENT: [(&str, &str); 4] = [
    ("AWS_ATTEMPT_TIMEOUT_MS", "60000"),
    ("AWS_OPERATION_TIMEOUT_MS", "120000"),
    ("REDIS_CONNECT_TIMEOUT_MS", "8000"),
    ("REDIS_RESPONSE_TIMEOUT_MS", "8000"),
];

/// Gives functions the timeouts that they have where they are deployed, for a test of what happens when a store does not answer.
pub fn deployed_timeouts(options: &mut Options) {
    options.least_timeout_seconds = 0;
    options.environment.retain(|name, _| PATIENT.iter().all(|(patient, _)| name != patient));
}

/// The same for Redis alone: a test of a Redis that hangs, on a machine that may be too slow for the timeouts of DynamoDB.
pub fn deployed_redis_timeouts(options: &mut Options) {
    options.environment.retain(|name, _| !name.starts_with("REDIS_") || PATIENT.iter().all(|(patient, _)| name != patient));
}

/// One test's stack.
pub struct World {
    /// The stack.
    pub stack: Stack,
    options: Options,
    http: reqwest::Client,
    data: TempDir,
}

/// Runs one test against a fresh stack and, when it has passed, asserts that no work is left and that the stack stops cleanly.
pub async fn world(test: impl AsyncFnOnce(&World)) {
    world_with(|_| {}, test).await;
}

/// The same with other options.
pub async fn world_with(configure: impl FnOnce(&mut Options), test: impl AsyncFnOnce(&World)) {
    if let Some(reason) = redis::reason_to_skip(&redis_setup()) {
        println!("not on a cluster: {reason}");
        return;
    }
    let world = World::start(configure).await;
    test(&world).await;
    world.finish().await;
}

/// Logs as `RUST_LOG` says, for a test that has to be looked into.
fn log() {
    let filter =
        tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// The number in a variable of the tests' own environment, such as how long a test is asked to run.
#[expect(clippy::disallowed_methods, reason = "variables of the tests alone")]
pub fn number_from(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) if !text.is_empty() => text.parse().expect(variable),
        _ => otherwise,
    }
}

/// A folder in RAM where there is one.
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

/// A stream record of the edges by follower with these keys.
pub fn stream_record(number: &str, keys: serde_json::Value) -> serde_json::Value {
    let change = serde_json::json!({
        "ApproximateCreationDateTime": 1, "Keys": keys, "SequenceNumber": number, "SizeBytes": 1, "StreamViewType": "KEYS_ONLY",
    });
    serde_json::json!({
        "eventID": number, "eventName": "MODIFY", "eventSource": "aws:dynamodb", "eventVersion": "1.1", "awsRegion": "local",
        "dynamodb": change,
    })
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_owned()
}

impl World {
    /// A fresh stack.
    pub async fn start(configure: impl FnOnce(&mut Options)) -> Self {
        log();
        let data = data_dir();
        let mut options = Options::new(data.path());
        options.template = repository().join("template.yaml");
        options.schedules = false;
        options.retry_delay = Duration::from_millis(100);
        options.redis = redis_setup();
        options.least_timeout_seconds = PATIENCE.as_secs();
        options.environment.extend(PATIENT.map(|(name, ms)| (name.to_owned(), ms.to_owned())));
        configure(&mut options);
        let stack = Stack::start(options.clone()).await.expect("the stack starts");
        Self { stack, options, http: reqwest::Client::new(), data }
    }

    /// Stops the stack, whatever it is doing, and starts it again on the same data.
    pub async fn restart(self) -> Self {
        self.stack.stop().await.expect("the stack stops");
        let stack = Stack::start(self.options.clone()).await.expect("the stack starts again");
        Self { stack, ..self }
    }

    /// Asserts that no work is left, and stops the stack.
    pub async fn finish(self) {
        self.idle().await;
        self.stack.stop().await.expect("the stack stops");
        drop(self.data);
    }

    /// A caller.
    pub fn user(&self, id: u64) -> User {
        User::new(self.http.clone(), self.stack.base_url(), Some(id.to_string()))
    }

    /// A caller with this `Authorization` header, or none.
    pub fn stranger(&self, token: Option<&str>) -> User {
        User::new(self.http.clone(), self.stack.base_url(), token.map(str::to_owned))
    }

    /// Waits until nothing is queued, in flight or behind.
    pub async fn idle(&self) {
        self.stack.idle_within(PATIENCE).await.expect("the stack becomes idle");
    }

    /// What a request takes now when nothing is wrong, the slowest of ten: bounds on time add some of it, for a machine that is busy with something else.
    pub async fn pace(&self) -> Duration {
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let started = Instant::now();
            self.user(1).get("/v1/authors/1/posts?limit=1").await.ok();
            slowest = slowest.max(started.elapsed());
        }
        slowest
    }

    /// What a walk of reconcile over everybody finds, from its beginning to its end: an invocation would stop at its deadline, which a slow machine meets earlier.
    pub async fn walk_over_everybody(&self, dry_run: bool, settle: Duration) -> tidemark_reconcile::Report {
        let plan = tidemark_reconcile::Plan { dry_run, share: 1.0, settle, slice: 100_000 };
        let reconcile = Reconcile::new(self.stack.app("reconcile").expect("reconcile runs in this process"));
        reconcile.walk(&plan, None, false, &|| false).await.expect("the stores answer").expect("a walk")
    }

    /// Waits until every function asks Redis again: for a while after an outage it is not asked, by each function for itself, and while changes of the outage wait
    /// for a worker the facts answer.
    pub async fn redis_is_asked_again(&self) {
        let started = Instant::now();
        for function in self.stack.template().functions.values() {
            let Some(app) = self.stack.app(&function.binary) else { continue };
            while app.stores.progress.ping().await.is_err() || app.readers.outage.check().await.is_err() {
                assert!(started.elapsed() < PATIENCE, "Redis is back and {} does not ask it", function.binary);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// An SQS client of the test's own.
    pub async fn sqs(&self) -> aws_sdk_sqs::Client {
        aws_sdk_sqs::Client::new(&aws_config(self.stack.sqs_endpoint()).await)
    }

    /// A DynamoDB client of the test's own.
    pub async fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        aws_sdk_dynamodb::Client::new(&aws_config(self.stack.dynamodb_endpoint()).await)
    }

    /// Makes `followers` follow `author`.
    pub async fn follow(&self, followers: impl IntoIterator<Item = u64>, author: u64) {
        for follower in followers {
            self.user(follower).put(&format!("/v1/following/{author}")).await.ok();
        }
    }
}
