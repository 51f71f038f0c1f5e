//! Redis in tests: one node, one node with TLS, or a cluster, as `TIDEMARK_TEST_REDIS` selects (node, tls, cluster,
//! tls-cluster).

use std::{collections::BTreeMap, iter::Sum, str::FromStr, time::Duration};

use futures::FutureExt as _;
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisFuture, RedisResult, TlsCertificates, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClientBuilder,
    cluster_async::ClusterConnection,
};
use tidemark::views::{RedisOptions, Views};
use tidemark_local::{RedisData, RedisSetup};

use crate::{World, variable};

/// Tests that do not apply to a cluster, with the reason.
const ONE_NODE_ONLY: [(&str, &str); 3] = [
    ("cost::a_publish_costs_what_the_page_says", "counts calls for 35 followers each; on a cluster a call covers one bucket"),
    ("feed::an_unread_page_costs_as_much_as_any_page", "counts commands; on a cluster titles are one MGET for each slot"),
    ("notice_counts::a_count_costs_one_round_trip_of_two_commands_with_a_hundred_thousand_readers", "counts reads of one node"),
];

/// The timeout of the test's own Redis commands and connections. A test may send 100,000 commands at once, and a busy
/// machine may stand still for seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kind of Redis that the tests run on.
pub fn setup() -> RedisSetup {
    variable("TIDEMARK_TEST_REDIS").map_or_else(RedisSetup::default, |name| name.parse().expect("TIDEMARK_TEST_REDIS"))
}

/// Returns the reason why the current thread's test does not apply to this kind of Redis, if there is one.
pub(crate) fn reason_to_skip(setup: &RedisSetup) -> Option<&'static str> {
    let thread = std::thread::current();
    let this = |(name, _): &&(&str, &str)| thread.name().is_some_and(|thread| thread == *name);
    setup.cluster.and_then(|_| ONE_NODE_ONLY.iter().find(this)).map(|(_, reason)| *reason)
}

/// A connection to all of Redis. A command without a key goes to every master.
#[derive(Clone)]
pub enum Connection {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(crate) async fn open(options: &RedisOptions) -> Self {
        let clients = options.clients().expect("a Redis URL");
        if !options.cluster {
            return Self::Node(connect(&clients[0]).await.expect("Redis responds"));
        }
        let mut builder = ClusterClientBuilder::new(clients.into_iter().map(|client| client.get_connection_info().clone()))
            .connection_timeout(PATIENCE)
            .response_timeout(PATIENCE);
        if let Some(path) = &options.ca_file {
            let root_cert = Some(std::fs::read(path).expect("the authority's certificate"));
            builder = builder.certs(TlsCertificates { client_tls: None, root_cert });
        }
        let client = builder.build().expect("a cluster");
        Self::Cluster(client.get_async_connection().await.expect("the cluster responds"))
    }
}

async fn connect(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Node(node) => node.req_packed_command(command),
            Self::Cluster(cluster) => cluster.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(&'a mut self, pipeline: &'a Pipeline, offset: usize, count: usize) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Node(node) => node.req_packed_commands(pipeline, offset, count),
            Self::Cluster(cluster) => async move {
                let mut responses = Vec::with_capacity(count);
                for command in pipeline.cmd_iter() {
                    responses.push(cluster.req_packed_command(command).await?);
                }
                Ok(responses)
            }
            .boxed(),
        }
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// Redis servers that are connected and do not respond.
pub struct Hang(Vec<String>);

impl Hang {
    /// Makes the servers that gave these responses to `INFO server` hang.
    pub fn begin(infos: &[String]) -> Self {
        let pid = |info: &String| info.lines().find_map(|line| line.strip_prefix("process_id:")).map(|pid| pid.trim().to_owned());
        let hang = Self(infos.iter().filter_map(pid).collect());
        hang.signal("STOP");
        hang
    }

    fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").arg(format!("-{name}")).args(&self.0).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Lets the servers continue with their data.
    pub fn end(self) {
        self.signal("CONT");
    }
}

/// Redis servers that refuse all clients and keep their data and epoch.
pub struct Refusal(Vec<MultiplexedConnection>);

impl Refusal {
    /// Lets the servers accept clients again.
    pub async fn end(mut self) {
        for node in &mut self.0 {
            let set = redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(10_000).query_async::<()>(node).await;
            set.expect("CONFIG SET maxclients");
        }
    }
}

/// An outage of Redis for the functions: it refuses its clients and keeps its views, or it is stopped and loses them.
pub struct RedisOutage(Option<Refusal>);

impl RedisOutage {
    pub async fn end(self, world: &World) {
        match self.0 {
            Some(refusal) => refusal.end().await,
            None => world.stack.start_redis().await.expect("Redis starts"),
        }
    }
}

