//! A proxy in front of DynamoDB. Tests use it to act between two requests of a function, to lose a response, or to
//! refuse a request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::HeaderMap,
    response::Response,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tidemark_local::Options;
use tidemark_tests::{World, world_with};
use tokio::net::TcpListener;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The binary name of the sending function.
    pub(crate) function: String,
    /// For example `Query`.
    pub(crate) operation: String,
    /// The JSON of the request.
    pub(crate) body: Value,
}

impl Request {
    /// Returns true if the request comes from this function, is this operation, and contains this text.
    pub(crate) fn is(&self, function: &str, operation: &str, names: &str) -> bool {
        self.function == function && self.operation == operation && self.body.to_string().contains(names)
    }
}

/// The proxy's action on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Forward the request and return the response.
    Forwarded,
    /// Forward the request and return this error instead of the response.
    ResponseLost(&'static str),
    /// Return this error without forwarding the request.
    Refused(&'static str),
}

/// The error of a transaction whose first item another one holds.
pub(crate) const CANCELLED: &str = "TransactionCanceledException";

type Rule = Arc<dyn Fn(Request) -> BoxFuture<'static, Fate> + Send + Sync>;

/// Counts of the functions' requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    /// Requests by operation.
    pub(crate) requests: BTreeMap<String, u64>,
    /// Consumed units, as the service reports them.
    pub(crate) units: f64,
    /// Those of writes.
    pub(crate) written: f64,
}

pub(crate) struct Proxy {
    service: OnceLock<String>,
    http: reqwest::Client,
    rule: Mutex<Option<Rule>>,
    meter: Mutex<Option<Meter>>,
}

/// Runs a test in a world whose functions reach DynamoDB through a proxy. The test's own requests do not pass the
/// proxy.
pub(crate) async fn world_behind_a_proxy(test: impl AsyncFnOnce(&World, &Proxy)) {
    world_behind_a_proxy_with(|_| {}, test).await;
}

/// The same with other options.
pub(crate) async fn world_behind_a_proxy_with(configure: impl FnOnce(&mut Options), test: impl AsyncFnOnce(&World, &Proxy)) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let proxy = Arc::new(Proxy {
        service: OnceLock::new(),
        http: reqwest::Client::new(),
        rule: Mutex::new(None),
        meter: Mutex::new(None),
    });
    let router = Router::new().fallback(forward).with_state(Arc::clone(&proxy));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    world_with(
        |options| {
            options.environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), address);
            configure(options);
        },
        async |world| {
            proxy.service.set(world.stack.dynamodb_endpoint().to_owned()).unwrap();
            test(world, &proxy).await;
            proxy.rule.lock().unwrap().take();
        },
    )
    .await;
}

impl Proxy {
    /// Sets the function that decides about every request.
    pub(crate) fn rule(&self, rule: impl Fn(Request) -> BoxFuture<'static, Fate> + Send + Sync + 'static) {
        *self.rule.lock().unwrap() = Some(Arc::new(rule));
    }

    /// Resets the counts to zero. Returns the old counts.
    pub(crate) fn meter(&self) -> Meter {
        self.meter.lock().unwrap().replace(Meter::default()).unwrap_or_default()
    }

    fn count(&self, operation: String, reply: &[u8]) {
        if let Some(meter) = self.meter.lock().unwrap().as_mut() {
            let reply: Value = serde_json::from_slice(reply).unwrap();
            let consumed = match &reply["ConsumedCapacity"] {
                Value::Array(tables) => tables.as_slice(),
                table => std::slice::from_ref(table),
            };
            let units = consumed.iter().filter_map(|table| table["CapacityUnits"].as_f64()).sum::<f64>();
            meter.units += units;
            meter.written += if ["Get", "Query", "Scan"].iter().any(|read| operation.contains(read)) { 0.0 } else { units };
            *meter.requests.entry(operation).or_default() += 1;
        }
    }

    /// Forwards all requests again.
    pub(crate) fn forward_all(&self) {
        self.rule.lock().unwrap().take();
    }
}

async fn forward(State(proxy): State<Arc<Proxy>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let function = text("authorization").split_once("Credential=").unwrap().1.split('/').next().unwrap().to_owned();
    let operation = text("x-amz-target").rsplit('.').next().unwrap().to_owned();
    let mut body = body;
    if proxy.meter.lock().unwrap().is_some() {
        let mut metered: Value = serde_json::from_slice(&body).unwrap();
        metered["ReturnConsumedCapacity"] = json!("TOTAL");
        body = metered.to_string().into();
    }
    let asked = Request { function, operation: operation.clone(), body: serde_json::from_slice(&body).unwrap() };
    let rule = proxy.rule.lock().unwrap().clone();
    let fate = match rule {
        Some(rule) => rule(asked).await,
        None => Fate::Forwarded,
    };
    if let Fate::Refused(code) = fate {
        return error(code);
    }
    let mut request = proxy.http.post(proxy.service.get().expect("the stack has started")).body(body);
    for (name, value) in headers.iter().filter(|(name, _)| !["host", "content-length"].contains(&name.as_str())) {
        request = request.header(name, value);
    }
    let reply = request.send().await.unwrap();
    if let Fate::ResponseLost(code) = fate {
        return error(code);
    }
    let mut response = Response::builder().status(reply.status());
    for (name, value) in reply.headers().iter().filter(|(name, _)| name.as_str() != "transfer-encoding") {
        response = response.header(name, value);
    }
    let reply = reply.bytes().await.unwrap();
    proxy.count(operation, &reply);
    response.body(Body::from(reply)).unwrap()
}

fn error(code: &str) -> Response {
    let mut body = json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "planted by the test" });
    if code == CANCELLED {
        body["CancellationReasons"] = json!([{ "Code": "TransactionConflict" }]);
    }
    let status = if code == "InternalServerError" { 500 } else { 400 };
    let response = Response::builder().status(status).header("content-type", "application/x-amz-json-1.0");
    response.body(Body::from(body.to_string())).unwrap()
}
