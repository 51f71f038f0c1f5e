//! `make bench`: measures the cost of views and of fan-out, on a Redis of its own. Unlike the tools, it calls the code
//! that it measures.

mod fan_out;
#[path = "../folder.rs"]
mod folder;
#[path = "../info.rs"]
mod info;
mod report;
mod server;
mod stats;
#[path = "../table.rs"]
mod table;
mod views;
mod world;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use tidemark_tools::exit;

use self::server::Server;

/// The parts in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Memory and read cost of views.
    Views,
    /// Delivery to many followers, and its effect on a reader's latency.
    FanOut,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The file for the numbers. `{part}` stands for the part's name.
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks/{part}.json")]
    pub(crate) out: PathBuf,
    /// The number of readers over which memory is averaged.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) readers: u32,
    /// The number of followers of a delivery, all with a live feed. A fifth of them are measured with a full feed.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    pub(crate) followers: u32,
    /// The number of rounds over which a median is taken.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
    /// Calls of each kind in a round.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) calls: u32,
    /// Seed of the randomness.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The `valkey-server` or `redis-server` to start.
    #[arg(long, default_value_os_t = tidemark_local::redis_server(), value_name = "BINARY")]
    pub(crate) redis_server: PathBuf,
}

impl Part {
    /// The name in arguments and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::FanOut => "fan-out",
        }
    }
}

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

/// Measures these parts, prints the tables of each and writes its numbers. Fails if the server fails, a response is
/// not the expected one, or a file cannot be written.
async fn run(parts: &[Part], options: &Options) -> anyhow::Result<()> {
    let files = report::files(parts, &options.out)?;
    let server = Server::start(&options.redis_server).await?;
    for (part, file) in parts.iter().zip(files) {
        match part {
            Part::Views => report::publish(&views::measure(&server, options).await?, &file)?,
            Part::FanOut => report::publish(&fan_out::measure(&server, options).await?, &file)?,
        }
    }
    server.stop().await
}
