//! Event sources of functions: routes, queues, streams and schedules.

use std::{collections::BTreeMap, error::Error, str::FromStr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{
    Template, kind,
    values::{is_true, optional},
};
use crate::schedule::Expression;

#[derive(Clone, Debug)]
pub struct Event {
    /// The key in the function's `Events`.
    pub name: String,
    pub source: EventSource,
}

/// The kinds of event sources that the local stack serves.
#[derive(Clone, Debug)]
pub enum EventSource {
    Http(HttpRoute),
    Sqs(SqsSource),
    Stream(StreamSource),
    Schedule(ScheduleSource),
}

/// A method and path of an `HttpApi` event.
#[derive(Clone, Debug)]
pub struct HttpRoute {
    /// The method, or `ANY`.
    pub method: String,
    /// The path, or `$default` for everything that no other route matches.
    pub path: String,
    /// True if the route requires a caller.
    pub authorized: bool,
    /// The caller's token needs one of these scopes, if there are any.
    pub scopes: Vec<String>,
}

/// The settings of an `SQS` event.
#[derive(Clone, Debug)]
pub struct SqsSource {
    /// The physical name of the queue.
    pub queue: String,
    /// The largest number of messages in one invocation.
    pub batch_size: usize,
    /// The time that a batch may wait for more messages.
    pub batching_window: Duration,
    /// The largest number of concurrent invocations. `None` means no limit.
    pub maximum_concurrency: Option<usize>,
    /// True if the function's result names the failed messages.
    pub report_failures: bool,
}

/// The settings of a `DynamoDB` event.
#[derive(Clone, Debug)]
pub struct StreamSource {
    pub table: String,
    /// The largest number of records in one invocation.
    pub batch_size: usize,
    /// The time that a batch may wait for more records.
    pub batching_window: Duration,
    /// The number of times that a failed batch is repeated. `None` means without limit.
    pub maximum_retries: Option<u32>,
    /// True if a failed batch is split in two.
    pub bisect: bool,
    /// The physical name of the queue that receives the ids of abandoned records.
    pub on_failure: Option<String>,
    /// True if the function's result names the first failed record.
    pub report_failures: bool,
    /// True to start at the oldest record (`TRIM_HORIZON`) instead of the newest.
    pub from_oldest: bool,
}

/// The settings of a `ScheduleV2` event.
#[derive(Clone, Debug)]
pub struct ScheduleSource {
    pub expression: Expression,
    /// The event that the function receives.
    pub input: Value,
    /// True if the schedule fires at its times. It can be fired on demand in either case.
    pub enabled: bool,
}

/// For each `HttpApi` resource, the scopes that its routes require by default; `None` if they require no caller.
pub(super) type Apis = BTreeMap<String, Option<Vec<String>>>;

pub(super) fn default_scopes(api: &Value) -> Result<Option<Vec<String>>> {
    let auth = &api["Properties"]["Auth"];
    let Some(name) = auth["DefaultAuthorizer"].as_str() else { return Ok(None) };
    let authorizer = &auth["Authorizers"][name];
    let known = name == "AWS_IAM" || !authorizer.is_null();
    ensure!(known, "its default authorizer `{name}` is not among its authorizers");
    let scopes = authorizer["AuthorizationScopes"].as_array().into_iter().flatten();
    Ok(Some(scopes.filter_map(Value::as_str).map(str::to_owned).collect()))
}

/// Reads one event. Returns `None` for a stream or queue that is turned off, and for a kind that is not served.
pub(super) fn read(name: &str, event: &Value, apis: &Apis, template: &Template) -> Result<Option<Event>> {
    let properties = &event["Properties"];
    let source = match kind(event) {
        "HttpApi" => EventSource::Http(http(properties, apis)?),
        "SQS" | "DynamoDB" if properties["Enabled"] == false => return Ok(None),
        "SQS" => EventSource::Sqs(sqs(properties, template)?),
        "DynamoDB" => EventSource::Stream(stream(properties, template)?),
        "ScheduleV2" => EventSource::Schedule(schedule(properties)?),
        "Schedule" => bail!("the local stack does not support `Schedule`: use `ScheduleV2`"),
        other => {
            tracing::warn!(event = name, kind = other, "the local stack does not support this event source");
            return Ok(None);
        }
    };
    Ok(Some(Event { name: name.to_owned(), source }))
}

fn http(properties: &Value, apis: &Apis) -> Result<HttpRoute> {
    let default = match properties["ApiId"].as_str() {
        Some(id) => apis.get(id).with_context(|| format!("the template has no HTTP API `{id}`"))?.clone(),
        None => None,
    };
    let scopes = match properties["Auth"]["Authorizer"].as_str() {
        Some("NONE") => None,
        Some(_) => Some(default.unwrap_or_default()),
        None => default,
    };
    let path = required(properties, "Path")?;
    ensure!(path.starts_with('/') || path == "$default", "the path `{path}` must begin with a slash");
    let method = required(properties, "Method")?.to_uppercase();
    Ok(HttpRoute { method, path, authorized: scopes.is_some(), scopes: scopes.unwrap_or_default() })
}

fn sqs(properties: &Value, template: &Template) -> Result<SqsSource> {
    let batch_size = number(properties, "BatchSize")?.unwrap_or(10);
    let batching_window = batching_window(properties)?;
    if batch_size > 10 && batching_window.is_zero() {
        bail!("a batch size over 10 ({batch_size}) requires `MaximumBatchingWindowInSeconds`");
    }
    Ok(SqsSource {
        queue: queue_named(&required(properties, "Queue")?, template)?,
        batch_size,
        batching_window,
        maximum_concurrency: number(&properties["ScalingConfig"], "MaximumConcurrency")?,
        report_failures: reports_failures(properties),
    })
}

fn stream(properties: &Value, template: &Template) -> Result<StreamSource> {
    ensure!(properties["FilterCriteria"].is_null(), "the local stack does not support `FilterCriteria`");
    let arn = required(properties, "Stream")?;
    let name = arn.split('/').nth(1).unwrap_or_default();
    let table = template.tables.values().find(|table| table.name == name);
    let table = table.with_context(|| format!("the template has no table with the stream `{arn}`"))?;
    ensure!(table.stream_view.is_some(), "the table `{}` has no stream", table.logical_id);
    let on_failure = properties["DestinationConfig"]["OnFailure"]["Destination"].as_str();
    Ok(StreamSource {
        table: table.logical_id.clone(),
        batch_size: number(properties, "BatchSize")?.unwrap_or(100),
        batching_window: batching_window(properties)?,
        // -1 means without limit.
        maximum_retries: number::<i64>(properties, "MaximumRetryAttempts")?.and_then(|most| most.try_into().ok()),
        bisect: is_true(properties, "BisectBatchOnFunctionError"),
        on_failure: on_failure.map(|arn| queue_named(arn, template)).transpose().context("the failure destination")?,
        report_failures: reports_failures(properties),
        from_oldest: properties["StartingPosition"] != "LATEST",
    })
}

fn schedule(properties: &Value) -> Result<ScheduleSource> {
    let expression = required(properties, "ScheduleExpression")?.parse()?;
    let input = match &properties["Input"] {
        Value::String(text) => serde_json::from_str(text).context("`Input` is not JSON")?,
        other => other.clone(),
    };
    Ok(ScheduleSource { expression, input, enabled: properties["State"] != "DISABLED" })
}

fn queue_named(arn: &str, template: &Template) -> Result<String> {
    let queue = template.queues.values().find(|queue| queue.arn == arn);
    queue.map(|queue| queue.name.clone()).with_context(|| format!("the template has no queue with the ARN `{arn}`"))
}

fn required(properties: &Value, name: &str) -> Result<String> {
    optional(properties, name)?.with_context(|| format!("`{name}` is missing"))
}

pub(super) fn number<T: FromStr<Err: Error + Send + Sync + 'static>>(properties: &Value, name: &str) -> Result<Option<T>> {
    let text = optional(properties, name)?;
    text.map(|text| text.parse()).transpose().with_context(|| format!("`{name}` must be a whole number"))
}

fn batching_window(properties: &Value) -> Result<Duration> {
    let seconds = number(properties, "MaximumBatchingWindowInSeconds")?;
    Ok(Duration::from_secs(seconds.unwrap_or_default()))
}

fn reports_failures(properties: &Value) -> bool {
    let types = properties["FunctionResponseTypes"].as_array();
    types.is_some_and(|types| types.iter().any(|name| name == "ReportBatchItemFailures"))
}
