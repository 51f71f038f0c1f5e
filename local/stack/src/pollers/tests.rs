//! Tests of event sources with real queues and streams, and with scripted functions.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use async_trait::async_trait;
use dynoxide::Database;
use serde_json::json;
use tempfile::TempDir;
use tidemark::views::RedisOptions;
use tokio::{sync::Notify, time::Instant};

use super::*;
use crate::{
    bus::Bus,
    core::Position,
    dynamodb::DynamoDb,
    metrics::Metrics,
    pollers::gate::Gate,
    runner::{Endpoints, InvokeError, Runner},
    sqs::{Queues, Source, journal},
    store::Store,
    template::{Bindings, Template},
    weather::{Surroundings, Weather},
};

const TEMPLATE: &str = r#"
Resources:
  Worker:
    Type: AWS::Serverless::Function
    Metadata: {BuildProperties: {Binary: worker}}
    Properties:
      Events:
        Jobs:
          Type: SQS
          Properties: {Queue: !GetAtt Jobs.Arn, BatchSize: 10, FunctionResponseTypes: [ReportBatchItemFailures]}
  Projector:
    Type: AWS::Serverless::Function
    Metadata: {BuildProperties: {Binary: projector}}
    Properties:
      Events:
        Changes:
          Type: DynamoDB
          Properties:
            Stream: !GetAtt Items.StreamArn
            StartingPosition: TRIM_HORIZON
            BatchSize: 4
            MaximumRetryAttempts: 1
            BisectBatchOnFunctionError: true
            FunctionResponseTypes: [ReportBatchItemFailures]
            DestinationConfig: {OnFailure: {Type: SQS, Destination: !GetAtt Failures.Arn}}
  Jobs:
    Type: AWS::SQS::Queue
    Properties: {VisibilityTimeout: 2, RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 3}}
  Dead: {Type: AWS::SQS::Queue}
  Failures: {Type: AWS::SQS::Queue}
  Items:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
"#;

type Behaviour = Box<dyn Fn(&[String]) -> Result<Value, InvokeError> + Send + Sync>;

/// A function that records its batches and returns scripted results.
struct Scripted {
    behaviour: Behaviour,
    batches: Mutex<Vec<Vec<String>>>,
    /// While this is write-locked, invocations wait.
    hold: tokio::sync::RwLock<()>,
}

impl Scripted {
    fn new(behaviour: impl Fn(&[String]) -> Result<Value, InvokeError> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { behaviour: Box::new(behaviour), batches: Mutex::default(), hold: tokio::sync::RwLock::default() })
    }

    /// Returns these results, one for each invocation, and then success.
    fn in_turn<const N: usize>(results: [Result<Value, InvokeError>; N]) -> Arc<Self> {
        let results = Mutex::new(results.into_iter());
        Self::new(move |_| results.lock().unwrap().next().unwrap_or(Ok(Value::Null)))
    }

    fn batches(&self) -> Vec<Vec<String>> {
        self.batches.lock().unwrap().clone()
    }
}

#[async_trait]
impl Runner for Scripted {
    async fn invoke(&self, _: &str, payload: Value) -> Result<Value, InvokeError> {
        let records = payload["Records"].as_array().unwrap().iter();
        let name =
            |record: &Value| record["body"].as_str().or(record["dynamodb"]["Keys"]["id"]["S"].as_str()).unwrap().to_owned();
        let names: Vec<String> = records.clone().map(name).collect();
        self.batches.lock().unwrap().push(names.clone());
        let _held = self.hold.read().await;
        let response = (self.behaviour)(&names)?;
        // A script names items by content; the result names them by identifier.
        let id = |wanted: &Value| {
            let index = names.iter().position(|name| wanted == name.as_str())?;
            let record = &payload["Records"][index];
            Some(record["messageId"].as_str().or(record["dynamodb"]["SequenceNumber"].as_str())?.to_owned())
        };
        let failures = response.as_array().map(|items| {
            items.iter().map(|item| json!({ "itemIdentifier": id(item).unwrap_or("unknown".into()) })).collect::<Vec<_>>()
        });
        Ok(failures.map_or(response, |failures| json!({ "batchItemFailures": failures })))
    }

    fn kill(&self) -> usize {
        0
    }
}

fn failure() -> InvokeError {
    InvokeError::Failed { kind: "Error".to_owned(), message: "told to".to_owned() }
}

struct Bench {
    core: Arc<Core>,
    engine: DynamoDb,
    writer: Database,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    folder: TempDir,
}

