//! Builds the use cases from settings and adapters.

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
    AccessCheck, Callers, Following, Hot, Invocation, Leaving, Lists, Live, Marking, People, Publishing, Stores, ViewSync,
    Worker,
    fan_out::FanOuts,
    notices::NoticeBoard,
    outage::{Later, Outage},
    ports::{Clock, Failures, Metrics},
    project::Projector,
    reader::Readers,
    relations::Relations,
};
use tidemark_domain::{Card, HalfLife, Timestamp, UserId};
use tidemark_facts::{CountUnits, DynamoFacts, Limits};
use tidemark_http::{
    Admission, Problem,
    bodies::{NamesUser, Profiles},
};
use tidemark_queue::{SqsEvents, SqsLive, SqsTasks};
use tidemark_views::{IamLogin, Redis, RedisOptions};

/// The longest time that a function spends on a connection to Redis before its first request. Lambda ends a start after
/// ten seconds.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// The use cases and adapters of a function. A process has one, and its invocations share it.
#[derive(Clone)]
pub struct App {
    pub settings: Settings,
    pub publishing: Publishing,
    pub following: Following,
    pub lists: Lists,
    pub marking: Marking,
    pub readers: Readers,
    pub relations: Relations,
    pub notices: NoticeBoard,
    pub people: People,
    pub leaving: Leaving,
    pub admission: Admission,
    pub fan_outs: FanOuts,
    pub worker: Worker,
    pub live: Live,
    pub sync: ViewSync,
    /// The ports of the use cases, for jobs that need more than one of them.
    pub stores: Arc<Stores>,
    pub projector: Projector,
    /// Changes that the projector has given up.
    pub failures: Arc<dyn Failures>,
    /// Sends the events that continue segments of a walk.
    pub walks: SqsEvents,
    pub facts: DynamoFacts,
    pub redis: Redis,
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
        let facts = DynamoFacts {
            client: aws_sdk_dynamodb::Client::from_conf(dynamodb.build()),
            tables: settings.tables.clone(),
            limits: Limits { following: settings.following_limit, pull_threshold: settings.pull_threshold },
        };
        let sqs = aws_sdk_sqs::Client::from_conf(sqs.build());
        let failures = SqsTasks::new(sqs.clone(), settings.projector_failures_queue_url.clone());
        let walks = SqsEvents::new(sqs.clone(), settings.walk_queue_url.clone());
        let live = SqsLive::new(sqs.clone(), settings.live_queue_url.clone(), settings.live_posts_queue_url.clone());
        let queue = SqsTasks::new(sqs, settings.fan_out_queue_url.clone());
        let iam = settings.redis_iam_cache.as_ref().map(|cache| iam_login(cache, &config)).transpose()?;
        let redis = Redis::new(&RedisOptions { iam, ..settings.redis.clone() })?.with_feed_cap(settings.feed_cap);
        Ok(Self::assemble(settings, facts, ([queue, failures], live, walks), redis, metrics))
    }

    /// Connects to Redis in advance, so that the first request does not wait for a connection. A Redis that does not
    /// respond in time is left to the requests, which work without it.
    pub async fn connect_redis(&self) {
        let connected = tokio::time::timeout(CONNECT_WITHIN, self.stores.progress.ping()).await;
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
        let users: BTreeSet<UserId> = items.iter().map(NamesUser::user).collect();
        let cards = self.people.cards(users, known).await?;
        Ok((Some(cards.of.into()), cards.degraded))
    }

    /// Starts an invocation of a function without routes. Its line is written when the result is dropped.
    pub fn invocation(&self, context: &lambda_runtime::Context) -> Invocation<'_> {
        self.stores.recorder.invocation(&context.env_config.function_name, &context.request_id)
    }

    /// Connects the use cases to the adapters.
    fn assemble(
        settings: Settings,
        facts: DynamoFacts,
        ([queue, failures], live_queue, walks): ([SqsTasks; 2], SqsLive, SqsEvents),
        redis: Redis,
        metrics: Arc<dyn Metrics>,
    ) -> Self {
        let stores = Arc::new(Stores::new(
            Arc::new(facts.clone()),
            Arc::new(redis.clone()),
            (Arc::new(queue), Arc::new(live_queue)),
            Arc::new(SystemClock),
            metrics,
            rand::random,
            |time| tokio::time::sleep(time).boxed(),
        ));
        let failures: Arc<dyn Failures> = Arc::new(failures);
        let outage = Outage::new(stores.clone());
        let later = Later { stores: stores.clone(), outage: outage.clone() };
        let half_life = HalfLife::new(settings.rank_half_life);
        let (feed_cap, hot_posts) = (settings.feed_cap, Hot::default());
        let readers = Readers { stores: stores.clone(), outage: outage.clone(), hot_posts, half_life, feed_cap };
        let relations = Relations { stores: stores.clone(), outage: outage.clone(), first_pages: Hot::default() };
        let notices = NoticeBoard { stores: stores.clone(), later: later.clone() };
        let sync = ViewSync { readers: readers.clone(), later };
        let people = People { stores: stores.clone(), later: sync.later.clone() };
        let live = Live { stores: stores.clone(), readers: readers.clone() };
        let fan_outs = FanOuts { stores: stores.clone(), sync: sync.clone(), live: live.clone() };
        let admission = Admission {
            user_claim: settings.user_claim.clone(),
            callers: (settings.user_ids == UserIds::Mapped).then(|| Callers::new(stores.clone())),
            platforms_claim: settings.platforms_claim.clone(),
            access: Some(AccessCheck { stores: stores.clone(), outage, per_minute: settings.limits }),
        };
        Self {
            publishing: Publishing { stores: stores.clone(), fan_outs: fan_outs.clone() },
            following: Following { stores: stores.clone(), sync: sync.clone() },
            lists: Lists { stores: stores.clone(), sync: sync.clone() },
            marking: Marking { stores: stores.clone(), sync: sync.clone(), live: live.clone() },
            settings,
            readers,
            relations,
            worker: Worker { fan_outs: fan_outs.clone() },
            projector: Projector {
                sync: sync.clone(),
                fan_outs: fan_outs.clone(),
                notices: notices.clone(),
                people: people.clone(),
                failures: failures.clone(),
            },
            notices,
            people,
            leaving: Leaving { fan_outs: fan_outs.clone() },
            admission,
            fan_outs,
            live,
            sync,
            stores,
            failures,
            walks,
            facts,
            redis,
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
