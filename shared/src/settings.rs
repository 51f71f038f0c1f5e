//! Settings from environment variables.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use tidemark_app::PerMinute;
use tidemark_domain::{
    UserId,
    feed::{FEED_CAP, FeedCap},
};
use tidemark_facts::Tables;
use tidemark_views::RedisOptions;

/// The settings of a function. Parentheses contain the default of a variable that may be absent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `FOLLOWING_TABLE`, `FOLLOWERS_TABLE`, `COUNTERS_TABLE`, `POSTS_TABLE`, `READS_TABLE`, `NOTICES_TABLE`,
    /// `NOTICE_READS_TABLE`, `REACTIONS_TABLE`, `IDEMPOTENCY_TABLE`, `MIGRATION_TABLE`, `PROFILES_TABLE`,
    /// `HANDLES_TABLE`, `IDENTITIES_TABLE`, `REACTED_TABLE`.
    pub tables: Tables,
    /// `FAN_OUT_QUEUE_URL`.
    pub fan_out_queue_url: String,
    /// `ACTS_QUEUE_URL`.
    pub acts_queue_url: String,
    /// `LIVE_QUEUE_URL`.
    pub live_queue_url: String,
    /// `LIVE_POSTS_QUEUE_URL`.
    pub live_posts_queue_url: String,
    /// `PROJECTOR_FAILURES_QUEUE_URL`.
    pub projector_failures_queue_url: String,
    /// `WALK_QUEUE_URL`.
    pub walk_queue_url: String,
    /// `EVENT_BUS`: the name of the EventBridge bus of the events that leave; may be absent.
    pub event_bus: Option<String>,
    /// `RECONCILE_CONCURRENCY` (2): executions of `reconcile` at a time. All but one continue a segment of a walk each.
    pub walk_segments: u32,
    /// `REDIS_URL`; `REDIS_CLUSTER` and `REDIS_REPLICA_READS`, `true` or `false` (`false`); `REDIS_CA_FILE` (the
    /// system's certificates); `REDIS_CONNECT_TIMEOUT_MS` (300) and `REDIS_RESPONSE_TIMEOUT_MS` (500).
    pub redis: RedisOptions,
    /// `REDIS_IAM_CACHE`: the replication group at which functions log in with IAM, as the user of `REDIS_URL`; may be
    /// absent.
    pub redis_iam_cache: Option<String>,
    pub legacy: LegacySettings,
    /// `FOLLOWING_LIMIT` (500).
    pub following_limit: u64,
    /// `PULL_THRESHOLD` (1,000,000): an author with this many followers or more is pulled.
    pub pull_threshold: u64,
    /// `RANK_HALF_LIFE` (720): minutes by which a post must be newer to have one point more in ranked feeds.
    pub rank_half_life: Duration,
    /// `FEED_CAP` (1,000): how many of the newest posts of a feed are in Redis.
    pub feed_cap: FeedCap,
    /// `LIMIT_POSTS`, `LIMIT_FOLLOWS`, `LIMIT_REACTIONS`, `LIMIT_MARKS`, `LIMIT_READS` (0, no limit): requests a minute
    /// of one user.
    pub limits: PerMinute,
    /// `USER_CLAIM` (`sub`): the claim that says who the caller is.
    pub user_claim: String,
    /// `USER_IDS` (`numeric`): how a claim becomes a user id.
    pub user_ids: UserIds,
    /// `PLATFORMS_CLAIM`: the claim that lists the caller's platforms; may be absent.
    pub platforms_claim: Option<String>,
    /// `AWS_ATTEMPT_TIMEOUT_MS` (3,000): the longest time of one attempt at DynamoDB or SQS.
    pub aws_attempt_timeout: Duration,
    /// `AWS_OPERATION_TIMEOUT_MS` (8,000): the longest time of all attempts together.
    pub aws_operation_timeout: Duration,
    /// `METRICS_NAMESPACE` (`Tidemark`): the CloudWatch namespace of the metrics. Every stack has its own.
    pub metrics_namespace: String,
    /// `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL_SQS`, `AWS_ENDPOINT_URL_EVENTBRIDGE`,
    /// `AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`. They
    /// replace the values that the SDK reads by itself, for the local stack. [`Settings::from_env`] leaves them to the
    /// SDK.
    pub aws: AwsOverrides,
}

/// The two ways from a claim to a user id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserIds {
    /// `numeric`: the claim is the user id.
    Numeric,
    /// `mapped`: the claim is any string, and its first call gives it a user id.
    Mapped,
}

