//! `make run`: starts the local stack and runs it until Ctrl-C, SIGTERM or SIGHUP.

mod terminal;

use std::{ffi::OsString, io::IsTerminal as _, pin::pin, process::ExitCode, sync::Arc};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, builder::FalseyValueParser};
use tidemark_local::{Options, Stack};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use terminal::{Repeats, Terminal};

/// With another filter, each warning is printed with all its fields.
const FILTER: &str = "warn,dynoxide=error,tidemark_local::requests=info,tidemark_local::redis=info";
const PARAMETER: &str = "TIDEMARK_PARAM_";

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
    #[arg(long, env = "RUST_LOG", default_value = FILTER, value_parser = log_filter)]
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
    let variables = std::env::vars().filter_map(|(name, value)| Some((name.strip_prefix(PARAMETER)?.to_owned(), value)));
    arguments.options.parameters.extend(variables.chain(arguments.parameters));
    let filter = EnvFilter::new(&arguments.log);
    let ansi = std::io::stderr().is_terminal() && !arguments.no_color;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi);
    let repeats = (arguments.log == FILTER).then(Arc::<Repeats>::default);
    log.event_format(Terminal::new(repeats.clone())).init();
    if let Some(repeats) = repeats {
        tokio::spawn(async move { repeats.print().await });
    }
    for (name, nearest) in unknown_variables(std::env::vars_os().map(|(name, _)| name)) {
        eprintln!("warning: {name} is not a variable of the stack. The nearest is {nearest}.");
    }
    match run(arguments.options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidemark-local: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The variables that look like the stack's and are not, each with the nearest name of the command line's.
fn unknown_variables(names: impl IntoIterator<Item = OsString>) -> Vec<(String, String)> {
    let command = Arguments::command();
    let known = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let known: Vec<&str> = known.chain([PARAMETER]).filter(|name| name.starts_with("TIDEMARK_")).collect();
    let names = names.into_iter().filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with("TIDEMARK_"));
    let unknown = names.filter(|name| !name.starts_with(PARAMETER) && !known.contains(&&**name));
    let with_nearest = |name: String| {
        let nearest = known.iter().min_by_key(|known| strsim::levenshtein(known, &name))?.to_string();
        Some((name, nearest))
    };
    unknown.filter_map(with_nearest).collect()
}

/// Waits for a signal that ends the stack. SIGHUP does not end a process that `nohup` has started.
async fn stop_signal() -> Result<()> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let ignored = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let mut hang_up = if ignored.unwrap_or(0) & 1 == 0 { Some(listen(SignalKind::hangup())?) } else { None };
    let hung_up = async {
        match &mut hang_up {
            Some(hang_up) => hang_up.recv().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hung_up => {}
    }
    Ok(())
}

async fn run(options: Options) -> Result<()> {
    let mut stop = pin!(stop_signal());
    let addr = options.addr;
    let stack = tokio::select! {
        stack = Stack::start(options) => stack?,
        stopped = &mut stop => return stopped,
    };
    announce(&stack);
    if !addr.ip().is_loopback() {
        eprintln!("warning: {addr} may be reachable from other machines. A caller can act as any user, and empty the stores.");
    }
    stop.await?;
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
    fn a_variable_that_has_no_effect_is_named_with_the_nearest_that_has_one() {
        let names = [
            "TIDEMARK_ADDR",
            "TIDEMARK_PARAM_FeedCap",
            "HOME",
            "TIDEMARK_ADRR",
            "TIDEMARK_PROCES_FUNCTIONS",
            "TIDEMARK_REDIS_URL",
        ];
        let unknown = unknown_variables(names.map(OsString::from));
        let nearest = [
            ("TIDEMARK_ADRR", "TIDEMARK_ADDR"),
            ("TIDEMARK_PROCES_FUNCTIONS", "TIDEMARK_PROCESS_FUNCTIONS"),
            ("TIDEMARK_REDIS_URL", "TIDEMARK_REDIS"),
        ];
        assert_eq!(unknown, nearest.map(|(name, nearest)| (name.to_owned(), nearest.to_owned())));
    }
}
