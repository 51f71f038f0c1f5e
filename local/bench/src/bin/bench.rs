//! `make bench`: measures what views cost beside what they replace, on a Redis of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidemark_bench::measure::{Options, Part, run};
use tidemark_tools::{Verdict, exit};

/// Measures on a `redis-server` of its own, prints tables and writes the numbers as JSON.
///
/// Exit code: 0 if all parts were measured; 2 if not.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// What to measure; everything if not given.
    #[arg(value_enum)]
    part: Option<Part>,
    /// Where the numbers go; `{part}` stands for the part's name.
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks/{part}.json")]
    out: PathBuf,
    /// Readers over whom memory is averaged.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    readers: u32,
    /// Followers who are delivered to, all with a live feed; a fifth as many with a full one.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    followers: u32,
    /// Rounds over which a median is taken.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Calls of each kind in a round.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    calls: u32,
    /// What chance is made of.
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
