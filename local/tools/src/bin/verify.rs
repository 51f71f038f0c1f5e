//! `make verify EDGES=file [LIMIT=n] [MODE=plain|twice|kill|flush]`: checks the main job on a real graph.

use std::{path::PathBuf, process::ExitCode, time::Instant};

use clap::Parser;
use rand::{SeedableRng, rngs::StdRng};
use tidemark_tools::{
    StackArgs, exit, load,
    text::{short, thousands},
    verify::{
        followers, latency, people,
        run::{Options, run},
    },
};

/// Checks the main job on a real follow graph against a count made from the edge file.
///
/// Every reader opens the feed, the most followed accounts publish, and every reader's whole feed, flags and counts
/// are compared. Then readers mark posts, authors and everything, and all is compared again. It can be repeated on
/// the same stack. Exit code: 0 if everything agrees; 1 on any mismatch; 2 if it could not run.
#[derive(Debug, Parser)]
#[command(name = "verify")]
struct Args {
    /// The edge file that the stack has loaded, plain or gzip.
    #[arg(required_unless_present_any = ["publish_latency", "followers"])]
    edges: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Load the file first.
    #[arg(long)]
    load: bool,
    /// Seed of the randomness. The run prints it, so that it can be repeated.
    #[arg(long)]
    seed: Option<u64>,
    /// Only measure publish latency, for an author with 10 followers and one with 1,000.
    #[arg(long)]
    publish_latency: bool,
    /// Only check the follower list of a new author with this number of followers, while others come and go.
    #[arg(long, value_name = "N", conflicts_with = "publish_latency")]
    followers: Option<u64>,
    /// Only compare common followees and known followers, for all pairs of so many of the most followed readers.
    #[arg(long, value_name = "N", conflicts_with = "publish_latency", conflicts_with = "followers")]
    people: Option<usize>,
    /// With --publish-latency: the number of publishes of each author.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    publishes: u32,
    /// With --publish-latency: wait until the stack is idle before each publish.
    #[arg(long)]
    settle: bool,
    #[command(flatten)]
    stack: StackArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("verify", verify(Args::parse()).await)
}

async fn verify(args: Args) -> anyhow::Result<bool> {
    let api = args.stack.client().await?;
    let seed = args.seed.unwrap_or_else(|| rand::random::<u64>() >> 1);
    let Options { limit, concurrency, idle_limit, .. } = args.options;
    if let Some(count) = args.followers {
        let report = followers::verify(&api, count, idle_limit, &mut StdRng::seed_from_u64(seed)).await?;
        println!("{report}");
        return Ok(report.is_good());
    }
    let Some(edges) = args.edges.filter(|_| !args.publish_latency) else {
        let mut random = StdRng::seed_from_u64(seed);
        println!("{}", latency::measure(&api, args.publishes, args.settle, idle_limit, &mut random).await?);
        return Ok(true);
    };
    if args.load {
        let options = load::Options { edges: edges.clone(), limit, concurrency: concurrency.min(8) };
        let report = load::run(&api, &options).await?;
        println!("{report}\n");
        if !report.is_good() {
            anyhow::bail!("the graph was not loaded completely");
        }
    }
    if let Some(count) = args.people {
        let report = people::verify(&api, &edges, count, &args.options).await?;
        println!("{report}");
        return Ok(report.is_good());
    }
    let started = Instant::now();
    let ledger = run(&api, &edges, &args.options, seed).await?;
    println!();
    for mismatch in &ledger.first {
        println!("MISMATCH {mismatch}");
    }
    let shown = ledger.first.len() as u64;
    if ledger.mismatched > shown {
        println!("and {} more", thousands(ledger.mismatched - shown));
    }
    let [comparisons, wrong] = [ledger.comparisons, ledger.mismatched].map(thousands);
    let (retried, took) = (api.retried(), short(started.elapsed()));
    println!("{comparisons} comparisons, {wrong} mismatches, {retried} repeated requests, {took}");
    Ok(ledger.mismatched == 0)
}
