//! The WebSocket API, and the endpoint that manages its connections, as API Gateway serves them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{
        FromRequestParts, Path, Request, State,
        ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade},
    },
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{StatusCode, header};
use serde_json::{Value, json};
use tidemark::http::live::listed_platforms;
use tokio::{sync::mpsc::unbounded_channel, time::Instant};

use super::{Gateway, api, event, refusal::Refusal};
use crate::{
    clock,
    connections::{Open, Order},
    sqs::new_id,
    template::ACCOUNT,
};

/// The path of the WebSocket API. A deployment has an address of its own for it.
pub(super) const PATH: &str = "/v1/live";

/// Limits of API Gateway.
const LONGEST_IDLE: Duration = Duration::from_secs(10 * 60);
const LONGEST_LIFE: Duration = Duration::from_secs(2 * 3600);
const MOST_BYTES: usize = 128 * 1024;
const MOST_FRAME_BYTES: usize = 32 * 1024;

/// The fields that all events of a connection share.
struct Connection {
    id: String,
    connected_at: u64,
    claim: String,
    /// The platforms that the claims list, as JSON.
    platforms: String,
    host: String,
    user_agent: String,
}

impl Connection {
    /// The context of an event, as API Gateway builds it.
    fn context(&self, route: &str, kind: &str, request_id: &str) -> Value {
        json!({
            "routeKey": route,
            "eventType": kind,
            "messageDirection": "IN",
            "connectionId": self.id,
            "connectedAt": self.connected_at,
            "requestId": request_id,
            "extendedRequestId": request_id,
            "requestTimeEpoch": clock::now_ms(),
            "requestTime": clock::rfc3339(clock::now_seconds()),
            "stage": "live",
            "apiId": "local",
            "accountId": ACCOUNT,
            "domainName": self.host,
            "identity": { "sourceIp": "127.0.0.1", "userAgent": self.user_agent },
            "authorizer": {
                "principalId": self.claim, "claim": self.claim, "platforms": self.platforms, "integrationLatency": 0,
            },
        })
    }
}

/// `GET /v1/live?token=…` with an upgrade. Any other request goes to the HTTP API.
pub(super) async fn open(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &()).await else {
        return api(State(gateway), Request::from_parts(parts, body)).await;
    };
    let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let query: BTreeMap<String, String> = query.into_owned().collect();
    let caller = match authorize(&gateway, query.get("token").map_or("", String::as_str)) {
        Ok(caller) => caller,
        Err(refusal) => return refusal.response(),
    };
    let claims = caller.claims.into_iter().map(|(name, value)| (name, Value::String(value)));
    let connection = Connection {
        id: new_id().replace('-', "")[..15].to_owned() + "=",
        connected_at: clock::now_ms(),
        claim: caller.user,
        platforms: listed_platforms(&claims.collect()),
        host: event::text(&parts.headers, &header::HOST).to_owned(),
        user_agent: event::text(&parts.headers, &header::USER_AGENT).to_owned(),
    };
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())));
    let headers: BTreeMap<_, _> = headers.collect();
    let response = invoke(&gateway, "$connect", |request_id| {
        json!({
            "headers": headers,
            "queryStringParameters": query,
            "requestContext": connection.context("$connect", "CONNECT", request_id),
            "isBase64Encoded": false,
        })
    });
    match response.await.as_ref().and_then(|response| response["statusCode"].as_u64()) {
        Some(200..=299) => {}
        Some(status) => {
            let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
            return status.unwrap_or(StatusCode::BAD_GATEWAY).into_response();
        }
        None => return Refusal::FunctionFailed.response(),
    }
    let upgrade = upgrade.max_message_size(MOST_BYTES).max_frame_size(MOST_FRAME_BYTES);
    upgrade.on_upgrade(move |socket| serve(gateway, connection, socket))
}

/// Plays the authorizer's part: the local stack accepts a user instead of a signed token.
fn authorize(gateway: &Gateway, token: &str) -> Result<event::Caller, Refusal> {
    if token.is_empty() {
        return Err(Refusal::NoToken);
    }
    let caller = event::named(token, gateway.mapped).ok_or(Refusal::InvalidToken)?;
    match gateway.core.template.parameters.get("JwtScope").filter(|scope| !scope.is_empty()) {
        Some(scope) if !caller.scopes.contains(scope) => Err(Refusal::MissingScope(vec![scope.clone()])),
        _ => Ok(caller),
    }
}

