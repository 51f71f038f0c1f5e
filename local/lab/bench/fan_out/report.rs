//! The results as tables and numbers.

use std::fmt;

use serde::Serialize;
use tidemark::views::USERS_PER_CALL;
use tidemark_tools::text::thousands;

use super::{
    Readers,
    latency::{FirstPages, Load},
};
use crate::{
    stats::{median, ratio, round},
    table::Table,
};

/// A way to deliver a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Worker,
    /// `ZADD` alone.
    Zadd,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Worker, Self::Zadd];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Worker => "Tidemark's worker, from the SQS event to Redis",
            Self::Zadd => "bare ZADD, pipelined",
        }
    }
}

/// One measurement, or the medians of several.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Cost {
    /// Followers delivered in a second.
    pub(super) per_second: f64,
    /// CPU time of the server's main thread for each follower, in µs.
    pub(super) server_us: Option<f64>,
}

impl Cost {
    pub(super) fn new(followers: usize, seconds: f64, server_us: Option<f64>) -> Self {
        Self { per_second: followers as f64 / seconds, server_us: server_us.map(|us| us / followers as f64) }
    }

    fn median(costs: &[Self]) -> Self {
        let server: Option<Vec<f64>> = costs.iter().map(|cost| cost.server_us).collect();
        Self {
            per_second: median(costs.iter().map(|cost| cost.per_second)).unwrap_or(0.0).round(),
            server_us: server.and_then(median).map(round),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) kind: Kind,
    #[serde(flatten)]
    pub(super) cost: Cost,
    /// The worker's followers in a second divided by this method's.
    pub(super) worker_is_faster: Option<f64>,
    /// The worker's server time divided by this method's.
    pub(super) worker_server_time: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct FanOutReport {
    server: String,
    rounds: u32,
    users_per_call: usize,
    pub(super) populations: Vec<Population>,
}

/// The results for these followers.
#[derive(Debug, Serialize)]
pub(super) struct Population {
    followers: usize,
    pub(super) feed_entries: usize,
    pub(super) rows: Vec<Row>,
    first_page: FirstPages,
}

impl Population {
    pub(super) fn new(readers: &Readers, costs: Vec<(Kind, Vec<Cost>)>, first_page: FirstPages) -> Self {
        let of = |kind: Kind| costs.iter().find(|(known, _)| *known == kind).map(|(_, costs)| Cost::median(costs));
        let worker = of(Kind::Worker);
        let row = |kind| {
            let (cost, worker) = (of(kind)?, worker?);
            Some(Row {
                kind,
                cost,
                worker_is_faster: ratio(worker.per_second, cost.per_second),
                worker_server_time: worker.server_us.zip(cost.server_us).and_then(|(ours, theirs)| ratio(ours, theirs)),
            })
        };
        let rows = Kind::ALL.into_iter().filter_map(row).collect();
        Self { followers: readers.listed.len(), feed_entries: readers.entries, rows, first_page }
    }
}

impl FanOutReport {
    pub(super) fn new(server: String, rounds: u32, populations: Vec<Population>) -> Self {
        Self { server, rounds, users_per_call: USERS_PER_CALL, populations }
    }
}

impl fmt::Display for FanOutReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} rounds", self.server, self.rounds)?;
        self.populations.iter().try_for_each(|population| write!(f, "\n\n{population}"))
    }
}

impl fmt::Display for Population {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let followers = thousands(self.followers as u64);
        let what = format!("{followers} followers with feeds of {}, medians", self.feed_entries);
        let mut table =
            Table::new(&[&what], &["followers/s", "server µs/follower", "worker is faster", "worker's server time over this"]);
        for Row { kind, cost, worker_is_faster, worker_server_time } in &self.rows {
            table.push([
                kind.title().to_owned(),
                thousands(cost.per_second as u64),
                text(cost.server_us),
                text(*worker_is_faster),
                text(*worker_server_time),
            ]);
        }
        writeln!(f, "{table}")?;
        let times = ["followers/s", "server busy", "p50 µs", "p99 µs", "p50 ÷ idle", "p99 ÷ idle"];
        let mut table = Table::new(&["first page of a feed beside"], &times);
        let FirstPages { idle, during_fan_out, others } = &self.first_page;
        for page in [idle, during_fan_out].into_iter().chain(others) {
            let load = match page.load {
                Load { processes: 0, .. } => "nothing".to_owned(),
                Load { processes, paced } => {
                    let s = if processes == 1 { "" } else { "es" };
                    format!("{processes} process{s}, {}", if paced { "paced" } else { "flat out" })
                }
            };
            table.push([
                load,
                thousands(page.delivered_per_second as u64),
                text(page.server_busy),
                page.p50_us.to_string(),
                page.p99_us.to_string(),
                text(ratio(page.p50_us, idle.p50_us)),
                text(ratio(page.p99_us, idle.p99_us)),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fan_out::latency::FirstPage;

    #[test]
    fn ratios_are_the_workers_over_the_others() {
        let load = Load { processes: 0, paced: true };
        let idle = FirstPage { load, p50_us: 1.0, p99_us: 2.0, delivered_per_second: 0.0, server_busy: None };
        let latencies = FirstPages { idle, during_fan_out: idle, others: Vec::new() };
        let cost = |per_second, server_us| vec![Cost { per_second, server_us: Some(server_us) }];
        let costs = vec![(Kind::Zadd, cost(50.0, 4.0)), (Kind::Worker, cost(100.0, 5.0))];
        let population = Population::new(&Readers::new(1, 10, 200), costs, latencies);
        let zadd = population.rows.iter().find(|row| row.kind == Kind::Zadd).unwrap();
        assert_eq!((zadd.worker_is_faster, zadd.worker_server_time), (Some(2.0), Some(1.25)));
        assert_eq!(Cost::new(10, 2.0, Some(50.0)).server_us, Some(5.0));
        let report = FanOutReport::new("7".to_owned(), 3, vec![population]);
        assert!(report.to_string().contains("bare ZADD"));
    }
}
