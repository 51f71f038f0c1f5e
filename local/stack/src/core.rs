//! What the gateway, the pollers and the status page share: the functions, and the state of everything that feeds them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    dynamodb::StreamLog,
    pollers::gate::Gate,
    runner::{InvokeError, Runner},
    sqs::{Counts, Queues, new_id},
    store::Store,
    template::{EventSource, Function, Template},
    weather::{Surroundings, Weather},
};

/// A function with what runs it and what holds its sources back.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) function: Function,
    pub(crate) environment: Arc<BTreeMap<String, String>>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) gate: Arc<Gate>,
}

/// How far one function has read one table's stream.
#[derive(Debug)]
pub(crate) struct Position {
    /// Logical id of the function.
    pub(crate) function: String,
    /// Logical id of the table.
    pub(crate) table: String,
    /// The table's own name.
    pub(crate) table_name: String,
    pub(crate) sequence: AtomicI64,
}

/// The running system.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) template: Template,
    /// Functions by logical id.
    pub(crate) units: BTreeMap<String, Unit>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) log: Arc<StreamLog>,
    pub(crate) store: Arc<Store>,
    pub(crate) positions: Vec<Arc<Position>>,
    /// How often any gate has been entered.
    pub(crate) entries: Arc<AtomicU64>,
    pub(crate) surroundings: Surroundings,
    /// Told whenever an invocation has ended, because it may have written to a table with a stream.
    pub(crate) wrote: Notify,
    /// How long something that failed waits in calm.
    pub(crate) retry_delay: Duration,
    pub(crate) dynamodb_endpoint: String,
    pub(crate) sqs_endpoint: String,
    pub(crate) redis_url: String,
}

/// What is going on, as `GET /_local/status` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Nothing is queued, in flight or behind. Queues that no function consumes do not count.
    pub idle: bool,
    /// Message counts by the queue's logical id.
    pub queues: BTreeMap<String, Counts>,
    /// Unread stream records by the table's logical id.
    pub streams: BTreeMap<String, Behind>,
    /// Functions by the name of their binary.
    pub functions: BTreeMap<String, FunctionStatus>,
    /// Process ids of the functions that do not run in the stack's own process.
    pub processes: BTreeMap<String, Vec<u32>>,
    /// What the stores are like.
    pub weather: Weather,
    /// Where Redis is.
    pub redis_url: String,
    /// Where DynamoDB is.
    pub dynamodb_endpoint: String,
    /// Where SQS is.
    pub sqs_endpoint: String,
}

/// How far the slowest reader of a stream is behind.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Behind {
    /// Records not yet handled.
    pub behind: u64,
}

/// What a function is doing.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionStatus {
    /// Whether its sources are held back.
    pub paused: bool,
    /// Invocations by its sources that are going on.
    pub in_flight: usize,
}

impl Core {
    /// The function with this binary name or logical id.
    pub(crate) fn unit(&self, name: &str) -> Option<&Unit> {
        self.template.function(name).and_then(|function| self.units.get(&function.logical_id))
    }

    /// The weather and its seed.
    pub(crate) fn weather(&self) -> (Weather, u64) {
        (self.surroundings.conditions.weather(), self.surroundings.conditions.seed())
    }

    /// Changes the weather; returning to calm ends the long waits of messages that failed.
    pub(crate) fn set_weather(&self, weather: Weather, seed: u64) {
        self.surroundings.conditions.set(weather, seed);
        if weather == Weather::Calm {
            self.queues.hasten(self.retry_delay);
        }
    }

    /// Invokes a function under a new request id and logs a failure.
    pub(crate) async fn invoke(&self, unit: &Unit, payload: Value) -> Result<Value, InvokeError> {
        self.invoke_as(unit, &new_id(), payload).await
    }

