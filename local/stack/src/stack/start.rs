//! Starts the parts of a stack, each after the parts that it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use rusqlite::Connection;
use tokio::{
    net::TcpListener,
    sync::{Mutex, Notify},
};
use tokio_util::sync::CancellationToken;

use super::Stack;
use crate::{
    Options,
    bus::{self, Bus},
    connections::Connections,
    core::{Core, Position, Unit},
    data_dir::DataDir,
    dynamodb::DynamoDb,
    elsewhere::{Elsewhere, Tail},
    gateway::{self, Routes},
    metrics::Metrics,
    pollers::{self, gate::Gate, position_key},
    redis::{self, Redis},
    runner::{self, Endpoints, InProcess, Processes, Runner, RuntimeApi, WorkerSettings},
    sqs::{self, Queues, journal},
    store::Store,
    template::{Bindings, EventSource, Function, Template},
    weather::{Surroundings, Weather, any_seed},
};

/// The file of the stack's own state in the data directory.
const LOCAL_STORE: &str = "local.sqlite";

impl Stack {
    /// Starts everything that the template declares. Returns when the stack accepts requests. A failure (a mistake in
    /// the template, a data directory in use, a taken address, no Redis, a function) stops what was started.
    pub async fn start(options: Options) -> Result<Self> {
        let data = DataDir::open(&options.data).await?;
        let plan = Plan::read(&options).await?;
        let (external, folder) = (options.external_redis(), data.path.join("redis"));
        let redis = Redis::start(external, options.redis, options.redis_replica_reads, &options.redis_server, &folder).await?;
        let surroundings = Surroundings::new(options.weather, options.weather_seed.unwrap_or_else(any_seed));
        let metrics = Arc::new(Metrics::new()?);
        let mut stores = Stores::open(&plan, &data, &surroundings, &metrics).await?;
        let dynamodb = plan.elsewhere.as_ref().map_or(&stores.dynamodb.endpoint, |elsewhere| &elsewhere.url).clone();
        let (bus_listener, events) = bus::bind().await?;
        let endpoints = Endpoints { dynamodb, sqs: plan.sqs, events, gateway: plan.gateway, redis: redis.options() };
        let (ending, entries) = (CancellationToken::new().drop_guard(), Arc::new(AtomicU64::new(0)));
        let queues = Arc::clone(&stores.queues);
        let queue_server = sqs::serve(plan.queue_listener, queues, surroundings.clone(), ending.token().clone());
        let bus = Arc::new(Bus::open(Arc::clone(&stores.store), &data.path.join(LOCAL_STORE))?);
        let bus_server = bus::serve(bus_listener, Arc::clone(&bus), surroundings.clone(), ending.token().clone());
        let (units, runtime_api) = start_functions(&options, &plan.template, &endpoints, &data, &entries).await?;
        let positions = stores.positions(&plan.template, plan.elsewhere.as_ref())?;
        stores.dynamodb.keep_tidy()?;

        let core = Arc::new(Core {
            template: plan.template,
            units,
            queues: sqs::Source { own: stores.queues, elsewhere: plan.elsewhere },
            log: Arc::clone(&stores.dynamodb.log),
            store: stores.store,
            bus,
            positions,
            entries,
            surroundings,
            metrics,
            wrote: Notify::new(),
            retry_delay: options.retry_delay,
            endpoints,
            connections: Connections::default(),
            own_redis: if redis.is_own() { redis.nodes() } else { Vec::new() },
        });
        connect_faults(&core);
        let stopping = CancellationToken::new().drop_guard();
        let context = pollers::Context { core: Arc::clone(&core), stop: stopping.token().clone() };
        let mut pollers = pollers::start(&context, options.schedules);
        let (redis_nodes, redis) = (redis.nodes(), Arc::new(Mutex::new(redis)));
        pollers.spawn(redis::watch(Arc::clone(&redis), context.stop));
        let closing = CancellationToken::new().drop_guard();
        let gateway = gateway::serve(plan.listener, Arc::clone(&core), plan.routes, &options, closing.token().clone());
        Ok(Self {
            core,
            redis_nodes,
            redis,
            dynamodb: stores.dynamodb,
            runtime_api,
            pollers,
            gateway,
            queue_server,
            bus_server,
            closing,
            stopping,
            ending,
            data,
        })
    }
}

