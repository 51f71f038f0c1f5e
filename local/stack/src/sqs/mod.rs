//! SQS on a loopback port: the queues of the template in memory, with a journal on disk.
//!
//! `rustack-sqs-http` implements the wire protocol (routing, error shapes, checksums). The queues are this crate's.
//! Those of `rustack-sqs-core` have five faults: they lose messages at a restart, they report failures of batch
//! deletes wrongly, they count only the body towards the size limit, they refuse message groups on standard queues,
//! and they check visibility timeouts once a second.
//!
//! Differences from SQS: queues are standard queues and are created only by the template; a receive sees every
//! visible message; `StartMessageMoveTask` moves at once.

mod disturbed;
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
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    http_server::{self, Reply, Serve, to_its_end},
    weather::Surroundings,
};
pub(crate) use engine::{Draft, Queues, new_id};
pub(crate) use handler::{attributes, system_attributes};
pub use queue::Counts;
pub(crate) use queue::{Message, Returns};
pub(crate) use source::Source;

/// Larger than any batch that SQS accepts, escaped and wrapped in JSON.
const BODY_LIMIT: usize = 8 << 20;

/// Serves the queues on `listener` until `stop`.
pub(crate) fn serve(
    listener: TcpListener,
    queues: Arc<Queues>,
    surroundings: Surroundings,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(http_server::serve(listener, BODY_LIMIT, Service { queues, surroundings }, stop))
}

/// Binds a loopback port for [`serve`].
pub(crate) async fn bind() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot bind a loopback port for the queues")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    Ok((listener, endpoint))
}

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
        to_its_end(async move { disturbed::response(&service, &parts, body).await }).await
    }
}

impl Service {
    async fn handle(&self, parts: &Parts, body: Bytes) -> Response<Body> {
        let result = match resolve_operation(&parts.headers) {
            Ok(operation) => handler::dispatch(&self.queues, operation, &body).await,
            Err(error) => Err(error),
        };
        let response = match result {
            Ok(body) => json_response(body.to_string().into_bytes(), &new_id()),
            Err(error) => error_to_response(&error, &new_id()),
        };
        response.map(Body::new)
    }
}

#[cfg(test)]
mod tests;
