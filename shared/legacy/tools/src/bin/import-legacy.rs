//! `make migrate SOURCE=redis://…`: imports legacy Redis keys into the running stack.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use anyhow::{Context, bail};
use clap::Parser;
use serde_json::json;
use tidemark_legacy_tools::Unread;
use tidemark_tools::{
    StackArgs,
    api::Call,
    exit,
    text::{rate, short, thousands},
};

/// The largest number of entries of one invocation. It must end before the client's timeout.
const ENTRIES: u64 = 5_000;

/// Invokes the function `migrate` of a running stack until it is done, and prints its report.
///
/// Exit code: 0 if every entry was imported or existed; 1 if some entries were unreadable; 2 if it could not start or
/// continue. A repeated command continues at the position of the last run.
#[derive(Debug, Parser)]
#[command(name = "import-legacy")]
struct Args {
    /// The address of the legacy Redis, such as redis://host:port.
    source: String,
    /// Validate all keys without writing anything.
    #[arg(long)]
    dry_run: bool,
    /// A legacy notice and the notice as which it was published here, as `platform:notice=platform-seq`.
    #[arg(long = "notice", value_name = "LEGACY=NOTICE", value_parser = notice)]
    notices: Vec<(String, String)>,
    /// Which posts are unread after the import of a follow: those in the unread lists, or all from after the follow
    /// that are not read. `auto` takes the second rule if the source has no unread list.
    #[arg(long, value_enum, default_value_t)]
    unread: Unread,
    #[command(flatten)]
    stack: StackArgs,
}

fn notice(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(legacy, id)| (legacy.to_owned(), id.to_owned())).ok_or_else(|| "expected LEGACY=NOTICE".to_owned())
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("import-legacy", migrate(Args::parse()).await)
}

/// Prints one line for each invocation on stderr, and at the end the layouts and `unread` of the last response on
/// stdout. Returns true if no entry was unreadable.
async fn migrate(args: Args) -> anyhow::Result<bool> {
    let api = args.stack.client().await?;
    let notices: BTreeMap<String, String> = args.notices.into_iter().collect();
    let started = Instant::now();
    let mut event = json!({
        "source": args.source, "notices": notices, "dry_run": args.dry_run, "limit": ENTRIES, "unread": args.unread.name(),
    });
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
            eprintln!("{} in {}", if args.dry_run { "validated" } else { "migrated" }, short(started.elapsed()));
            let mut report = body["layouts"].clone();
            report["unread"] = body["unread"].clone();
            println!("{}", serde_json::to_string_pretty(&report)?);
            return Ok(body["totals"]["unreadable"] == 0);
        }
        event = body["next"].clone();
    }
}
