//! `make load EDGES=file[.gz] [LIMIT=n]`: loads a follow graph into a running stack through its public API.

use std::process::ExitCode;

use clap::Parser;
use tidemark_tools::{
    StackArgs, exit,
    load::{Options, run},
};

/// Follows every edge of a file through the public API of a running stack, with several concurrent requests.
///
/// A line is `follower followee`, the format of SNAP's graphs; `#` starts a comment. Exit code: 0 if every edge was
/// made, existed or was refused for a documented reason; 1 if any failed; 2 if it could not start.
#[derive(Debug, Parser)]
#[command(name = "load")]
struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    stack: StackArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("load", load(Args::parse()).await)
}

async fn load(args: Args) -> anyhow::Result<bool> {
    let report = run(&args.stack.client().await?, &args.options).await?;
    println!("{report}");
    Ok(report.is_good())
}
