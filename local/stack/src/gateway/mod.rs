//! The address of the stack: the HTTP API as API Gateway serves it, `/_local/…` for tests and people, a page at `/`, and
//! the reference of the API at `/docs`.

mod event;
mod local;
mod observe;
mod page;
mod problem;
mod reference;
mod routes;

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    response::Response,
    routing::{get, post},
};
use futures::StreamExt as _;
use http::{HeaderValue, request::Parts};
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{core::Core, runner::InvokeError, sqs::new_id};
use problem::Problem;
use routes::Found;
pub(crate) use routes::Routes;

/// The largest accepted body, in bytes.
const BODY_LIMIT: usize = 256 * 1024;
/// Bytes of a body that is too large which are read and dropped, so that the client receives the response.
const DRAIN_LIMIT: usize = 8 << 20;

#[derive(Debug)]
struct Gateway {
    core: Arc<Core>,
    routes: Routes,
    user_claim: String,
    /// Whether any word is a user, because claims have user ids of their own.
    mapped: bool,
}

pub(crate) fn serve(listener: TcpListener, core: Arc<Core>, routes: Routes, stop: CancellationToken) -> JoinHandle<()> {
    let user_claim = core.template.parameters.get("UserClaim").cloned().unwrap_or_else(|| "sub".to_owned());
    let mapped = core.template.parameters.get("UserIds").is_some_and(|kind| kind == "mapped");
    let gateway = Arc::new(Gateway { core, routes, user_claim, mapped });
    let app = page::routes()
        .route("/docs", get(reference::page))
        .route("/docs/redoc.standalone.js", get(reference::renderer))
        .route("/openapi.yaml", get(reference::openapi))
        .route("/_local/openapi.yaml", get(reference::openapi))
        .route("/_local/status", get(local::status))
        .route("/_local/sources/{function}/pause", post(local::pause))
        .route("/_local/sources/{function}/resume", post(local::resume))
        .route("/_local/schedules/{function}", post(local::fire))
        .route("/_local/functions/{function}", post(local::invoke))
        .route("/_local/redis/flush", post(local::flush))
        .route("/_local/metrics", get(local::metrics))
        .route("/_local/environment", get(local::environment))
        .route("/_local/weather", get(local::weather).put(local::set_weather))
        .fallback(api)
        .with_state(gateway);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await {
            tracing::error!(%error, "the gateway failed");
        }
    })
}

async fn api(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let started = Instant::now();
    let request_id = new_id();
    let (parts, body) = request.into_parts();
    let mut response = match answer(&gateway, &parts, body, &request_id).await {
        Ok(response) => response,
        Err(problem) => problem.response(&request_id),
    };
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert("apigw-requestid", id);
    }
    observe::request(&gateway, &parts, response, started.elapsed()).await
}

async fn answer(gateway: &Gateway, parts: &Parts, body: Body, request_id: &str) -> Result<Response, Problem> {
    let (route, parameters) = match gateway.routes.find(parts.method.as_str(), parts.uri.path()) {
        Found::Route(route, parameters) => (route, parameters),
        Found::OtherMethods(methods) => return Err(Problem::MethodNotAllowed(methods.into_iter().map(str::to_owned).collect())),
        Found::Nothing => return Err(Problem::NotFound),
    };
    let caller = event::caller(&parts.headers, gateway.mapped);
    if route.authorized && caller.is_none() {
        return Err(Problem::Unauthorized);
    }
    let caller = caller.filter(|_| route.authorized);
    let body = read(body).await?;
    let unit = gateway.core.units.get(&route.function).ok_or(Problem::NotFound)?;
    let event = event::request(parts, &body, route, &parameters, caller.as_ref(), &gateway.user_claim, request_id);
    let answer = gateway.core.invoke_as(unit, request_id, event).await.map_err(|error| match error {
        InvokeError::TimedOut(_) => Problem::TimedOut,
        _ => Problem::Internal,
    })?;
    event::response(answer).ok_or_else(|| {
        tracing::error!(function = unit.function.binary, request_id, "the result is not an HTTP response");
        Problem::Internal
    })
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    let mut stream = body.into_data_stream();
    let (mut kept, mut seen) = (Vec::new(), 0);
    while let Some(chunk) = stream.next().await {
        let Ok(chunk) = chunk else { break };
        seen += chunk.len();
        if seen > DRAIN_LIMIT {
            break;
        }
        if seen <= BODY_LIMIT {
            kept.extend_from_slice(&chunk);
        }
    }
    if seen > BODY_LIMIT { Err(Problem::BodyTooLarge(BODY_LIMIT)) } else { Ok(kept.into()) }
}
