//! Signals to other processes.

use anyhow::Context;

/// Sends a signal with the shell's `kill`. Returns false if the process does not exist.
pub async fn signal(pid: u32, name: &str) -> anyhow::Result<bool> {
    let script = "kill -\"$1\" \"$2\" 2>/dev/null";
    let status = tokio::process::Command::new("sh").args(["-c", script, "sh", name, &pid.to_string()]).status().await;
    Ok(status.context("cannot run sh")?.success())
}
