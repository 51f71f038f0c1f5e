//! Invoking `migrate` on the running stack until it is done.

use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::api::{Api, Call};
use super::text::{rate, short, thousands};

/// Entries of one invocation: it has to end before a client of the stack loses patience.
const ENTRIES: u64 = 5_000;

/// Migrates from `source`; a line an invocation on stderr. The last answer.
pub async fn run(api: &Api, source: &str, notices: &Value, dry_run: bool) -> anyhow::Result<Value> {
    let started = Instant::now();
    let mut event = json!({ "source": source, "notices": notices, "dry_run": dry_run, "limit": ENTRIES });
    loop {
        let call = Call::post("/_local/functions/migrate").json(event);
        let answer = api.once(&call).await.context("the migration can be gone on with by the same command")?;
        if answer.status != 200 {
            bail!("{} {}", answer.status, answer.body["errorMessage"].as_str().unwrap_or_default());
        }
        let body = answer.body;
        let count = |name: &str| body["totals"][name].as_u64().unwrap_or_default();
        let read = count("read");
        eprintln!(
            "{:<13} {} read, {} written, {} there already, {} unreadable, {} a second",
            body["layout"].as_str().unwrap_or("done"),
            thousands(read),
            thousands(count("written")),
            thousands(count("already_there")),
            thousands(count("unreadable")),
            thousands(rate(read, started.elapsed())),
        );
        if body["overtaken"] == true {
            bail!("another run is at it");
        }
        if body["done"] == true {
            eprintln!("{} in {}", if dry_run { "judged" } else { "migrated" }, short(started.elapsed()));
            return Ok(body);
        }
        event = body["next"].clone();
    }
}
