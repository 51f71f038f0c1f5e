//! What can be chosen when a stack is started.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use tidemark::views::RedisOptions;

use crate::{redis::RedisSetup, weather::Weather};

/// How to start a [`Stack`](crate::Stack). [`Options::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the API is served; port 0 picks a free one.
    pub addr: SocketAddr,
    /// Where everything is kept. A RAM-backed folder is faster where durability is not wanted.
    pub data: PathBuf,
    /// The template to embody.
    pub template: PathBuf,
    /// A Redis to use instead of child processes: one node, or a cluster's nodes separated by commas.
    pub redis_url: Option<String>,
    /// Whether that is a cluster.
    pub redis_cluster: bool,
    /// Certificates to trust there instead of the system's.
    pub redis_ca_file: Option<PathBuf>,
    /// Whether functions read from replicas of a cluster what may be a moment old.
    pub redis_replica_reads: bool,
    /// What is started otherwise.
    pub redis: RedisSetup,
    /// The `redis-server` to start.
    pub redis_server: PathBuf,
    /// Values for template parameters, over their defaults.
    pub parameters: BTreeMap<String, String>,
    /// Environment of all functions, over the template's and the stack's own.
    pub environment: BTreeMap<String, String>,
    /// Binary names of functions to run as processes instead of in this one.
    pub process_functions: BTreeSet<String>,
    /// Run every function as processes.
    pub all_processes: bool,
    /// Where the functions' binaries are; needed for functions run as processes.
    pub bin_dir: Option<PathBuf>,
    /// How many processes each such function has.
    pub processes: usize,
    /// Seconds that every function may take at least, whatever the template says: tests on a slow machine ask for more.
    pub least_timeout_seconds: u64,
    /// How long a failed message, in calm, or a failed stream batch waits for its next attempt.
    pub retry_delay: Duration,
    /// What the stores are like at first.
    pub weather: Weather,
    /// Where the randomness of the weather starts; without one, anywhere.
    pub weather_seed: Option<u64>,
    /// Threads that serve DynamoDB.
    pub dynamodb_threads: usize,
    /// Whether schedules fire by themselves. They can be fired on demand all the same.
    pub schedules: bool,
}

impl Options {
    /// The defaults: `template.yaml` of the working directory, a free port, a Redis of its own, everything in process.
    #[must_use]
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            data: data.into(),
            template: PathBuf::from("template.yaml"),
            redis_url: None,
            redis_cluster: false,
            redis_ca_file: None,
            redis_replica_reads: false,
            redis: RedisSetup::default(),
            redis_server: PathBuf::from("redis-server"),
            parameters: BTreeMap::new(),
            environment: BTreeMap::new(),
            process_functions: BTreeSet::new(),
            all_processes: false,
            bin_dir: None,
            processes: 2,
            least_timeout_seconds: 0,
            retry_delay: Duration::from_secs(1),
            weather: Weather::default(),
            weather_seed: None,
            dynamodb_threads: 2,
            schedules: true,
        }
    }

    /// The Redis to use, when one is given.
    pub(crate) fn external_redis(&self) -> Option<RedisOptions> {
        let mut options = RedisOptions::new(self.redis_url.clone()?);
        options.cluster = self.redis_cluster;
        options.ca_file.clone_from(&self.redis_ca_file);
        options.replica_reads = self.redis_replica_reads;
        Some(options)
    }
}
