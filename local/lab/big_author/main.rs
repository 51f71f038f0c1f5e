//! `make big-author [N=followers] [LIVE=readers]`: measures an author with a million followers on a stack of its own:
//! the cost of a publish, the duration of the fan-out, and its effect on small authors. Checks that every reader has
//! the post exactly once, also after disturbances.

mod beside;
mod cast;
mod check;
mod delivery;
mod disturb;
mod edge_writer;
#[path = "../folder.rs"]
mod folder;
mod followers;
mod report;
mod run;
mod stack;

use std::process::ExitCode;

use clap::Parser;
use tidemark_tools::exit;
use tracing_subscriber::EnvFilter;

use run::{Options, run};

/// Measures an author with very many followers, on a temporary stack of its own.
///
/// The followers are written as facts, and some are made live. The run measures publish latency against an author
/// with ten followers, and one whole fan-out while small authors publish. It checks that every reader has the post
/// once. Exit code: 0 if all checks hold, whether or not the aims are met; 1 if a check fails; 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "big-author")]
struct Args {
    #[command(flatten)]
    options: Options,
    /// Seed of the randomness. The run prints it, so that it can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// Log filter, in the syntax of `tracing_subscriber::EnvFilter`.
    #[arg(long, env = "RUST_LOG", default_value = "warn,dynoxide=error")]
    log: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log).unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    exit("big-author", measure(args).await)
}

async fn measure(args: Args) -> anyhow::Result<bool> {
    let seed = args.seed.unwrap_or_else(|| rand::random::<u64>() >> 1);
    println!("seed {seed}");
    let report = run(&args.options, seed).await?;
    println!("{report}");
    Ok(report.is_good())
}