impl Bench {
    fn start(worker: &Arc<Scripted>, projector: &Arc<Scripted>) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), worker, projector)
    }

    fn start_in(folder: TempDir, worker: &Arc<Scripted>, projector: &Arc<Scripted>) -> Self {
        let template = Template::parse(TEMPLATE, &Bindings::default()).unwrap();
        let surroundings = Surroundings::default();
        let metrics = Arc::new(Metrics::new().unwrap());
        let engine = DynamoDb::start(&folder.path().join("dynamodb.sqlite"), &template, &surroundings, &metrics).unwrap();
        let items = &template.tables["Items"];
        engine.ensure(items).unwrap();
        let load = |connection: &rusqlite::Connection| {
            let sequence =
                connection.query_row("SELECT COALESCE(MAX(sequence), 0) FROM positions", [], |row| row.get::<_, i64>(0))?;
            Ok((journal::load(connection)?, sequence))
        };
        let (store, (messages, sequence)) = Store::open(&folder.path().join("local.sqlite"), load).unwrap();
        let store = Arc::new(store);
        let entries = Arc::new(AtomicU64::new(0));
        let unit = |id: &str, runner: Arc<dyn Runner>| {
            let gate = Arc::new(Gate::new(Arc::clone(&entries)));
            (id.to_owned(), Unit { function: template.functions[id].clone(), environment: Arc::default(), runner, gate })
        };
        let units = BTreeMap::from([unit("Worker", Arc::clone(worker) as _), unit("Projector", Arc::clone(projector) as _)]);
        let position = Position {
            table: "Items".into(),
            table_name: "Items".into(),
            arn: "arn:stream".into(),
            view: "NEW_AND_OLD_IMAGES".into(),
            sequence: AtomicI64::new(sequence),
            tail: None,
        };
        let queues = template.queues.values().cloned();
        let queues = Queues::new(queues, Arc::clone(&store), messages, Arc::clone(&surroundings.conditions));
        let bus = Arc::new(Bus::open(Arc::clone(&store), &folder.path().join("local.sqlite")).unwrap());
        let core = Arc::new(Core {
            units,
            queues: Source { own: Arc::new(queues), elsewhere: None },
            log: Arc::clone(&engine.log),
            store,
            bus,
            positions: [(position_key("Projector", "Items"), position)].into(),
            entries,
            surroundings,
            metrics,
            wrote: Notify::new(),
            retry_delay: Duration::from_millis(5),
            endpoints: Endpoints {
                dynamodb: String::new(),
                sqs: String::new(),
                events: String::new(),
                gateway: String::new(),
                redis: RedisOptions::new(""),
            },
            connections: crate::connections::Connections::default(),
            own_redis: Vec::new(),
            template,
        });
        let stop = CancellationToken::new();
        let context = Context { core: Arc::clone(&core), stop: stop.clone() };
        let tasks = super::start(&context, true);
        let writer = Database::new(folder.path().join("dynamodb.sqlite").to_str().unwrap()).unwrap();
        Self { core, engine, writer, stop, tasks, folder }
    }

    async fn send(&self, bodies: &[&str]) {
        for body in bodies {
            self.core.queues.send("Jobs", (*body).to_owned()).await.unwrap();
        }
    }

    fn write(&self, ids: &[&str]) {
        for id in ids {
            let put = json!({ "TableName": "Items", "Item": { "id": { "S": id } } });
            self.writer.put_item(serde_json::from_value(put).unwrap()).unwrap();
        }
        self.core.log.wrote();
    }

    /// Holds back a function during `work`, so that it finds all of the work at once. Waits until everything is done.
    async fn at_once(&self, function: &str, work: impl Future<Output = ()>) {
        self.unit(function).gate.pause().await;
        work.await;
        assert!(!self.core.status().await.unwrap().idle, "held work counts as work");
        self.unit(function).gate.resume();
        self.idle().await;
    }

    async fn idle(&self) {
        self.until(async || self.core.status().await.unwrap().idle).await;
    }

    async fn until(&self, condition: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(180);
        while !condition().await {
            assert!(Instant::now() < deadline, "the condition does not hold in time: {:?}", self.core.status().await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn unit(&self, name: &str) -> &Unit {
        self.core.unit(name).unwrap()
    }

    async fn stop(mut self) -> TempDir {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.core.store.close();
        drop(self.writer);
        self.engine.stop();
        self.folder
    }
}

fn well() -> Arc<Scripted> {
    Scripted::new(|_| Ok(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_returns_alone_until_it_is_a_dead_letter() {
    let worker = Scripted::new(|names| Ok(names.iter().filter(|name| name.starts_with("bad")).cloned().collect()));
    let bench = Bench::start(&worker, &well());
    bench.at_once("worker", bench.send(&["good", "bad", "fine"])).await;
    assert_eq!(worker.batches(), [vec!["good", "bad", "fine"], vec!["bad"], vec!["bad"]]);
    let dead = bench.core.queues.own.receive_now("Dead", 10, None).unwrap();
    assert_eq!(dead[0].body, "bad");
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_calm_weather_a_failed_message_returns_after_its_queues_visibility_timeout() {
    let worker = Scripted::new(|_| Err(failure()));
    let bench = Bench::start(&worker, &well());
    bench.core.surroundings.conditions.set(Weather::Aws, 1);
    let started = Instant::now();
    bench.send(&["slow"]).await;
    bench.until(async || worker.batches().len() == 2).await;
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    assert!(!bench.core.status().await.unwrap().idle, "a message that will return counts as work");
    // In calm weather, the third and last receive is soon.
    bench.core.set_weather(Weather::Calm, 1);
    let calm = Instant::now();
    bench.idle().await;
    assert_eq!(worker.batches().len(), 3);
    assert!(calm.elapsed() < Duration::from_secs(2), "{:?}", calm.elapsed());
    assert_eq!(bench.core.queues.own.counts("Dead").visible, 1, "the template's maxReceiveCount applies");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_or_a_result_that_names_unknown_items_fails_the_whole_batch() {
    let worker = Scripted::in_turn([Ok(json!(["stranger"])), Err(failure()), Ok(json!({}))]);
    let bench = Bench::start(&worker, &well());
    bench.at_once("worker", bench.send(&["a", "b"])).await;
    let mut handled: Vec<String> = worker.batches().concat();
    handled.sort();
    assert_eq!(handled, ["a", "a", "a", "b", "b", "b"]);
    assert!(bench.core.queues.own.counts("Dead").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_waits_for_invocations_in_flight_and_leaves_the_rest() {
    let worker = well();
    let bench = Bench::start(&worker, &well());
    let held = worker.hold.write().await;
    bench.send(&["first"]).await;
    bench.until(async || worker.batches().len() == 1).await;
    assert!(!bench.core.status().await.unwrap().idle);
    let gate = &bench.unit("worker").gate;
    let mut pause = Box::pin(gate.pause());
    assert!(futures::poll!(pause.as_mut()).is_pending(), "the first invocation is in flight");
    drop(held);
    pause.await;
    let open = bench.core.surroundings.open.enter();
    assert!(!bench.core.status().await.unwrap().idle, "a request that outlives its invocation counts as work");
    drop(open);
    assert!(bench.core.queues.own.counts("Jobs").is_empty(), "the message was deleted");
    bench.send(&["second"]).await;
    assert_eq!((worker.batches().len(), bench.core.queues.own.counts("Jobs").visible), (1, 1));
    gate.resume();
    bench.idle().await;
    assert_eq!(worker.batches(), [["first"], ["second"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_records_are_delivered_in_order_in_batches() {
    let projector = well();
    let bench = Bench::start(&well(), &projector);
    let written = async {
        bench.write(&["item1", "item2", "item3", "item4", "item5"]);
        assert_eq!(bench.core.status().await.unwrap().streams["Items"].behind, 5);
    };
    bench.at_once("projector", written).await;
    assert_eq!(projector.batches(), [vec!["item1", "item2", "item3", "item4"], vec!["item5"]]);

    let bench = Bench::start_in(bench.stop().await, &well(), &projector);
    bench.write(&["item6"]);
    bench.idle().await;
    assert_eq!(projector.batches()[2..], [["item6"]], "a restart continues at its position");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_stream_batch_is_split_retried_and_given_up_alone() {
    let projector =
        Scripted::new(|names| if names.iter().any(|name| name == "item3") { Err(failure()) } else { Ok(Value::Null) });
    let bench = Bench::start(&well(), &projector);
    bench.at_once("projector", async { bench.write(&["item1", "item2", "item3", "item4"]) }).await;
    let expected: [&[&str]; 6] =
        [&["item1", "item2", "item3", "item4"], &["item1", "item2"], &["item3", "item4"], &["item3"], &["item3"], &["item4"]];
    assert_eq!(projector.batches(), expected);
    let told = bench.core.queues.own.receive_now("Failures", 10, None).unwrap();
    let told: Value = serde_json::from_str(&told[0].body).unwrap();
    assert_eq!(told["requestContext"]["condition"], "RetryAttemptsExhausted");
    assert_eq!(told["requestContext"]["approximateInvokeCount"], 2);
    assert_eq!(told["DDBStreamBatchInfo"]["batchSize"], 1);
    assert_eq!(told["DDBStreamBatchInfo"]["startSequenceNumber"], told["DDBStreamBatchInfo"]["endSequenceNumber"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partly_failed_stream_batch_continues_at_its_first_failure() {
    let projector = Scripted::in_turn([Ok(json!(["item4", "item3"])), Ok(json!(["item3"])), Ok(json!([]))]);
    let bench = Bench::start(&well(), &projector);
    bench.at_once("projector", async { bench.write(&["item1", "item2", "item3", "item4"]) }).await;
    let expected: [&[&str]; 3] = [&["item1", "item2", "item3", "item4"], &["item3", "item4"], &["item3", "item4"]];
    assert_eq!(projector.batches(), expected);
    assert!(bench.core.queues.own.counts("Failures").is_empty());
}