/// Values for the SDK from the local stack, which has no process environment for each function.
#[derive(Debug, Clone, Default)]
pub struct AwsOverrides {
    pub dynamodb_endpoint: Option<String>,
    pub sqs_endpoint: Option<String>,
    pub events_endpoint: Option<String>,
    pub connections_endpoint: Option<String>,
    pub region: Option<String>,
    /// Key id and secret of static credentials.
    pub credentials: Option<(String, String)>,
}

impl AwsOverrides {
    fn from_lookup(lookup: &impl Fn(&str) -> Option<String>) -> Self {
        Self {
            dynamodb_endpoint: lookup("AWS_ENDPOINT_URL_DYNAMODB"),
            sqs_endpoint: lookup("AWS_ENDPOINT_URL_SQS"),
            events_endpoint: lookup("AWS_ENDPOINT_URL_EVENTBRIDGE"),
            connections_endpoint: lookup("AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI"),
            region: lookup("AWS_REGION"),
            credentials: lookup("AWS_ACCESS_KEY_ID").zip(lookup("AWS_SECRET_ACCESS_KEY")),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("environment variable {0} is not set")]
    Missing(&'static str),
    #[error("environment variable {0} is not a whole number")]
    NotANumber(&'static str),
    #[error("environment variable {0} is neither `true` nor `false`")]
    NotABoolean(&'static str),
    #[error("environment variable REDIS_URL must begin with redis:// or rediss://: redis://localhost:6379")]
    NotARedisUrl,
    #[error("environment variable ROLLOUT_PERCENT is greater than 100")]
    NotAShare,
    #[error("environment variable ROLLOUT_USERS: {0:?} is not a user id")]
    NotAUser(String),
    #[error("environment variable USER_IDS is neither `numeric` nor `mapped`")]
    NotAKindOfId,
}

impl Settings {
    pub fn from_env() -> Result<Self, SettingsError> {
        let mut settings = Self::from_lookup(process_environment)?;
        // The SDK reads these variables itself, and more of them than this file knows.
        settings.aws = AwsOverrides::default();
        Ok(settings)
    }

    /// Reads variables with `lookup` instead of the process environment.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let required = |name| required(&lookup, name);
        let number = |name, default| match lookup(name) {
            None => Ok(default),
            Some(text) => text.parse::<u64>().map_err(|_| SettingsError::NotANumber(name)),
        };
        let count = |name, default| u32::try_from(number(name, default)?).map_err(|_| SettingsError::NotANumber(name));
        let limit = |name| count(name, 0);
        let flag = |name| flag(&lookup, name);
        Ok(Self {
            tables: Tables::named(required)?,
            fan_out_queue_url: required("FAN_OUT_QUEUE_URL")?,
            acts_queue_url: required("ACTS_QUEUE_URL")?,
            live_queue_url: required("LIVE_QUEUE_URL")?,
            live_posts_queue_url: required("LIVE_POSTS_QUEUE_URL")?,
            projector_failures_queue_url: required("PROJECTOR_FAILURES_QUEUE_URL")?,
            walk_queue_url: required("WALK_QUEUE_URL")?,
            event_bus: lookup("EVENT_BUS").filter(|name| !name.is_empty()),
            walk_segments: count("RECONCILE_CONCURRENCY", 2)?.saturating_sub(1).max(1),
            redis: RedisOptions {
                url: redis_url(required("REDIS_URL")?)?,
                cluster: flag("REDIS_CLUSTER")?,
                ca_file: lookup("REDIS_CA_FILE").filter(|path| !path.is_empty()).map(PathBuf::from),
                replica_reads: flag("REDIS_REPLICA_READS")?,
                connect_timeout: Duration::from_millis(number("REDIS_CONNECT_TIMEOUT_MS", 300)?),
                response_timeout: Duration::from_millis(number("REDIS_RESPONSE_TIMEOUT_MS", 500)?),
                paced: true,
                iam: None,
            },
            redis_iam_cache: lookup("REDIS_IAM_CACHE").filter(|name| !name.is_empty()),
            legacy: LegacySettings {
                redis_url: lookup("LEGACY_REDIS_URL").filter(|url| !url.is_empty()),
                sources: lookup("MIGRATION_SOURCES").unwrap_or_default(),
                rollout_percent: share(number("ROLLOUT_PERCENT", 100)?)?,
                rollout_users: users(&lookup("ROLLOUT_USERS").unwrap_or_default())?,
            },
            following_limit: number("FOLLOWING_LIMIT", 500)?,
            pull_threshold: number("PULL_THRESHOLD", 1_000_000)?,
            rank_half_life: Duration::from_secs(number("RANK_HALF_LIFE", 720)?.saturating_mul(60)),
            feed_cap: FeedCap::new(number("FEED_CAP", FEED_CAP as u64)?),
            limits: [
                limit("LIMIT_POSTS")?,
                limit("LIMIT_FOLLOWS")?,
                limit("LIMIT_REACTIONS")?,
                limit("LIMIT_MARKS")?,
                limit("LIMIT_READS")?,
            ],
            user_claim: lookup("USER_CLAIM").unwrap_or_else(|| "sub".to_owned()),
            user_ids: match lookup("USER_IDS").as_deref() {
                None | Some("" | "numeric") => UserIds::Numeric,
                Some("mapped") => UserIds::Mapped,
                Some(_) => return Err(SettingsError::NotAKindOfId),
            },
            platforms_claim: lookup("PLATFORMS_CLAIM").filter(|name| !name.is_empty()),
            aws_attempt_timeout: Duration::from_millis(number("AWS_ATTEMPT_TIMEOUT_MS", 3_000)?),
            aws_operation_timeout: Duration::from_millis(number("AWS_OPERATION_TIMEOUT_MS", 8_000)?),
            metrics_namespace: lookup("METRICS_NAMESPACE").unwrap_or_else(|| "Tidemark".to_owned()),
            aws: AwsOverrides::from_lookup(&lookup),
        })
    }
}

/// Settings that `shared/legacy` alone uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LegacySettings {
    /// `LEGACY_REDIS_URL`: the source of a migration whose invocation names none; may be absent.
    pub redis_url: Option<String>,
    /// `MIGRATION_SOURCES` (none): further sources that an invocation may name.
    pub sources: String,
    /// `ROLLOUT_PERCENT` (100): the share of users whom applications serve from here.
    pub rollout_percent: u8,
    /// `ROLLOUT_USERS` (none, separated by commas): users whom applications serve from here with any share.
    pub rollout_users: BTreeSet<UserId>,
}

/// The settings of `live-sender`.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// `LIVE_QUEUE_URL`.
    pub live_queue_url: String,
    /// `LIVE_POSTS_QUEUE_URL`.
    pub live_posts_queue_url: String,
    /// `LIVE_ENDPOINT`: the address under which API Gateway accepts messages to connections.
    pub live_endpoint: String,
    /// `METRICS_NAMESPACE` (`Tidemark`).
    pub metrics_namespace: String,
    /// As for the other functions.
    pub aws: AwsOverrides,
}

impl SenderSettings {
    pub fn from_env() -> Result<Self, SettingsError> {
        let mut settings = Self::from_lookup(process_environment)?;
        // The client of connections has an address of its own, which a variable of the SDK would not replace.
        let connections_endpoint = settings.aws.connections_endpoint.take();
        settings.aws = AwsOverrides { connections_endpoint, ..AwsOverrides::default() };
        Ok(settings)
    }

    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        Ok(Self {
            live_queue_url: required(&lookup, "LIVE_QUEUE_URL")?,
            live_posts_queue_url: required(&lookup, "LIVE_POSTS_QUEUE_URL")?,
            live_endpoint: required(&lookup, "LIVE_ENDPOINT")?,
            metrics_namespace: lookup("METRICS_NAMESPACE").unwrap_or_else(|| "Tidemark".to_owned()),
            aws: AwsOverrides::from_lookup(&lookup),
        })
    }
}