impl World {
    /// Makes Redis unavailable. `survives` decides whether it keeps its views.
    pub async fn redis_outage(&self, views_survive: bool) -> RedisOutage {
        if views_survive {
            return RedisOutage(Some(self.refuse_redis().await));
        }
        self.stack.stop_redis(RedisData::Lose).await.expect("Redis stops");
        RedisOutage(None)
    }

    /// Returns true if Redis is one node.
    pub fn is_one_node(&self) -> bool {
        !self.stack.redis_options().cluster
    }

    /// A connection as functions have it, with longer timeouts than theirs.
    pub fn patient_redis(&self) -> Views {
        let (connect_timeout, response_timeout) = (Duration::from_secs(5), Duration::from_secs(10));
        let options = RedisOptions { connect_timeout, response_timeout, ..self.stack.redis_options().clone() };
        Views::new(&options).expect("a Redis URL")
    }

    /// A connection of the test to all of Redis.
    pub async fn redis(&self) -> Connection {
        Connection::open(self.stack.redis_options()).await
    }

    /// Connections of the test to every running node.
    pub async fn redis_nodes(&self) -> Vec<MultiplexedConnection> {
        let mut nodes = Vec::new();
        for options in self.stack.redis_nodes() {
            nodes.extend(connect(&options.clients().expect("a Redis URL")[0]).await.ok());
        }
        nodes
    }

    /// Deletes all data in Redis.
    pub async fn flush_redis(&self) {
        redis::cmd("FLUSHALL").query_async::<()>(&mut self.redis().await).await.expect("FLUSHALL");
    }

    /// Makes every node hang until [`Hang::end`].
    pub async fn hang_redis(&self) -> Hang {
        Hang::begin(&self.redis_info("server").await)
    }

    /// Makes every node refuse all clients until `Refusal::end`. The refusal and the end of all other connections are
    /// one transaction, so that no client could drop the connection that ends the refusal.
    pub async fn refuse_redis(&self) -> Refusal {
        let mut refusal = Refusal(Vec::new());
        for options in self.stack.redis_nodes() {
            let clients = options.clients().expect("a Redis URL");
            while let Ok(mut node) = connect(&clients[0]).await {
                let mut refuse = redis::pipe();
                refuse.atomic().cmd("CONFIG").arg("SET").arg("maxclients").arg(1);
                refuse.cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal");
                if refuse.exec_async(&mut node).await.is_ok() {
                    refusal.0.push(node);
                    break;
                }
            }
        }
        refusal
    }

    /// The number of commands run, by name, summed over all nodes.
    pub async fn redis_calls(&self) -> BTreeMap<String, u64> {
        self.command_stats("calls").await
    }

    /// The microseconds that commands took, by name, summed over all nodes.
    pub async fn redis_micros(&self) -> BTreeMap<String, u64> {
        self.command_stats("usec").await
    }

    async fn command_stats(&self, wanted: &str) -> BTreeMap<String, u64> {
        // Each process of a function opens connections and loads scripts for itself.
        assert!(!self.options.all_processes, "a count of commands needs functions in this process");
        let mut stats = BTreeMap::new();
        for info in self.redis_info("commandstats").await {
            for (name, values) in info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':')) {
                let value =
                    values.split(',').find_map(|value| value.strip_prefix(wanted)?.strip_prefix('=')?.parse::<u64>().ok());
                *stats.entry(name.to_owned()).or_default() += value.unwrap_or_else(|| panic!("no {wanted} in {values}"));
            }
        }
        stats
    }

    /// Resets the counts of commands to zero.
    pub async fn forget_redis_calls(&self) {
        for mut node in self.redis_nodes().await {
            redis::cmd("CONFIG").arg("RESETSTAT").query_async::<()>(&mut node).await.expect("CONFIG RESETSTAT");
        }
    }

    /// The processor time of the threads that run commands, in microseconds, summed over all nodes. Unlike in
    /// [`Self::redis_micros`], other processes do not count.
    pub async fn redis_processor_micros(&self) -> f64 {
        let (user, system) = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread");
        1e6 * (self.redis_sum::<f64>("cpu", user).await + self.redis_sum::<f64>("cpu", system).await)
    }

    /// The sum over all nodes of a number in a section of INFO.
    pub async fn redis_sum<T: FromStr + Sum>(&self, section: &str, name: &str) -> T {
        let number =
            |info: &String| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
        let numbers: Option<Vec<T>> = self.redis_info(section).await.iter().map(number).collect();
        numbers.expect("every node gives it").into_iter().sum()
    }

    async fn redis_info(&self, section: &str) -> Vec<String> {
        let mut all = Vec::new();
        for mut node in self.redis_nodes().await {
            all.push(redis::cmd("INFO").arg(section).query_async(&mut node).await.expect("INFO"));
        }
        all
    }
}
