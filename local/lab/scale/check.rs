//! Compares the simulation with real runs.

use std::fmt;

use anyhow::{Context, bail};

use super::{
    demand::{Publish, Server},
    followers::Followers,
    inputs::Inputs,
    measured::{FanOutRun, Measured},
    redis::Background,
    sim::{Outcome, Plan, simulate},
};

/// The largest difference that holds.
const TOLERANCE: f64 = 0.15;
/// A time on one machine that is small beside all others, in milliseconds.
const SHORT_MS: f64 = 0.2;
/// The time to another process on the same machine, both ways, in milliseconds.
const LOCAL_TRIP_MS: f64 = 0.05;

/// A value of a real run and of the simulation.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    what: String,
    real: f64,
    simulated: f64,
}

impl Row {
    fn new(what: impl Into<String>, real: f64, simulated: f64) -> Self {
        Self { what: what.into(), real, simulated }
    }

    fn difference(&self) -> f64 {
        self.simulated / self.real - 1.0
    }

    pub(crate) fn holds(&self) -> bool {
        self.difference().abs() <= TOLERANCE
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, real, simulated } = self;
        let verdict = if self.holds() { "yes" } else { "no" };
        write!(f, "| {what} | {real:.2} | {simulated:.2} | {:+.1} % | {verdict} |", 100.0 * self.difference())
    }
}

/// The heading of a table of [`Row`]s.
pub(crate) const HEADING: &str = "| | real run | simulated | difference | within 15 % |\n|---|--:|--:|--:|---|";

/// Everything on one machine: the stack's stores are short calls, and one master serves all.
fn machine(inputs: &Inputs, measured: &Measured, live: f64, followers: f64, workers: u32) -> Plan {
    let inputs = Inputs {
        live,
        dynamodb_read_ms: SHORT_MS,
        dynamodb_write_ms: SHORT_MS,
        dynamodb_query_ms: SHORT_MS,
        sqs_ms: SHORT_MS,
        invoke_ms: SHORT_MS,
        redis_trip_ms: LOCAL_TRIP_MS,
        ..inputs.clone()
    };
    Plan {
        server: Server::new(&inputs, measured, 1),
        workers,
        warm: f64::from(workers),
        big: followers,
        others: 0.0,
        followers: Followers::with_mean(inputs.following, inputs.exponent, followers),
        readers: Background { rate: 0.0, seconds: 0.0 },
        paced: true,
        inputs,
    }
}

/// Compares with the runs that docs/benchmarks/fan-out.json records: one event at a time by a worker that does not pace
/// itself, and all followers live.
pub(crate) fn benchmarks(inputs: &Inputs, measured: &Measured) -> Vec<Row> {
    let row = |run: &FanOutRun| {
        let own = Measured { runs: vec![*run], ..measured.clone() };
        let mut plan = Plan { paced: false, ..machine(inputs, &own, 1.0, run.followers, 1) };
        plan.server.trip_users = own.call;
        // The benchmark has its pages at hand.
        (plan.inputs.dynamodb_query_ms, plan.inputs.sqs_ms, plan.inputs.request_ms) = (1e-3, 1e-3, 1e-3);
        plan.inputs.worker_us = 1e-3;
        let per_second = run.followers / simulate(&plan).last_follower.unwrap_or(f64::INFINITY);
        Row::new(format!("followers a second, {:.0} followers", run.followers), run.per_second, per_second)
    };
    measured.runs.iter().map(row).collect()
}

/// Compares messages, events and calls for a million followers with the formula of docs/fan-out.md, whose parts
/// tests/system/cost.rs counts on a real run.
pub(crate) fn counts(inputs: &Inputs, measured: &Measured) -> Vec<Row> {
    let followers = 1e6;
    let plan = machine(inputs, measured, inputs.live, followers, 40);
    let outcome = simulate(&plan);
    let publish = Publish::new(followers, f64::INFINITY, inputs.post_kb);
    vec![
        Row::new("messages, 1,000,000 followers", publish.messages(), outcome.messages as f64),
        Row::new("invocations of fan-out, 1,000,000 followers", publish.invocations(3.0) - 1.0, outcome.events as f64),
        Row::new("calls of Redis, 1,000,000 followers", 30_000.0, outcome.calls as f64),
    ]
}

/// The results that `make big-author` printed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BigAuthor {
    pub(crate) followers: f64,
    pub(crate) live: f64,
    pub(crate) pages: f64,
    /// From the response of the publish to the last follower.
    pub(crate) seconds: f64,
}

