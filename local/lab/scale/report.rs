//! The tables, in Markdown.

use std::fmt::Write as _;

use super::{
    demand::{Demand, Server},
    inputs::Inputs,
    limits,
    measured::Measured,
    prices::{Bill, Node, bill, cheapest},
    redis::Background,
    sim::{Outcome, Plan, quantile, simulate},
};

/// `FanOutConcurrency` by default (template.yaml).
const TEMPLATE_WORKERS: u32 = 40;

/// One number of users, planned, simulated and priced.
pub(crate) struct Scenario {
    pub(crate) demand: Demand,
    pub(crate) node: Node,
    pub(crate) shards: u32,
    pub(crate) workers: u32,
    /// Followers of the biggest author whose posts are pushed.
    pub(crate) pushed: f64,
    pub(crate) outcome: Outcome,
    pub(crate) bill: Bill,
}

impl Scenario {
    pub(crate) fn new(inputs: &Inputs, measured: &Measured, users: f64) -> Self {
        let demand = Demand::new(inputs, measured, users);
        let (node, shards) = cheapest(&demand);
        let warm = demand.busy_workers(shards) / inputs.headroom;
        let workers = inputs.workers.unwrap_or((warm.ceil() as u32).max(TEMPLATE_WORKERS));
        let pushed = demand.biggest.min(inputs.pull_threshold - 1.0).floor();
        let readers = Background {
            rate: inputs.peak * demand.requests() / f64::from(shards),
            seconds: demand.readers_seconds() / demand.requests(),
        };
        let plan = Plan {
            inputs: inputs.clone(),
            server: Server::new(inputs, measured, shards),
            workers,
            warm,
            big: pushed,
            others: inputs.peak * demand.publishes,
            followers: demand.followers,
            readers,
            paced: true,
        };
        let outcome = simulate(&plan);
        let bill = bill(&demand, node, shards, &outcome);
        Self { demand, node, shards, workers, pushed, outcome, bill }
    }

    fn rows(&self) -> Vec<(String, String)> {
        let (demand, outcome) = (&self.demand, &self.outcome);
        let peak = demand.inputs.peak;
        let times = |values: &[f64]| format!("{} / {}", seconds(quantile(values, 0.5)), seconds(quantile(values, 0.99)));
        let mut rows = vec![
            ("requests a second", count(peak * demand.requests())),
            ("posts a second", count(peak * demand.publishes)),
            ("followers pushed to a second", count(peak * demand.pushed)),
            ("Redis masters", format!("{} {}", self.shards, self.node.name)),
            ("`FanOutConcurrency`", self.workers.to_string()),
            ("followers of the biggest author", count(demand.biggest)),
            ("followers of the biggest pushed author", count(self.pushed)),
            ("time to that author's last follower", outcome.last_follower.map_or("> 120 s".to_owned(), seconds)),
            ("lag of small posts meanwhile, p50 / p99", times(&outcome.small)),
            ("age of messages, p50 / p99", times(&outcome.ages)),
            ("messages left at the end", count(outcome.left as f64)),
            ("Redis busy", format!("{:.0} %", 100.0 * outcome.utilisation)),
            (
                "Redis memory used, of what the alarm allows",
                format!("{:.0} %", 100.0 * demand.memory / self.node.bytes() / f64::from(self.shards)),
            ),
            ("wait of a read for Redis, p50 / p99", times(&outcome.waits)),
        ]
        .into_iter()
        .map(|(what, value)| (what.to_owned(), value))
        .collect::<Vec<_>>();
        for limit in limits::quotas(&demand.inputs) {
            let refused = ((limit.demand)(demand) - limit.capacity).max(0.0);
            rows.push((format!("above: {}", limit.name), count(refused)));
        }
        rows.extend(self.bill.iter().map(|(service, dollars)| (format!("$ a month: {service}"), count(*dollars))));
        let total = self.bill.iter().map(|(_, dollars)| dollars).sum::<f64>();
        rows.push(("**$ a month**".to_owned(), format!("**{}**", count(total))));
        rows.push(("$ a month for 1,000 users".to_owned(), format!("{:.2}", total / demand.users * 1e3)));
        rows
    }
}

