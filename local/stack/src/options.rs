//! The options of a stack, and how its command line gives them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    net::{SocketAddr, ToSocketAddrs as _},
    num::ParseIntError,
    path::PathBuf,
    sync::mpsc::Sender,
    time::Duration,
};

use clap::{ArgAction, Args};
use tidemark::views::RedisOptions;
use tokio::sync::Semaphore;

use crate::{redis::RedisSetup, weather::Weather};

/// Options of a [`Stack`](crate::Stack). [`Options::new`] has the defaults of a library, the attributes those of a
/// command line. An empty URL or certificate path counts as not given.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Address of the API. Port 0 picks a free port.
    #[arg(long, env = "TIDEMARK_ADDR", default_value = "127.0.0.1:3000", value_parser = address)]
    pub addr: SocketAddr,
    /// Names under which the stack is called, beside localhost and addresses, separated by commas.
    #[arg(long, env = "TIDEMARK_HOSTS", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Data directory. A stack that starts on it again has the data of the earlier run. In RAM it is faster.
    #[arg(long, env = "TIDEMARK_DATA", default_value = "./.tidemark")]
    pub data: PathBuf,
    /// Path of the template.
    #[arg(long, env = "TIDEMARK_TEMPLATE", default_value = "./template.yaml")]
    pub template: PathBuf,
    /// URL of a Redis to use instead of a child process.
    #[arg(long, env = "REDIS_URL", value_parser = redis_url)]
    pub redis_url: Option<String>,
    /// The URL belongs to a cluster. It names any of the nodes, or several separated by commas.
    #[arg(long, env = "REDIS_CLUSTER", action = ArgAction::Set, default_value_t = false)]
    pub redis_cluster: bool,
    /// Certificates (PEM) to trust for that Redis instead of the system's.
    #[arg(long, env = "REDIS_CA_FILE")]
    pub redis_ca_file: Option<PathBuf>,
    /// Functions read from replicas of a cluster where stale data is allowed.
    #[arg(long, env = "REDIS_REPLICA_READS", action = ArgAction::Set, default_value_t = false)]
    pub redis_replica_reads: bool,
    /// Redis to start if there is no URL: node, tls, cluster or tls-cluster.
    #[arg(long, env = "TIDEMARK_REDIS", default_value = "node")]
    pub redis: RedisSetup,
    /// The server to start.
    #[arg(skip = redis_server())]
    pub redis_server: PathBuf,
    /// Values of template parameters. They override the defaults. Users are not limited, and `Bearer 7` is user 7.
    #[arg(skip = local_parameters())]
    pub parameters: BTreeMap<String, String>,
    /// Environment of all functions. It overrides the environment of the template and of the stack.
    #[arg(skip)]
    pub environment: BTreeMap<String, String>,
    /// Binary names of the functions that run as processes. The others run in this process.
    #[arg(skip)]
    pub process_functions: BTreeSet<String>,
    /// Run every function as processes.
    #[arg(skip)]
    pub all_processes: bool,
    /// Directory of the functions' binaries. Functions that run as processes need it.
    #[arg(long, env = "TIDEMARK_BIN_DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Number of processes for each function that runs as processes.
    #[arg(long, env = "TIDEMARK_PROCESSES", default_value_t = 2)]
    pub processes: usize,
    /// Requests of the API that functions may work on at once. Others get 503 without waiting, as they do beyond
    /// Lambda's quota of concurrent executions.
    #[arg(long, env = "TIDEMARK_CONCURRENCY", default_value_t = 1_000)]
    pub concurrency: usize,
    /// The shortest timeout of a function in seconds, for slow machines. It overrides shorter ones of the template.
    #[arg(skip)]
    pub least_timeout_seconds: u64,
    /// DynamoDB and SQS to use instead of the stack's own, such as an emulator's: http://host:port.
    #[arg(long, env = "TIDEMARK_STORES_URL")]
    pub stores_url: Option<String>,
    /// Weather of the stores: calm, aws (its latencies, limits and timeouts) or storm (faults too).
    #[arg(long, env = "TIDEMARK_WEATHER", default_value = "calm")]
    pub weather: Weather,
    /// Seed of the weather's randomness.
    #[arg(long, env = "TIDEMARK_WEATHER_SEED")]
    pub weather_seed: Option<u64>,
    /// Milliseconds before a failed message (in calm weather) or a failed stream batch is tried again.
    #[arg(long = "retry-delay-ms", value_name = "RETRY_DELAY_MS", value_parser = milliseconds)]
    #[arg(env = "TIDEMARK_RETRY_DELAY_MS", default_value = "1000")]
    pub retry_delay: Duration,
    /// Gets the [lines](tidemark::telemetry) of functions in this process. Without it they go to the debug log.
    #[arg(skip)]
    pub lines: Option<Sender<String>>,
    /// True if schedules fire at their times. They can be fired on demand in either case.
    #[arg(skip = true)]
    pub schedules: bool,
}

