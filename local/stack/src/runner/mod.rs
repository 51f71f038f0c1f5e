//! Running functions: in this process, or as the binaries that are deployed.

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

/// Why an invocation has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum InvokeError {
    /// The function answered with an error.
    #[error("{kind}: {message}")]
    Failed {
        /// The error's type, as the Lambda runtime reports it.
        kind: String,
        /// The error's text.
        message: String,
    },
    /// The handler panicked.
    #[error("the handler panicked: {0}")]
    Panicked(String),
    /// The function's timeout passed.
    #[error("timed out after {0} s")]
    TimedOut(u64),
    /// The process ended while it was at work.
    #[error("the process ended during the invocation ({0})")]
    Exited(String),
    /// The event or the answer has the wrong shape.
    #[error("{0}")]
    Shape(String),
}

/// One function, ready to be invoked.
#[async_trait]
pub(crate) trait Runner: std::fmt::Debug + Send + Sync {
    /// Invokes the function and waits for its answer, no longer than its timeout.
    async fn invoke(&self, request_id: &str, payload: Value) -> Result<Value, InvokeError>;

    /// The function's state, when it runs in this process.
    fn app(&self) -> Option<&App> {
        None
    }

    /// Ids of the processes that run it.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Kills the invocations in flight, without a chance to do anything more; returns how many.
    fn kill(&self) -> usize;

    /// Ends its processes.
    async fn stop(&self) {}
}

/// Where the emulated services are.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) dynamodb: String,
    pub(crate) sqs: String,
    pub(crate) redis: RedisOptions,
}

/// A function's whole environment: the template's, with Redis and the AWS endpoints pointing here, and what was `given`. Its requests are signed with its name, so that
/// who looks at them knows whose they are.
pub(crate) fn environment(
    function: &Function,
    endpoints: &Endpoints,
    given: &BTreeMap<String, String>,
) -> Arc<BTreeMap<String, String>> {
    let mut all = function.environment.clone();
    let ca_file = endpoints.redis.ca_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let own = [
        ("REDIS_URL", endpoints.redis.url.as_str()),
        ("REDIS_CLUSTER", if endpoints.redis.cluster { "true" } else { "false" }),
        ("REDIS_REPLICA_READS", if endpoints.redis.replica_reads { "true" } else { "false" }),
        ("REDIS_CA_FILE", &ca_file),
        ("AWS_ENDPOINT_URL_DYNAMODB", &endpoints.dynamodb),
        ("AWS_ENDPOINT_URL_SQS", &endpoints.sqs),
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