/// The table of scenarios.
pub(crate) fn scenarios(scenarios: &[Scenario]) -> String {
    let rows: Vec<_> = scenarios.iter().map(Scenario::rows).collect();
    let mut text = String::from("| at the peak |");
    for scenario in scenarios {
        let _ = write!(text, " {} users |", count(scenario.demand.users));
    }
    let _ = writeln!(text, "\n|---|{}", "--:|".repeat(scenarios.len()));
    for (number, (what, _)) in rows.first().into_iter().flatten().enumerate() {
        let cells: Vec<&str> = rows.iter().map(|rows| rows[number].1.as_str()).collect();
        let _ = writeln!(text, "| {what} | {} |", cells.join(" | "));
    }
    text
}

/// The table of limits.
pub(crate) fn limits(inputs: &Inputs, measured: &Measured) -> String {
    let mut text = String::from("| | users | limit | lifted by |\n|--:|--:|---|---|\n");
    for (number, (limit, users)) in limits::in_order(inputs, measured).iter().enumerate() {
        let users = users.map_or("more than 100 G".to_owned(), count);
        let _ = writeln!(text, "| {} | {users} | {} | {} |", number + 1, limit.name, limit.lift);
    }
    text
}

/// A number with three digits and a unit.
pub(crate) fn count(number: f64) -> String {
    let (scaled, unit) = match number {
        n if n < 999.5 => (n, ""),
        n if n < 999.5e3 => (n / 1e3, " k"),
        n if n < 999.5e6 => (n / 1e6, " M"),
        n => (n / 1e9, " G"),
    };
    let digits = if scaled >= 99.95 || (unit.is_empty() && scaled.fract() == 0.0) {
        0
    } else if scaled >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// A time in a suitable unit.
pub(crate) fn seconds(time: f64) -> String {
    match time {
        t if t <= 0.0 => "0".to_owned(),
        t if t < 0.9995e-3 => format!("{} µs", count((t * 1e6).round())),
        t if t < 0.9995 => format!("{} ms", count(t * 1e3)),
        t => format!("{} s", count(t)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::{FOLLOW, LIKE, MARK};

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.0, 0.126, 40.0, 1234.0, 99_960.0, 1e6, 2.5e9].map(count),
            ["0", "0.13", "40", "1.23 k", "100 k", "1 M", "2.5 G"]
        );
        assert_eq!([0.0, 12e-6, 0.0123, 12.34].map(seconds), ["0", "12 µs", "12.3 ms", "12.3 s"]);
    }

    #[test]
    fn scale_md_has_the_tables_that_are_computed() {
        let document = include_str!("../../../docs/scale.md");
        let [mark, like, follow] = [MARK, LIKE, FOLLOW].map(|[rru, wru]| format!("{rru} RRU and {wru} WRU"));
        let stated = format!("A mark is {mark}, a like {like}, a follow {follow}");
        assert!(document.contains(&stated), "docs/scale.md does not say: {stated}");
        let (inputs, measured) = (Inputs::default(), Measured::read().unwrap());
        let all: Vec<Scenario> = inputs.users.iter().map(|&users| Scenario::new(&inputs, &measured, users)).collect();
        for table in [scenarios(&all), limits(&inputs, &measured)] {
            assert!(document.contains(&table), "run `make scale` and copy its tables to docs/scale.md:\n{table}");
        }
    }

    #[test]
    fn a_scenario_delivers_everything_and_its_bill_is_the_sum() {
        let scenario = Scenario::new(&Inputs::default(), &Measured::read().unwrap(), 1e5);
        assert!((scenario.outcome.delivered - scenario.outcome.published).abs() < 0.5);
        let table = scenarios(&[scenario]);
        assert!(table.contains("| messages left at the end | 0 |") && table.contains("100 k users"), "{table}");
    }
}
