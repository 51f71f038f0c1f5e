//! `make load-test`: how many requests a second the bundle serves on this machine, and what each costs. The functions
//! run as deployed binaries, on a stack of its own with a large follow graph.

mod arrivals;
mod attack;
mod chart;
#[path = "../big_author/edge_writer.rs"]
#[expect(dead_code, reason = "no counts without edges are written here")]
mod edge_writer;
mod fill;
#[path = "../folder.rs"]
mod folder;
#[path = "../scale/followers.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "only the simulation averages over authors"))]
mod followers;
mod graph;
#[path = "../info.rs"]
mod info;
mod ladder;
mod meter;
mod output;
mod single;
mod soak;
mod stack;
mod summary;
#[path = "../table.rs"]
mod table;
mod traffic;
#[path = "../unit_prices.rs"]
mod unit_prices;
mod unread;
mod world;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Parser;
use tidemark_tools::exit;
use tracing_subscriber::EnvFilter;

use traffic::{Mix, Traffic};
use world::World;

/// Measures a mixed load on a temporary stack of its own, whose functions run as processes.
///
/// Fills a follow graph with the distribution of docs/scale.md. Measures what single requests of each route cost, then
/// sends a mixed load at rising rates. Requests arrive at random moments, whether or not earlier ones have ended, and a
/// time includes every wait. Exit code: 0 if it was measured, and after a soak nothing differs; 1 if something differs;
/// 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "load-test")]
struct Args {
    /// Measure `GET /v1/unread` and the first page alone, by clients without pauses.
    #[arg(long)]
    unread: bool,
    /// Send a steady load for so long, while Redis is flushed and workers are killed, and compare views and facts.
    #[arg(long, value_name = "MINUTES", conflicts_with = "unread", value_parser = minutes)]
    soak: Option<Duration>,
    /// Measure readers beside a caller who sends dear requests up to every limit, for so long.
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["unread", "soak"], value_parser = minutes)]
    attack: Option<Duration>,
    #[command(flatten)]
    world: world::Options,
    /// Rates of the mixed load, in requests a second. It ends at the second that misses the aim.
    #[arg(long, value_delimiter = ',', default_value = "100,150,200,250,300,350,400,500,600,800,1000", value_parser = positive)]
    rates: Vec<f64>,
    /// Seconds of each rate, and of each measurement of `--unread`.
    #[arg(long, default_value = "20", value_parser = seconds)]
    seconds: Duration,
    /// The longest 99th percentile of all requests of a rate, in milliseconds.
    #[arg(long, default_value_t = 50.0, value_parser = positive)]
    aim_ms: f64,
    /// Requests of each kind whose processor time is measured, before the mixed load. 0 leaves this out.
    #[arg(long, default_value_t = 1_000)]
    single: u32,
    /// Shares of the kinds of requests, in any unit.
    #[arg(long, default_value_t)]
    mix: Mix,
    /// Clients of `--unread`.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: Vec<u16>,
    /// The rate of a soak. By default 60 % of the highest rate in load-test.json.
    #[arg(long, value_parser = positive)]
    rate: Option<f64>,
    /// The folder for the numbers and the pictures.
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// Log filter, in the syntax of `tracing_subscriber::EnvFilter`.
    #[arg(long, env = "RUST_LOG", default_value = "warn,dynoxide=error")]
    log: String,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("not above zero".to_owned()) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    positive(text).map(Duration::from_secs_f64)
}

fn minutes(text: &str) -> Result<Duration, String> {
    positive(text).map(|minutes| Duration::from_secs_f64(60.0 * minutes))
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_new(&args.log).unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    exit("load-test", run(&args).await)
}

async fn run(args: &Args) -> anyhow::Result<bool> {
    let rate = match (args.soak, args.rate) {
        (Some(_), None) => Some(0.6 * output::highest_rate(&args.out)?),
        (_, rate) => rate,
    };
    let limits = if args.attack.is_some() { attack::LIMITS.as_slice() } else { &[] };
    let mut world = World::start(&args.world, limits).await?;
    let measured = tokio::select! {
        measured = measure(args, rate, &mut world) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    world.stop().await?;
    measured
}

async fn measure(args: &Args, rate: Option<f64>, world: &mut World) -> anyhow::Result<bool> {
    let traffic = Traffic::start(world).await?;
    if args.unread {
        let report = unread::measure(world, &traffic, &args.clients, args.seconds).await?;
        output::publish(&report, &args.out, "unread")?;
        return Ok(true);
    }
    if let Some(time) = args.attack {
        let report = attack::measure(world, &traffic, time).await?;
        output::publish(&report, &args.out, "attack")?;
        return Ok(true);
    }
    if let Some(time) = args.soak {
        let rate = rate.context("a soak needs a rate")?;
        let report = soak::run(world, &traffic, &args.mix, rate, time).await?;
        output::publish(&report, &args.out, "soak")?;
        for (name, chart) in report.charts() {
            output::picture(&args.out, name, &chart)?;
        }
        return Ok(report.is_good());
    }
    let single = single::measure(world, &traffic, args.single).await?;
    let ladder = ladder::climb(world, &traffic, args, single).await?;
    output::publish(&ladder, &args.out, "load-test")?;
    output::picture(&args.out, "load-test", &ladder.chart())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_arguments_are_refused() {
        for wrong in
            ["--rates=0", "--seconds=-1", "--soak=0", "--attack=x", "--mix=feed", "--mix=dance=1", "--clients=0", "--users=1"]
        {
            assert!(Args::try_parse_from(["load-test", "--bin-dir=x", wrong]).is_err(), "{wrong}");
        }
        let args = Args::try_parse_from(["load-test", "--bin-dir=x", "--soak", "1.5", "--rates", "1,2"]).unwrap();
        assert_eq!((args.soak, args.rates), (Some(Duration::from_secs(90)), vec![1.0, 2.0]));
    }
}
