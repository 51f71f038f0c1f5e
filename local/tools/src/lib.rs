//! The command-line tools: clients of the running stack's public API and its `/_local` routes.
//!
//! This crate does not link the product. What `verify` counts is counted independently of the code that it checks.

pub mod address;
pub mod api;
pub mod demo;
pub mod edges;
pub mod load;
pub mod migrate;
pub mod progress;
pub mod signal;
pub mod status;
pub mod text;
pub mod verify;

use std::process::ExitCode;

use address::Address;

/// The arguments that every tool takes.
#[derive(Debug, Clone, clap::Args)]
pub struct StackArgs {
    /// Where the stack answers; loopback only.
    #[arg(long, env = "TIDEMARK_ADDR", default_value = "127.0.0.1:3000", value_name = "HOST:PORT")]
    pub addr: Address,
}

/// How a tool that ran to its end judges what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Good,
    /// Exit code 1: it ran, and something failed or did not match.
    Bad,
}

/// Turns a tool's result into its exit code: 0 good, 1 bad, 2 it could not run, with one line on stderr saying why.
pub fn exit(tool: &str, result: anyhow::Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{tool}: {error:#}");
            ExitCode::from(2)
        }
    }
}