/// The settings of `live-authorizer`. They are those of the HTTP API's authorizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizerSettings {
    /// `JWT_ISSUER`: the issuer (`iss`) of accepted tokens.
    pub issuer: String,
    /// `JWT_AUDIENCE`: accepted audiences (`aud`, or `client_id`), separated by commas.
    pub audiences: Vec<String>,
    /// `JWT_SCOPE`: the scope that a token needs; may be absent.
    pub scope: Option<String>,
    /// `USER_CLAIM` (`sub`): the claim that says who the caller is.
    pub user_claim: String,
    /// `METRICS_NAMESPACE` (`Tidemark`).
    pub metrics_namespace: String,
}

impl AuthorizerSettings {
    pub fn from_env() -> Result<Self, SettingsError> {
        Self::from_lookup(process_environment)
    }

    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        Ok(Self {
            issuer: required(&lookup, "JWT_ISSUER")?,
            audiences: required(&lookup, "JWT_AUDIENCE")?.split(',').map(|name| name.trim().to_owned()).collect(),
            scope: lookup("JWT_SCOPE").filter(|scope| !scope.is_empty()),
            user_claim: lookup("USER_CLAIM").unwrap_or_else(|| "sub".to_owned()),
            metrics_namespace: lookup("METRICS_NAMESPACE").unwrap_or_else(|| "Tidemark".to_owned()),
        })
    }
}

