//! A small HTTP server. It can close a connection instead of sending a response, as a network may do.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    response::IntoResponse as _,
};
use http::{Request, Response, StatusCode, request::Parts};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::gateway::guard::is_of_a_browser;

/// The time that open requests have to end when the server stops.
const DRAIN: Duration = Duration::from_secs(2);
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The response to a request. `None` closes the connection without a response.
pub(crate) type Reply = Option<Response<Body>>;

pub(crate) trait Serve: Clone + Send + Sync + 'static {
    /// Handles one request. The future is dropped when the client closes the connection.
    fn response(&self, parts: Parts, body: Bytes) -> impl Future<Output = Reply> + Send;
}

/// Serves until `stop`, then waits for open requests for a short time. A body over `limit` bytes gets 413.
pub(crate) async fn serve(listener: TcpListener, limit: usize, service: impl Serve, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, limit, service.clone(), stop.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(DRAIN, ended).await;
}

async fn connection(stream: TcpStream, limit: usize, service: impl Serve, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let respond = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move {
            let (parts, body) = request.into_parts();
            if is_of_a_browser(&parts.headers) {
                return Ok(StatusCode::FORBIDDEN.into_response());
            }
            let Ok(body) = axum::body::to_bytes(Body::new(body), limit).await else {
                return Ok(StatusCode::PAYLOAD_TOO_LARGE.into_response());
            };
            // An error closes the connection without a response.
            service.response(parts, body).await.ok_or("no response")
        }
    });
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), respond));
    // An error means that the client closed the connection, or that the response is to be lost.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Returns the access key that signs a request. Functions sign with the name of their binary.
pub(crate) fn access_key(parts: &Parts) -> Option<&str> {
    let authorization = parts.headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    authorization.split_once("Credential=")?.1.split('/').next()
}

pub(crate) fn operation(parts: &Parts) -> Option<&str> {
    parts.headers.get("x-amz-target")?.to_str().ok()?.rsplit('.').next()
}

pub(crate) fn json_response(status: u16, body: impl Into<Body>) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(http::header::CONTENT_TYPE, "application/x-amz-json-1.0")], body.into()).into_response()
}

/// The status of an error code of AWS.
pub(crate) fn status_of(code: &str) -> u16 {
    match code {
        "InternalServerError" | "InternalFailure" | "InternalError" | "InternalException" => 500,
        "ServiceUnavailable" => 503,
        _ => 400,
    }
}

/// Runs `work` to its end even if the client closes the connection, as a service does after it accepted a request.
pub(crate) async fn to_its_end(work: impl Future<Output = Reply> + Send + 'static) -> Reply {
    // The runtime logs a panic; the client sees a closed connection.
    tokio::spawn(work).await.unwrap_or_default()
}
