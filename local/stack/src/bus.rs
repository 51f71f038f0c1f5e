//! EventBridge on a loopback port: `PutEvents`, and a list of all events on disk that `GET /_local/events` returns.
//!
//! Differences from EventBridge: there are no rules and no other operations, any name is that of a bus, and an event
//! that is sent again is in the list once. Its id is the `id` in its detail.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, Result};
use axum::body::{Body, Bytes};
use http::{Response, request::Parts};
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    http_server::{self, Reply, Serve, access_key, operation, status_of, to_its_end},
    lock::lock,
    sqs::new_id,
    store::Store,
    weather::{Call, Surroundings},
};

/// The largest number of entries of a request, and of their bytes.
const MOST_ENTRIES: usize = 10;
const MOST_BYTES: usize = 262_144;

/// Larger than any request that EventBridge accepts, escaped.
const BODY_LIMIT: usize = 4 << 20;

/// In a storm, the probabilities that a request is not done, that an entry fails, and of a lost response.
const STORM_FAILS: f64 = 0.02;
const STORM_LEAVES: f64 = 0.03;
const STORM_LOSES: f64 = 0.03;

/// The events that were accepted.
pub(crate) struct Bus {
    store: Arc<Store>,
    reader: Mutex<Connection>,
}

impl Bus {
    /// `path` is the file of the store.
    pub(crate) fn open(store: Arc<Store>, path: &Path) -> Result<Self> {
        let reader = Connection::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { store, reader: Mutex::new(reader) })
    }

    /// Returns the events after the one with this id, or all, oldest first; `None` if there is no such event.
    pub(crate) fn after(&self, id: Option<&str>) -> rusqlite::Result<Option<Vec<Value>>> {
        let reader = lock(&self.reader);
        let position: Option<i64> = match id {
            None => Some(0),
            Some(id) => reader.query_row("SELECT position FROM events WHERE id = ?1", [id], |row| row.get(0)).optional()?,
        };
        let Some(position) = position else { return Ok(None) };
        let sql = "SELECT id, detail_type, detail FROM events WHERE position > ?1 ORDER BY position";
        let mut statement = reader.prepare_cached(sql)?;
        let rows = statement.query_map([position], |row| {
            let (id, detail_type, detail): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let detail = serde_json::from_str::<Value>(&detail).unwrap_or_default();
            Ok(json!({ "id": id, "detail-type": detail_type, "detail": detail }))
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>().map(Some)
    }
}

#[derive(Clone)]
struct Service {
    bus: Arc<Bus>,
    surroundings: Surroundings,
}

pub(crate) async fn bind() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot bind a loopback port for the event bus")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    Ok((listener, endpoint))
}

pub(crate) fn serve(listener: TcpListener, bus: Arc<Bus>, surroundings: Surroundings, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(http_server::serve(listener, BODY_LIMIT, Service { bus, surroundings }, stop))
}

impl Serve for Service {
    async fn response(&self, parts: Parts, body: Bytes) -> Reply {
        if self.surroundings.are_calm() {
            let text = std::str::from_utf8(&body).unwrap_or_default();
            return Some(self.handle(operation(&parts).unwrap_or_default(), text, |_| false).await);
        }
        let service = self.clone();
        to_its_end(async move { service.disturbed(&parts, body).await }).await
    }
}

