//! The cost of one read: round trips, the server's time, bytes on the wire. Every round runs the kinds in a
//! new random order.

use std::{collections::HashMap, fmt};

use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use tidemark_tools::{progress::Progress, text::thousands};

use super::questions::{Kind, Question, Readers, kinds};
use crate::{
    Options,
    server::{Info, Server, info, reset},
    stats::{median, round},
    table::Table,
};

const SECTIONS: [&str; 3] = ["stats", "cpu", "commandstats"];
/// Commands of the measuring connection itself.
const OWN: [&str; 3] = ["info", "config|resetstat", "slowlog|reset"];
/// Commands inside EXEC count in its time already.
const IN_TRANSACTION: [&str; 2] = ["hgetall", "lrange"];

/// The costs of all kinds of reads.
#[derive(Debug, Serialize)]
pub(super) struct Reading {
    rounds: u32,
    calls_per_round: u32,
    reads: Vec<Read>,
}

/// The costs of one kind: medians of the rounds.
#[derive(Debug, Serialize)]
struct Read {
    #[serde(flatten)]
    kind: Kind,
    #[serde(flatten)]
    cost: Cost,
}

/// Costs of one call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Cost {
    round_trips: f64,
    /// Time in commands, as the server reports it.
    server_us: f64,
    /// CPU time of the server's main thread. It includes reading, parsing and writing.
    main_thread_us: Option<f64>,
    response_bytes: f64,
}

pub(super) async fn measure(server: &Server, options: &Options) -> anyhow::Result<Reading> {
    let mut readers = Readers::load(server, options.seed).await?;
    let mut watch = server.connect().await?;
    let mut random = StdRng::seed_from_u64(options.seed);
    let kinds = kinds();
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); kinds.len()];
    let mut progress = Progress::start("reads", "measurements");
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    for number in 0..options.rounds {
        order.shuffle(&mut random);
        for (done, &which) in order.iter().enumerate() {
            costs[which].push(measure_kind(&mut readers, &mut watch, kinds[which], options.calls).await?);
            progress.set(
                u64::from(number) * kinds.len() as u64 + done as u64 + 1,
                u64::from(options.rounds) * kinds.len() as u64,
                "",
            );
        }
    }
    progress.finish();
    Ok(Reading { rounds: options.rounds, calls_per_round: options.calls, reads: summary(&kinds, &costs) })
}

async fn measure_kind(readers: &mut Readers, watch: &mut MultiplexedConnection, kind: Kind, calls: u32) -> anyhow::Result<Cost> {
    // Warms up connections and caches before the count begins.
    for _ in 0..calls.div_ceil(20) {
        readers.ask(kind).await?;
    }
    reset(watch).await?;
    let before = info(watch, &SECTIONS).await?;
    for _ in 0..calls {
        readers.ask(kind).await?;
    }
    let after = info(watch, &SECTIONS).await?;
    cost(&before, &after, calls)
}

fn cost(before: &Info, after: &Info, calls: u32) -> anyhow::Result<Cost> {
    let per_call = |total: f64| round(total / f64::from(calls));
    let grown = |name: &str| anyhow::Ok(after.number::<f64>(name)? - before.number::<f64>(name)?);
    let main_thread = after.main_thread_us().zip(before.main_thread_us()).map(|(after, before)| after - before);
    Ok(Cost {
        // The second INFO counts as one of the reads.
        round_trips: per_call(grown("total_reads_processed")? - 1.0),
        server_us: per_call(time_in_commands(&after.commands()) as f64),
        main_thread_us: main_thread.map(per_call),
        response_bytes: per_call(grown("total_net_output_bytes")?),
    })
}

/// The time in commands, each counted once, without the measuring connection's own.
fn time_in_commands(commands: &HashMap<&str, u64>) -> u64 {
    let nested = |name: &str| commands.contains_key("exec") && IN_TRANSACTION.contains(&name);
    commands.iter().filter(|(name, _)| !OWN.contains(name) && !nested(name)).map(|(_, usec)| usec).sum()
}

