//! `make export FILE=…` and `make import FILE=…`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Parser, Subcommand};
use tidemark_facts::Facts;
use tidemark_tools::{StackArgs, exit};
use tidemark_transfer::{export, import, stack};

/// Exports all facts of a stack to a file of lines, and imports such files.
///
/// Exit code: 0 if every line was exported or imported; 1 if some lines or items are bad; 2 if it could not go on. The
/// same command then continues.
#[derive(Debug, Parser)]
#[command(name = "transfer")]
struct Args {
    #[command(subcommand)]
    direction: Direction,
    /// A deployed stack, as JSON of its region, tables and parameters. Without it, the running local stack.
    #[arg(long, global = true, value_name = "JSON")]
    deployed: Option<String>,
    #[command(flatten)]
    stack: StackArgs,
}

#[derive(Debug, Subcommand)]
enum Direction {
    /// Writes all facts of the stack to a file.
    Export { file: PathBuf },
    /// Imports the lines of a file. Bad lines are listed on stdout, and the last line is a report in JSON.
    Import {
        file: PathBuf,
        /// Groups of lines that are applied at once. Fewer are gentler to a stack in use.
        #[arg(long, default_value_t = import::PARALLEL, value_parser = parallel)]
        parallel: usize,
    },
}

fn parallel(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=1_000).contains(number)).ok_or_else(|| "a number from 1 to 1000".to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("transfer", run(Args::parse()).await)
}

async fn run(args: Args) -> anyhow::Result<bool> {
    let facts = facts(&args).await?;
    let (report, is_good) = match &args.direction {
        Direction::Export { file } => {
            let report = export::to_file(&facts, file).await.context("run the same command again")?;
            (serde_json::to_string(&report)?, report.damaged == 0)
        }
        Direction::Import { file, parallel } => {
            let report = import::from_file(&facts, file, *parallel).await.context("run the same command again to continue")?;
            (serde_json::to_string(&report)?, report.bad == 0)
        }
    };
    println!("{report}");
    Ok(is_good)
}

async fn facts(args: &Args) -> anyhow::Result<Facts> {
    match &args.deployed {
        None => stack::local(&args.stack).await,
        Some(text) => stack::deployed(&serde_json::from_str(text).context("--deployed")?).await,
    }
}
