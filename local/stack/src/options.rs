//! The options of a stack.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::PathBuf,
    sync::mpsc::Sender,
    time::Duration,
};

use tidemark::views::RedisOptions;

use crate::{redis::RedisSetup, weather::Weather};

/// Options of a [`Stack`](crate::Stack). [`Options::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the API. Port 0 picks a free port.
    pub addr: SocketAddr,
    /// The data directory. A directory in RAM is faster if durability is not needed.
    pub data: PathBuf,
    /// Path of the template.
    pub template: PathBuf,
    /// A Redis to use instead of child processes: one node, or a cluster's nodes separated by commas.
    pub redis_url: Option<String>,
    /// True if `redis_url` names a cluster.
    pub redis_cluster: bool,
    /// Certificates to trust for `redis_url` instead of the system's.
    pub redis_ca_file: Option<PathBuf>,
    /// True if functions read from replicas of a cluster where stale data is allowed.
    pub redis_replica_reads: bool,
    /// The Redis to start if `redis_url` is `None`.
    pub redis: RedisSetup,
    /// Path of the `redis-server` binary.
    pub redis_server: PathBuf,
    /// Values of template parameters. They override the defaults. Users are not limited.
    pub parameters: BTreeMap<String, String>,
    /// Environment of all functions. It overrides the environment of the template and of the stack.
    pub environment: BTreeMap<String, String>,
    /// Binary names of the functions that run as processes. The others run in this process.
    pub process_functions: BTreeSet<String>,
    /// Run every function as processes.
    pub all_processes: bool,
    /// Directory of the functions' binaries. Required for functions that run as processes.
    pub bin_dir: Option<PathBuf>,
    /// Number of processes for each such function.
    pub processes: usize,
    /// The shortest timeout of a function in seconds. It overrides shorter timeouts of the template for slow
    /// machines.
    pub least_timeout_seconds: u64,
    /// The delay before a failed message (in calm weather) or a failed stream batch is tried again.
    pub retry_delay: Duration,
    /// The weather at the start.
    pub weather: Weather,
    /// The seed of the weather's randomness. Without it, the stack picks one.
    pub weather_seed: Option<u64>,
    /// The URL of DynamoDB and SQS to use instead of the stack's own. The weather must be calm.
    pub stores_url: Option<String>,
    /// Gets the [lines](tidemark::telemetry) of functions that run in this process. Without it they go to the debug
    /// log.
    pub lines: Option<Sender<String>>,
    /// True if schedules fire at their times. They can be fired on demand in either case.
    pub schedules: bool,
}

impl Options {
    /// The defaults: `template.yaml` of the working directory, a free port, a Redis child process, all functions in
    /// this process.
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
            // A tool or a test is one user who sends many requests.
            parameters: ["Posts", "Follows", "Reactions", "Marks", "Reads"]
                .map(|kind| (format!("Limit{kind}"), "0".to_owned()))
                .into(),
            environment: BTreeMap::new(),
            process_functions: BTreeSet::new(),
            all_processes: false,
            bin_dir: None,
            processes: 2,
            least_timeout_seconds: 0,
            retry_delay: Duration::from_secs(1),
            weather: Weather::default(),
            weather_seed: None,
            stores_url: None,
            lines: None,
            schedules: true,
        }
    }

    pub(crate) fn external_redis(&self) -> Option<RedisOptions> {
        let mut options = RedisOptions::new(self.redis_url.clone()?);
        options.cluster = self.redis_cluster;
        options.ca_file.clone_from(&self.redis_ca_file);
        options.replica_reads = self.redis_replica_reads;
        Some(options)
    }
}
