//! The stack with its graph.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::value_parser;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tidemark_tools::text::{short, thousands};

use super::{
    fill::{self, MOST_POSTS},
    folder,
    graph::Graph,
    meter::Meter,
    stack::{Running, Setup},
};

/// The file in the folder of a stack that tells what was written there.
const WRITTEN: &str = "graph.json";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) graph: GraphOptions,
    /// Readers with a live view, who send most of the requests.
    #[arg(long, default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    pub(crate) readers: u32,
    /// Processes of each function. Each works on one request at a time, as on Lambda.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u16).range(1..=100))]
    pub(crate) processes: u16,
    /// Requests that the gateway passes to functions at once. Others get 503.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// A folder that keeps the graph for the next run. By default a temporary folder in RAM.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// The folder of the stack's and the functions' binaries.
    #[arg(long, env = "TIDEMARK_BIN_DIR", value_name = "FOLDER")]
    pub(crate) bin_dir: PathBuf,
    /// Path of the template.
    #[arg(long, env = "TIDEMARK_TEMPLATE", default_value = "./template.yaml")]
    pub(crate) template: PathBuf,
}

/// What is written before the measurement.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args, Serialize, Deserialize)]
pub(crate) struct GraphOptions {
    /// Users of the graph.
    #[arg(long, default_value_t = 100_000, value_parser = value_parser!(u32).range(100..=10_000_000))]
    pub(crate) users: u32,
    /// Users that a user follows, on average.
    #[arg(long, default_value_t = 20.0, value_parser = following)]
    pub(crate) following: f64,
    /// Users with posts, most followers first.
    #[arg(long, default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    pub(crate) authors: u32,
    /// Posts of each of them, in the last six days.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u16).range(1..=i64::from(MOST_POSTS)))]
    pub(crate) posts: u16,
    /// Seed of the graph and of the requests.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

fn following(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1.0..=200.0).contains(&number) { Ok(number) } else { Err("not from 1 to 200".to_owned()) }
}

/// The running stack with the graph that it was filled with.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) stack: Running,
    pub(crate) graph: Graph,
    pub(crate) options: Options,
    pub(crate) meter: Meter,
    temporary: Option<TempDir>,
}

impl World {
    /// Fills the stores, unless the folder has this graph, and starts the stack. Without `limits`, requests are not
    /// limited.
    pub(crate) async fn start(options: &Options, limits: &[(&str, u32)]) -> anyhow::Result<Self> {
        let temporary = if options.data.is_none() { Some(folder::in_ram()?) } else { None };
        let folder = temporary.as_ref().map(|folder| folder.path().to_owned()).or_else(|| options.data.clone());
        let folder = folder.context("no folder")?;
        let given = &options.graph;
        let graph = Graph::new(given.users, given.following, given.seed);
        let written = folder.join(WRITTEN);
        match std::fs::read(&written) {
            Ok(bytes) if serde_json::from_slice::<GraphOptions>(&bytes)? == *given => {}
            Ok(_) => bail!("{} has another graph; remove it, or name another folder", folder.display()),
            Err(_) => {
                let started = std::time::Instant::now();
                let plan = fill::Plan { graph: &graph, authors: given.authors, posts: given.posts, seed: given.seed };
                fill::fill(&folder, &options.template, &plan).await?;
                std::fs::write(&written, serde_json::to_vec(given)?)?;
                let (users, edges) = (thousands(given.users.into()), thousands(graph.edges()));
                println!("{users} users and {edges} follows written in {}", short(started.elapsed()));
            }
        }
        let setup = Setup {
            binaries: options.bin_dir.clone(),
            template: options.template.clone(),
            processes: options.processes,
            concurrency: options.concurrency,
            parameters: limits.iter().map(|(name, limit)| format!("{name}={limit}")).collect(),
        };
        let stack = Running::start(&setup, &folder).await?;
        let meter = Meter::new(&stack).await?;
        Ok(Self { stack, graph, options: options.clone(), meter, temporary })
    }

    /// Stops the stack, and removes its data if they are temporary.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.stack.stop().await?;
        self.temporary.map_or(Ok(()), TempDir::close).context("cannot remove the stack's data")
    }
}