/// The checked template, and the addresses that the stack listens on.
struct Plan {
    gateway: String,
    listener: TcpListener,
    routes: Routes,
    template: Template,
    sqs: String,
    elsewhere: Option<Elsewhere>,
    queue_listener: TcpListener,
}

impl Plan {
    async fn read(options: &Options) -> Result<Self> {
        let (queue_listener, own_sqs) = sqs::bind().await?;
        let stores_url = options.stores_url.as_deref().filter(|url| !url.is_empty());
        ensure!(stores_url.is_none() || options.weather == Weather::Calm, "stores elsewhere have no weather but calm");
        let elsewhere = stores_url.map(Elsewhere::new).transpose()?;
        let sqs = elsewhere.as_ref().map_or(own_sqs, |elsewhere| elsewhere.url.clone());
        let bindings = Bindings { sqs_endpoint: sqs.clone(), parameters: options.parameters.clone() };
        let mut template = Template::load(&options.template, &bindings)?;
        check_process_functions(options, &template)?;
        for function in template.functions.values_mut() {
            function.timeout_seconds = function.timeout_seconds.max(options.least_timeout_seconds);
        }
        let routes = Routes::of(&template)?;
        let listener = TcpListener::bind(options.addr).await;
        let listener = listener.with_context(|| format!("cannot listen on {} (TIDEMARK_ADDR)", options.addr))?;
        let gateway = format!("http://{}", listener.local_addr()?);
        Ok(Self { gateway, listener, routes, template, sqs, elsewhere, queue_listener })
    }
}

fn check_process_functions(options: &Options, template: &Template) -> Result<()> {
    let known: BTreeSet<&str> = template.functions.values().map(|function| function.binary.as_str()).collect();
    let unknown = options.process_functions.iter().find(|name| !known.contains(name.as_str()));
    unknown.map_or(Ok(()), |unknown| {
        bail!("TIDEMARK_PROCESS_FUNCTIONS: no function is called `{unknown}`, only {}", Vec::from_iter(known).join(", "))
    })
}

/// The tables and queues of the template with their data, before any function uses them.
struct Stores {
    queues: Arc<Queues>,
    store: Arc<Store>,
    /// The stored positions of stream readers, by [`position_key`].
    known: BTreeMap<String, i64>,
    /// ARNs of streams by the table's logical id.
    streams: BTreeMap<String, String>,
    dynamodb: DynamoDb,
}

impl Stores {
    /// Opens the files in the data directory, and creates the tables and queues that do not exist.
    async fn open(plan: &Plan, data: &DataDir, surroundings: &Surroundings, metrics: &Arc<Metrics>) -> Result<Self> {
        let dynamodb = DynamoDb::start(&data.path.join("dynamodb.sqlite"), &plan.template, surroundings, metrics)?;
        let mut streams = BTreeMap::new();
        for table in plan.template.tables.values() {
            let arn = match &plan.elsewhere {
                Some(elsewhere) => elsewhere.ensure_table(table).await?,
                None => dynamodb.ensure(table)?,
            };
            streams.extend(arn.map(|arn| (table.logical_id.clone(), arn)));
        }
        let load = |connection: &Connection| Ok((journal::load(connection)?, read_positions(connection)?));
        let (store, (messages, known)) = Store::open(&data.path.join(LOCAL_STORE), load)?;
        let store = Arc::new(store);
        let declared = plan.template.queues.values().cloned();
        let queues = Arc::new(Queues::new(declared, Arc::clone(&store), messages, Arc::clone(&surroundings.conditions)));
        if let Some(elsewhere) = &plan.elsewhere {
            elsewhere.ensure_queues(&queues).await?;
        }
        Ok(Self { queues, store, known, streams, dynamodb })
    }