impl Options {
    /// `template.yaml` of the working directory, a free port, a Redis child process, all functions in this process.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            hosts: Vec::new(),
            data: data.into(),
            template: PathBuf::from("template.yaml"),
            redis_url: None,
            redis_cluster: false,
            redis_ca_file: None,
            redis_replica_reads: false,
            redis: RedisSetup::default(),
            redis_server: redis_server(),
            parameters: local_parameters(),
            environment: BTreeMap::new(),
            process_functions: BTreeSet::new(),
            all_processes: false,
            bin_dir: None,
            processes: 2,
            concurrency: Semaphore::MAX_PERMITS,
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
        Some(RedisOptions {
            cluster: self.redis_cluster,
            ca_file: self.redis_ca_file.clone().filter(|path| !path.as_os_str().is_empty()),
            replica_reads: self.redis_replica_reads,
            ..RedisOptions::new(self.redis_url.clone().filter(|url| !url.is_empty())?)
        })
    }
}

/// The server that a stack starts: `valkey-server`, which a deployment runs, or `redis-server` where that is not
/// installed.
pub fn redis_server() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    first_of(["valkey-server", "redis-server"], std::env::split_paths(&path).collect())
}

/// The path of the first of these programs that one of the folders has; the last one's name if there is none.
fn first_of(names: [&str; 2], folders: Vec<PathBuf>) -> PathBuf {
    let found = names.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()));
    found.unwrap_or_else(|| PathBuf::from(names[1]))
}

/// Parameters whose defaults differ from those of a deployment. A tool or a test is one user who sends many requests,
/// names users by their ids, imports from a server of its own, and reads events.
fn local_parameters() -> BTreeMap<String, String> {
    let unlimited = ["Posts", "Follows", "Reactions", "Marks", "Reads"].map(|kind| (format!("Limit{kind}"), "0".to_owned()));
    let others = [("UserIds", "numeric"), ("MigrationSources", "*"), ("EventBus", "local")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    unlimited.into_iter().chain(others).collect()
}

fn milliseconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}

/// An address with a port. The host may be a name: the first IPv4 address of it is used.
fn address(text: &str) -> Result<SocketAddr, String> {
    let form = || "write a host and a port without http://, such as 127.0.0.1:3000 or localhost:3000".to_owned();
    if text.contains('/') || text.starts_with(':') {
        return Err(form());
    }
    let found: Vec<SocketAddr> = match text.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(form()),
        Err(error) => return Err(format!("the host has no address: {error}")),
    };
    found.iter().find(|address| address.is_ipv4()).or(found.first()).copied().ok_or_else(form)
}

/// A URL of Redis, several separated by commas, or nothing.
fn redis_url(text: &str) -> Result<String, String> {
    let known = |url: &str| ["redis://", "rediss://"].iter().any(|scheme| url.trim().starts_with(scheme));
    match text.is_empty() || text.split(',').all(known) {
        true => Ok(text.to_owned()),
        false => Err("write redis:// or rediss:// before the host, such as redis://localhost:6379".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_address_may_have_a_name_and_a_wrong_one_is_refused_with_an_example() {
        for right in ["127.0.0.1:3000", "localhost:3000", "0.0.0.0:3000", "[::1]:3000"] {
            assert_eq!(address(right).map(|address| address.port()), Ok(3000), "{right}");
        }
        for wrong in ["3000", ":3000", "localhost", "http://localhost:3000", "localhost:x", "localhost:70000", ""] {
            let message = address(wrong).expect_err(wrong);
            assert!(message.contains("such as 127.0.0.1:3000"), "{message}");
        }
        let message = address("nothing.invalid:3000").unwrap_err();
        assert!(message.starts_with("the host has no address: "), "{message}");
    }

    #[test]
    fn the_server_is_valkey_or_else_redis() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let choose = || first_of(["valkey-server", "redis-server"], vec![first.clone(), second.clone()]);
        assert_eq!(choose(), Path::new("redis-server"), "the error message names it");
        for (folder, name) in [(&first, "redis-server"), (&second, "valkey-server")] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(name), "").unwrap();
            assert_eq!(choose(), folder.join(name));
        }
    }

    #[test]
    fn a_redis_url_without_a_scheme_is_refused_with_an_example() {
        for right in ["", "redis://localhost:6379", "rediss://user:secret@redis.example.com:6380", "redis://a:1,redis://b:2"] {
            assert_eq!(redis_url(right).as_deref(), Ok(right));
        }
        for wrong in ["localhost:6379", "http://localhost:6379", "redis://a:1,b:2", "redis:localhost"] {
            assert!(redis_url(wrong).expect_err(wrong).contains("such as redis://localhost:6379"));
        }
    }
}
