//! `make run`: starts the local stack and runs it until Ctrl-C or SIGTERM.

mod terminal;

use std::{io::IsTerminal as _, pin::pin, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::{Parser, builder::FalseyValueParser};
use tidemark_local::{Options, Stack};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use terminal::Terminal;

/// Runs everything that template.yaml declares on this machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Functions to run as processes, by binary name and separated by commas, or `all`.
    #[arg(long, env = "TIDEMARK_PROCESS_FUNCTIONS", value_delimiter = ',')]
    process_functions: Vec<String>,
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

fn log_filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn parameter(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "expected NAME=VALUE".to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let named = arguments.process_functions.into_iter().filter(|name| !name.is_empty());
    arguments.options.process_functions = named.collect();
    arguments.options.all_processes = arguments.options.process_functions.remove("all");
    let variables = std::env::vars().filter_map(|(name, value)| Some((name.strip_prefix("TIDEMARK_PARAM_")?.to_owned(), value)));
    arguments.options.parameters.extend(variables.chain(arguments.parameters));
    let filter = EnvFilter::new(&arguments.log);
    let ansi = std::io::stderr().is_terminal() && !arguments.no_color;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi);
    log.event_format(Terminal::default()).init();
    match run(arguments.options).await {
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
    let mut stop = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    let addr = options.addr;
    let stack = tokio::select! {
        stack = Stack::start(options) => stack?,
        () = &mut stop => return Ok(()),
    };
    announce(&stack);
    if !addr.ip().is_loopback() {
        eprintln!("warning: {addr} may be reachable from other machines. A caller can act as any user, and empty the stores.");
    }
    stop.await;
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