    /// The position of each function in the streams that it reads: the known one, or the end that the template names.
    fn positions(&self, template: &Template, elsewhere: Option<&Elsewhere>) -> Result<BTreeMap<String, Position>> {
        let mut positions = BTreeMap::new();
        for (function, source) in template.sources() {
            let EventSource::Stream(source) = source else { continue };
            let stream = template.tables.get(&source.table).zip(self.streams.get(&source.table));
            let (table, arn) = stream.with_context(|| format!("table `{}` has no stream", source.table))?;
            let key = position_key(&function.logical_id, &table.name);
            let sequence = match self.known.get(&key) {
                Some(sequence) => *sequence,
                None if source.from_oldest => 0,
                None => self.dynamodb.log.newest(&table.name)?,
            };
            self.dynamodb.log.consumed(&table.name, &key, sequence);
            let position = Position {
                table: source.table.clone(),
                table_name: table.name.clone(),
                arn: arn.clone(),
                view: table.stream_view.clone().unwrap_or_default(),
                sequence: AtomicI64::new(sequence),
                tail: elsewhere.map(|elsewhere| Tail::new(elsewhere.clone(), arn.clone())),
            };
            positions.insert(key, position);
        }
        Ok(positions)
    }
}

fn read_positions(connection: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    let mut statement = connection.prepare("SELECT source, sequence FROM positions")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Starts the functions. The Runtime API runs if any function runs as processes.
async fn start_functions(
    options: &Options,
    template: &Template,
    endpoints: &Endpoints,
    data: &DataDir,
    entries: &Arc<AtomicU64>,
) -> Result<(BTreeMap<String, Unit>, Option<RuntimeApi>)> {
    let runtime_api = match template.functions.values().any(|function| as_process(options, function)) {
        true => Some(RuntimeApi::start().await?),
        false => None,
    };
    let units = template.functions.values().map(async |function| {
        let environment = runner::environment(function, endpoints, &options.environment);
        let runner = start_runner(options, function, Arc::clone(&environment), runtime_api.as_ref(), data).await?;
        let gate = Arc::new(Gate::new(Arc::clone(entries)));
        anyhow::Ok((function.logical_id.clone(), Unit { function: function.clone(), environment, runner, gate }))
    });
    let units = try_join_all(units).await?.into_iter().collect();
    Ok((units, runtime_api))
}

fn as_process(options: &Options, function: &Function) -> bool {
    options.all_processes || options.process_functions.contains(&function.binary)
}

async fn start_runner(
    options: &Options,
    function: &Function,
    environment: Arc<BTreeMap<String, String>>,
    runtime_api: Option<&RuntimeApi>,
    data: &DataDir,
) -> Result<Arc<dyn Runner>> {
    let Some(runtime_api) = runtime_api.filter(|_| as_process(options, function)) else {
        return Ok(Arc::new(InProcess::start(function, &environment, options.lines.clone()).await?));
    };
    let folder = options.bin_dir.as_ref();
    let folder = folder.context("functions can run as processes only if the folder of their binaries is given")?;
    let logs = data.path.join("logs");
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let settings = WorkerSettings {
        binary: folder.join(&function.binary),
        count: options.processes,
        environment,
        runtime_api: runtime_api.address.clone(),
        log: logs.join(format!("{}.log", function.binary)),
    };
    let processes = Processes::start(function, settings)?;
    runtime_api.add(&function.binary, &processes);
    Ok(Arc::new(processes))
}

/// Lets [`Faults`](crate::Faults) kill the invocations of this stack.
fn connect_faults(core: &Arc<Core>) {
    let killed = Arc::downgrade(core);
    core.surroundings.faults.kill_with(move |function| {
        killed.upgrade().and_then(|core| Some(core.unit(function)?.runner.kill())).unwrap_or_default()
    });
}
