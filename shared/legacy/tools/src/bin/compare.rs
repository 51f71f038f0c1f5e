//! `make compare SOURCE=redis://…`: compares users between the running stack and a legacy Redis.

use std::process::ExitCode;

use clap::Parser;
use tidemark_legacy_tools::{Unread, run};
use tidemark_tools::{StackArgs, exit};

/// Compares follows, posts, unread posts, counts and read marks of a sample of users between a running stack and a
/// legacy Redis. Changes in flight from one side to the other are differences.
///
/// Exit code: 0 if there is no difference; 1 if there are some; 2 if it could not read a side.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Args {
    /// The address of the legacy Redis, such as redis://host:port.
    source: String,
    /// The largest number of users to compare.
    #[arg(long, default_value_t = 100)]
    users: usize,
    /// Selects the users. Without it, each run selects others.
    #[arg(long)]
    seed: Option<u64>,
    /// Which posts count as unread in the legacy system; as the option of `migrate`.
    #[arg(long, value_enum, default_value_t)]
    unread: Unread,
    #[command(flatten)]
    stack: StackArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("compare", compare(Args::parse()).await)
}

async fn compare(args: Args) -> anyhow::Result<bool> {
    let api = args.stack.client().await?;
    let seed = args.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let report = run(&api, &args.source, args.users, seed, args.unread).await?;
    println!("{report}");
    Ok(report.is_empty())
}
