//! Measurements of real runs, from the files that `make bench` writes.

use anyhow::Context;
use serde_json::Value;

const FAN_OUT: &str = include_str!("../../../docs/benchmarks/fan-out.json");
const VIEWS: &str = include_str!("../../../docs/benchmarks/views.json");

/// "Some tenth of the work" (docs/fan-out.md): a follower without a live view, compared with one who has one.
pub(crate) const SILENT: f64 = 0.1;
/// On a cluster, a page whose followers lie in a bucket each takes 1.14 of one node's time, and 0.79 if they lie in few
/// buckets (docs/redis.md).
pub(crate) const SCATTERED: f64 = 1.14 / 0.79;
/// Read units of a rebuild for each followed author: 463,158 for 10,000 readers of 20 authors (docs/redis.md).
pub(crate) const REBUILD_RRU: f64 = 463_158.0 / 10_000.0 / 20.0;
/// Read units of a walk for each user and for each edge, which it compares for a sample of one in twenty
/// (docs/reconcile.md).
pub(crate) const WALK_RRU: [f64; 2] = [56.0, 0.3];
/// Commands of Redis in a rebuild for each followed author: 1,261,789 for the same readers.
pub(crate) const REBUILD_COMMANDS: f64 = 1_261_789.0 / 10_000.0 / 20.0;
/// Followers in a call of deliver on one node (docs/fan-out.md).
pub(crate) const CALL: f64 = 35.0;

/// A measured value for 10 and for 500 followed authors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByAuthors {
    pub(crate) few: f64,
    pub(crate) many: f64,
}

impl ByAuthors {
    /// The value for `authors` followed authors, on a straight line.
    pub(crate) fn at(&self, authors: f64) -> f64 {
        self.few + (self.many - self.few) * (authors - 10.0) / 490.0
    }
}

/// A run of the fan-out benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FanOutRun {
    pub(crate) followers: f64,
    /// Followers that a worker handles in a second.
    pub(crate) per_second: f64,
    /// Time of the server for a live follower, in µs.
    pub(crate) live_us: f64,
}

/// Values of the benchmarks. Times are in µs of the server's thread, sizes in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) runs: Vec<FanOutRun>,
    /// Followers in a call of deliver in these runs.
    pub(crate) call: f64,
    pub(crate) first_page_us: ByAuthors,
    pub(crate) unread_us: ByAuthors,
    /// The server's time for a trip, without its commands.
    pub(crate) trip_us: f64,
    pub(crate) page_bytes: ByAuthors,
    /// State and feed of a reader.
    pub(crate) view_bytes: ByAuthors,
}

impl Measured {
    /// Reads the files. Fails if one lacks a value.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let fan_out: Value = serde_json::from_str(FAN_OUT)?;
        let views: Value = serde_json::from_str(VIEWS)?;
        let runs = list(&fan_out, "/populations")?.iter().map(run).collect::<anyhow::Result<Vec<_>>>()?;
        let reads = list(&views, "/reading/reads")?;
        let read = |question: &str, field: &str| -> anyhow::Result<ByAuthors> {
            let of = |authors: u64| {
                let same = |read: &&Value| read["question"] == question && read["authors"] == authors;
                number(reads.iter().find(same).with_context(|| format!("views.json has no {question}"))?, &format!("/{field}"))
            };
            Ok(ByAuthors { few: of(10)?, many: of(500)? })
        };
        let cases = list(&views, "/memory/cases")?;
        let bytes = |authors: u64| -> anyhow::Result<f64> {
            let same = |case: &&Value| case["authors"] == authors && case["author_ids"] == "above_2^53";
            let case = cases.iter().find(same).context("views.json has no case with ids above 2^53")?;
            Ok(number(case, "/delivered/state/used_memory")? + number(case, "/delivered/feed/used_memory")?)
        };
        Ok(Self {
            first_page_us: read("first_page", "main_thread_us")?,
            unread_us: read("unread_total", "main_thread_us")?,
            trip_us: read("unread_total", "main_thread_us")?.few - read("unread_total", "server_us")?.few,
            page_bytes: read("first_page", "response_bytes")?,
            view_bytes: ByAuthors { few: bytes(10)?, many: bytes(500)? },
            call: number(&fan_out, "/users_per_call")?,
            runs,
        })
    }

    /// Server time of one live follower in µs, in the run with the most followers.
    pub(crate) fn live_us(&self) -> f64 {
        self.runs.iter().max_by(|a, b| a.followers.total_cmp(&b.followers)).map_or(f64::NAN, |run| run.live_us)
    }
}

fn run(population: &Value) -> anyhow::Result<FanOutRun> {
    let rows = list(population, "/rows")?;
    let worker = rows.iter().find(|row| row["kind"] == "worker").context("fan-out.json has no worker")?;
    Ok(FanOutRun {
        followers: number(population, "/followers")?,
        per_second: number(worker, "/per_second")?,
        live_us: number(worker, "/server_us")?,
    })
}

fn list<'a>(value: &'a Value, pointer: &str) -> anyhow::Result<&'a Vec<Value>> {
    value.pointer(pointer).and_then(Value::as_array).with_context(|| format!("the benchmark has no list {pointer}"))
}

fn number(value: &Value, pointer: &str) -> anyhow::Result<f64> {
    value.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("the benchmark has no number {pointer}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::BUSY;

    #[test]
    fn a_node_may_be_as_busy_as_its_function_says() {
        let turn = include_str!("../../../shared/redis-link/src/lua/turn.lua");
        assert!(turn.contains(&format!("local BUSY = {BUSY}\n")));
    }

    #[test]
    fn every_value_is_in_the_files() {
        let measured = Measured::read().unwrap();
        assert_eq!(measured.runs.len(), 2);
        assert!(measured.live_us() > 0.0 && measured.trip_us > 0.0);
        assert!(measured.view_bytes.at(100.0) > measured.view_bytes.few);
        assert!(measured.first_page_us.at(500.0) == measured.first_page_us.many);
    }
}
