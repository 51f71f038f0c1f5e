//! Builds the use cases from settings.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_config::{BehaviorVersion, Region, SdkConfig, timeout::TimeoutConfig};
use aws_sdk_dynamodb::config::Credentials;
use futures::FutureExt;
use lambda_runtime::{Diagnostic, Error, LambdaEvent, service_fn};
use redis::{ErrorKind, RedisError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    AwsOverrides, Settings, UserIds,
    telemetry::{self, EmbeddedMetrics},
};
use tidemark_app::{
    AccessCheck, Callers, Clock, Commenting, EventsOut, Following, Inboxes, Invocation, Leaving, Live, Marking, People,
    Publishing, Recorder, Stores, ViewSync, Worker, fan_out::FanOuts, metrics::Metrics, notices::NoticeBoard, outage::Outage,
    project::Projector, reader::Readers, relations::Relations,
};
use tidemark_domain::{Card, HalfLife, Timestamp, UserId};
use tidemark_facts::{CountUnits, Facts, Limits};
use tidemark_http::{
    Admission, Problem,
    bodies::{NamesUser, Profiles},
};
use tidemark_queue::{EventBus, Failures, LiveQueue, Queues, SqsEvents, SqsTasks};
use tidemark_views::{IamLogin, RedisOptions, Views};

/// The longest time that a function spends on a connection to Redis before its first request. Lambda ends a start after
/// ten seconds.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The use cases of a function. A process has one, and its invocations share it.
#[derive(Clone)]
pub struct App {
    pub settings: Settings,
    /// The stores of the use cases, for jobs that read or repair them.
    pub stores: Arc<Stores>,
    pub admission: Admission,
    pub publishing: Publishing,
    pub commenting: Commenting,
    pub following: Following,
    pub marking: Marking,
    pub readers: Readers,
    pub relations: Relations,
    pub notices: NoticeBoard,
    pub inboxes: Inboxes,
    pub people: People,
    pub leaving: Leaving,
    pub fan_outs: FanOuts,
    pub worker: Worker,
    pub live: Live,
    pub projector: Projector,
    pub events: EventsOut,
}

