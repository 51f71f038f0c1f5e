//! State that the gateway, the pollers and the status page share: the functions and the sources of their events.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::{Value, json};
use tidemark::views::RedisOptions;
use tokio::{sync::Notify, time::Instant};

use crate::{
    bus::Bus,
    connections::Connections,
    dynamodb::StreamLog,
    elsewhere::Tail,
    metrics::Metrics,
    pollers::gate::Gate,
    runner::{Endpoints, InvokeError, Runner},
    sqs::{Counts, Source, new_id},
    status::{Behind, FunctionStatus, Status},
    store::Store,
    template::{EventSource, Function, Template},
    weather::{Surroundings, Weather},
};

/// A function, its runner, and the gate that can hold back its sources.
pub(crate) struct Unit {
    pub(crate) function: Function,
    pub(crate) environment: Arc<BTreeMap<String, String>>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) gate: Arc<Gate>,
}

/// The position of one function in one table's stream.
pub(crate) struct Position {
    /// The logical id of the table.
    pub(crate) table: String,
    /// The physical name of the table.
    pub(crate) table_name: String,
    /// The stream's ARN and `StreamViewType`.
    pub(crate) arn: String,
    pub(crate) view: String,
    pub(crate) sequence: AtomicI64,
    /// The stream, if the table is elsewhere.
    pub(crate) tail: Option<Tail>,
}

pub(crate) struct Core {
    pub(crate) template: Template,
    pub(crate) units: BTreeMap<String, Unit>,
    pub(crate) queues: Source,
    pub(crate) log: Arc<StreamLog>,
    pub(crate) store: Arc<Store>,
    pub(crate) bus: Arc<Bus>,
    /// By [`position_key`](crate::pollers::position_key).
    pub(crate) positions: BTreeMap<String, Position>,
    /// The number of times that any gate was entered.
    pub(crate) entries: Arc<AtomicU64>,
    pub(crate) surroundings: Surroundings,
    pub(crate) metrics: Arc<Metrics>,
    /// Notified after each invocation, because the invocation may have written to a table with a stream.
    pub(crate) wrote: Notify,
    /// The delay before a failed message (in calm weather) or a failed stream batch is tried again.
    pub(crate) retry_delay: Duration,
    pub(crate) endpoints: Endpoints,
    pub(crate) connections: Connections,
    /// The nodes of the Redis that the stack started. Empty if `REDIS_URL` names a Redis.
    pub(crate) own_redis: Vec<RedisOptions>,
}

impl Core {
    /// Finds a function by binary name or logical id.
    pub(crate) fn unit(&self, name: &str) -> Option<&Unit> {
        self.template.function(name).and_then(|function| self.units.get(&function.logical_id))
    }

    pub(crate) fn weather(&self) -> (Weather, u64) {
        (self.surroundings.conditions.weather(), self.surroundings.conditions.seed())
    }

    /// Changes the weather. A change to calm also ends the long waits of failed messages.
    pub(crate) fn set_weather(&self, weather: Weather, seed: u64) {
        self.surroundings.conditions.set(weather, seed);
        if weather == Weather::Calm {
            self.queues.own.hasten(self.retry_delay);
        }
    }

    /// Invokes a function under a new request id and logs a failure.
    pub(crate) async fn invoke(&self, unit: &Unit, payload: Value) -> Result<Value, InvokeError> {
        self.invoke_as(unit, &new_id(), payload).await
    }

    /// Invokes a function and logs a failure.
    pub(crate) async fn invoke_as(&self, unit: &Unit, request_id: &str, payload: Value) -> Result<Value, InvokeError> {
        let started = Instant::now();
        let response = unit.runner.invoke(request_id, payload).await;
        self.metrics.invocation(&unit.function.binary, started.elapsed(), response.is_ok());
        self.wrote.notify_waiters();
        if let Err(error) = &response {
            tracing::warn!(function = unit.function.binary, request_id, %error, "invocation failed");
        }
        response
    }

    /// Invokes a function as its schedule does, with `input` if given. Returns `None` if it has no schedule.
    pub(crate) async fn fire(&self, unit: &Unit, input: Option<Value>) -> Option<Result<Value, InvokeError>> {
        let own = unit.function.events.iter().find_map(|event| match &event.source {
            EventSource::Schedule(schedule) => Some(schedule.input.clone()),
            _ => None,
        })?;
        let _pass = unit.gate.force();
        Some(self.invoke(unit, input.unwrap_or(own)).await)
    }

    /// Reports what the stack is doing. The order of the reads excludes a race.
    ///
    /// Work moves from a stream record or a message through an invocation to further records and messages. Each step
    /// keeps its input until its output exists. This method therefore reads streams first, then queues, then gates.
    /// Work can escape all three reads only if an invocation begins in between, and the count of entries shows that.
    /// A delayed request to a store may outlive its invocation, so open requests are counted first.
    pub(crate) async fn status(&self) -> Result<Status> {
        let entries = self.entries.load(Ordering::SeqCst);
        let open_requests = self.surroundings.open.count();
        let mut streams: BTreeMap<String, Behind> = self
            .template
            .tables
            .values()
            .filter(|table| table.stream_view.is_some())
            .map(|table| (table.logical_id.clone(), Behind { behind: 0 }))
            .collect();
        for position in self.positions.values() {
            let sequence = position.sequence.load(Ordering::SeqCst);
            let behind = match &position.tail {
                Some(tail) => tail.behind(sequence).await?,
                None => self.log.behind(&position.table_name, sequence)?,
            };
            if let Some(stream) = streams.get_mut(&position.table) {
                stream.behind = stream.behind.max(behind);
            }
        }
        let counts = self.template.queues.values().map(async |queue| {
            let counts = self.queues.counts(&queue.name).await?;
            anyhow::Ok((queue.logical_id.clone(), counts))
        });
        let queues: BTreeMap<String, Counts> = try_join_all(counts).await?.into_iter().collect();
        let functions: BTreeMap<String, FunctionStatus> = self
            .units
            .values()
            .map(|unit| {
                let has_sources = unit.function.events.iter().any(|event| !matches!(event.source, EventSource::Http(_)));
                let status = FunctionStatus { paused: unit.gate.paused(), has_sources, in_flight: unit.gate.active() };
                (unit.function.binary.clone(), status)
            })
            .collect();
        let processes = self.units.values().filter(|unit| !unit.runner.pids().is_empty());
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
            redis_url: self.endpoints.redis.url.clone(),
            dynamodb_endpoint: self.endpoints.dynamodb.clone(),
            sqs_endpoint: self.endpoints.sqs.clone(),
            parameters: self.template.parameters.clone(),
        })
    }

    fn consumes(&self, queue: &str) -> bool {
        self.template.sources().any(|(_, source)| matches!(source, EventSource::Sqs(source) if source.queue == queue))
    }
}

/// Renders a failed invocation as Lambda describes it to its caller.
pub(crate) fn error_payload(error: &InvokeError) -> Value {
    match error {
        InvokeError::Failed { kind, message } => json!({ "errorType": kind, "errorMessage": message }),
        other => json!({ "errorType": "Unhandled", "errorMessage": other.to_string() }),
    }
}
