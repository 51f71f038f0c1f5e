//! `make big-author [N=followers] [LIVE=readers]`: measures an author with a million followers, on a stack of its
//! own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidemark_bench::big_author::{
    run::{Options, run},
    stack::NEVER_PULLED,
};
use tidemark_local::Weather;
use tidemark_tools::{Verdict, exit};
use tracing_subscriber::EnvFilter;

/// Measures an author with very many followers, on a temporary stack of its own.
///
/// The followers are written as facts, and some are made live. The run measures publish latency against an author
/// with ten followers, and one whole fan-out while small authors publish. It checks that every reader has the post
/// once. Exit code: 0 if all checks hold, whether or not the aims are met; 1 if a check fails; 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "big-author")]
struct Args {
    /// Followers of the author.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..i64::from(NEVER_PULLED)))]
    followers: u32,
    /// The number of live followers, which have a view that the fan-out reaches.
    #[arg(long, default_value_t = 100_000)]
    live: u32,
    /// The number of publishes of each of the two compared authors.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    publishes: u32,
    /// The number of small authors that publish once each during the fan-out.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    beside: u16,
    /// Run a second fan-out with a restart of the stack, all its messages sent twice, and Redis emptied.
    #[arg(long)]
    disturb: bool,
    /// The weather of the stores after the preparation: calm, aws or storm.
    #[arg(long, env = "TIDEMARK_WEATHER", default_value_t)]
    weather: Weather,
    /// The longest time of a fan-out.
    #[arg(long, default_value_t = 1_800, value_name = "SECONDS")]
    limit: u64,
    /// Seed of the randomness. The run prints it, so that it can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// Path of the template.
    #[arg(long, env = "TIDEMARK_TEMPLATE", default_value = "./template.yaml")]
    template: PathBuf,
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

async fn measure(args: Args) -> anyhow::Result<Verdict> {
    let options = Options {
        followers: args.followers as usize,
        live: args.live as usize,
        publishes: args.publishes,
        beside: args.beside.into(),
        disturb: args.disturb,
        weather: args.weather,
        limit: Duration::from_secs(args.limit),
        seed: args.seed.unwrap_or_else(|| rand::random::<u64>() >> 1),
        template: args.template,
    };
    println!("seed {}", options.seed);
    let report = run(&options).await?;
    println!("{report}");
    Ok(if report.is_good() { Verdict::Good } else { Verdict::Bad })
}
