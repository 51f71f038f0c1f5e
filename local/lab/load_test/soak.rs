//! A steady load for long, while Redis is flushed and workers are killed. Afterwards views and facts are compared.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{StreamExt, stream};
use rand::{
    SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, IteratorRandom},
};
use serde::Serialize;
use tidemark::{App, Settings, telemetry::EmbeddedMetrics};
use tidemark_reconcile_lib::{Plan, Position, Reconcile};
use tidemark_tools::{
    api::{Api, Call},
    progress::Progress,
    signal,
    status::{Status, post, wait_idle},
    text::{short, thousands},
    verify::{
        feed::{number, walk},
        ledger::{Checks, Ledger},
    },
};

use super::{
    arrivals::{Outcomes, open_loop},
    chart::{Chart, Line},
    meter::{GATEWAY, REDIS, is_function},
    output::Subject,
    single::IDLE_WITHIN,
    summary::{Outcome, Summary, ms},
    table::Table,
    traffic::{Mix, Traffic},
    world::World,
};

/// Windows of a soak, and the shortest one.
const WINDOWS: u32 = 60;
const SHORTEST_WINDOW: Duration = Duration::from_secs(5);
/// Redis is flushed three times, or every quarter of an hour.
const FLUSHES: u32 = 4;
const FLUSH_EVERY: Duration = Duration::from_secs(15 * 60);
/// Functions whose processes are killed. Their queues and streams deliver again what was lost.
const WORKERS: [&str; 3] = ["fan-out", "projector", "live-sender"];
/// Readers whose pages and counts are compared through the API.
const SAMPLE: usize = 200;
const SAMPLED_SIDE_BY_SIDE: usize = 4;
/// The longest comparison with the facts. What it has not reached then is left out, and the report says so.
const COMPARED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// A window of the soak.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Window {
    /// The end of the window, in seconds since the begin.
    at: f64,
    summary: Summary,
    /// Resident bytes by process; those of a function are added up.
    memory: BTreeMap<String, u64>,
    redis_keys: u64,
    redis_bytes: u64,
    /// Whether Redis was flushed in it.
    flushed: bool,
    killed: u32,
}

/// Views compared with facts, by reconcile and through the API.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    /// Users, posts and keys that reconcile looked at.
    looked_at: u64,
    /// Whether it has reached every user with keys in Redis.
    is_whole: bool,
    /// Differences by kind.
    differences: BTreeMap<String, u64>,
    failed: u64,
    api_comparisons: u64,
    api_mismatches: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct SoakReport {
    #[serde(flatten)]
    subject: Subject,
    mix: Mix,
    rate: f64,
    seconds: f64,
    summary: Summary,
    windows: Vec<Window>,
    idle_after_ms: f64,
    compared: Compared,
}

/// Runs the load for `time`.
pub(crate) async fn run(
    world: &mut World,
    traffic: &Arc<Traffic>,
    mix: &Mix,
    rate: f64,
    time: Duration,
) -> anyhow::Result<SoakReport> {
    let (api, outcomes) = (Arc::clone(&world.stack.api), Arc::<Outcomes>::default());
    wait_idle(&api, IDLE_WITHIN).await?;
    let mut windows = Vec::new();
    let load = open_loop(&api, traffic, mix, rate, time, &outcomes);
    let watch = watch(world, time, &outcomes, &mut windows);
    let (mut all, ()) = futures::try_join!(watch, load)?;
    all.extend(outcomes.take());
    let idle_after = wait_idle(&api, IDLE_WITHIN).await?;
    // Every reader has a view again.
    traffic.warm(&api).await?;
    wait_idle(&api, IDLE_WITHIN).await?;
    Ok(SoakReport {
        subject: Subject::of(world, traffic).await?,
        mix: mix.clone(),
        rate,
        seconds: time.as_secs_f64(),
        summary: Summary::of(&all),
        windows,
        idle_after_ms: ms(idle_after),
        compared: compare(&api, traffic).await?,
    })
}

