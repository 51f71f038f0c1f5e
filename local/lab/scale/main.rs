//! `make scale [ARGS="--users 1e7 …"]`: simulates the bundle under a load and prints which limit comes first.
//! docs/scale.md describes the model.
//!
//! Rates, units and dollars follow from formulas (`demand`, `prices`, `limits`). Times of fan-outs are simulated
//! message by message (`sim`). Costs of Redis are those that `make bench` measured (`measured`).

mod check;
mod demand;
mod followers;
mod inputs;
mod limits;
mod measured;
mod prices;
mod redis;
mod report;
mod sim;
#[path = "../unit_prices.rs"]
mod unit_prices;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Parser;
use tidemark_tools::exit;

use check::{BigAuthor, HEADING, Row, benchmarks, counts};
use inputs::Inputs;
use measured::Measured;
use report::{Scenario, scenarios};

/// Simulates the bundle under a stated load, and prints times, queues, Redis, throttles and dollars for each number of
/// users, and the limits in the order in which they are reached.
///
/// docs/scale.md describes the model. It needs no stack. Exit code: 0, or 1 if a compared run differs by more than
/// 15 %, or 2 if a file cannot be read.
#[derive(Debug, Parser)]
#[command(name = "scale")]
struct Args {
    /// Compare with real runs instead: those in docs/benchmarks, and the output of `make big-author` in FILE.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    check: Option<Option<PathBuf>>,
    /// The output of a smaller `make big-author` on the same machine, which tells --worker-us.
    #[arg(long, value_name = "FILE", requires = "check")]
    calibrate: Option<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
}

fn main() -> ExitCode {
    exit("scale", run(Args::parse()))
}

fn run(args: Args) -> anyhow::Result<bool> {
    let (inputs, measured) = (args.inputs, Measured::read()?);
    if let Some(file) = args.check {
        return check(inputs, &measured, file, args.calibrate);
    }
    let all: Vec<Scenario> = inputs.users.iter().map(|&users| Scenario::new(&inputs, &measured, users)).collect();
    println!("{}\n{}", scenarios(&all), report::limits(&inputs, &measured));
    Ok(true)
}

fn check(mut inputs: Inputs, measured: &Measured, file: Option<PathBuf>, calibrate: Option<PathBuf>) -> anyhow::Result<bool> {
    let read = |file: PathBuf| -> anyhow::Result<BigAuthor> {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        BigAuthor::parse(&text).with_context(|| file.display().to_string())
    };
    let mut rows = benchmarks(&inputs, measured);
    rows.extend(counts(&inputs, measured));
    if let Some(file) = calibrate {
        inputs.worker_us = read(file)?.worker_us(&inputs, measured)?;
        println!("--worker-us {:.3}", inputs.worker_us);
    }
    if let Some(file) = file {
        rows.extend(read(file)?.compare(&inputs, measured));
    }
    println!("{HEADING}");
    for row in &rows {
        println!("{row}");
    }
    Ok(rows.iter().all(Row::holds))
}
