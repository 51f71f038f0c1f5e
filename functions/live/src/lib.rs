//! Live connections: registers them, responds to their pings, and builds the messages that tell them the counts.
//!
//! It has two kinds of events. The routes of the WebSocket API (`$connect`, `$disconnect`, `$default`) come from API
//! Gateway. The tasks of the live queue come from workers, from marks and from this function. The messages that it
//! builds go to the function `live-sender`, because this one runs in the VPC, which has no route to the connections.

mod connections;

use std::convert::Infallible;

use aws_lambda_events::{
    apigw::ApiGatewayWebsocketProxyRequest,
    sqs::{SqsBatchResponse, SqsEvent, SqsMessage},
};
use futures::{StreamExt, stream};
use lambda_runtime::LambdaEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemark::{App, queue};
use tracing::warn;

/// Messages of one event that are processed concurrently.
const PARALLEL: usize = 5;

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Event {
    Tasks(SqsEvent),
    Connection(Box<ApiGatewayWebsocketProxyRequest>),
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Response {
    Tasks(SqsBatchResponse),
    /// A status, and a message to the client in its body.
    Connection(Value),
}

/// Runs the tasks of an event, or handles an event of a connection.
pub async fn handle(app: &App, event: LambdaEvent<Event>) -> Result<Response, Infallible> {
    let LambdaEvent { payload, context } = event;
    let invocation = app.invocation(&context);
    Ok(match payload {
        Event::Tasks(event) => {
            let records = event.records.len();
            let failed = stream::iter(event.records).map(|message| work(app, message)).buffer_unordered(PARALLEL);
            let mut response = SqsBatchResponse::default();
            response.set_failures(failed.filter_map(async |id| id).collect::<Vec<_>>().await);
            invocation.worked(records, response.batch_item_failures.len());
            Response::Tasks(response)
        }
        Event::Connection(event) => {
            let route = event.request_context.route_key.clone().unwrap_or_default();
            let reply = connections::response(app, *event).await;
            invocation.responded(route, reply.status, reply.degraded);
            Response::Connection(reply.into_response())
        }
    })
}

/// Runs the task in a message. Returns the id of the message if it failed.
async fn work(app: &App, message: SqsMessage) -> Option<String> {
    let (id, task) = match queue::received(message.message_id, message.body) {
        Ok(received) => received,
        Err(id) => return Some(id),
    };
    let error = app.live.run(&task, queue::is_repeated(&message.attributes)).await.err()?;
    warn!(message_id = id, error = &error as &dyn std::error::Error, "connections not told, the queue repeats the message");
    Some(id)
}