/// Closes a window after the other, and disturbs the stack. Returns all outcomes.
async fn watch(
    world: &mut World,
    time: Duration,
    outcomes: &Outcomes,
    windows: &mut Vec<Window>,
) -> anyhow::Result<Vec<Outcome>> {
    let (api, started) = (Arc::clone(&world.stack.api), Instant::now());
    let mut random = StdRng::seed_from_u64(world.options.graph.seed);
    let (length, flush_every) = ((time / WINDOWS).max(SHORTEST_WINDOW), (time / FLUSHES).min(FLUSH_EVERY));
    let (mut next_flush, mut all) = (flush_every, Vec::new());
    let mut progress = Progress::start("soak", "seconds");
    for window in 1.. {
        let end = length * window;
        let mut flushed = false;
        // In the middle of a window, so that the window shows what follows.
        tokio::time::sleep_until((started + end.saturating_sub(length / 2)).into()).await;
        if started.elapsed() >= next_flush && started.elapsed() < time {
            post(&api, "/_local/redis/flush").await?;
            next_flush += flush_every;
            flushed = true;
        }
        let killed = if started.elapsed() < time { kill(&api, &mut random).await? } else { 0 };
        tokio::time::sleep_until((started + end).into()).await;
        let of_window = outcomes.take();
        windows.push(Window {
            at: started.elapsed().as_secs_f64().round(),
            summary: Summary::of(&of_window),
            memory: world.meter.memory(&api).await?,
            redis_keys: world.meter.keys().await?,
            redis_bytes: world.meter.info().await?.number("used_memory")?,
            flushed,
            killed,
        });
        all.extend(of_window);
        progress.set(started.elapsed().as_secs(), time.as_secs(), "");
        if started.elapsed() >= time {
            break;
        }
    }
    progress.finish();
    Ok(all)
}

/// Kills one process of one of the workers. Returns the number of killed processes.
async fn kill(api: &Api, random: &mut StdRng) -> anyhow::Result<u32> {
    let processes = Status::of(api).await?.processes;
    let workers = WORKERS.iter().filter_map(|worker| processes.get(*worker));
    match workers.flatten().choose(random) {
        Some(pid) => Ok(u32::from(signal(*pid, "KILL").await?)),
        None => Ok(0),
    }
}

async fn compare(api: &Api, traffic: &Traffic) -> anyhow::Result<Compared> {
    let app = reconciling(api).await?;
    let reconcile = Reconcile::new(&app);
    let plan = Plan { dry_run: true, share: 1.0, ..Plan::default() };
    let (started, mut position) = (Instant::now(), None);
    let mut compared = Compared {
        looked_at: 0,
        is_whole: false,
        differences: BTreeMap::new(),
        failed: 0,
        api_comparisons: 0,
        api_mismatches: Vec::new(),
    };
    let mut progress = Progress::start("compare with facts", "steps");
    for step in 1.. {
        let report = reconcile.walk(&plan, position.clone(), false, &|| true).await?.context("a walk without a report")?;
        compared.looked_at += report.looked_at;
        compared.failed += report.failed;
        for (kind, count) in &report.found {
            let kind = serde_json::to_value(kind)?.as_str().unwrap_or_default().to_owned();
            *compared.differences.entry(kind).or_default() += count;
        }
        for difference in report.differences.iter().take(5) {
            eprintln!("difference: {}", serde_json::to_string(difference)?);
        }
        progress.set(step, step, "");
        // After the keys of Redis come all users of the graph, whom nobody has touched.
        match report.next.map(|next| next.parse::<Position>()).transpose().map_err(anyhow::Error::msg)? {
            Some(next @ Position::Keys(_)) if started.elapsed() < COMPARED_WITHIN => position = Some(next),
            Some(Position::Keys(_)) => break,
            _ => {
                compared.is_whole = true;
                break;
            }
        }
    }
    progress.finish();
    let mut random = StdRng::seed_from_u64(1);
    let sample: Vec<u32> = traffic.readers.choose_multiple(&mut random, SAMPLE).copied().collect();
    let mut checks = stream::iter(sample).map(|user| pages_and_counts(api, user.into())).buffer_unordered(SAMPLED_SIDE_BY_SIDE);
    let mut ledger = Ledger::default();
    while let Some(checks) = checks.next().await {
        ledger.add(checks);
    }
    compared.api_comparisons = ledger.comparisons;
    compared.api_mismatches = ledger.first;
    Ok(compared)
}

/// Compares a reader's unread pages with the counts.
async fn pages_and_counts(api: &Api, user: u64) -> Checks {
    let work = async |checks: &mut Checks| {
        let pages = walk(api, user, "/v1/feed?status=unread", 100).await?;
        let counts = api.fetch(Call::get("/v1/unread").caller(user), 200).await?;
        let mut by_author: BTreeMap<u64, u64> = BTreeMap::new();
        for item in &pages.items {
            *by_author.entry(item.post.id.author).or_default() += 1;
        }
        let listed = counts["authors"].as_array().into_iter().flatten();
        let listed = listed.filter_map(|row| Some((number(&row["author"])?, number(&row["unread"])?))).collect();
        checks.equal("unread: total", Some(pages.items.len() as u64), number(&counts["total"]));
        checks.equal("unread: by author", by_author, listed);
        anyhow::Ok(())
    };
    Checks::make(user, work).await.0
}

