//! One run: open, publish, wait, compare, read, compare again.

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::builder::TypedValueParser;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use rand::{SeedableRng, rngs::StdRng};
use serde_json::json;

use super::{
    compare::{self, Earlier},
    disturb,
    feed::{first_page, walk},
    graph::Graph,
    ledger::{Checks, Ledger},
    marks::{perform, plan},
    model::{Post, Reader},
    publish::{deliveries, publish, timeline},
};
use crate::{
    api::{Api, Call},
    progress::Progress,
    status::{Status, wait_idle},
    text::{short, thousands},
};

pub(super) const PAGE: u32 = 100;
/// One reader in ten reads pages of this small size, so that cursors are used on small graphs too.
const SMALL_PAGE: u32 = 7;
const KILLS: u32 = 5;
const HALF_WAY: Duration = Duration::from_secs(30);

/// The disturbance during the fan-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    Plain,
    /// Every fan-out message is delivered twice, in a shuffled order.
    Twice,
    /// Fan-out workers are killed while they work.
    Kill,
    /// Redis is emptied during the fan-out, during the walks and during the reading.
    Flush,
}

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The number of lines to read. It must be the limit of the load.
    #[arg(long, value_name = "LINES")]
    pub limit: Option<u64>,
    /// The disturbance during the fan-outs.
    #[arg(long, value_enum, default_value_t = Mode::Plain)]
    pub mode: Mode,
    /// The number of publishing accounts, most followers first.
    #[arg(long, default_value_t = 20)]
    pub authors: usize,
    /// The number of posts for each of them.
    #[arg(long, default_value_t = 5)]
    pub posts: u32,
    /// The number of concurrent readers.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// The time that the stack may take to become idle.
    #[arg(long, default_value = "900", value_name = "SECONDS", value_parser = clap::value_parser!(u64).map(Duration::from_secs))]
    pub idle_limit: Duration,
}

/// The action that runs when half of the readers are done.
type Middle<'a> = Option<BoxFuture<'a, anyhow::Result<()>>>;

struct Run<'a> {
    api: &'a Api,
    options: &'a Options,
    seed: u64,
    graph: &'a Graph,
    readers: Vec<u64>,
    ledger: Ledger,
}

/// Runs the check and prints each step. The ledger has the result.
pub async fn run(api: &Api, edges: &Path, options: &Options, seed: u64) -> anyhow::Result<Ledger> {
    let graph = Graph::read(edges, options.limit)?;
    let readers = graph.readers();
    if readers.is_empty() {
        bail!("{} has no edge", edges.display());
    }
    if options.mode == Mode::Kill {
        disturb::require_processes(api).await?;
    }
    let (follows, over) = (thousands(graph.edges), thousands(graph.over_limit));
    say("graph", &format!("{} readers, {follows} follows, {over} refused past 500", thousands(readers.len() as u64)));
    let run = Run { api, options, seed, graph: &graph, readers, ledger: Ledger::default() };
    tokio::select! {
        outcome = run.prove() => outcome,
        _ = tokio::signal::ctrl_c() => {
            if options.mode != Mode::Plain {
                disturb::release(api).await?;
            }
            bail!("interrupted")
        }
    }
}