/// A function could not start, because `REDIS_URL` or the file of `REDIS_CA_FILE` cannot be read, or a login with IAM
/// lacks a user, a region or credentials.
#[derive(Debug, thiserror::Error)]
#[error("REDIS_URL, REDIS_CA_FILE or REDIS_IAM_CACHE cannot be used")]
pub struct StartError(#[from] redis::RedisError);

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the clock reads the wall clock")]
    pub(crate) fn wall() -> SystemTime {
        SystemTime::now()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = Self::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl App {
    /// Prepares all clients. Connections are made at their first use.
    pub async fn connect_with(settings: Settings, metrics: Arc<dyn Metrics>) -> Result<Self, StartError> {
        let config = aws_config(&settings.aws, [settings.aws_attempt_timeout, settings.aws_operation_timeout]).await;
        let mut dynamodb = aws_sdk_dynamodb::config::Builder::from(&config).interceptor(CountUnits);
        if let Some(endpoint) = &settings.aws.dynamodb_endpoint {
            dynamodb = dynamodb.endpoint_url(endpoint);
        }
        let mut sqs = aws_sdk_sqs::config::Builder::from(&config);
        if let Some(endpoint) = &settings.aws.sqs_endpoint {
            sqs = sqs.endpoint_url(endpoint);
        }
        let mut events = aws_sdk_eventbridge::config::Builder::from(&config);
        if let Some(endpoint) = &settings.aws.events_endpoint {
            events = events.endpoint_url(endpoint);
        }
        let bus = settings.event_bus.clone();
        let bus = bus.map(|name| EventBus::new(aws_sdk_eventbridge::Client::from_conf(events.build()), name));
        let facts = Facts {
            client: aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
            tables: settings.tables.clone(),
            limits: Limits { following: settings.following_limit, pull_threshold: settings.pull_threshold },
        };
        let sqs = aws_sdk_sqs::Client::from_conf(sqs.build());
        let queues = Queues {
            tasks: Arc::new(SqsTasks::new(sqs.clone(), settings.fan_out_queue_url.clone(), settings.acts_queue_url.clone())),
            live: LiveQueue::new(sqs.clone(), settings.live_queue_url.clone(), settings.live_posts_queue_url.clone()),
            failures: Failures::new(sqs.clone(), settings.projector_failures_queue_url.clone()),
            walks: SqsEvents::new(sqs, settings.walk_queue_url.clone()),
            bus,
        };
        let iam = settings.redis_iam_cache.as_ref().map(|cache| iam_login(cache, &config)).transpose()?;
        let views = Views::new(&RedisOptions { iam, ..settings.redis.clone() })?.with_feed_cap(settings.feed_cap);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let recorder = Arc::new(Recorder::new(metrics, clock.clone()));
        let wait = |time| tokio::time::sleep(time).boxed();
        Ok(Self::new(settings, Arc::new(Stores { facts, views, queues, clock, recorder, random: rand::random, wait })))
    }

    /// Connects to Redis in advance, so that the first request does not wait for a connection. A Redis that does not
    /// respond in time is left to the requests, which work without it.
    pub async fn connect_redis(&self) {
        let connected = tokio::time::timeout(CONNECT_WITHIN, self.stores.views.ping()).await;
        if !matches!(connected, Ok(Ok(()))) {
            tracing::debug!("Redis is not connected yet");
        }
    }

    /// Returns the profiles of a finished page: of exactly the users whom its items name, if they are `wanted`. `known`
    /// are the cards that the views have returned with the page, if they were asked for; it may have more users.
    /// Returns whether the views were unavailable, too.
    pub async fn profiles(
        &self,
        wanted: bool,
        items: &[impl NamesUser],
        known: Option<HashMap<UserId, Option<Card>>>,
    ) -> Result<(Option<Profiles>, bool), Problem> {
        if !wanted {
            return Ok((None, false));
        }
        let users: BTreeSet<UserId> =
            items.iter().flat_map(|item| [Some(item.user()), item.original_author()]).flatten().collect();
        let cards = self.people.cards(users, known).await?;
        Ok((Some(cards.of.into()), cards.degraded))
    }

    /// Starts an invocation of a function without routes. Its line is written when the result is dropped.
    pub fn invocation(&self, context: &lambda_runtime::Context) -> Invocation<'_> {
        self.stores.recorder.invocation(&context.env_config.function_name, &context.request_id)
    }

    /// Builds the use cases on these stores.
    pub fn new(settings: Settings, stores: Arc<Stores>) -> Self {
        let outage = Outage::new(stores.clone());
        let (half_life, feed_cap) = (HalfLife::new(settings.rank_half_life), settings.feed_cap);
        let readers = Readers::new(stores.clone(), outage.clone(), half_life, feed_cap);
        let sync = ViewSync::new(stores.clone(), readers.clone(), outage.clone());
        let notices = NoticeBoard::new(stores.clone(), outage.clone());
        let inboxes = Inboxes::new(stores.clone());
        let fan_outs = FanOuts::new(stores.clone(), outage.clone(), half_life, feed_cap);
        let publishing = Publishing::new(stores.clone(), outage.clone(), sync.clone(), fan_outs.clone());
        let commenting = Commenting::new(stores.clone(), sync.clone());
        let following = Following::new(stores.clone(), sync.clone());
        let people = People::new(stores.clone(), outage.clone());
        let leaving =
            Leaving::new(stores.clone(), outage.clone(), sync.clone(), following.clone(), publishing.clone(), inboxes.clone());
        Self {
            admission: Admission {
                user_claim: settings.user_claim.clone(),
                callers: (settings.user_ids == UserIds::Mapped).then(|| Callers::new(stores.clone())),
                platforms_claim: settings.platforms_claim.clone(),
                access: Some(AccessCheck::new(stores.clone(), outage.clone(), settings.limits)),
            },
            events: EventsOut::new(stores.clone()),
            live: Live::new(stores.clone(), readers.clone(), notices.clone(), inboxes.clone()),
            marking: Marking::new(stores.clone(), readers.clone(), sync.clone()),
            relations: Relations::new(stores.clone(), outage.clone()),
            worker: Worker::new(outage.clone(), fan_outs.clone(), inboxes.clone(), leaving.clone()),
            projector: Projector::new(
                stores.clone(),
                outage,
                sync,
                fan_outs.clone(),
                notices.clone(),
                people.clone(),
                inboxes.clone(),
            ),
            settings,
            stores,
            publishing,
            commenting,
            following,
            readers,
            notices,
            inboxes,
            people,
            leaving,
            fan_outs,
        }
    }
}

/// Calls `handle` for each event until the process ends. Fails if a setting is missing or wrong.
#[tokio::main]
pub async fn run<E, R, F>(handle: impl AsyncFn(&App, LambdaEvent<E>) -> Result<R, F>) -> Result<(), Error>
where
    E: DeserializeOwned,
    R: Serialize,
    F: Into<Diagnostic> + std::fmt::Debug,
{
    telemetry::init();
    let settings = Settings::from_env()?;
    let metrics = EmbeddedMetrics::to_stdout(settings.metrics_namespace.clone());
    let app = App::connect_with(settings, Arc::new(metrics)).await?;
    // This is Lambda's init phase.
    app.connect_redis().await;
    let (app, handle) = (&app, &handle);
    lambda_runtime::run(service_fn(move |event| handle(app, event))).await
}

/// A login at a replication group with the credentials of this function.
fn iam_login(cache: &str, config: &SdkConfig) -> Result<IamLogin, RedisError> {
    let none = || RedisError::from((ErrorKind::InvalidClientConfig, "a login with IAM needs a region and credentials"));
    let (region, credentials) = config.region().zip(config.credentials_provider()).ok_or_else(none)?;
    Ok(IamLogin::new(cache.to_owned(), region.to_string(), credentials, SystemClock::wall))
}

/// The configuration of the SDK's clients, with the longest time of one attempt and of all attempts together.
pub async fn aws_config(aws: &AwsOverrides, [attempt, operation]: [Duration; 2]) -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(1))
        .operation_attempt_timeout(attempt)
        .operation_timeout(operation)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).timeout_config(timeouts);
    if let Some(region) = &aws.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some((id, secret)) = &aws.credentials {
        loader = loader.credentials_provider(Credentials::new(id, secret, None, None, "settings"));
    }
    loader.load().await
}
