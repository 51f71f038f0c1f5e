//! Wiring: settings to adapters to use cases.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_config::{BehaviorVersion, Region, SdkConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::config::Credentials;
use futures::FutureExt;

use crate::{Settings, telemetry::EmbeddedMetrics};
use tidemark_app::{
    fan_out::FanOuts,
    notices::NoticeBoard,
    outage::{Later, Outage},
    ports::{Clock, Edges, Failures, Metrics, Posts, ProgressViews, Reactions, ReaderViews, Reads, TaskQueue},
    reader::Readers,
    relations::{FirstPages, Relations},
    retry::{Retries, Retry},
};
use tidemark_domain::Timestamp;
use tidemark_facts::{DynamoFacts, Limits};
use tidemark_queue::SqsTasks;
use tidemark_views::Redis;

/// Everything a handler uses. One per process, shared by its invocations.
#[derive(Clone)]
pub struct App {
    /// What the environment said.
    pub settings: Settings,
    /// Follow edges.
    pub edges: Arc<dyn Edges>,
    /// Posts and heads.
    pub posts: Arc<dyn Posts>,
    /// Read facts.
    pub reads: Arc<dyn Reads>,
    /// Likes and favorites.
    pub reactions: Arc<dyn Reactions>,
    /// Tasks for the workers.
    pub queue: Arc<dyn TaskQueue>,
    /// Views that a worker brings in line later.
    pub later: Later,
    /// Reader views.
    pub views: Arc<dyn ReaderViews>,
    /// Progress of fan-outs.
    pub progress: Arc<dyn ProgressViews>,
    /// The readers' side.
    pub readers: Readers,
    /// The relation side.
    pub relations: Relations,
    /// The notices' side.
    pub notices: NoticeBoard,
    /// The fan-out side.
    pub fan_outs: FanOuts,
    /// Stream records that the projector gave up.
    pub failures: Arc<dyn Failures>,
    /// Counts for CloudWatch.
    pub metrics: Arc<dyn Metrics>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The facts' adapter.
    pub facts: DynamoFacts,
    /// The views' adapter.
    pub redis: Redis,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A function could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// `REDIS_URL` or the file of `REDIS_CA_FILE` cannot be read.
    #[error("REDIS_URL or REDIS_CA_FILE cannot be used")]
    Redis(#[from] redis::RedisError),
}

/// Pauses of the process's own, random ones.
const RETRY: Retry = Retry { wait: |time| tokio::time::sleep(time).boxed(), random: rand::random };

/// The wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl App {
    /// Prepares all clients. Connections are made at their first use.
    ///
    /// # Errors
    /// A setting cannot be used.
    pub async fn connect(settings: Settings) -> Result<Self, StartError> {
        let config = aws_config(&settings).await;
        let mut dynamodb = aws_sdk_dynamodb::config::Builder::from(&config);
        if let Some(endpoint) = &settings.aws.dynamodb_endpoint {
            dynamodb = dynamodb.endpoint_url(endpoint);
        }
        let mut sqs = aws_sdk_sqs::config::Builder::from(&config);
        if let Some(endpoint) = &settings.aws.sqs_endpoint {
            sqs = sqs.endpoint_url(endpoint);
        }
        let facts = DynamoFacts::new(
            aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
            settings.tables.clone(),
            Limits { following: settings.following_limit, pull_threshold: settings.pull_threshold },
        );
        let sqs = aws_sdk_sqs::Client::from_conf(sqs.build());
        let failures = SqsTasks::new(sqs.clone(), settings.projector_failures_queue_url.clone());
        let queue = SqsTasks::new(sqs, settings.fan_out_queue_url.clone());
        let redis = Redis::new(&settings.redis)?;
        Ok(Self::assemble(settings, facts, [queue, failures], redis, SystemClock))
    }

    /// The repetitions of one write that others may overtake.
    pub fn retries(&self) -> Retries {
        RETRY.begin()
    }

    /// Puts use cases on adapters.
    fn assemble(
        settings: Settings,
        facts: DynamoFacts,
        [queue, failures]: [SqsTasks; 2],
        redis: Redis,
        clock: impl Clock + 'static,
    ) -> Self {
        let stores = Arc::new(facts.clone());
        let views = Arc::new(redis.clone());
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let queue: Arc<dyn TaskQueue> = Arc::new(queue);
        let outage = Outage::new(stores.clone(), clock.clone());
        let later = Later { queue: queue.clone(), outage: outage.clone(), clock: clock.clone(), wait: RETRY.wait };
        let readers = Readers {
            edges: stores.clone(),
            posts: stores.clone(),
            reads: stores.clone(),
            reactions: stores.clone(),
            views: views.clone(),
            post_views: views.clone(),
            head_views: views.clone(),
            reaction_views: views.clone(),
            outage: outage.clone(),
            clock: clock.clone(),
            token: rand::random,
        };
        let relations = Relations {
            edges: stores.clone(),
            posts: stores.clone(),
            reactions: stores.clone(),
            views: views.clone(),
            outage,
            token: rand::random,
            first_pages: FirstPages::default(),
        };
        let notices = NoticeBoard {
            facts: stores.clone(),
            views: views.clone(),
            later: later.clone(),
            clock: clock.clone(),
            token: rand::random,
            retry: RETRY,
        };
        let fan_outs = FanOuts {
            edges: stores.clone(),
            posts: stores.clone(),
            queue: queue.clone(),
            later: later.clone(),
            views: views.clone(),
            progress: views.clone(),
            notices: notices.clone(),
            readers: readers.clone(),
            relations: relations.clone(),
            clock: clock.clone(),
        };
        let metrics = Arc::new(EmbeddedMetrics { namespace: settings.metrics_namespace.clone() });
        Self {
            settings,
            edges: stores.clone(),
            posts: stores.clone(),
            reads: stores.clone(),
            reactions: stores,
            queue,
            later,
            views: views.clone(),
            progress: views,
            readers,
            relations,
            notices,
            fan_outs,
            failures: Arc::new(failures),
            metrics,
            clock,
            facts,
            redis,
        }
    }
}

async fn aws_config(settings: &Settings) -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(1))
        .operation_attempt_timeout(settings.aws_attempt_timeout)
        .operation_timeout(settings.aws_operation_timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts);
    if let Some(region) = &settings.aws.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some((id, secret)) = &settings.aws.credentials {
        loader = loader.credentials_provider(Credentials::new(id, secret, None, None, "settings"));
    }
    loader.load().await
}
