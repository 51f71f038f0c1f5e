//! Invokes `migrate` on the running stack until it is done.

use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{
    api::{Api, Call},
    text::{rate, short, thousands},
};

/// The largest number of entries of one invocation. It must end before the client's timeout.
const ENTRIES: u64 = 5_000;

/// Migrates from `source`. Prints one line for each invocation on stderr. Returns the last response.
pub async fn run(api: &Api, source: &str, notices: &Value, dry_run: bool) -> anyhow::Result<Value> {
    let started = Instant::now();
    let mut event = json!({ "source": source, "notices": notices, "dry_run": dry_run, "limit": ENTRIES });
    loop {
        let call = Call::post("/_local/functions/migrate").json(event);
        let response = api.once(&call).await.context("run the same command again to continue the migration")?;
        if response.status != 200 {
            bail!("{} {}", response.status, response.body["errorMessage"].as_str().unwrap_or_default());
        }
        let body = response.body;
        let count = |name: &str| body["totals"][name].as_u64().unwrap_or_default();
        let read = count("read");
        eprintln!(
            "{:<13} {} read, {} written, {} existed, {} unreadable, {} a second",
            body["layout"].as_str().unwrap_or("done"),
            thousands(read),
            thousands(count("written")),
            thousands(count("already_there")),
            thousands(count("unreadable")),
            thousands(rate(read, started.elapsed())),
        );
        if body["overtaken"] == true {
            bail!("another run is active");
        }
        if body["done"] == true {
            eprintln!("{} in {}", if dry_run { "validated" } else { "migrated" }, short(started.elapsed()));
            return Ok(body);
        }
        event = body["next"].clone();
    }
}
