//! `make load EDGES=file[.gz] [LIMIT=n]`: loads a follow graph into a running stack through its public API.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use tidemark_tools::{
    StackArgs, Verdict,
    api::Api,
    exit,
    load::{Options, run},
};

/// Follows every edge of a file through the public API of a running stack, with several concurrent requests.
///
/// A line is `follower followee`, the format of SNAP's graphs; `#` starts a comment. Exit code: 0 if every edge was
/// made, existed or was refused for a documented reason; 1 if any failed; 2 if it could not start.
#[derive(Debug, Parser)]
#[command(name = "load")]
struct Args {
    /// The edge file, plain or gzip.
    edges: PathBuf,
    /// The number of lines to read.
    #[arg(long, value_name = "LINES")]
    limit: Option<u64>,
    /// The number of concurrent requests.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    #[command(flatten)]
    stack: StackArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("load", load(Args::parse()).await)
}

async fn load(args: Args) -> anyhow::Result<Verdict> {
    let api = Api::new(&args.stack.addr)?;
    api.require_stack().await?;
    let options = Options { edges: args.edges, limit: args.limit, concurrency: args.concurrency.into() };
    let report = run(&api, &options).await?;
    println!("{report}");
    Ok(if report.is_good() { Verdict::Good } else { Verdict::Bad })
}
