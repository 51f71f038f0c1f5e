//! The address of the stack: the HTTP API as API Gateway serves it, `/_local/…` for tests and people, a page at `/`,
//! and the reference of the API at `/docs`.

mod cors;
mod event;
pub(crate) mod guard;
mod live;
mod local;
mod page;
mod refusal;
mod routes;

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    middleware,
    response::Response,
    routing::{get, post},
};
use futures::StreamExt as _;
use http::{HeaderValue, StatusCode, header, request::Parts};
use serde_json::Value;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{Options, REQUESTS, core::Core, sqs::new_id};
use event::Caller;
use guard::Guard;
use refusal::Refusal;
use routes::Route;
pub(crate) use routes::Routes;

/// The largest body that API Gateway accepts, in bytes.
const BODY_LIMIT: usize = 10 << 20;
/// Bytes of a body that is too large which are read and dropped, so that the client receives the response.
const DRAIN_LIMIT: usize = 2 * BODY_LIMIT;

struct Gateway {
    core: Arc<Core>,
    routes: Routes,
    user_claim: String,
    /// Whether any word is a user, because claims have user ids of their own.
    mapped: bool,
    /// Executions of functions for requests that may begin.
    free: Semaphore,
}

/// Serves until `stop`.
pub(crate) fn serve(
    listener: TcpListener,
    core: Arc<Core>,
    routes: Routes,
    options: &Options,
    stop: CancellationToken,
) -> JoinHandle<()> {
    let user_claim = core.template.parameters.get("UserClaim").cloned().unwrap_or_else(|| "sub".to_owned());
    let mapped = core.template.parameters.get("UserIds").is_some_and(|kind| kind == "mapped");
    let origins = core.template.cors.as_ref().map_or_else(Vec::new, |cors| cors.allow_origins.clone());
    let free = Semaphore::new(options.concurrency.min(Semaphore::MAX_PERMITS));
    let hosts = options.hosts.clone();
    let gateway = Arc::new(Gateway { core, routes, user_claim, mapped, free });
    let app = page::routes()
        .route("/docs", get(page::reference))
        .route("/docs/redoc.standalone.js", get(page::renderer))
        .route("/openapi.yaml", get(page::openapi))
        .route("/_local/openapi.yaml", get(page::openapi))
        .route("/_local/status", get(local::status))
        .route("/_local/sources/{function}/pause", post(local::pause))
        .route("/_local/sources/{function}/resume", post(local::resume))
        .route("/_local/schedules/{function}", post(local::fire))
        .route("/_local/functions/{function}", post(local::invoke))
        .route("/_local/redis/flush", post(local::flush))
        .route("/_local/metrics", get(local::metrics))
        .route("/_local/environment", get(local::environment))
        .route("/_local/events", get(local::events))
        .route("/_local/weather", get(local::weather).put(local::set_weather))
        .route("/problems/{slug}", get(local::problem))
        .route(live::PATH, get(live::open).fallback(api))
        .route("/@connections/{id}", get(live::describe).post(live::post).delete(live::close))
        .fallback(api)
        .layer(middleware::from_fn_with_state(Guard { origins, hosts }, guard::check))
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
    let cors = gateway.core.template.cors.as_ref();
    let mut response = match cors.and_then(|cors| cors::preflight(cors, &parts)) {
        Some(response) => response,
        None => reply(&gateway, &parts, body, &request_id).await.unwrap_or_else(|refusal| refusal.response()),
    };
    if let Some(cors) = cors {
        cors::expose(cors, &parts.headers, &mut response);
    }
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert("apigw-requestid", id);
    }
    observe(&gateway, &parts, response, started.elapsed()).await
}

async fn reply(gateway: &Gateway, parts: &Parts, body: Body, request_id: &str) -> Result<Response, Refusal> {
    let (route, parameters) = gateway.routes.find(parts.method.as_str(), parts.uri.path()).ok_or(Refusal::NotFound)?;
    let caller = if route.http.authorized { Some(authorize(gateway, parts, route)?) } else { None };
    let body = read(body).await?;
    let unit = gateway.core.units.get(&route.function).ok_or(Refusal::NotFound)?;
    // A request that waited here would wait for seconds, and then be refused all the same.
    let _execution = gateway.free.try_acquire().map_err(|_| Refusal::Throttled)?;
    let event = event::request(parts, &body, route, &parameters, caller.as_ref(), &gateway.user_claim, request_id);
    let reply = gateway.core.invoke_as(unit, request_id, event).await.map_err(|_| Refusal::FunctionFailed)?;
    event::response(reply).ok_or_else(|| {
        tracing::error!(function = unit.function.binary, request_id, "the result is not an HTTP response");
        Refusal::FunctionFailed
    })
}

fn authorize(gateway: &Gateway, parts: &Parts, route: &Route) -> Result<Caller, Refusal> {
    if !parts.headers.contains_key(header::AUTHORIZATION) {
        return Err(Refusal::NoToken);
    }
    let caller = event::caller(&parts.headers, gateway.mapped).ok_or(Refusal::InvalidToken)?;
    let scopes = &route.http.scopes;
    let allowed = scopes.is_empty() || scopes.iter().any(|scope| caller.scopes.contains(scope));
    if allowed { Ok(caller) } else { Err(Refusal::MissingScope(scopes.clone())) }
}

async fn read(body: Body) -> Result<Bytes, Refusal> {
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
    if seen > BODY_LIMIT { Err(Refusal::BodyTooLarge) } else { Ok(kept.into()) }
}

/// Notes a request and its response. Responses to requests without a route are counted under the route `none`.
async fn observe(gateway: &Gateway, parts: &Parts, response: Response, took: Duration) -> Response {
    let (route, function) = match gateway.routes.find(parts.method.as_str(), parts.uri.path()) {
        Some((route, _)) => (route.key(), gateway.core.units.get(&route.function).map(|unit| &*unit.function.binary)),
        None => ("none".to_owned(), None),
    };
    let status = response.status();
    let degraded = response.headers().contains_key("degraded");
    gateway.core.metrics.request(&route, status.as_u16(), took, degraded);
    let (response, problem) = problem(response).await;
    tracing::info!(
        target: REQUESTS,
        method = parts.method.as_str(),
        path = parts.uri.path(),
        status = status.as_u16(),
        ms = took.as_secs_f64() * 1_000.0,
        function,
        problem,
        degraded,
    );
    response
}

/// The last segment of the problem's `type`, if the response is a problem.
async fn problem(response: Response) -> (Response, Option<String>) {
    if response.status() < StatusCode::BAD_REQUEST {
        return (response, None);
    }
    let (head, body) = response.into_parts();
    // The body is in memory already.
    let body = to_bytes(body, BODY_LIMIT).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Value>(&body).ok();
    let kind = problem.as_ref().and_then(|problem| problem["type"].as_str()?.rsplit('/').next().map(str::to_owned));
    (Response::from_parts(head, body.into()), kind)
}
