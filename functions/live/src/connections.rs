//! The routes of the WebSocket API.

use aws_lambda_events::apigw::ApiGatewayWebsocketProxyRequest;
use serde_json::{Value, json};
use tidemark::{
    App, Denied, ErasedCallers, Price,
    domain::{Budget, Platform, Store, StoreError, UserId},
    http::live::{CLAIM, PLATFORMS, Ping, Refusal, ServerMessage, parse_ping, platforms_of},
};
use tracing::{info, warn};

#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Whether Redis was unavailable.
    pub(crate) degraded: bool,
    message: Option<ServerMessage>,
}

impl Response {
    fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    fn message(message: ServerMessage) -> Self {
        Self { status: 200, message: Some(message), ..Self::default() }
    }

    pub(crate) fn into_response(self) -> Value {
        match self.message {
            Some(message) => json!({ "statusCode": self.status, "body": message.to_json() }),
            None => json!({ "statusCode": self.status }),
        }
    }
}

pub(crate) async fn response(app: &App, event: ApiGatewayWebsocketProxyRequest) -> Response {
    let context = event.request_context;
    let connection = context.connection_id.unwrap_or_default();
    // API Gateway keeps what the authorizer returned for the connection, and sends it with each of its events.
    let authorized = |name| context.authorizer.fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let claim = authorized(CLAIM);
    let user = match app.admission.caller_of(claim).await {
        Ok(Some(user)) => user,
        Ok(None) => {
            info!(connection, "the token names no user");
            return Response::status(401);
        }
        Err(error) => {
            warn!(connection, error = &error as &dyn std::error::Error, "the user of a connection is unknown");
            return unavailable(&error);
        }
    };
    match context.route_key.as_deref() {
        Some("$connect") => connect(app, user, &connection).await,
        Some("$disconnect") => {
            if let Err(error) = app.live.disconnect(user, &connection).await {
                let error = &error as &dyn std::error::Error;
                warn!(%user, connection, error, "a closed connection stays registered until it expires");
            }
            Response::status(200)
        }
        _ => {
            let counts = app.admission.platforms_claim.as_deref();
            let visible = counts.map(|claim| platforms_of(authorized(PLATFORMS), claim));
            let text = event.body.as_deref().unwrap_or_default();
            receive(app, user, &connection, (text, visible.as_deref())).await
        }
    }
}

/// Takes tokens from the user's bucket of reads: a ping reads the counts, and those of the platforms that it names.
/// Returns the response to a refused one.
async fn refused(app: &App, user: UserId, tokens: usize) -> Option<Response> {
    let price = Price { budget: Budget::Reads, tokens: u32::try_from(tokens).unwrap_or(u32::MAX) };
    let refusal = app.admission.access.as_ref()?.pass(user, price, ErasedCallers::Refused).await.err()?;
    let (status, refusal, detail) = match refusal {
        Denied::OverLimit(_) => (429, Refusal::TooManyRequests, "too many messages in a minute"),
        Denied::Erased => (403, Refusal::Erased, "the caller has asked to leave"),
        Denied::Unknown(error) => return Some(unavailable(&error)),
    };
    Some(Response { status, message: Some(ServerMessage::error(refusal, detail)), ..Response::default() })
}

async fn connect(app: &App, user: UserId, connection: &str) -> Response {
    if let Some(refused) = refused(app, user, 1).await {
        return refused;
    }
    match app.live.connect(user, connection).await {
        Ok(()) => Response::status(200),
        Err(error) if error.store() == Store::Views => {
            // The first ping after Redis is back registers the connection.
            warn!(%user, connection, error = &error as &dyn std::error::Error, "a connection is not registered");
            Response { degraded: true, ..Response::status(200) }
        }
        Err(error) => {
            warn!(%user, connection, error = &error as &dyn std::error::Error, "a connection is refused");
            unavailable(&error)
        }
    }
}

/// Responds to a message of a client. `visible` are the platforms whose notices the caller may see; `None` if all.
async fn receive(app: &App, user: UserId, connection: &str, (text, visible): (&str, Option<&[Platform]>)) -> Response {
    let ping = parse_ping(text);
    let named = ping.as_ref().map_or(0, |ping| ping.platforms.iter().flatten().count());
    if let Some(refused) = refused(app, user, named.max(1)).await {
        return Response { status: 200, ..refused };
    }
    let Ping { platforms } = match ping {
        Ok(ping) => ping,
        Err(detail) => return Response::message(ServerMessage::error(Refusal::InvalidMessage, detail)),
    };
    let hidden = platforms.iter().flatten().find(|platform| visible.is_some_and(|visible| !visible.contains(platform)));
    if let Some(platform) = hidden {
        let detail = format!("the token does not list platform {platform}");
        return Response::message(ServerMessage::error(Refusal::Forbidden, detail));
    }
    match app.live.ping(user, connection, platforms.as_deref()).await {
        Ok(()) => Response::message(ServerMessage::Pong),
        Err(error) => {
            warn!(%user, connection, error = &error as &dyn std::error::Error, "a connection is not renewed");
            unavailable(&error)
        }
    }
}

/// A refusal that the client repeats later. `$connect` uses the status, `$default` the message.
fn unavailable(error: &StoreError) -> Response {
    let message = ServerMessage::error(Refusal::Unavailable, format!("{error}; send the ping again"));
    Response { status: 503, degraded: error.store() == Store::Views, message: Some(message) }
}
