//! DynamoDB over HTTP. Faults and weather act before the engine. In calm weather, an operation goes straight to it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::body::Bytes;
use dynoxide::Database;
use http::request::Parts;
use serde_json::{Value, json};
use tidemark::facts::{item::Attribute, schema::PostItem};

use super::{
    access::{Access, Form, Schema, part},
    engine::{Response, perform},
    limits::{Conflict, Ongoings, Partitions, Transactions, consumed},
    streams::StreamLog,
    tokens::{Tokens, once},
};
use crate::{
    http_server::{Reply, Serve, access_key, json_response, operation, to_its_end},
    metrics::Metrics,
    template::Template,
    weather::{Call, Surroundings, Weather},
};

/// Median and 99th percentile of the latency of a request.
const READ_LATENCY: (Duration, Duration) = (Duration::from_millis(3), Duration::from_millis(20));
const WRITE_LATENCY: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(20));

/// In a storm, the probabilities that a request fails before it is done, that its response is lost (half of them as
/// an error 500, half as a closed connection), and that an item of a batch is left unprocessed.
const STORM_FAILS: f64 = 0.02;
const STORM_LOSES: f64 = 0.03;
const STORM_LEAVES: f64 = 0.02;

#[derive(Clone)]
pub(super) struct Service {
    database: Database,
    log: Arc<StreamLog>,
    schema: Arc<Schema>,
    partitions: Arc<Partitions>,
    transactions: Transactions,
    tokens: Arc<Mutex<Tokens>>,
    surroundings: Surroundings,
    metrics: Arc<Metrics>,
}

/// The response, or `None` if it is lost. The request's items count as being written until the second part is dropped.
type Outcome = (Option<Response>, Option<Ongoings>);

