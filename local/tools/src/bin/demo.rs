//! `make demo`: shows the main job in less than a minute.

use std::{io::IsTerminal, process::ExitCode, time::Instant};

use clap::Parser;
use tidemark_tools::{
    StackArgs,
    api::Api,
    demo::{screen::Screen, show::Show, stack::OwnStack},
    exit, text,
};

/// Makes a small follow graph, publishes, and shows the delivery, two readers' feeds and their counts before and
/// after reading. Starts a stack with its data in a temporary folder if no stack responds.
#[derive(Debug, Parser)]
#[command(name = "demo")]
struct Args {
    /// No colours, also on a terminal. Any value of NO_COLOR has the same effect.
    #[arg(long, env = "NO_COLOR", value_name = "ANY", num_args = 0..=1, default_missing_value = "1")]
    no_color: Option<String>,
    #[command(flatten)]
    stack: StackArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit("demo", demo(Args::parse()).await)
}

async fn demo(args: Args) -> anyhow::Result<bool> {
    let plain = args.no_color.is_some_and(|value| !value.is_empty());
    let screen = Screen::new(!plain && std::io::stdout().is_terminal());
    let started = Instant::now();
    let running = Api::new(&args.stack.addr)?;
    let own = if running.health().await.is_ok() {
        running.require_stack().await?;
        println!("{} on the stack at {}", screen.bold("Tidemark"), args.stack.addr);
        None
    } else {
        println!("{} No stack responds at {}; starting one.", screen.bold("Tidemark"), args.stack.addr);
        let own = OwnStack::start().await?;
        println!("         It responds at {} after {}.", own.address(), text::short(started.elapsed()));
        Some(own)
    };
    let address = own.as_ref().map_or(args.stack.addr, OwnStack::address);
    let api = Api::new(&address)?;
    let mut show = Show::new(&api, screen)?;
    let outcome = tokio::select! {
        outcome = show.play() => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    if let Some(own) = own {
        let stopped = own.stop().await;
        if outcome.is_ok() {
            println!("   The stack was stopped in {}, its data was removed.", text::short(stopped?));
        }
    } else if outcome.is_ok() {
        let [first, second] = show.readers();
        println!("   http://{address}/#people={first},{second} shows both readers.");
    }
    println!("   {} in all", text::short(started.elapsed()));
    outcome
}
