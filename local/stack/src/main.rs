//! `make run`: starts the local stack and runs it until Ctrl-C or SIGTERM.

mod terminal;

use std::{
    collections::BTreeSet,
    io::{ErrorKind, IsTerminal as _},
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::{ArgAction, Parser, builder::FalseyValueParser};
use tidemark_local::{Options, RedisSetup, Stack, Weather};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use terminal::Terminal;

/// Runs everything that template.yaml declares on this machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Address of the API.
    #[arg(long, env = "TIDEMARK_ADDR", default_value = "127.0.0.1:3000", value_parser = address)]
    addr: SocketAddr,
    /// Data directory. A stack that starts on it again has the data of the earlier run.
    #[arg(long, env = "TIDEMARK_DATA", default_value = "./.tidemark")]
    data: PathBuf,
    /// Path of the template.
    #[arg(long, env = "TIDEMARK_TEMPLATE", default_value = "./template.yaml")]
    template: PathBuf,
    /// URL of a Redis to use instead of a child process.
    #[arg(long, env = "REDIS_URL", value_parser = redis_url)]
    redis_url: Option<String>,
    /// The URL belongs to a cluster. It names any of the nodes, or several separated by commas.
    #[arg(long, env = "REDIS_CLUSTER", action = ArgAction::Set, default_value_t = false)]
    redis_cluster: bool,
    /// Certificates (PEM) to trust for that Redis instead of the system's.
    #[arg(long, env = "REDIS_CA_FILE")]
    redis_ca_file: Option<PathBuf>,
    /// Functions read from replicas of a cluster where stale data is allowed.
    #[arg(long, env = "REDIS_REPLICA_READS", action = ArgAction::Set, default_value_t = false)]
    redis_replica_reads: bool,
    /// Redis to start if there is no URL: node, tls, cluster or tls-cluster.
    #[arg(long, env = "TIDEMARK_REDIS", default_value = "node")]
    redis: RedisSetup,
    /// Functions to run as processes, by binary name and separated by commas, or `all`.
    #[arg(long, env = "TIDEMARK_PROCESS_FUNCTIONS", value_delimiter = ',')]
    process_functions: Vec<String>,
    /// Directory of the functions' binaries.
    #[arg(long, env = "TIDEMARK_BIN_DIR")]
    bin_dir: Option<PathBuf>,
    /// Number of processes for each function that runs as processes.
    #[arg(long, env = "TIDEMARK_PROCESSES", default_value_t = 2)]
    processes: usize,
    /// DynamoDB and SQS to use instead of the stack's own, such as an emulator's: http://host:port.
    #[arg(long, env = "TIDEMARK_STORES_URL")]
    stores_url: Option<String>,
    /// Weather of the stores: calm, aws (its latencies, limits and timeouts) or storm (faults too).
    #[arg(long, env = "TIDEMARK_WEATHER", default_value = "calm")]
    weather: Weather,
    /// Seed of the weather's randomness.
    #[arg(long, env = "TIDEMARK_WEATHER_SEED")]
    weather_seed: Option<u64>,
    /// Milliseconds before a failed message (in calm weather) or a failed stream batch is tried again.
    #[arg(long, env = "TIDEMARK_RETRY_DELAY_MS", default_value_t = 1_000)]
    retry_delay_ms: u64,
    /// A template parameter, as `Name=value`. The variable `TIDEMARK_PARAM_<Name>` has the same effect.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// Log filter, in the syntax of `tracing_subscriber::EnvFilter`.
    #[arg(long, env = "RUST_LOG", default_value = "warn,dynoxide=error,tidemark_local::requests=info", value_parser = log_filter)]
    log: String,
    /// No colours, also on a terminal.
    #[arg(long, env = "NO_COLOR", value_parser = FalseyValueParser::new())]
    no_color: bool,
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

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn parameter(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "expected NAME=VALUE".to_owned())
}

impl Arguments {
    fn into_options(self) -> Options {
        let mut options = Options::new(self.data);
        options.addr = self.addr;
        options.template = self.template;
        options.redis_url = self.redis_url.filter(|url| !url.is_empty());
        options.redis_cluster = self.redis_cluster;
        options.redis_ca_file = self.redis_ca_file.filter(|path| !path.as_os_str().is_empty());
        options.redis_replica_reads = self.redis_replica_reads;
        options.redis = self.redis;
        options.process_functions = self.process_functions.into_iter().filter(|name| !name.is_empty()).collect::<BTreeSet<_>>();
        options.all_processes = options.process_functions.remove("all");
        options.bin_dir = self.bin_dir;
        options.processes = self.processes;
        options.retry_delay = Duration::from_millis(self.retry_delay_ms);
        options.stores_url = self.stores_url.filter(|url| !url.is_empty());
        options.weather = self.weather;
        options.weather_seed = self.weather_seed;
        let variables =
            std::env::vars().filter_map(|(name, value)| Some((name.strip_prefix("TIDEMARK_PARAM_")?.to_owned(), value)));
        options.parameters.extend(variables.chain(self.parameters));
        options
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::new(&arguments.log);
    let ansi = std::io::stderr().is_terminal() && !arguments.no_color;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi);
    log.event_format(Terminal::default()).init();
    match run(arguments.into_options()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidemark-local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let stack = tokio::select! {
        stack = Stack::start(options) => stack?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    announce(&stack);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("stopping…");
    stack.stop().await
}

fn announce(stack: &Stack) {
    let url = stack.base_url();
    let (weather, seed) = stack.weather();
    println!(
        "Tidemark is running.

  page and API  {url}/
  reference     {url}/docs
  data          {}
  DynamoDB      {}
  SQS           {}
  Redis         {}
  weather       {weather} (seed {seed})

Try it: user 1 follows user 2, user 2 publishes, user 1 reads.

  curl -X PUT -H 'Authorization: Bearer 1' {url}/v1/following/2
  curl -X POST -H 'Authorization: Bearer 2' -H 'Content-Type: application/json' -d '{{\"title\":\"Hello\"}}' {url}/v1/posts
  curl -H 'Authorization: Bearer 1' {url}/v1/feed
",
        stack.data_dir().display(),
        stack.dynamodb_endpoint(),
        stack.sqs_endpoint(),
        stack.redis_url(),
    );
}

#[cfg(test)]
mod tests {
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
    fn a_redis_url_without_a_scheme_is_refused_with_an_example() {
        for right in ["", "redis://localhost:6379", "rediss://user:secret@redis.example.com:6380", "redis://a:1,redis://b:2"] {
            assert_eq!(redis_url(right).as_deref(), Ok(right));
        }
        for wrong in ["localhost:6379", "http://localhost:6379", "redis://a:1,b:2", "redis:localhost"] {
            assert!(redis_url(wrong).expect_err(wrong).contains("such as redis://localhost:6379"));
        }
    }
}
