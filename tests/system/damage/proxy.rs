//! A proxy in front of DynamoDB. Tests use it to act between two requests of a function, to lose a response, or to
//! refuse a request.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, response},
    response::Response,
};
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};
use tidemark_local::Options;
use tidemark_tests::{World, in_one_thread};
use tokio::net::TcpListener;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The binary name of the sending function.
    pub(crate) function: String,
    /// For example `Query`.
    pub(crate) operation: String,
    pub(crate) body: Value,
}

impl Request {
    /// Returns true if the request comes from this function, is this operation, and contains this text.
    pub(crate) fn is(&self, function: &str, operation: &str, names: &str) -> bool {
        self.function == function && self.operation == operation && self.body.to_string().contains(names)
    }

    /// Returns true if the request reads or writes the outage note. Each process looks for it once a second, so the
    /// number of these requests is a question of time.
    pub(crate) fn is_of_the_outage_note(&self) -> bool {
        self.body.to_string().contains("\"outage\"")
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

/// Counts of the functions' requests, without those of the outage note.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    /// The number of requests of each operation.
    pub(crate) requests: BTreeMap<String, u64>,
    /// Consumed units, as the service reports them.
    pub(crate) units: f64,
    /// Consumed units of writes alone.
    pub(crate) written: f64,
}

#[derive(Default)]
pub(crate) struct Proxy {
    service: OnceLock<String>,
    http: reqwest::Client,
    rule: Mutex<Option<Rule>>,
    meter: Mutex<Option<Meter>>,
}

/// Runs a test in a world whose functions reach DynamoDB through a proxy. The test's own requests do not pass the
/// proxy.
pub(crate) fn world_behind_a_proxy(test: impl AsyncFnOnce(&World, &Proxy)) {
    world_behind_a_proxy_with(|_| {}, test);
}

/// The same with other options.
pub(crate) fn world_behind_a_proxy_with(configure: impl FnOnce(&mut Options), test: impl AsyncFnOnce(&World, &Proxy)) {
    in_one_thread(run_behind_a_proxy_with(configure, test));
}

/// The same on the runtime of the caller.
pub(crate) async fn run_behind_a_proxy(test: impl AsyncFnOnce(&World, &Proxy)) {
    run_behind_a_proxy_with(|_| {}, test).await;
}

async fn run_behind_a_proxy_with(configure: impl FnOnce(&mut Options), test: impl AsyncFnOnce(&World, &Proxy)) {
    let proxy = Arc::new(Proxy::default());
    let address = serve(Router::new().fallback(forward).with_state(Arc::clone(&proxy))).await;
    World::run_with(
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

    /// Sets a rule that decides without waiting.
    pub(crate) fn decide(&self, rule: impl Fn(Request) -> Fate + Send + Sync + 'static) {
        self.rule(move |asked| std::future::ready(rule(asked)).boxed());
    }

    /// Decides about the requests for which [`Request::is`] returns true, by the number of such requests before.
    /// Returns the number of these requests, which grows.
    pub(crate) fn decide_about(
        &self,
        [function, operation, names]: [&'static str; 3],
        fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
    ) -> Arc<AtomicUsize> {
        let number = Arc::new(AtomicUsize::new(0));
        let before = Arc::clone(&number);
        self.decide(move |asked| match asked.is(function, operation, names) {
            true => fate(before.fetch_add(1, Ordering::SeqCst)),
            false => Fate::Forwarded,
        });
        number
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

    pub(crate) fn forward_all(&self) {
        self.rule.lock().unwrap().take();
    }
}

/// Serves requests on a free port. Returns the address.
pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// The function that sent a request to AWS, and the request's target.
pub(crate) fn sender_and_target(headers: &HeaderMap) -> [String; 2] {
    let text = |name: &str| headers[name].to_str().unwrap();
    let sender = text("authorization").split_once("Credential=").unwrap().1.split('/').next().unwrap();
    [sender.to_owned(), text("x-amz-target").to_owned()]
}

/// Passes a request on to a service. Returns the head of the response and its body.
pub(crate) async fn pass_on(
    http: &reqwest::Client,
    service: &OnceLock<String>,
    headers: &HeaderMap,
    body: Bytes,
) -> (response::Builder, Bytes) {
    let mut request = http.post(service.get().expect("the stack has started")).body(body);
    for (name, value) in headers.iter().filter(|(name, _)| !["host", "content-length"].contains(&name.as_str())) {
        request = request.header(name, value);
    }
    let reply = request.send().await.unwrap();
    let mut response = Response::builder().status(reply.status());
    for (name, value) in reply.headers().iter().filter(|(name, _)| name.as_str() != "transfer-encoding") {
        response = response.header(name, value);
    }
    (response, reply.bytes().await.unwrap())
}

async fn forward(State(proxy): State<Arc<Proxy>>, headers: HeaderMap, body: Bytes) -> Response {
    let [function, target] = sender_and_target(&headers);
    let operation = target.rsplit('.').next().unwrap().to_owned();
    let mut asked = Request { function, operation: operation.clone(), body: serde_json::from_slice(&body).unwrap() };
    let is_metered = proxy.meter.lock().unwrap().is_some() && !asked.is_of_the_outage_note();
    let mut body = body;
    if is_metered {
        asked.body["ReturnConsumedCapacity"] = json!("TOTAL");
        body = asked.body.to_string().into();
    }
    let rule = proxy.rule.lock().unwrap().clone();
    let fate = match rule {
        Some(rule) => rule(asked).await,
        None => Fate::Forwarded,
    };
    if let Fate::Refused(code) = fate {
        return error(code);
    }
    let (response, reply) = pass_on(&proxy.http, &proxy.service, &headers, body).await;
    if let Fate::ResponseLost(code) = fate {
        return error(code);
    }
    if is_metered {
        proxy.count(operation, &reply);
    }
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