/// An error code and its message.
type Failure = (&'static str, String);

impl Service {
    /// Performs a request under the weather, and under a planted fault if one matches.
    async fn disturbed(&self, parts: &Parts, body: Bytes) -> Reply {
        let (function, operation) = (access_key(parts), operation(parts).unwrap_or_default());
        let _open = self.surroundings.open.enter();
        let text = std::str::from_utf8(&body).unwrap_or_default();
        let faults = &self.surroundings.faults;
        let Some(fault) = faults.take(&Call { function, operation, body: text }) else {
            return self.in_weather(operation, text).await;
        };
        let request = async { (Some(self.handle(operation, text, |_| false).await), ()) };
        faults.apply(fault, function, request, refusal, || all_failed(text)).await
    }

    async fn in_weather(&self, operation: &str, text: &str) -> Reply {
        let conditions = &self.surroundings.conditions;
        if conditions.storm(STORM_FAILS) {
            return Some(refusal("InternalException"));
        }
        let response = self.handle(operation, text, |_| conditions.storm(STORM_LEAVES)).await;
        (!conditions.storm(STORM_LOSES)).then_some(response)
    }

    /// `leaves` says which entries are refused.
    async fn handle(&self, operation: &str, text: &str, leaves: impl Fn(&Value) -> bool) -> Response<Body> {
        if operation != "PutEvents" {
            return error("UnknownOperationException", &format!("The local stack does not support {operation}."));
        }
        match self.put(text, leaves).await {
            Ok(body) => http_server::json_response(200, body.to_string()),
            Err((code, message)) => error(code, &message),
        }
    }

    async fn put(&self, text: &str, leaves: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
        let request: Value = serde_json::from_str(text).map_err(|error| ("SerializationException", error.to_string()))?;
        let entries = request["Entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() || entries.len() > MOST_ENTRIES {
            return Err(("ValidationException", format!("Entries must have 1 to {MOST_ENTRIES} members.")));
        }
        if entries.iter().map(bytes).sum::<usize>() > MOST_BYTES {
            return Err(("ValidationException", "Total size of the entries in the request is over the limit.".to_owned()));
        }
        let (mut results, mut accepted) = (Vec::new(), Vec::new());
        for entry in entries {
            results.push(match row(entry) {
                _ if leaves(entry) => failed(("InternalFailure", "a planted fault".to_owned())),
                Err(failure) => failed(failure),
                Ok(row) => {
                    accepted.push(row);
                    json!({ "EventId": new_id() })
                }
            });
        }
        let stored = self.bus.store.commit(move |transaction| insert(transaction, &accepted)).await;
        stored.map_err(|error| ("InternalException", format!("{error:#}")))?;
        let failed = results.iter().filter(|result| result.get("ErrorCode").is_some()).count();
        Ok(json!({ "FailedEntryCount": failed, "Entries": results }))
    }
}

/// The size of an entry, as EventBridge counts it.
fn bytes(entry: &Value) -> usize {
    let of = |name: &str| entry[name].as_str().map_or(0, str::len);
    of("Source") + of("DetailType") + of("Detail") + if entry["Time"].is_null() { 0 } else { 14 }
}

/// Id, type and detail of an entry.
fn row(entry: &Value) -> Result<[String; 3], Failure> {
    let text = |name: &str| {
        let text = entry[name].as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| ("InvalidArgument", format!("Parameter {name} is not valid. Reason: {name} is a required argument.")))
    };
    text("Source")?;
    let (detail_type, detail) = (text("DetailType")?.to_owned(), text("Detail")?.to_owned());
    let content: Value = serde_json::from_str(&detail).map_err(|_| ("MalformedDetail", "Detail is malformed.".to_owned()))?;
    let Some(content) = content.as_object() else { return Err(("MalformedDetail", "Detail is malformed.".to_owned())) };
    let id = content.get("id").and_then(Value::as_str).map_or_else(new_id, str::to_owned);
    Ok([id, detail_type, detail])
}

fn insert(transaction: &Transaction<'_>, rows: &[[String; 3]]) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO events (id, detail_type, detail) VALUES (?1, ?2, ?3)";
    let mut statement = transaction.prepare_cached(sql)?;
    rows.iter().try_for_each(|[id, detail_type, detail]| statement.execute(params![id, detail_type, detail]).map(drop))
}

fn failed((code, message): Failure) -> Value {
    json!({ "ErrorCode": code, "ErrorMessage": message })
}

/// The response to a request of which every entry has failed.
fn all_failed(text: &str) -> Response<Body> {
    let request: Value = serde_json::from_str(text).unwrap_or_default();
    let entries = request["Entries"].as_array().map_or(0, Vec::len);
    let results = vec![failed(("InternalFailure", "a planted fault".to_owned())); entries];
    http_server::json_response(200, json!({ "FailedEntryCount": entries, "Entries": results }).to_string())
}

fn refusal(code: &str) -> Response<Body> {
    error(code, "a planted fault")
}

fn error(code: &str, message: &str) -> Response<Body> {
    http_server::json_response(status_of(code), json!({ "__type": code, "message": message }).to_string())
}