impl Serve for Service {
    async fn response(&self, parts: Parts, body: Bytes) -> Reply {
        let (Some(operation), Ok(body)) = (operation(&parts), std::str::from_utf8(&body)) else {
            return Some(send(Response::error("SerializationException", "the operation is missing, or the body is not UTF-8")));
        };
        if self.surroundings.are_calm() {
            return Some(send(self.perform(operation, body)));
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
    pub(super) fn new(
        database: Database,
        log: Arc<StreamLog>,
        template: &Template,
        surroundings: Surroundings,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (partitions, transactions, tokens) = (Arc::default(), Transactions::default(), Arc::default());
        let schema = Arc::new(Schema::of(template));
        Self { database, log, schema, partitions, transactions, tokens, surroundings, metrics }
    }

    /// Performs an operation. The update that finishes a delivery is also measured.
    fn perform(&self, operation: &str, body: &str) -> Response {
        let response = match operation {
            "TransactWriteItems" => once(&self.tokens, body, |body| perform(&self.database, operation, body)),
            _ => perform(&self.database, operation, body),
        };
        if ["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"].contains(&operation) {
            self.log.wrote();
        }
        let finishes = operation == "UpdateItem" && response.is_ok() && body.contains(PostItem::finished_at.name());
        if let Some(lag) = finishes.then(|| self.delivery_lag(body)).flatten() {
            self.metrics.delivery(lag);
        }
        response
    }

    /// The time from the publish of a post to the end of its delivery, as the post's item has both.
    fn delivery_lag(&self, update: &str) -> Option<Duration> {
        let update: Value = serde_json::from_str(update).ok()?;
        let request = json!({ "TableName": update["TableName"], "Key": update["Key"] });
        let response: Value = serde_json::from_str(&perform(&self.database, "GetItem", &request.to_string()).body).ok()?;
        let time = |attribute: Attribute| response["Item"][attribute.name()]["N"].as_str()?.parse().ok();
        let (published, finished): (u64, u64) = (time(PostItem::at)?, time(PostItem::finished_at)?);
        Some(Duration::from_millis(finished.saturating_sub(published)))
    }

    /// Performs a request under the weather, and under a planted fault if one matches.
    async fn disturbed(&self, function: Option<&str>, operation: &str, body: &str) -> Option<Response> {
        let faults = &self.surroundings.faults;
        let Some(fault) = faults.take(&Call { function, operation, body }) else {
            return self.in_weather(operation, body).await.0;
        };
        let request = self.in_weather(operation, body);
        faults.apply(fault, function, request, |code| refusal(code, body), || unprocessed(operation, body)).await
    }

    /// Applies latency, limits and conflicts, and in a storm errors and lost responses.
    async fn in_weather(&self, operation: &str, body: &str) -> Outcome {
        let conditions = &*self.surroundings.conditions;
        if conditions.weather() == Weather::Calm {
            return (Some(self.perform(operation, body)), None);
        }
        let mut request: Value = serde_json::from_str(body).unwrap_or_default();
        let Some(access) = Access::of(&self.schema, operation, &request).filter(|_| request.is_object()) else {
            return (Some(self.perform(operation, body)), None);
        };
        let (median, p99) = if access.writes { WRITE_LATENCY } else { READ_LATENCY };
        let latency = conditions.log_normal(median, p99) * conditions.slowdown();
        if conditions.storm(STORM_FAILS) {
            tokio::time::sleep(latency).await;
            return (Some(failure()), None);
        }
        let token = request.get("ClientRequestToken").and_then(Value::as_str);
        let ongoing = match self.transactions.begin(&access, token) {
            Ok(ongoing) => ongoing,
            Err(conflict) => {
                tokio::time::sleep(latency).await;
                return (Some(met(&conflict, access.form)), None);
            }
        };
        tokio::time::sleep(latency).await;
        let left = match self.throttle(&access, &mut request) {
            Ok(left) => left,
            Err(throttled) => {
                conditions.consumption().throttled += 1;
                return (Some(throttled), None);
            }
        };
        let response = self.measured(operation, request, &access, left);
        let lost = conditions.storm(STORM_LOSES);
        let response = match (lost, lost && conditions.chance(0.5)) {
            (true, true) => Some(failure()),
            (true, false) => None,
            (false, _) => Some(response),
        };
        (response, Some(ongoing))
    }

    /// Refuses a request if a partition is exhausted. A batch is refused only if none of its items can be processed.
    /// Otherwise its unprocessed items are removed from the request and returned.
    fn throttle(&self, access: &Access, request: &mut Value) -> Result<Value, Response> {
        let (conditions, write) = (&self.surroundings.conditions, access.writes);
        let exhausted = |partition: &str| self.partitions.is_exhausted(partition, write, conditions.now());
        if access.form == Form::Batch {
            let (doing, left) = part(&self.schema, request, |touched| {
                exhausted(&touched.partition) || conditions.storm(STORM_LEAVES) || (write && self.transactions.is_in_one(touched))
            });
            if doing.as_object().is_some_and(serde_json::Map::is_empty) {
                return Err(throttled());
            }
            request["RequestItems"] = doing;
            return Ok(left);
        }
        let refused: Vec<bool> = access.touched.iter().map(|touched| exhausted(&touched.partition)).collect();
        if !refused.contains(&true) {
            return Ok(Value::Null);
        }
        let message = "Throughput exceeds the current capacity of the item's partition";
        Err(if access.form == Form::Transaction { cancelled(&refused, "ThrottlingError", message) } else { throttled() })
    }

    /// Performs an operation, charges its partitions, and adds the unprocessed items of a batch to the response.
    fn measured(&self, operation: &str, mut request: Value, access: &Access, left: Value) -> Response {
        let asked = request.get("ReturnConsumedCapacity").and_then(Value::as_str).is_some_and(|mode| mode != "NONE");
        if !asked {
            request["ReturnConsumedCapacity"] = json!("INDEXES");
        }
        let mut response = self.perform(operation, &request.to_string());
        let mut body: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let conditions = &self.surroundings.conditions;
        self.partitions.charge(access, &consumed(&body), conditions.now(), &mut conditions.consumption());
        if !response.is_ok() {
            return response;
        }
        if let Some(fields) = body.as_object_mut() {
            if !asked {
                fields.remove("ConsumedCapacity");
            }
            if access.form == Form::Batch {
                let name = if access.writes { "UnprocessedItems" } else { "UnprocessedKeys" };
                fields.insert(name.to_owned(), left);
            }
        }
        response.body = body.to_string();
        response
    }
}

fn failure() -> Response {
    Response::error("InternalServerError", "Internal server error")
}

const ONGOING: &str = "Transaction is ongoing for the item";

/// The response to a request that conflicts with a transaction.
fn met(conflict: &Conflict, form: Form) -> Response {
    match conflict {
        Conflict::InProgress => Response::error(
            "TransactionInProgressException",
            "The transaction with the given request token is already in progress.",
        ),
        Conflict::Items(items) if form == Form::Transaction => cancelled(items, "TransactionConflict", ONGOING),
        Conflict::Items(_) => Response::error("TransactionConflictException", ONGOING),
    }
}

fn throttled() -> Response {
    let message =
        "Throughput exceeds the current capacity of a partition of the table: 1,000 write and 3,000 read units a second.";
    Response::error("ThrottlingException", message)
}

fn send(response: Response) -> http::Response<axum::body::Body> {
    json_response(response.status, response.body)
}

/// An error that a test planted. A cancelled transaction reports a conflict on each of its items.
fn refusal(code: &str, body: &str) -> Response {
    if code != "TransactionCanceledException" {
        return Response::error(code, "a planted fault");
    }
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let items = request.get("TransactItems").and_then(Value::as_array).map_or(0, Vec::len);
    cancelled(&vec![true; items], "TransactionConflict", ONGOING)
}

/// A cancelled transaction. The items that are true have this reason.
fn cancelled(items: &[bool], code: &str, reason: &str) -> Response {
    let codes: Vec<&str> = items.iter().map(|is_reason| if *is_reason { code } else { "None" }).collect();
    let message = format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", "));
    let detail =
        |is_reason: &bool| if *is_reason { json!({ "Code": code, "Message": reason }) } else { json!({ "Code": "None" }) };
    let reasons: Vec<Value> = items.iter().map(detail).collect();
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    let body = json!({ "__type": kind, "Message": message, "CancellationReasons": reasons });
    Response { status: 400, body: body.to_string() }
}

/// The response to a batch of which no item was processed.
fn unprocessed(operation: &str, body: &str) -> Response {
    let request: Value = serde_json::from_str(body).unwrap_or_default();
    let items = request.get("RequestItems").cloned().unwrap_or_default();
    let body = match operation {
        "BatchGetItem" => json!({ "Responses": {}, "UnprocessedKeys": items }),
        "BatchWriteItem" => json!({ "UnprocessedItems": items }),
        _ => return Response::error("ValidationException", "only a batch can leave items unprocessed"),
    };
    Response { status: 200, body: body.to_string() }
}