/// The stores as reconcile uses them.
async fn reconciling(api: &Api) -> anyhow::Result<App> {
    let environments = api.fetch(Call::get("/_local/environment"), 200).await?;
    let all = environments.as_object().context("GET /_local/environment has an unexpected form")?.values();
    let own = all.clone().find(|variables| variables["AWS_LAMBDA_FUNCTION_NAME"] == "reconcile");
    let own = own.context("the stack has no reconcile function")?;
    let settings = Settings::from_lookup(|name| own[name].as_str().map(str::to_owned))?;
    // The stack has its own address of Redis, and the credentials of a local stack are no secret.
    Ok(App::connect_with(settings, Arc::new(EmbeddedMetrics::new(String::new(), |_| {}))).await?)
}

impl SoakReport {
    /// Whether nothing differs.
    pub(crate) fn is_good(&self) -> bool {
        let Compared { looked_at, differences, failed, api_comparisons, api_mismatches, .. } = &self.compared;
        *looked_at > 0 && *api_comparisons > 0 && differences.is_empty() && *failed == 0 && api_mismatches.is_empty()
    }

    pub(crate) fn charts(&self) -> Vec<(&'static str, Chart)> {
        let line = |name: &str, value: &dyn Fn(&Window) -> f64| Line {
            name: name.to_owned(),
            points: self.windows.iter().map(|window| (window.at / 60.0, value(window))).collect(),
        };
        let chart = |title, y, lines, is_logarithmic| Chart { title, x: "minutes", y, lines, aim: None, is_logarithmic };
        let times = vec![line("p50", &|window| window.summary.p50_ms), line("p99", &|window| window.summary.p99_ms)];
        let last = self.windows.last().map(|window| &window.memory).into_iter().flatten();
        let memory = last.map(|(name, _)| line(name, &|window| window.memory.get(name).copied().unwrap_or(0) as f64 / 1e6));
        let keys = vec![line("keys of Redis", &|window| window.redis_keys as f64)];
        vec![
            ("soak-times", chart("Response times in a soak", "milliseconds", times, true)),
            ("soak-memory", chart("Memory in a soak", "megabytes", memory.collect(), true)),
            ("soak-keys", chart("Keys of Redis in a soak", "keys", keys, false)),
        ]
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.subject)?;
        let Summary { requests, p50_ms, p99_ms, p999_ms, .. } = &self.summary;
        let (requests, errors) = (thousands(*requests), self.summary.errors_text());
        let flushes = self.windows.iter().filter(|window| window.flushed).count();
        let kills: u32 = self.windows.iter().map(|window| window.killed).sum();
        let time = short(Duration::from_secs_f64(self.seconds));
        writeln!(
            f,
            "{} requests a second for {time}: {requests} requests, p50 {p50_ms} ms, p99 {p99_ms} ms, p99.9 {p999_ms} ms,",
            self.rate
        )?;
        writeln!(f, "errors {errors}; {flushes} flushes of Redis, {kills} killed workers\n")?;
        let mut table =
            Table::new(&["minute"], &["p50 ms", "p99 ms", "errors", "functions MB", "stack MB", "Redis MB", "keys", "flushed"]);
        let step = (self.windows.len() / 20).max(1);
        let shown = self.windows.iter().enumerate().filter(|(number, window)| window.flushed || number % step == 0);
        for (_, window) in shown {
            let memory = |name: &str| window.memory.get(name).copied().unwrap_or(0);
            let functions: u64 = window.memory.iter().filter(|(name, _)| is_function(name)).map(|(_, bytes)| bytes).sum();
            let mb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
            table.push([
                format!("{:.1}", window.at / 60.0),
                window.summary.p50_ms.to_string(),
                window.summary.p99_ms.to_string(),
                window.summary.errors_text(),
                mb(functions),
                mb(memory(GATEWAY)),
                mb(memory(REDIS)),
                thousands(window.redis_keys),
                if window.flushed { "yes" } else { "" }.to_owned(),
            ]);
        }
        writeln!(f, "{table}")?;
        let Compared { looked_at, is_whole, differences, failed, api_comparisons, api_mismatches } = &self.compared;
        let part = if *is_whole { "all users with keys in Redis" } else { "a part of the users with keys in Redis" };
        let count: u64 = differences.values().sum();
        writeln!(
            f,
            "Compared with the facts, {part}: {} looked at, {count} differences {differences:?}, {failed} failures.",
            thousands(*looked_at)
        )?;
        write!(
            f,
            "Unread pages against counts: {} comparisons, {} mismatches.",
            thousands(*api_comparisons),
            api_mismatches.len()
        )?;
        for mismatch in api_mismatches {
            write!(f, "\nMISMATCH {mismatch}")?;
        }
        Ok(())
    }
}
