//! DynamoDB over HTTP: in calm, an operation goes straight to the engine; otherwise faults and weather come first.

use std::time::Duration;

use axum::body::Bytes;
use dynoxide::Database;
use http::request::Parts;
use serde_json::{Value, json};

use super::engine::{Response, perform};
use crate::{
    http_server::{Answer, Reply, access_key, json_response, operation, to_its_end},
    weather::{Call, FaultAction, Surroundings},
};

/// How long a killed invocation's request stays unanswered, so that the invocation never sees its connection closed.
const UNANSWERED: Duration = Duration::from_secs(1);

/// The endpoint's state.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) database: Database,
    pub(super) surroundings: Surroundings,
}

impl Answer for Service {
    async fn answer(&self, parts: Parts, body: Bytes) -> Reply {
        let (Some(operation), Ok(body)) = (operation(&parts), std::str::from_utf8(&body)) else {
            return Some(send(Response::error("SerializationException", "no operation, or a body that is not text")));
        };
        if self.surroundings.are_calm() {
            return Some(send(perform(&self.database, operation, body)));
        }
        let open = self.surroundings.open.enter();
        let (service, operation, body) = (self.clone(), operation.to_owned(), body.to_owned());
        let function = access_key(&parts).map(str::to_owned);
        to_its_end(async move {
            let reply = service.disturbed(function.as_deref(), &operation, &body).await;
            drop(open);
            reply.map(send)
        })
        .await
    }
}

impl Service {
    async fn disturbed(&self, function: Option<&str>, operation: &str, body: &str) -> Option<Response> {
        let act = || perform(&self.database, operation, body);
        let Some(fault) = self.surroundings.faults.take(&Call { function, operation, body }) else { return Some(act()) };
        match fault {
            FaultAction::FailBefore(code) => return Some(refusal(&code, body)),
            FaultAction::LeaveUnprocessed => return Some(unprocessed(operation, body)),
            FaultAction::DoLate(time) => tokio::time::sleep(time).await,
            _ => {}
        }
        let response = act();
        match fault {
            FaultAction::FailAfter(code) => return Some(refusal(&code, body)),
            FaultAction::LoseAnswer => return None,
            FaultAction::Hang(time) => tokio::time::sleep(time).await,
            FaultAction::Kill => {
                self.surroundings.faults.kill(function.unwrap_or_default());
                tokio::time::sleep(UNANSWERED).await;
                return None;
            }
            FaultAction::RunThen(callback) => callback().await,
            _ => {}
        }
        Some(response)
    }
}

fn send(response: Response) -> http::Response<axum::body::Body> {
    json_response(response.status, response.body)
}

/// An error that the test chose. A cancelled transaction names a conflict on each of its items.
fn refusal(code: &str, body: &str) -> Response {
    if code != "TransactionCanceledException" {
        return Response::error(code, "a planted fault");
    }
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let items = request.get("TransactItems").and_then(Value::as_array).map_or(0, Vec::len);
    cancelled(&vec![Some("TransactionConflict"); items])
}

/// A cancelled transaction: for each item a reason, or none.
pub(super) fn cancelled(reasons: &[Option<&str>]) -> Response {
    let codes: Vec<&str> = reasons.iter().map(|reason| reason.unwrap_or("None")).collect();
    let message = format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", "));
    let reasons: Vec<Value> = reasons
        .iter()
        .map(|reason| match reason {
            None => json!({ "Code": "None" }),
            Some("TransactionConflict") => {
                json!({ "Code": "TransactionConflict", "Message": "Transaction is ongoing for the item" })
            }
            Some(code) => json!({ "Code": code, "Message": "Throughput exceeds the current capacity of the item's partition" }),
        })
        .collect();
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    let body = json!({ "__type": kind, "Message": message, "CancellationReasons": reasons });
    Response { status: 400, body: body.to_string() }
}

/// A batch of which nothing was done.
fn unprocessed(operation: &str, body: &str) -> Response {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let items = request.get("RequestItems").cloned().unwrap_or_default();
    let body = match operation {
        "BatchGetItem" => json!({ "Responses": {}, "UnprocessedKeys": items }),
        "BatchWriteItem" => json!({ "UnprocessedItems": items }),
        _ => return Response::error("ValidationException", "only a batch can leave something unprocessed"),
    };
    Response { status: 200, body: body.to_string() }
}