fn medians(rounds: &[Cost]) -> Option<Cost> {
    let of = |value: fn(&Cost) -> f64| median(rounds.iter().map(value)).map(round);
    Some(Cost {
        round_trips: of(|cost| cost.round_trips)?,
        server_us: of(|cost| cost.server_us)?,
        main_thread_us: median(rounds.iter().filter_map(|cost| cost.main_thread_us)).map(round),
        response_bytes: of(|cost| cost.response_bytes)?,
    })
}

/// One line for each kind, from the costs of its rounds.
fn summary(kinds: &[Kind], costs: &[Vec<Cost>]) -> Vec<Read> {
    kinds.iter().zip(costs).filter_map(|(kind, rounds)| Some(Read { kind: *kind, cost: medians(rounds)? })).collect()
}

fn question(question: Question) -> &'static str {
    match question {
        Question::FirstPage => "first page of 20",
        Question::DeepPage => "page at 900",
        Question::UnreadTotal => "unread total",
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, calls_per_round: calls, .. } = self;
        writeln!(f, "Reads, per call: medians of {rounds} rounds of {} calls\n", thousands(u64::from(*calls)))?;
        let columns = ["round trips", "server time, µs", "main thread CPU, µs", "response, bytes"];
        let mut table = Table::new(&["read", "authors"], &columns);
        for Read { kind, cost } in &self.reads {
            table.push([
                question(kind.question).to_owned(),
                kind.authors.to_string(),
                format!("{:.1}", cost.round_trips),
                format!("{:.1}", cost.server_us),
                cost.main_thread_us.map_or_else(|| "–".to_owned(), |us| format!("{us:.1}")),
                thousands(cost.response_bytes.round() as u64),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_costs_what_has_grown_without_what_measuring_costs() {
        let text = |reads: u32, bytes: u32, cpu: &str, commands: &str| {
            let stats = format!("total_reads_processed:{reads}\ntotal_net_output_bytes:{bytes}\n");
            Info::parse(&format!("{stats}used_cpu_sys_main_thread:0\nused_cpu_user_main_thread:{cpu}\n{commands}"))
        };
        let before = text(10, 5_000, "1.5", "cmdstat_config|resetstat:calls=1,usec=70\n");
        let commands = "cmdstat_config|resetstat:calls=1,usec=70\ncmdstat_info:calls=1,usec=90\ncmdstat_multi:calls=10,usec=10\n\
                        cmdstat_exec:calls=10,usec=500\ncmdstat_hgetall:calls=10,usec=300\ncmdstat_lrange:calls=10,usec=100\n\
                        cmdstat_mget:calls=10,usec=90\n";
        let cost = cost(&before, &text(31, 5_700, "1.5021", commands), 10).unwrap();
        assert_eq!(cost, Cost { round_trips: 2.0, server_us: 60.0, main_thread_us: Some(210.0), response_bytes: 70.0 });
    }

    #[test]
    fn commands_outside_a_transaction_count() {
        assert_eq!(time_in_commands(&HashMap::from([("hgetall", 5), ("lrange", 7), ("info", 100)])), 12);
    }

    #[test]
    fn the_cost_of_a_kind_is_the_median_of_its_rounds() {
        let kinds = kinds();
        let cost_of = |server_us| Cost { round_trips: 1.0, server_us, main_thread_us: None, response_bytes: 7.0 };
        // In one round the machine was ten times slower.
        let reads = summary(&kinds, &vec![[9.0, 40.0, 5.0].map(cost_of).to_vec(); kinds.len()]);
        assert!(reads.len() == kinds.len() && reads.iter().all(|read| read.cost == cost_of(9.0)));
        assert!(summary(&kinds, &vec![Vec::new(); kinds.len()]).is_empty());
    }
}
