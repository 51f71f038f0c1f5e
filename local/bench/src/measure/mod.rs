//! Benchmarks on a server of their own. Unlike the other tools, they call the code that they measure. The
//! measured data and the data for comparison are loaded into the same server in the same run.

mod fan_out;
mod report;
mod server;
mod stats;
mod table;
mod views;
mod world;

use std::path::PathBuf;

use clap::ValueEnum;

use self::server::Server;

/// The parts in the order in which they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Memory and read cost of views.
    Views,
    /// Delivery to many followers, and its effect on a reader's latency.
    FanOut,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The file for the numbers. `{part}` stands for the part's name.
    #[arg(long, value_name = "FILE", default_value = "docs/benchmarks/{part}.json")]
    pub out: PathBuf,
    /// The number of readers over which memory is averaged.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub readers: u32,
    /// The number of followers of a delivery, all with a live feed. A fifth of them are measured with a full feed.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    pub followers: u32,
    /// The number of rounds over which a median is taken.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Calls of each kind in a round.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub calls: u32,
    /// Seed of the randomness.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The `valkey-server` or `redis-server` to start.
    #[arg(long, default_value_os_t = tidemark_local::redis_server(), value_name = "BINARY")]
    pub redis_server: PathBuf,
}

impl Part {
    /// The name in arguments and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::FanOut => "fan-out",
        }
    }
}

/// Measures these parts, prints the tables of each and writes its numbers. Fails if the server fails, a response is
/// not the expected one, or a file cannot be written.
pub async fn run(parts: &[Part], options: &Options) -> anyhow::Result<()> {
    let files = report::files(parts, &options.out)?;
    let server = Server::start(&options.redis_server).await?;
    for (part, file) in parts.iter().zip(files) {
        match part {
            Part::Views => report::publish(&views::measure(&server, options).await?, &file)?,
            Part::FanOut => {
                let report = fan_out::measure(&server, options).await?;
                report::write(&file.with_extension("svg"), &report.svg())?;
                report::publish(&report, &file)?;
            }
        }
    }
    server.stop().await
}
