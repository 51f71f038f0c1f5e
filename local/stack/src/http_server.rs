//! A small HTTP server on a loopback port that can also close a connection instead of answering, as a network does.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{Request, Response, StatusCode, request::Parts};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::stop::Stop;

/// How long requests that are still open may take when the server ends.
const DRAIN: Duration = Duration::from_secs(2);
/// The pause after a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What a request is answered with. `None` closes the connection without an answer.
pub(crate) type Reply = Option<Response<Body>>;

/// Answers requests.
pub(crate) trait Answer: Clone + Send + Sync + 'static {
    /// Answers one request. The future is dropped when the caller closes the connection.
    fn answer(&self, parts: Parts, body: Bytes) -> impl Future<Output = Reply> + Send;
}

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct NoAnswer;

/// Serves on `listener` until `stop`, then lets open requests end for a moment. Bodies over `limit` bytes get 413.
pub(crate) async fn serve(listener: TcpListener, limit: usize, service: impl Answer, stop: Stop) {
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

async fn connection(stream: TcpStream, limit: usize, service: impl Answer, stop: Stop) {
    let _ = stream.set_nodelay(true);
    let respond = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = axum::body::to_bytes(Body::new(body), limit).await else {
                let mut refusal = Response::new(Body::empty());
                *refusal.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
                return Ok(refusal);
            };
            service.answer(parts, body).await.ok_or(NoAnswer)
        }
    });
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), respond));
    // An error is a caller that went away, or an answer that was to be lost.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// The access key that a request is signed with: functions sign with the name of their binary.
pub(crate) fn access_key(parts: &Parts) -> Option<&str> {
    let authorization = parts.headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    authorization.split_once("Credential=")?.1.split('/').next()
}

/// The operation that a request of the AWS JSON protocol names.
pub(crate) fn operation(parts: &Parts) -> Option<&str> {
    parts.headers.get("x-amz-target")?.to_str().ok()?.rsplit('.').next()
}

/// A response of the AWS JSON protocol.
pub(crate) fn json_response(status: u16, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = http::HeaderValue::from_static("application/x-amz-json-1.0");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Runs to its end even if the caller goes away meanwhile, as a service that has taken a request does.
pub(crate) async fn to_its_end(work: impl Future<Output = Reply> + Send + 'static) -> Reply {
    // A panic is logged by the runtime; the caller sees a closed connection.
    tokio::spawn(work).await.unwrap_or_default()
}
