//! `make migrate SOURCE=redis://…`: imports legacy Redis keys into the running stack.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Parser;
use serde_json::json;
use tidemark_tools::{StackArgs, Verdict, api::Api, exit, migrate::run};

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

async fn migrate(args: Args) -> anyhow::Result<Verdict> {
    let api = Api::new(&args.stack.addr)?;
    api.require_stack().await?;
    let notices: BTreeMap<String, String> = args.notices.into_iter().collect();
    let response = run(&api, &args.source, &json!(notices), args.dry_run).await?;
    println!("{}", serde_json::to_string_pretty(&response["layouts"])?);
    Ok(if response["totals"]["unreadable"] == 0 { Verdict::Good } else { Verdict::Bad })
}
