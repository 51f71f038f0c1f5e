//! `GET /v1/unread` and the first page alone, by clients without pauses.

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::Serialize;
use tidemark_tools::{api::Api, status::wait_idle, text::thousands};

use super::{
    arrivals::closed_loop,
    meter::{CLIENT, DYNAMODB, GATEWAY, REDIS},
    output::Subject,
    single::IDLE_WITHIN,
    summary::{Outcome, Summary, two_decimals},
    table::Table,
    traffic::{Kind, Traffic},
    world::World,
};

const WARM_UP: Duration = Duration::from_secs(2);

/// One route and number of clients. Times are of one request.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    kind: Kind,
    clients: u16,
    per_second: f64,
    summary: Summary,
    /// Requests a second for a processor that only runs the function.
    per_function_core: f64,
    /// Requests a second for a thread of Redis.
    per_redis_thread: f64,
    /// Processor time of the function.
    function_user_us: f64,
    function_system_us: f64,
    /// Processor time of the main thread of Redis, the part of it in commands, and the requests that it read.
    redis_us: f64,
    redis_commands_us: f64,
    redis_trips: f64,
    /// Processor time of the stand-ins and the client.
    dynamodb_us: f64,
    gateway_us: f64,
    client_us: f64,
    /// From the moment at which the gateway has the event to the function's response, as the stack measures it.
    invocation_us: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct UnreadReport {
    #[serde(flatten)]
    subject: Subject,
    seconds: f64,
    runs: Vec<Run>,
}

/// Measures both routes with each number of clients.
pub(crate) async fn measure(
    world: &mut World,
    traffic: &Arc<Traffic>,
    clients: &[u16],
    seconds: Duration,
) -> anyhow::Result<UnreadReport> {
    let mut runs = Vec::new();
    for kind in [Kind::Unread, Kind::Feed] {
        for clients in clients {
            for_a_while(world, traffic, kind, *clients, WARM_UP).await;
            wait_idle(&world.stack.api, IDLE_WITHIN).await?;
            runs.push(run(world, traffic, kind, *clients, seconds).await?);
        }
    }
    Ok(UnreadReport { subject: Subject::of(world, traffic).await?, seconds: seconds.as_secs_f64(), runs })
}

async fn for_a_while(world: &World, traffic: &Arc<Traffic>, kind: Kind, clients: u16, time: Duration) -> Vec<Outcome> {
    let end = Instant::now() + time;
    closed_loop(&world.stack.api, traffic, kind, clients, move || Instant::now() >= end).await
}

async fn run(world: &mut World, traffic: &Arc<Traffic>, kind: Kind, clients: u16, time: Duration) -> anyhow::Result<Run> {
    let api = Arc::clone(&world.stack.api);
    world.meter.reset_commands().await?;
    let invoked = invocations(&api, kind.function()).await?;
    let (redis, before) = (world.meter.info().await?, world.meter.times(&api).await?);
    let started = Instant::now();
    let outcomes = for_a_while(world, traffic, kind, clients, time).await;
    let took = started.elapsed().as_secs_f64();
    let (after, spent) = (world.meter.info().await?, world.meter.times(&api).await?.since(&before));
    let invoked_after = invocations(&api, kind.function()).await?;
    let summary = Summary::of(&outcomes);
    let count = summary.requests.max(1) as f64;
    let each = |seconds: f64| two_decimals(seconds * 1e6 / count);
    let function = spent.of(kind.function());
    let main_thread = |info: &super::info::Info| info.main_thread_us().context("the server does not report its main thread");
    let redis_us = two_decimals((main_thread(&after)? - main_thread(&redis)?) / count);
    // INFO counts itself: its command has run when the statistics are written, and it is not large.
    let commands: u64 = after.commands().into_iter().filter(|(name, _)| *name != "info").map(|(_, us)| us).sum();
    let trips = after.number::<f64>("total_reads_processed")? - redis.number::<f64>("total_reads_processed")?;
    let per = |us: f64| if us > 0.0 { (1e6 / us).round() } else { 0.0 };
    let run = Run {
        kind,
        clients,
        per_second: (count / took).round(),
        per_function_core: per(function.total() * 1e6 / count),
        per_redis_thread: per(redis_us),
        function_user_us: each(function.user),
        function_system_us: each(function.system),
        redis_us,
        redis_commands_us: two_decimals(commands as f64 / count),
        redis_trips: two_decimals(trips / count),
        dynamodb_us: each(spent.of(DYNAMODB).total()),
        gateway_us: each(spent.of(GATEWAY).total()),
        client_us: each(spent.of(CLIENT).total()),
        invocation_us: each((invoked_after.0 - invoked.0) * count / (invoked_after.1 - invoked.1).max(1.0)),
        summary,
    };
    println!(
        "{kind:?}, {clients} clients: {} a second, {} for a core of the function ({REDIS}: {})",
        run.per_second, run.per_function_core, run.per_redis_thread
    );
    Ok(run)
}

/// Seconds and number of a function's invocations until now.
async fn invocations(api: &Api, function: &str) -> anyhow::Result<(f64, f64)> {
    let text = api.text("/_local/metrics").await?;
    let metrics = values(&text);
    let of = |part: &str| {
        let name = format!("tidemark_invocation_duration_seconds_{part}{{function=\"{function}\"}}");
        metrics.get(name.as_str()).copied().unwrap_or(0.0)
    };
    Ok((of("sum"), of("count")))
}

/// The values of metrics in Prometheus' text format, by name and labels.
fn values(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

impl fmt::Display for UnreadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.subject)?;
        let numbers = ["requests/s", "p50 ms", "p99 ms", "p99.9 ms", "errors", "a core of the function", "a thread of Redis"];
        let mut table = Table::new(&["route", "clients"], &numbers);
        for run in &self.runs {
            table.push([
                run.kind.route().to_owned(),
                run.clients.to_string(),
                thousands(run.per_second as u64),
                run.summary.p50_ms.to_string(),
                run.summary.p99_ms.to_string(),
                run.summary.p999_ms.to_string(),
                run.summary.errors_text(),
                thousands(run.per_function_core as u64),
                thousands(run.per_redis_thread as u64),
            ]);
        }
        writeln!(f, "{table}")?;
        let numbers =
            ["whole", "invocation", "function, user", "system", "Redis", "in commands", "trips", "DynamoDB", "gateway", "client"];
        let mut table = Table::new(&["µs of a request", "clients"], &numbers);
        for run in &self.runs {
            let whole = two_decimals(1e6 * f64::from(run.clients) / run.per_second.max(1.0));
            let times = [whole, run.invocation_us, run.function_user_us, run.function_system_us, run.redis_us];
            let more = [run.redis_commands_us, run.redis_trips, run.dynamodb_us, run.gateway_us, run.client_us];
            let names = [run.kind.route().to_owned(), run.clients.to_string()];
            table.push(names.into_iter().chain(times.into_iter().chain(more).map(|number| number.to_string())));
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_by_name_and_labels() {
        let text = "# HELP a b\na_sum{function=\"x\"} 1.5\na_count{function=\"x\"} 3\nb 7\n";
        let values = values(text);
        assert_eq!((values["a_sum{function=\"x\"}"], values["a_count{function=\"x\"}"], values.len()), (1.5, 3.0, 3));
    }
}
