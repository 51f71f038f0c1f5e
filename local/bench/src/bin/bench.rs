//! `make bench`: measures the cost of views and of the layouts that they replace, on a Redis of its own.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use tidemark_bench::measure::{Options, Part, run};
use tidemark_tools::exit;

/// Measures on a server of its own, prints tables and writes the numbers as JSON.
///
/// Exit code: 0 if all parts were measured; 2 otherwise.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// The parts to measure. All parts if none is given.
    #[arg(value_enum)]
    part: Option<Part>,
    #[command(flatten)]
    options: Options,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("bench", bench(Args::parse()).await)
}

async fn bench(args: Args) -> anyhow::Result<bool> {
    let parts = args.part.map_or_else(|| Part::value_variants().to_vec(), |part| vec![part]);
    tokio::select! {
        outcome = run(&parts, &args.options) => outcome?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
    Ok(true)
}
