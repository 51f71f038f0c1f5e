//! Benchmarks on a `redis-server` of their own: what is measured and what it is compared with are loaded in the same server in the same run.
//!
//! Unlike the other tools these call the code that they measure.

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

/// One benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Memory and read cost of views.
    Views,
    /// Delivery to many followers, and what readers feel of it.
    FanOut,
}

/// How to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the numbers go; `{part}` stands for the part's name.
    pub out: PathBuf,
    /// Readers over whom memory is averaged.
    pub readers: usize,
    /// Followers who are delivered to, all with a live feed; a fifth as many with a full one.
    pub followers: usize,
    /// Rounds over which a median is taken.
    pub rounds: u32,
    /// Calls of each kind in a round.
    pub calls: u32,
    /// What chance is made of.
    pub seed: u64,
    /// The `redis-server` to start.
    pub redis_server: PathBuf,
}

impl Part {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 2] = [Self::Views, Self::FanOut];

    /// The name in arguments and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Views => "views",
            Self::FanOut => "fan-out",
        }
    }
}

/// Measures these parts, prints each one's tables and writes its numbers.
///
/// # Errors
/// `redis-server` is missing or fails, an answer is not the expected one, or a file cannot be written.
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