impl Run<'_> {
    async fn prove(mut self) -> anyhow::Result<Ledger> {
        let Options { mode, authors, posts, idle_limit, .. } = *self.options;
        let seed = self.seed;
        say("seed", &seed.to_string());
        let settled = wait_idle(self.api, idle_limit).await?;
        say("idle", &format!("after {}", short(settled)));
        let redis_url = Status::of(self.api).await?.redis_url;
        let middle = || (mode == Mode::Flush).then(|| disturb::flush(&redis_url).boxed());

        let authors = self.graph.most_followed(authors);
        let mut earlier = Earlier::default();
        for author in &authors {
            earlier.insert(*author, timeline(self.api, *author).await?);
        }
        let api = self.api;
        self.each("open", None, async |user, checks| open(api, user, checks).await).await?;

        let (label, started) = (format!("{seed:x}-{}", std::process::id()), Instant::now());
        let published = self.publish(&authors, posts, &label, &redis_url).await?;
        let expected = authors.len() * posts as usize;
        say("publish", &format!("{} of {expected} posts by the {} most followed", published.len(), authors.len()));
        wait_idle(self.api, idle_limit).await?;
        let flushed = mode == Mode::Flush;
        let limit = if flushed { idle_limit } else { Duration::from_secs(5) };
        deliveries(self.api, &published, self.graph, limit, flushed, &mut self.ledger).await;
        say("delivered", &format!("{} after the first publish", short(started.elapsed())));

        let mut models: HashMap<u64, Reader> = HashMap::new();
        for user in &self.readers {
            let followed = self.graph.following(*user);
            let posts = published.iter().filter(|post| followed.contains(&post.id.author));
            models.insert(*user, Reader::new(*user, posts.cloned()));
        }
        self.compare("compare", &models, &earlier, middle()).await?;
        let act = async |user, checks: &mut _| act(api, models[&user].clone(), seed ^ user, checks).await;
        let read = self.each("read", middle(), act).await?;
        // Readers with a failed request are left out, because their state is unknown.
        let models: HashMap<u64, Reader> = read.into_iter().flatten().map(|r| (r.user, r)).collect();
        self.compare("compare", &models, &earlier, None).await?;
        Ok(self.ledger)
    }

    async fn publish(&mut self, authors: &[u64], posts: u32, label: &str, redis_url: &str) -> anyhow::Result<Vec<Arc<Post>>> {
        let (api, mode) = (self.api, self.options.mode);
        let mut random = StdRng::seed_from_u64(self.seed);
        let ledger = &mut self.ledger;
        if mode == Mode::Plain {
            return Ok(publish(api, authors, posts, label, ledger).await);
        }
        let published = disturb::held(api, async {
            let published = publish(api, authors, posts, label, ledger).await;
            if mode == Mode::Twice {
                let messages = disturb::double(api, &mut random).await?;
                say("twice", &format!("{messages} fan-out messages replaced by two shuffled copies each"));
                if messages == 0 {
                    bail!("no message was queued for fan-out, so none could be delivered twice");
                }
            }
            Ok(published)
        })
        .await?;
        match mode {
            Mode::Plain | Mode::Twice => {}
            Mode::Kill => {
                let killed = disturb::kill_workers(api, KILLS, self.options.idle_limit, &mut random).await?;
                say("kill", &format!("{killed} fan-out workers killed while the queue was not empty"));
                if killed == 0 {
                    bail!("the fan-out ended before a worker could be killed; use a larger graph or more --posts");
                }
            }
            Mode::Flush => {
                let (left, of) = disturb::middle_of_fan_out(api, HALF_WAY).await?;
                disturb::flush(redis_url).await?;
                say("flush", &format!("FLUSHALL with {left} of {of} fan-out messages left"));
            }
        }
        Ok(published)
    }

    async fn compare(
        &mut self,
        title: &str,
        models: &HashMap<u64, Reader>,
        earlier: &Earlier,
        middle: Middle<'_>,
    ) -> anyhow::Result<()> {
        let (api, graph) = (self.api, self.graph);
        let look = async |user, checks: &mut _| match models.get(&user) {
            Some(reader) => look(api, reader, graph, earlier, checks).await,
            None => Ok(()),
        };
        self.each(title, middle, look).await.map(|_| ())
    }

    /// Runs an action for every reader, several at a time. Awaits `middle` when half of them are done.
    async fn each<T>(
        &mut self,
        title: &str,
        mut middle: Middle<'_>,
        work: impl AsyncFn(u64, &mut Checks) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<Option<T>>> {
        let (before, wrong_before, total) = (self.ledger.comparisons, self.ledger.mismatched, self.readers.len());
        let mut progress = Progress::start(title, "readers");
        let work = &work;
        let checked = |user: u64| Checks::make(user, async move |checks| work(user, checks).await);
        let mut results =
            stream::iter(self.readers.iter().copied()).map(checked).buffer_unordered(self.options.concurrency.into());
        let mut values = Vec::with_capacity(total);
        let mut note = "";
        while let Some((checks, value)) = results.next().await {
            self.ledger.add(checks);
            values.push(value);
            if values.len() * 2 >= total
                && let Some(event) = middle.take()
            {
                event.await?;
                note = ", FLUSHALL halfway";
            }
            let remark = format!("({} mismatches)", self.ledger.mismatched);
            progress.set(values.len() as u64, total as u64, &remark);
        }
        drop(results);
        let took = short(progress.finish());
        let made = thousands(self.ledger.comparisons - before);
        let wrong = self.ledger.mismatched - wrong_before;
        let readers = thousands(total as u64);
        say(title, &format!("{readers} readers, {made} comparisons, {wrong} mismatches, {took}{note}"));
        Ok(values)
    }
}

fn say(step: &str, text: &str) {
    println!("{step:<10} {text}");
}

/// Opens the feed once, which makes it live, and marks everything read.
async fn open(api: &Api, user: u64, checks: &mut Checks) -> anyhow::Result<()> {
    let page = first_page(api, user, "/v1/feed?status=all", PAGE).await?;
    if page.totals != [0] {
        let body = api.fetch(Call::post("/v1/reads").caller(user).json(json!({"all": true})), 200).await?;
        checks.equal("read all: unread total", Some(0), body["total"].as_u64());
    }
    Ok(())
}

async fn look(api: &Api, reader: &Reader, graph: &Graph, earlier: &Earlier, checks: &mut Checks) -> anyhow::Result<()> {
    let user = reader.user;
    let limit = if user.is_multiple_of(10) { SMALL_PAGE } else { PAGE };
    let feed = walk(api, user, "/v1/feed?status=all", limit).await?;
    compare::feed(checks, reader, graph.following(user), earlier, &feed);
    let unread = walk(api, user, "/v1/feed?status=unread", limit).await?;
    compare::unread_feed(checks, reader, &unread);
    let counts = api.fetch(Call::get("/v1/unread").caller(user), 200).await?;
    compare::unread_counts(checks, reader, &counts);
    Ok(())
}

/// Reads by the reader's plan.
async fn act(api: &Api, mut reader: Reader, seed: u64, checks: &mut Checks) -> anyhow::Result<Reader> {
    for action in plan(&reader, &mut StdRng::seed_from_u64(seed)) {
        perform(api, &mut reader, &action, checks).await?;
    }
    Ok(reader)
}
