//! Benchmarks on a `redis-server` of their own. The measured data and the data for comparison are loaded into the
//! same server in the same run.
//!
//! Unlike the other tools, these call the code that they measure.

mod fan_out;
mod info;
mod report;
mod server;
mod stats;
mod table;
mod views;
mod world;

use std::path::PathBuf;

use clap::ValueEnum;

use self::report::Report;
use self::server::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Memory and read cost of views.
    Views,
    /// Delivery to many followers, and its effect on a reader's latency.
    FanOut,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// The file for the numbers. `{part}` stands for the part's name.
    pub out: PathBuf,
    /// The number of readers over which memory is averaged.
    pub readers: usize,
    /// The number of followers of a delivery, all with a live feed. A fifth of them are measured with a full feed.
    pub followers: usize,
    /// The number of rounds over which a median is taken.
    pub rounds: u32,
    /// Calls of each kind in a round.
    pub calls: u32,
    /// The seed of the randomness.
    pub seed: u64,
    /// The `redis-server` to start.
    pub redis_server: PathBuf,
}

impl Part {
    /// All parts in the order in which they run.
    pub const ALL: [Self; 2] = [Self::Views, Self::FanOut];

    /// The name in arguments and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::FanOut => "fan-out",
        }
    }
}

/// Measures these parts, prints the tables of each and writes its numbers.
///
/// # Errors Fails if `redis-server` is missing or fails, if a response is not the expected one, or if a file cannot
/// be written.
pub async fn run(parts: &[Part], options: &Options) -> anyhow::Result<()> {
    let files = report::files(parts, &options.out)?;
    let server = Server::start(&options.redis_server).await?;
    for (part, file) in parts.iter().zip(files) {
        let report: Box<dyn Report> = match part {
            Part::Views => Box::new(views::measure(&server, options).await?),
            Part::FanOut => {
                let report = fan_out::measure(&server, options).await?;
                report::picture(&report.svg(), &file)?;
                Box::new(report)
            }
        };
        report::publish(&*report, &file)?;
    }
    server.stop().await
}
