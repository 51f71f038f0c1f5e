//! Signals to other processes.

use anyhow::Context;

/// Sends a signal through the shell's own `kill`, which every system has; false if there was no such process.
pub async fn signal(pid: u32, name: &str) -> anyhow::Result<bool> {
    let script = "kill -\"$1\" \"$2\" 2>/dev/null";
    let status = tokio::process::Command::new("sh").args(["-c", script, "sh", name, &pid.to_string()]).status().await;
    Ok(status.context("cannot run sh")?.success())
}