fn required(lookup: &impl Fn(&str) -> Option<String>, name: &'static str) -> Result<String, SettingsError> {
    lookup(name).filter(|value| !value.is_empty()).ok_or(SettingsError::Missing(name))
}

fn flag(lookup: &impl Fn(&str) -> Option<String>, name: &'static str) -> Result<bool, SettingsError> {
    match lookup(name).as_deref() {
        None | Some("" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(SettingsError::NotABoolean(name)),
    }
}

/// The address of X-Ray's daemon, if calls are traced: `AWS_XRAY_DAEMON_ADDRESS`, which Lambda sets, if `TRACING` is
/// `true`. It is no part of [`Settings`], because logging starts before they are read.
pub(crate) fn xray_daemon() -> Option<String> {
    process_environment("AWS_XRAY_DAEMON_ADDRESS").filter(|_| process_environment("TRACING").as_deref() == Some("true"))
}

#[expect(clippy::disallowed_methods, reason = "the other code gets the environment from these settings")]
fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn share(percent: u64) -> Result<u8, SettingsError> {
    u8::try_from(percent).ok().filter(|percent| *percent <= 100).ok_or(SettingsError::NotAShare)
}

/// User ids, separated by commas.
fn users(text: &str) -> Result<BTreeSet<UserId>, SettingsError> {
    let user = |id: &str| id.parse().map_err(|_| SettingsError::NotAUser(id.to_owned()));
    if text.is_empty() { Ok(BTreeSet::new()) } else { text.split(',').map(user).collect() }
}

/// The URL, or the URLs of nodes of a cluster.
fn redis_url(text: String) -> Result<String, SettingsError> {
    let known = |url: &str| ["redis://", "rediss://"].iter().any(|scheme| url.trim().starts_with(scheme));
    if text.split(',').all(known) { Ok(text) } else { Err(SettingsError::NotARedisUrl) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_variable_is_named() {
        let error = Settings::from_lookup(|name| (name != "POSTS_TABLE").then(|| "1".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "environment variable POSTS_TABLE is not set");
        let with = |variable, value: &'static str| {
            let lookup = move |name: &str| match name {
                _ if name == variable => Some(value.to_owned()),
                "REDIS_URL" => Some("rediss://a:6379, redis://b:6379".to_owned()),
                "REDIS_CLUSTER" | "REDIS_REPLICA_READS" | "REDIS_CA_FILE" | "USER_IDS" => None,
                _ => Some("1".to_owned()),
            };
            Settings::from_lookup(lookup)
        };
        assert!(with("FOLLOWING_LIMIT", "many").unwrap_err().to_string().contains("whole number"));
        assert!(with("REDIS_URL", "localhost:6379").unwrap_err().to_string().contains("redis://localhost:6379"));
        assert!(with("USER_IDS", "text").unwrap_err().to_string().contains("USER_IDS is neither"));
        assert!(with("REDIS_CLUSTER", "yes").unwrap_err().to_string().contains("REDIS_CLUSTER is neither"));
        assert!(with("ROLLOUT_PERCENT", "101").unwrap_err().to_string().contains("ROLLOUT_PERCENT is greater than 100"));
        assert!(with("ROLLOUT_PERCENT", "1.5").unwrap_err().to_string().contains("ROLLOUT_PERCENT is not a whole number"));
        assert!(with("ROLLOUT_USERS", "7, 8").unwrap_err().to_string().contains("ROLLOUT_USERS: \" 8\" is not a user id"));
        assert!(with("ROLLOUT_USERS", "7,18446744073709551615").is_ok());
        let redis = with("REDIS_CLUSTER", "true").unwrap().redis;
        assert!(redis.cluster && !redis.replica_reads && redis.ca_file.is_none());
    }

    #[test]
    fn a_function_outside_of_the_vpc_needs_no_redis_and_no_table() {
        let lookup = |name: &str| match name {
            "LIVE_QUEUE_URL" | "LIVE_POSTS_QUEUE_URL" | "LIVE_ENDPOINT" | "JWT_ISSUER" => Some(name.to_owned()),
            "JWT_AUDIENCE" => Some("web, app".to_owned()),
            _ => None,
        };
        assert_eq!(SenderSettings::from_lookup(lookup).unwrap().live_endpoint, "LIVE_ENDPOINT");
        let settings = AuthorizerSettings::from_lookup(lookup).unwrap();
        assert_eq!((settings.audiences, settings.scope), (vec!["web".to_owned(), "app".to_owned()], None));
        let error = AuthorizerSettings::from_lookup(|_| None).unwrap_err();
        assert_eq!(error.to_string(), "environment variable JWT_ISSUER is not set");
    }
}
