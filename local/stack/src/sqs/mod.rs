//! SQS on a loopback port: the queues of the template in memory, with a journal on disk.
//!
//! `rustack-sqs-http` implements the wire protocol (routing, error shapes, checksums). The queues are this crate's.
//! Those of `rustack-sqs-core` have five faults: they lose messages at a restart, they report failures of batch
//! deletes wrongly, they count only the body towards the size limit, they refuse message groups on standard queues,
//! and they check visibility timeouts once a second.
//!
//! Differences from SQS: queues are standard queues and are created only by the template; a receive sees every
//! visible message; `StartMessageMoveTask` moves at once.

mod engine;
mod handler;
pub(crate) mod journal;
mod queue;
mod source;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::body::{Body, Bytes};
use http::{Response, request::Parts};
use rustack_sqs_http::{
    response::{error_to_response, json_response},
    router::resolve_operation,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    http_server::{self, Reply, Serve, access_key, operation, status_of, to_its_end},
    weather::{Call, Surroundings},
};
pub(crate) use engine::{Queues, new_id};
pub(crate) use handler::{attributes, system_attributes};
pub use queue::Counts;
pub(crate) use queue::Message;
pub(crate) use source::Source;

/// Larger than any batch that SQS accepts, escaped and wrapped in JSON.
const BODY_LIMIT: usize = 8 << 20;

pub(crate) fn serve(
    listener: TcpListener,
    queues: Arc<Queues>,
    surroundings: Surroundings,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(http_server::serve(listener, BODY_LIMIT, Service { queues, surroundings }, stop))
}

pub(crate) async fn bind() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot bind a loopback port for the queues")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    Ok((listener, endpoint))
}

/// In a storm, the probabilities that a send is not done, that a batch fails in every entry, and of a lost response.
const STORM_FAILS: f64 = 0.02;
const STORM_LEAVES: f64 = 0.01;
const STORM_LOSES: f64 = 0.03;

#[derive(Clone)]
struct Service {
    queues: Arc<Queues>,
    surroundings: Surroundings,
}

impl Serve for Service {
    async fn response(&self, parts: Parts, body: Bytes) -> Reply {
        if self.surroundings.are_calm() {
            return Some(self.handle(&parts, body).await);
        }
        let service = self.clone();
        to_its_end(async move { service.disturbed(&parts, body).await }).await
    }
}

impl Service {
    async fn handle(&self, parts: &Parts, body: Bytes) -> Response<Body> {
        let result = async { handler::dispatch(&self.queues, resolve_operation(&parts.headers)?, &body).await };
        let response = match result.await {
            Ok(body) => json_response(body.to_string().into_bytes(), &new_id()),
            Err(error) => error_to_response(&error, &new_id()),
        };
        response.map(Body::new)
    }

    /// Performs a request under the weather, and under a planted fault if one matches.
    async fn disturbed(&self, parts: &Parts, body: Bytes) -> Reply {
        let (function, operation) = (access_key(parts), operation(parts).unwrap_or_default());
        // An open receive does not count as work, because it only waits.
        let _open = (operation != "ReceiveMessage").then(|| self.surroundings.open.enter());
        let faults = &self.surroundings.faults;
        let text = std::str::from_utf8(&body).unwrap_or_default();
        let Some(fault) = faults.take(&Call { function, operation, body: text }) else {
            return self.in_weather(parts, operation, body).await;
        };
        let request = async { (Some(self.handle(parts, body.clone()).await), ()) };
        faults.apply(fault, function, request, refusal, || all_failed(text)).await
    }

    /// In a storm, makes sends fail and loses their responses.
    async fn in_weather(&self, parts: &Parts, operation: &str, body: Bytes) -> Reply {
        let conditions = &self.surroundings.conditions;
        if !matches!(operation, "SendMessage" | "SendMessageBatch") {
            return Some(self.handle(parts, body).await);
        }
        if conditions.storm(STORM_FAILS) {
            return Some(refusal("InternalError"));
        }
        if operation == "SendMessageBatch" && conditions.storm(STORM_LEAVES) {
            return Some(all_failed(std::str::from_utf8(&body).unwrap_or_default()));
        }
        let response = self.handle(parts, body).await;
        (!conditions.storm(STORM_LOSES)).then_some(response)
    }
}

fn refusal(code: &str) -> Response<Body> {
    let body = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": "a planted fault" });
    http_server::json_response(status_of(code), body.to_string())
}

/// The response to a batch in which every entry has failed.
fn all_failed(body: &str) -> Response<Body> {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let failure =
        |entry: &Value| json!({ "Id": entry["Id"], "Code": "InternalError", "Message": "a planted fault", "SenderFault": false });
    let failed: Vec<Value> = request["Entries"].as_array().into_iter().flatten().map(failure).collect();
    http_server::json_response(200, json!({ "Successful": [], "Failed": failed }).to_string())
}

#[cfg(test)]
mod tests;
