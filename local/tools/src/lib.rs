//! The command-line tools. They are clients of the running stack's public API and of its `/_local` routes.
//!
//! This crate does not link the product. `verify` counts independently of the code that it checks.

pub mod address;
pub mod api;
pub mod compare;
pub mod demo;
pub mod edges;
pub mod load;
pub mod migrate;
pub mod progress;
pub mod scale;
pub mod signal;
pub mod status;
pub mod text;
pub mod verify;

use std::process::ExitCode;

use address::Address;

/// The arguments of every tool.
#[derive(Debug, Clone, clap::Args)]
pub struct StackArgs {
    /// Address of the stack. Only loopback addresses are accepted.
    #[arg(long, env = "TIDEMARK_ADDR", default_value = "127.0.0.1:3000", value_name = "HOST:PORT")]
    pub addr: Address,
}

/// The result of a tool that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0: everything succeeded and matched.
    Good,
    /// Exit code 1: the tool ran, and something failed or did not match.
    Bad,
}

/// Converts a tool's result to its exit code: 0 good, 1 bad, 2 if the tool could not run. Then prints the reason on
/// stderr in one line.
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
