//! The command-line tools: clients of the running stack's public API and of its `/_local` routes. This crate does not
//! link the product, so that `verify` counts independently of the code that it checks.

pub mod address;
pub mod api;
pub mod demo;
pub mod edges;
pub mod load;
pub mod progress;
pub mod status;
pub mod text;
pub mod verify;

use std::process::ExitCode;

use anyhow::Context;

use address::Address;
use api::Api;

/// The arguments of every tool.
#[derive(Debug, Clone, clap::Args)]
pub struct StackArgs {
    /// Address of the stack. Only loopback addresses are accepted.
    #[arg(long, env = "TIDEMARK_ADDR", default_value = "127.0.0.1:3000", value_name = "HOST:PORT")]
    pub addr: Address,
}

impl StackArgs {
    /// A client of the stack. Fails with a one-line error if no stack responds.
    pub async fn client(&self) -> anyhow::Result<Api> {
        let api = Api::new(&self.addr)?;
        api.require_stack().await?;
        Ok(api)
    }
}

/// The exit code: 0 for true (everything succeeded and matched), 1 for false, and 2 with the reason on stderr if the
/// tool could not run.
pub fn exit(tool: &str, result: anyhow::Result<bool>) -> ExitCode {
    match result {
        Ok(good) => ExitCode::from(u8::from(!good)),
        Err(error) => {
            eprintln!("{tool}: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Sends a signal with the shell's `kill`. Returns false if the process does not exist.
pub(crate) async fn signal(pid: u32, name: &str) -> anyhow::Result<bool> {
    let script = "kill -\"$1\" \"$2\" 2>/dev/null";
    let status = tokio::process::Command::new("sh").args(["-c", script, "sh", name, &pid.to_string()]).status().await;
    Ok(status.context("cannot run sh")?.success())
}
