//! Runs functions in this process or as the deployed binaries.

mod in_process;
mod process;
mod runtime_api;

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;
use tidemark::{App, views::RedisOptions};

pub(crate) use in_process::InProcess;
pub(crate) use process::{Processes, WorkerSettings};
pub(crate) use runtime_api::RuntimeApi;

use crate::template::{Function, REGION};

/// The reason why an invocation has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum InvokeError {
    /// The function returned an error. `kind` is its type, as the Lambda runtime reports it.
    #[error("{kind}: {message}")]
    Failed { kind: String, message: String },
    #[error("the handler panicked: {0}")]
    Panicked(String),
    #[error("timed out after {0} s")]
    TimedOut(u64),
    #[error("the process ended during the invocation ({0})")]
    Exited(String),
    #[error("{0}")]
    Shape(String),
}

pub(crate) type Invoked = Result<Value, InvokeError>;

#[async_trait]
pub(crate) trait Runner: Send + Sync {
    /// Invokes the function and waits for its result until its timeout.
    async fn invoke(&self, request_id: &str, payload: Value) -> Invoked;

    /// The function's state. `None` if the function runs as processes.
    fn app(&self) -> Option<&App> {
        None
    }

    /// Ids of the processes of the function. Empty if it runs in this process.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Replaces a process if it is idle. Returns whether it was.
    fn retire(&self, _pid: u32) -> bool {
        false
    }

    /// Kills the invocations in flight without a cleanup. Returns their number.
    fn kill(&self) -> usize;

    async fn stop(&self) {}
}

/// Addresses of the emulated services.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) dynamodb: String,
    pub(crate) sqs: String,
    pub(crate) events: String,
    /// The address of the gateway, which accepts messages to live connections.
    pub(crate) gateway: String,
    pub(crate) redis: RedisOptions,
}

/// Builds a function's environment: the template's variables, the addresses of Redis and of the AWS endpoints, and
/// the `given` variables. The access key is the function's name, so a service can tell which function sends a
/// request.
pub(crate) fn environment(
    function: &Function,
    endpoints: &Endpoints,
    given: &BTreeMap<String, String>,
) -> Arc<BTreeMap<String, String>> {
    let mut all = function.environment.clone();
    let ca_file = endpoints.redis.ca_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    // A function outside of the VPC has no Redis.
    let redis_url = if function.environment.get("REDIS_URL").is_some_and(String::is_empty) { "" } else { &endpoints.redis.url };
    let own = [
        ("REDIS_URL", redis_url),
        ("REDIS_CLUSTER", if endpoints.redis.cluster { "true" } else { "false" }),
        ("REDIS_REPLICA_READS", if endpoints.redis.replica_reads { "true" } else { "false" }),
        ("REDIS_CA_FILE", &ca_file),
        // The stack's Redis has neither users nor tokens.
        ("REDIS_IAM_CACHE", ""),
        ("AWS_ENDPOINT_URL_DYNAMODB", &endpoints.dynamodb),
        ("AWS_ENDPOINT_URL_SQS", &endpoints.sqs),
        ("AWS_ENDPOINT_URL_EVENTBRIDGE", &endpoints.events),
        ("AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI", &endpoints.gateway),
        ("AWS_REGION", REGION),
        ("AWS_DEFAULT_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", &function.binary),
        ("AWS_SECRET_ACCESS_KEY", "local"),
        ("AWS_LAMBDA_FUNCTION_NAME", &function.binary),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ("AWS_LAMBDA_LOG_GROUP_NAME", "local"),
        ("AWS_LAMBDA_LOG_STREAM_NAME", "local"),
    ];
    all.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    all.insert("AWS_LAMBDA_FUNCTION_MEMORY_SIZE".to_owned(), function.memory_mib.to_string());
    all.extend(given.clone());
    Arc::new(all)
}

#[cfg(test)]
mod tests;
