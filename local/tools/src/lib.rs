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
            eprintln!("{tool}: {}", chain(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes in one line. Some errors have the text of their cause in their own.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        known if known.contains(&cause) => text,
        known => format!("{known}: {cause}"),
    })
}

/// Sends a signal with the shell's `kill`. Returns false if the process does not exist.
pub async fn signal(pid: u32, name: &str) -> anyhow::Result<bool> {
    let script = "kill -\"$1\" \"$2\" 2>/dev/null";
    let status = tokio::process::Command::new("sh").args(["-c", script, "sh", name, &pid.to_string()]).status().await;
    Ok(status.context("cannot run sh")?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_contains_its_cause_is_told_once() {
        let cause = anyhow::anyhow!("Connection refused").context("refused: Connection refused");
        assert_eq!(
            chain(&cause.context("the legacy Redis at 127.0.0.1:1 does not respond")),
            "the legacy Redis at 127.0.0.1:1 does not respond: refused: Connection refused"
        );
    }
}