/// Invokes the function of a route; `None` if it fails.
async fn invoke(gateway: &Gateway, route: &str, event: impl FnOnce(&str) -> Value) -> Option<Value> {
    let function = gateway.core.template.live.get(route)?;
    let unit = gateway.core.units.get(function)?;
    let request_id = new_id();
    gateway.core.invoke_as(unit, &request_id, event(&request_id)).await.ok()
}

/// Serves a connection until it ends, and then tells the function.
async fn serve(gateway: Arc<Gateway>, connection: Connection, mut socket: WebSocket) {
    let (orders, mut received) = unbounded_channel();
    let open = Open {
        orders,
        connected_at: connection.connected_at,
        active_at: connection.connected_at,
        user_agent: connection.user_agent.clone(),
    };
    gateway.core.connections.open().insert(connection.id.clone(), open);
    let end = Instant::now() + LONGEST_LIFE;
    let mut idle = Instant::now() + LONGEST_IDLE;
    let dropped = loop {
        tokio::select! {
            order = received.recv() => match order {
                Some(Order::Send(text)) => {
                    idle = Instant::now() + LONGEST_IDLE;
                    if socket.send(Message::Text(text.into())).await.is_err() {
                        break false;
                    }
                }
                Some(Order::Close) => {
                    let _ = socket.send(close_frame(1000, "closed by the server")).await;
                    break false;
                }
                Some(Order::Drop) | None => break true,
            },
            message = socket.recv() => {
                let (text, binary) = match message {
                    Some(Ok(Message::Text(text))) => (text.to_string(), false),
                    Some(Ok(Message::Binary(bytes))) => (STANDARD.encode(&bytes), true),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => break false,
                };
                idle = Instant::now() + LONGEST_IDLE;
                if let Some(open) = gateway.core.connections.open().get_mut(&connection.id) {
                    open.active_at = clock::now_ms();
                }
                if let Some(response) = receive(&gateway, &connection, text, binary).await
                    && socket.send(Message::Text(response.into())).await.is_err()
                {
                    break false;
                }
            }
            () = tokio::time::sleep_until(idle.min(end)) => {
                let _ = socket.send(close_frame(1001, "Going away")).await;
                break false;
            }
        }
    };
    gateway.core.connections.open().remove(&connection.id);
    if !dropped {
        let event = |request_id: &str| {
            let mut context = connection.context("$disconnect", "DISCONNECT", request_id);
            context["disconnectStatusCode"] = json!(1005);
            json!({ "headers": {}, "requestContext": context, "isBase64Encoded": false })
        };
        invoke(&gateway, "$disconnect", event).await;
    }
}

fn close_frame(code: u16, reason: &'static str) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// Invokes the function for a message. Returns what the client gets.
async fn receive(gateway: &Gateway, connection: &Connection, text: String, binary: bool) -> Option<String> {
    let event = |request_id: &str| {
        let mut context = connection.context("$default", "MESSAGE", request_id);
        context["messageId"] = json!(request_id);
        json!({ "requestContext": context, "body": text, "isBase64Encoded": binary })
    };
    match invoke(gateway, "$default", event).await {
        Some(response) => response["body"].as_str().map(str::to_owned),
        None => Some(json!({ "message": "Internal server error", "connectionId": connection.id }).to_string()),
    }
}

fn refused(status: StatusCode, kind: &'static str, message: &str) -> Response {
    (status, [("x-amzn-errortype", kind)], Json(json!({ "message": message }))).into_response()
}

fn gone() -> Response {
    refused(StatusCode::GONE, "GoneException", "Gone")
}

/// `POST /@connections/{id}`: sends the body to a connection.
pub(super) async fn post(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>, body: Bytes) -> Response {
    if body.len() > MOST_BYTES {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLargeException", "Message too long");
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    if gateway.core.connections.order(&id, Order::Send(text)) { StatusCode::OK.into_response() } else { gone() }
}

/// `GET /@connections/{id}`.
pub(super) async fn describe(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Response {
    match gateway.core.connections.open().get(&id) {
        Some(open) => Json(json!({
            "connectedAt": clock::rfc3339(open.connected_at / 1_000),
            "lastActiveAt": clock::rfc3339(open.active_at / 1_000),
            "identity": { "sourceIp": "127.0.0.1", "userAgent": open.user_agent },
        }))
        .into_response(),
        None => gone(),
    }
}

/// `DELETE /@connections/{id}`: closes a connection.
pub(super) async fn close(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Response {
    if gateway.core.connections.order(&id, Order::Close) { StatusCode::NO_CONTENT.into_response() } else { gone() }
}