impl BigAuthor {
    /// Reads the output. Fails if a line is missing or a check of the run failed.
    pub(crate) fn parse(report: &str) -> anyhow::Result<Self> {
        let checked = |what: &str| -> anyhow::Result<f64> {
            let line = report.lines().find_map(|line| line.strip_prefix("ok     ")?.strip_prefix(what)?.strip_prefix(": "));
            let text = line.with_context(|| format!("the report has no line `ok     {what}: …`"))?;
            text.replace(',', "").parse().with_context(|| format!("{what} is `{text}`"))
        };
        let took = report.lines().find_map(|line| line.strip_prefix("fan-out, from response to done"));
        let took = took.context("the report has no line `fan-out, from response to done`")?.trim();
        let (number, unit) = took.split_once(' ').with_context(|| format!("`{took}` is no time"))?;
        let unit = match unit.trim() {
            "s" => 1.0,
            "ms" => 1e-3,
            "µs" => 1e-6,
            other => bail!("unknown unit `{other}`"),
        };
        Ok(Self {
            followers: checked("fan-out: delivered")?,
            live: checked("live readers")?,
            pages: checked("fan-out: pages done")?,
            seconds: number.parse::<f64>().with_context(|| format!("`{took}` is no time"))? * unit,
        })
    }

    fn outcome(&self, inputs: &Inputs, measured: &Measured) -> Outcome {
        let live = (self.live / self.followers).clamp(1e-6, 1.0);
        let mut plan = machine(inputs, measured, live, self.followers, inputs.workers.unwrap_or(40));
        // The time begins with the response.
        plan.inputs.request_ms = 1e-3;
        simulate(&plan)
    }

    /// The processor time for each follower at which the simulation takes as long as this run. Fails if Redis
    /// alone takes longer.
    pub(crate) fn worker_us(&self, inputs: &Inputs, measured: &Measured) -> anyhow::Result<f64> {
        let seconds = |worker_us: f64| {
            let inputs = Inputs { worker_us, ..inputs.clone() };
            self.outcome(&inputs, measured).last_follower.unwrap_or(f64::INFINITY)
        };
        let (mut low, mut high) = (0.0, 1_000.0);
        if seconds(low) > self.seconds {
            bail!("the simulated Redis alone takes {:.2} s, and the run took {:.2} s", seconds(low), self.seconds);
        }
        for _ in 0..20 {
            let middle = f64::midpoint(low, high);
            if seconds(middle) > self.seconds { high = middle } else { low = middle }
        }
        Ok(low)
    }

    /// Compares this run with the simulation of the same machine.
    pub(crate) fn compare(&self, inputs: &Inputs, measured: &Measured) -> Vec<Row> {
        let outcome = self.outcome(inputs, measured);
        vec![
            Row::new("seconds to the last follower", self.seconds, outcome.last_follower.unwrap_or(f64::INFINITY)),
            Row::new("pages", self.pages, outcome.pages as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "fan-out, from response to done                            12.34 s  \n  followers per second                                   81,037  \n\
                          ok     live readers: 10,000\nok     live readers of the small authors: 260\n\
                          ok     fan-out: pages done: 100\nok     fan-out: delivered: 100,000\n";

    #[test]
    fn a_report_is_read_and_a_failed_one_is_refused() {
        let run = BigAuthor::parse(REPORT).unwrap();
        assert_eq!(run, BigAuthor { followers: 1e5, live: 1e4, pages: 100.0, seconds: 12.34 });
        let failed = REPORT.replace("ok     fan-out: delivered: 100,000", "FAILED fan-out: delivered: 99,999, not 100,000");
        assert!(BigAuthor::parse(&failed).unwrap_err().to_string().contains("fan-out: delivered"));
        assert!(BigAuthor::parse("").is_err());
    }

    #[test]
    fn the_simulation_is_within_15_percent_of_the_recorded_runs() {
        let (inputs, measured) = (Inputs::default(), Measured::read().unwrap());
        for row in benchmarks(&inputs, &measured).into_iter().chain(counts(&inputs, &measured)) {
            assert!(row.holds(), "{row}");
        }
    }

    #[test]
    fn a_small_run_calibrates_and_a_run_that_took_twice_as_long_does_not_hold() {
        let inputs = Inputs { cores: Some(2), ..Inputs::default() };
        let (run, measured) = (BigAuthor::parse(REPORT).unwrap(), Measured::read().unwrap());
        let inputs = Inputs { worker_us: run.worker_us(&inputs, &measured).unwrap(), ..inputs };
        assert!(run.compare(&inputs, &measured).iter().all(Row::holds), "{:?}", run.compare(&inputs, &measured));
        let slower = BigAuthor { seconds: 2.0 * run.seconds, ..run };
        assert!(!slower.compare(&inputs, &measured)[0].holds());
        let impossible = BigAuthor { seconds: 1e-3, ..slower };
        assert!(impossible.worker_us(&inputs, &measured).is_err());
    }
}