    /// Invokes a function and logs a failure.
    pub(crate) async fn invoke_as(&self, unit: &Unit, request_id: &str, payload: Value) -> Result<Value, InvokeError> {
        let answer = unit.runner.invoke(request_id, payload).await;
        self.wrote.notify_waiters();
        if let Err(error) = &answer {
            tracing::warn!(function = unit.function.binary, request_id, %error, "invocation failed");
        }
        answer
    }

    /// Invokes a function the way its schedule would, with another input if one is given. `None` when it has no schedule.
    pub(crate) async fn fire(&self, unit: &Unit, input: Option<Value>) -> Option<Result<Value, InvokeError>> {
        let mut inputs = unit.function.events.iter().filter_map(|event| match &event.source {
            EventSource::Schedule(schedule) => Some(schedule.input.clone()),
            _ => None,
        });
        let own = inputs.next()?;
        let _pass = unit.gate.force();
        Some(self.invoke(unit, input.unwrap_or(own)).await)
    }

    /// Looks at everything twice removed from a race.
    ///
    /// Work moves from a stream record or message through an invocation to further records and messages, and each link holds on to
    /// its input until its output exists. So when streams, then queues, then gates are all found empty, work can only have slipped
    /// through if an invocation began in between, which the count of entries shows. A request that is delayed on its way to a store may
    /// outlive the invocation that sent it, so those are counted before anything else.
    pub(crate) fn status(&self) -> rusqlite::Result<Status> {
        let entries = self.entries.load(Ordering::SeqCst);
        let open_requests = self.surroundings.open.count();
        let mut streams: BTreeMap<String, Behind> = self
            .template
            .tables
            .values()
            .filter(|table| table.stream_view.is_some())
            .map(|table| (table.logical_id.clone(), Behind { behind: 0 }))
            .collect();
        for position in &self.positions {
            let behind = self.log.behind(&position.table_name, position.sequence.load(Ordering::SeqCst))?;
            if let Some(stream) = streams.get_mut(&position.table) {
                stream.behind = stream.behind.max(behind);
            }
        }
        let queues: BTreeMap<String, Counts> =
            self.template.queues.values().map(|queue| (queue.logical_id.clone(), self.queues.counts(&queue.name))).collect();
        let functions: BTreeMap<String, FunctionStatus> = self
            .units
            .values()
            .map(|unit| {
                (unit.function.binary.clone(), FunctionStatus { paused: unit.gate.paused(), in_flight: unit.gate.active() })
            })
            .collect();
        let processes = self.units.values().filter(|unit| unit.runner.app().is_none());
        let processes = processes.map(|unit| (unit.function.binary.clone(), unit.runner.pids())).collect();
        let consumed = |logical_id: &String| self.template.queues.get(logical_id).is_some_and(|queue| self.consumes(&queue.name));
        let idle = open_requests == 0
            && streams.values().all(|stream| stream.behind == 0)
            && queues.iter().all(|(id, counts)| counts.is_empty() || !consumed(id))
            && functions.values().all(|function| function.in_flight == 0)
            && self.entries.load(Ordering::SeqCst) == entries;
        Ok(Status {
            idle,
            queues,
            streams,
            functions,
            processes,
            weather: self.surroundings.conditions.weather(),
            redis_url: self.redis_url.clone(),
            dynamodb_endpoint: self.dynamodb_endpoint.clone(),
            sqs_endpoint: self.sqs_endpoint.clone(),
        })
    }

    fn consumes(&self, queue: &str) -> bool {
        let events = self.units.values().flat_map(|unit| &unit.function.events);
        events.into_iter().any(|event| matches!(&event.source, EventSource::Sqs(source) if source.queue == queue))
    }
}

/// An invocation's failure as Lambda describes it to its caller.
pub(crate) fn error_payload(error: &InvokeError) -> Value {
    match error {
        InvokeError::Failed { kind, message } => json!({ "errorType": kind, "errorMessage": message }),
        other => json!({ "errorType": "Unhandled", "errorMessage": other.to_string() }),
    }
}
