//! `make bench`: measures the cost of views and of the layouts that they replace, on a Redis of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidemark_bench::measure::{Options, Part, run};
use tidemark_tools::{Verdict, exit};

/// Measures on a `redis-server` of its own, prints tables and writes the numbers as JSON.
///
/// Exit code: 0 if all parts were measured; 2 otherwise.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// The parts to measure. All parts if none is given.
    #[arg(value_enum)]
    part: Option<Part>,
    /// The file for the numbers. `{part}` stands for the part's name.
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks/{part}.json")]
    out: PathBuf,
    /// The number of readers over which memory is averaged.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    readers: u32,
    /// The number of followers of a delivery, all with a live feed. A fifth of them are measured with a full feed.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    followers: u32,
    /// The number of rounds over which a median is taken.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Calls of each kind in a round.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
    /// Seed of the randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `redis-server` to start.
    #[arg(long, default_value = "redis-server", value_name = "BINARY")]
    redis_server: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("bench", bench(Args::parse()).await)
}

async fn bench(args: Args) -> anyhow::Result<Verdict> {
    let parts = args.part.map_or_else(|| Part::ALL.to_vec(), |part| vec![part]);
    let Args { out, readers, followers, rounds, calls, seed, redis_server, .. } = args;
    let options = Options { out, readers: readers as usize, followers: followers as usize, rounds, calls, seed, redis_server };
    tokio::select! {
        outcome = run(&parts, &options) => outcome?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
    Ok(Verdict::Good)
}
