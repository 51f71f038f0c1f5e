//! The Lambda Runtime API (version 2018-06-01) for functions that run as processes.
//!
//! Each process has an address of its own, `host:port/<function>/<worker>`, which tells the workers apart.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::StatusCode;
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    InvokeError,
    process::{Pool, Processes},
};
use crate::lock::lock;

type Pools = Arc<Mutex<BTreeMap<String, Arc<Pool>>>>;

pub(crate) struct RuntimeApi {
    /// Host and port, for `AWS_LAMBDA_RUNTIME_API`.
    pub(crate) address: String,
    pools: Pools,
    stop: DropGuard,
    server: JoinHandle<()>,
}

impl RuntimeApi {
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot bind a loopback port for the Runtime API")?;
        let address = listener.local_addr()?.to_string();
        let (pools, stop) = (Pools::default(), CancellationToken::new());
        let app = Router::new()
            .route("/{function}/{worker}/2018-06-01/runtime/invocation/next", get(next))
            .route("/{function}/{worker}/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/{function}/{worker}/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/{function}/{worker}/2018-06-01/runtime/init/error", post(init_error))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&pools));
        let signal = stop.clone();
        let server = tokio::spawn(async move {
            // A graceful shutdown would never end, because each worker keeps a request for work open.
            tokio::select! {
                served = axum::serve(listener, app) => tracing::error!(?served, "the Runtime API ended"),
                () = signal.cancelled() => {}
            }
        });
        Ok(Self { address, pools, stop: stop.drop_guard(), server })
    }

    pub(crate) fn add(&self, binary: &str, processes: &Processes) {
        lock(&self.pools).insert(binary.to_owned(), Arc::clone(&processes.pool));
    }

    pub(crate) async fn stop(self) {
        self.stop.token().cancel();
        let _ = self.server.await;
    }
}

fn pool(pools: &Pools, function: &str) -> Option<Arc<Pool>> {
    lock(pools).get(function).cloned()
}

async fn next(State(pools): State<Pools>, Path((function, worker)): Path<(String, u64)>) -> Response {
    let Some(pool) = pool(&pools, &function) else { return StatusCode::NOT_FOUND.into_response() };
    let Some(assignment) = pool.next(worker).await else { return StatusCode::GONE.into_response() };
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("lambda-runtime-trace-id", trace(&assignment.request_id)),
        ("lambda-runtime-aws-request-id", assignment.request_id),
        ("lambda-runtime-deadline-ms", assignment.deadline_ms.to_string()),
        ("lambda-runtime-invoked-function-arn", pool.arn.clone()),
    ];
    (headers, assignment.payload).into_response()
}

/// The trace of an invocation, which a function sends to `AWS_XRAY_DAEMON_ADDRESS` if it has one.
fn trace(request_id: &str) -> String {
    let digits = request_id.replace('-', "");
    let (time, rest) = digits.split_at_checked(8).unwrap_or_default();
    format!("Root=1-{time}-{rest};Parent={};Sampled=1", rest.get(..16).unwrap_or_default())
}

async fn response(
    State(pools): State<Pools>,
    Path((function, worker, id)): Path<(String, u64, String)>,
    body: Bytes,
) -> StatusCode {
    let reply = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
    finish(&pools, &function, worker, &id, reply.map_err(|error| InvokeError::Shape(format!("unreadable result: {error}"))))
}

async fn error(State(pools): State<Pools>, Path((function, worker, id)): Path<(String, u64, String)>, body: Bytes) -> StatusCode {
    finish(&pools, &function, worker, &id, Err(failure(&body)))
}

async fn init_error(Path((function, _)): Path<(String, u64)>, body: Bytes) -> StatusCode {
    tracing::error!(function, error = %failure(&body), "a function's process cannot start");
    StatusCode::ACCEPTED
}

fn finish(pools: &Pools, function: &str, worker: u64, id: &str, reply: Result<Value, InvokeError>) -> StatusCode {
    match pool(pools, function) {
        Some(pool) if pool.finish(worker, id, reply) => StatusCode::ACCEPTED,
        Some(_) => StatusCode::GONE,
        None => StatusCode::NOT_FOUND,
    }
}

fn failure(body: &[u8]) -> InvokeError {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    InvokeError::Failed { kind: text("errorType"), message: text("errorMessage") }
}
