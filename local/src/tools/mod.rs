//! The command-line tools, and what they share.
//!
//! `load`, `demo`, `verify` and `migrate` know the running stack by its public API and the `/_local` routes alone: nothing of the functions'
//! code is used there, so that what they count is counted independently. [`bench`] measures that code itself, and [`big_author`]
//! has a stack of its own in its process, writes a million edges into the facts and looks into every view.

pub mod address;
pub mod api;
pub mod bench;
pub mod big_author;
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
