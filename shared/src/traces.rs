//! Subsegments of AWS X-Ray: one for each call of DynamoDB or SQS, and for each trip to Redis.
//!
//! The calls are spans: the SDK makes one for each operation, and `redis-link` one for each trip. The span of the
//! invocation has the id of the trace, and says whether Lambda keeps it. A subsegment is one datagram to Lambda's
//! daemon, sent when its call ends. So nothing waits in a function that may be frozen, and a lost datagram costs a bar
//! in a picture.

use std::{
    fmt::{self, Write as _},
    io,
    net::UdpSocket,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer,
    filter::{FilterFn, LevelFilter},
    layer::Context,
    registry::LookupSpan,
};

/// The span of an invocation, and its field with the trace header. `lambda_runtime` makes it.
const INVOCATION: &str = "Lambda runtime invoke";
const TRACE_HEADER: &str = "xrayTraceId";

/// The target of the spans of Redis.
const REDIS: &str = "redis_link::trip";

/// What precedes each document.
const HEAD: &str = "{\"format\": \"json\", \"version\": 1}\n";

/// Sends subsegments to the daemon.
pub(crate) struct Subsegments {
    daemon: UdpSocket,
    clock: fn() -> SystemTime,
}

/// The trace of an invocation that Lambda keeps.
#[derive(Clone, PartialEq, Debug)]
struct Trace {
    root: String,
    /// The segment of the function.
    parent: String,
}

/// A call that has begun.
struct Call {
    trace: Trace,
    started: f64,
    fields: Fields,
}

/// The fields of a span that a subsegment shows.
#[derive(Default)]
struct Fields {
    service: Option<String>,
    operation: Option<String>,
    commands: Option<u64>,
    header: Option<String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "rpc.service" => self.service = Some(value.to_owned()),
            "rpc.method" | "operation" => self.operation = Some(value.to_owned()),
            TRACE_HEADER => self.header = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "commands" {
            self.commands = Some(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        if write!(text, "{value:?}").is_ok() {
            self.record_str(field, &text);
        }
    }
}

impl Trace {
    /// Parses `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`. `None` if Lambda does not
    /// keep the trace.
    fn of_header(header: &str) -> Option<Self> {
        let part = |name: &str| header.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
        let (root, parent) = (part("Root")?.to_owned(), part("Parent")?.to_owned());
        (part("Sampled") == Some("1")).then_some(Self { root, parent })
    }
}

impl Subsegments {
    /// Sends to the daemon at this address, `host:port`.
    pub(crate) fn to(daemon: &str, clock: fn() -> SystemTime) -> io::Result<Self> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(daemon)?;
        // A full buffer loses a subsegment and does not hold up a call.
        socket.set_nonblocking(true)?;
        Ok(Self { daemon: socket, clock })
    }

    /// The spans that these layers look at.
    pub(crate) fn filter() -> FilterFn {
        let wanted = |span: &Metadata<'_>| {
            span.is_span() && (span.name() == INVOCATION || span.target() == REDIS || span.fields().field("rpc.system").is_some())
        };
        FilterFn::new(wanted as fn(&Metadata<'_>) -> bool).with_max_level_hint(LevelFilter::DEBUG)
    }

    fn now(&self) -> f64 {
        (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }
}

impl Call {
    fn document(&self, ended: f64) -> Value {
        let Self { trace, started, fields } = self;
        let mut document = json!({
            "type": "subsegment",
            "name": fields.service.as_deref().unwrap_or("Redis"),
            "id": format!("{:016x}", rand::random::<u64>()),
            "trace_id": trace.root,
            "parent_id": trace.parent,
            "start_time": started,
            "end_time": ended,
        });
        if fields.service.is_some() {
            document["namespace"] = json!("aws");
            document["aws"] = json!({ "operation": fields.operation });
        } else {
            document["namespace"] = json!("remote");
            document["metadata"] = json!({ "redis": { "operation": fields.operation, "commands": fields.commands } });
        }
        document
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Subsegments {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if span.name() == INVOCATION {
            if let Some(trace) = fields.header.as_deref().and_then(Trace::of_header) {
                span.extensions_mut().insert(trace);
            }
            return;
        }
        let trace = span.scope().skip(1).find_map(|span| span.extensions().get::<Trace>().cloned());
        if let Some(trace) = trace {
            span.extensions_mut().insert(Call { trace, started: self.now(), fields });
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let call = context.span(&id).and_then(|span| span.extensions_mut().remove::<Call>());
        if let Some(call) = call {
            // A subsegment that cannot be sent is lost.
            let _ = self.daemon.send(format!("{HEAD}{}", call.document(self.now())).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing::{debug_span, info_span};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const HEADER: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

    fn clock() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_500)
    }

    /// The documents that arrive at a daemon while `calls` runs in an invocation with this header.
    fn documents(header: &str, calls: impl FnOnce()) -> Vec<Value> {
        let daemon = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let layer = Subsegments::to(&daemon.local_addr().unwrap().to_string(), clock).unwrap();
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(Subsegments::filter()));
        tracing::subscriber::with_default(subscriber, || {
            info_span!("Lambda runtime invoke", requestId = "r-1", xrayTraceId = header).in_scope(calls);
        });
        daemon.set_nonblocking(true).unwrap();
        let mut datagram = [0; 2_000];
        std::iter::from_fn(|| daemon.recv(&mut datagram).ok().map(|length| datagram[..length].to_vec()))
            .map(|datagram| serde_json::from_str(std::str::from_utf8(&datagram).unwrap().strip_prefix(HEAD).unwrap()).unwrap())
            .collect()
    }

    fn calls() {
        // As the SDK makes it.
        let _call = debug_span!("DynamoDB.Query", "rpc.service" = "DynamoDB", "rpc.method" = "Query", "rpc.system" = "aws-api");
        debug_span!(target: "redis_link::trip", "Redis", operation = "feed", commands = 2_u64).in_scope(|| ());
        debug_span!("another").in_scope(|| tracing::warn!("not a call"));
    }

    #[test]
    fn each_call_of_an_invocation_is_a_subsegment() {
        let [redis, dynamodb] = documents(HEADER, calls).try_into().unwrap();
        for document in [&redis, &dynamodb] {
            assert_eq!(document["trace_id"], "1-5759e988-bd862e3fe1be46a994272793");
            assert_eq!((&document["parent_id"], &document["type"]), (&json!("53995c3f42cd8ad8"), &json!("subsegment")));
            assert_eq!((&document["start_time"], &document["end_time"]), (&json!(1.5), &json!(1.5)));
            assert_eq!(document["id"].as_str().unwrap().len(), 16);
        }
        assert_ne!(redis["id"], dynamodb["id"]);
        assert_eq!((&dynamodb["name"], &dynamodb["aws"]["operation"]), (&json!("DynamoDB"), &json!("Query")));
        assert_eq!((&redis["name"], &redis["namespace"]), (&json!("Redis"), &json!("remote")));
        assert_eq!(redis["metadata"]["redis"], json!({ "operation": "feed", "commands": 2 }));
    }

    #[test]
    fn a_trace_that_lambda_does_not_keep_sends_nothing() {
        for header in [HEADER.replace("Sampled=1", "Sampled=0"), HEADER.replace(";Sampled=1", ""), String::new()] {
            assert_eq!(documents(&header, calls), [] as [Value; 0], "{header}");
        }
    }
}
