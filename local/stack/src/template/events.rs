//! Event sources of functions: routes, queues, streams and schedules.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Map, Value};

use super::{
    Template, kind,
    values::{Scope, is_true, scalar},
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

/// The settings of a `ScheduleV2` or `Schedule` event.
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

pub(super) fn apis(resources: &Map<String, Value>, scope: &Scope) -> Result<Apis> {
    let mut out = Apis::new();
    for (id, body) in resources.iter().filter(|(_, body)| kind(body) == "AWS::Serverless::HttpApi") {
        let auth = body.pointer("/Properties/Auth").map(|auth| scope.evaluate(auth)).transpose()?.flatten().unwrap_or_default();
        let default = auth.get("DefaultAuthorizer").and_then(Value::as_str);
        let known = |name: &str| name == "AWS_IAM" || auth.get("Authorizers").is_some_and(|a| a.get(name).is_some());
        if let Some(name) = default.filter(|name| !known(name)) {
            bail!("resource `{id}`: its default authorizer `{name}` is not among its authorizers");
        }
        let scopes = |name: &str| {
            let scopes = auth.get("Authorizers")?.get(name)?.get("AuthorizationScopes")?.as_array()?;
            Some(scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        out.insert(id.clone(), default.map(|name| scopes(name).unwrap_or_default()));
    }
    Ok(out)
}

/// Reads one event. Returns `None` for a stream or queue that is turned off, and for a kind that the local stack does
/// not serve.
pub(super) fn read(name: &str, event: &Value, apis: &Apis, template: &Template) -> Result<Option<Event>> {
    let none = Value::Null;
    let properties = event.get("Properties").unwrap_or(&none);
    let source = match kind(event) {
        "HttpApi" => EventSource::Http(http(properties, apis)?),
        "SQS" | "DynamoDB" if properties.get("Enabled") == Some(&Value::Bool(false)) => return Ok(None),
        "SQS" => EventSource::Sqs(sqs(properties, template)?),
        "DynamoDB" => EventSource::Stream(stream(properties, template)?),
        "Schedule" | "ScheduleV2" => EventSource::Schedule(schedule(properties)?),
        other => {
            tracing::warn!(event = name, kind = other, "the local stack does not support this event source");
            return Ok(None);
        }
    };
    Ok(Some(Event { name: name.to_owned(), source }))
}

fn http(properties: &Value, apis: &Apis) -> Result<HttpRoute> {
    let api = properties.get("ApiId").and_then(Value::as_str);
    let default = match api {
        Some(id) => apis.get(id).ok_or_else(|| anyhow!("the template has no HTTP API `{id}`"))?.clone(),
        None => None,
    };
    let scopes = match properties.pointer("/Auth/Authorizer").and_then(Value::as_str) {
        Some("NONE") => None,
        Some(_) => default.or_else(|| Some(Vec::new())),
        None => default,
    };
    let path = required(properties, "Path")?;
    if !path.starts_with('/') && path != "$default" {
        bail!("the path `{path}` must begin with a slash");
    }
    let method = required(properties, "Method")?.to_uppercase();
    Ok(HttpRoute { method, path, authorized: scopes.is_some(), scopes: scopes.unwrap_or_default() })
}

fn sqs(properties: &Value, template: &Template) -> Result<SqsSource> {
    let arn = required(properties, "Queue")?;
    let concurrency = properties.pointer("/ScalingConfig/MaximumConcurrency");
    let batch_size = number(properties.get("BatchSize"), "BatchSize", 10)?;
    let batching_window = batching_window(properties)?;
    if batch_size > 10 && batching_window.is_zero() {
        bail!("a batch size over 10 ({batch_size}) requires `MaximumBatchingWindowInSeconds`");
    }
    Ok(SqsSource {
        queue: queue_named(&arn, template)?,
        batch_size: usize::try_from(batch_size)?,
        batching_window,
        maximum_concurrency: concurrency
            .map(|c| -> Result<usize> { Ok(scalar(c)?.parse()?) })
            .transpose()
            .context("`MaximumConcurrency`")?,
        report_failures: reports_failures(properties),
    })
}

fn stream(properties: &Value, template: &Template) -> Result<StreamSource> {
    let arn = required(properties, "Stream")?;
    let table = arn.split('/').nth(1).unwrap_or_default();
    let table = template
        .tables
        .values()
        .find(|t| t.name == table)
        .ok_or_else(|| anyhow!("the template has no table with the stream `{arn}`"))?;
    if table.stream_view.is_none() {
        bail!("the table `{}` has no stream", table.logical_id);
    }
    let on_failure = properties.pointer("/DestinationConfig/OnFailure/Destination").and_then(Value::as_str);
    let retries = properties.get("MaximumRetryAttempts").map(scalar).transpose()?.unwrap_or_else(|| "-1".to_owned());
    let retries: i64 = retries.parse().context("`MaximumRetryAttempts` must be a whole number")?;
    ensure!(properties.get("FilterCriteria").is_none(), "the local stack does not support `FilterCriteria`");
    Ok(StreamSource {
        table: table.logical_id.clone(),
        batch_size: usize::try_from(number(properties.get("BatchSize"), "BatchSize", 100)?)?,
        batching_window: batching_window(properties)?,
        maximum_retries: u32::try_from(retries).ok(),
        bisect: is_true(properties.get("BisectBatchOnFunctionError")),
        on_failure: on_failure.map(|arn| queue_named(arn, template)).transpose().context("the failure destination")?,
        report_failures: reports_failures(properties),
        from_oldest: properties.get("StartingPosition").and_then(Value::as_str) != Some("LATEST"),
    })
}

fn schedule(properties: &Value) -> Result<ScheduleSource> {
    let text = required(properties, if properties.get("Schedule").is_some() { "Schedule" } else { "ScheduleExpression" })?;
    let input = match properties.get("Input") {
        None | Some(Value::Null) => Value::Null,
        Some(Value::String(text)) => serde_json::from_str(text).context("`Input` is not JSON")?,
        Some(other) => other.clone(),
    };
    let disabled = properties.get("State").and_then(Value::as_str) == Some("DISABLED")
        || properties.get("Enabled") == Some(&Value::Bool(false));
    Ok(ScheduleSource { expression: text.parse()?, input, enabled: !disabled })
}

fn queue_named(arn: &str, template: &Template) -> Result<String> {
    let queue = template.queues.values().find(|queue| queue.arn == arn);
    queue.map(|queue| queue.name.clone()).ok_or_else(|| anyhow!("the template has no queue with the ARN `{arn}`"))
}

fn required(properties: &Value, name: &str) -> Result<String> {
    properties.get(name).map(scalar).transpose()?.ok_or_else(|| anyhow!("`{name}` is missing"))
}

/// The value of the property `name`, or the fallback if there is none.
pub(super) fn number(value: Option<&Value>, name: &str, fallback: u64) -> Result<u64> {
    match value {
        Some(value) => scalar(value)?.parse().with_context(|| format!("`{name}` must be a whole number")),
        None => Ok(fallback),
    }
}

fn batching_window(properties: &Value) -> Result<Duration> {
    let name = "MaximumBatchingWindowInSeconds";
    number(properties.get(name), name, 0).map(Duration::from_secs)
}

fn reports_failures(properties: &Value) -> bool {
    let types = properties.get("FunctionResponseTypes").and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|name| name == "ReportBatchItemFailures"))
}
