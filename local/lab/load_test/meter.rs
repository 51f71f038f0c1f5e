//! Processor time and memory of the processes of a stack, from /proc, and what its Redis reports.

use std::{
    collections::BTreeMap,
    fs,
    ops::{Add, Sub},
};

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use tidemark_tools::{api::Api, status::Status};

use super::{info::Info, stack::Running};

/// What `getconf CLK_TCK` says on every Linux.
const TICKS_A_SECOND: f64 = 100.0;
/// The threads of the stack that stand in for DynamoDB, and do nothing else.
const DYNAMODB_THREADS: &str = "local-dynamodb";

/// Names beside those of the functions' binaries.
pub(crate) const DYNAMODB: &str = "DynamoDB";
pub(crate) const GATEWAY: &str = "gateway, Runtime API, SQS";
pub(crate) const REDIS: &str = "Redis";
pub(crate) const CLIENT: &str = "client";
pub(crate) fn is_function(name: &str) -> bool {
    ![REDIS, DYNAMODB, GATEWAY, CLIENT].contains(&name)
}

/// Processor time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Cpu {
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }

    /// Reads a file such as `/proc/1/stat`. Returns the name of the process or thread too.
    fn parse(stat: &str) -> Option<(String, Self)> {
        // The name may have spaces and brackets.
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_A_SECOND);
        Some((name.to_owned(), Self { user: seconds()?, system: seconds()? }))
    }

    fn read(path: &str) -> Option<(String, Self)> {
        Self::parse(&fs::read_to_string(path).ok()?)
    }
}

impl Add for Cpu {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { user: self.user - other.user, system: self.system - other.system }
    }
}

/// Processor time by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Times(pub(crate) BTreeMap<String, Cpu>);

impl Times {
    /// The time since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let of = |(name, cpu): (&String, &Cpu)| (name.clone(), *cpu - before.0.get(name).copied().unwrap_or_default());
        Self(self.0.iter().map(of).collect())
    }

    pub(crate) fn of(&self, name: &str) -> Cpu {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The time of all functions.
    pub(crate) fn functions(&self) -> Cpu {
        let functions = self.0.iter().filter(|(name, _)| is_function(name));
        functions.fold(Cpu::default(), |sum, (_, cpu)| sum + *cpu)
    }
}

/// Reads the processes of one stack.
#[derive(Debug)]
pub(crate) struct Meter {
    stack: u32,
    redis: u32,
    connection: MultiplexedConnection,
    /// The last reading of every process of a function, also of those that have ended.
    seen: BTreeMap<u32, (String, Cpu)>,
}

impl Meter {
    pub(crate) async fn new(stack: &Running) -> anyhow::Result<Self> {
        let url = Status::of(&stack.api).await?.redis_url;
        let client = redis::Client::open(url).context("the stack's Redis")?;
        let connection = client.get_multiplexed_async_connection().await.context("the stack's Redis does not respond")?;
        let mut meter = Self { stack: stack.pid()?, redis: 0, connection, seen: BTreeMap::new() };
        meter.redis = meter.info().await?.number("process_id")?;
        Ok(meter)
    }

    /// All that Redis reports.
    pub(crate) async fn info(&mut self) -> anyhow::Result<Info> {
        let text: String = redis::cmd("INFO").arg("everything").query_async(&mut self.connection).await?;
        Ok(Info::parse(&text))
    }

    pub(crate) async fn keys(&mut self) -> anyhow::Result<u64> {
        Ok(redis::cmd("DBSIZE").query_async(&mut self.connection).await?)
    }

    /// Resets the statistics of commands.
    pub(crate) async fn reset_commands(&mut self) -> anyhow::Result<()> {
        Ok(redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut self.connection).await?)
    }

    /// Processor time until now.
    pub(crate) async fn times(&mut self, api: &Api) -> anyhow::Result<Times> {
        for (function, pids) in Status::of(api).await?.processes {
            for pid in pids {
                // One that has just ended keeps its last reading.
                if let Some((_, cpu)) = Cpu::read(&format!("/proc/{pid}/stat")) {
                    self.seen.insert(pid, (function.clone(), cpu));
                }
            }
        }
        let mut times = BTreeMap::new();
        for (function, cpu) in self.seen.values() {
            let sum = times.entry(function.clone()).or_insert(Cpu::default());
            *sum = *sum + *cpu;
        }
        let whole = |pid: u32, what: &str| Cpu::read(&format!("/proc/{pid}/stat")).with_context(|| format!("{what} has ended"));
        let dynamodb = threads(self.stack, DYNAMODB_THREADS);
        times.insert(GATEWAY.to_owned(), whole(self.stack, "the stack")?.1 - dynamodb);
        times.insert(DYNAMODB.to_owned(), dynamodb);
        times.insert(REDIS.to_owned(), whole(self.redis, "Redis")?.1);
        times.insert(CLIENT.to_owned(), whole(std::process::id(), "the client")?.1);
        Ok(Times(times))
    }

    /// Resident memory in bytes, by name. That of a function's processes is added up.
    pub(crate) async fn memory(&mut self, api: &Api) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut memory = BTreeMap::new();
        for (function, pids) in Status::of(api).await?.processes {
            memory.insert(function, pids.into_iter().filter_map(resident).sum());
        }
        // The stand-ins are one process.
        for (name, pid) in [(GATEWAY, self.stack), (REDIS, self.redis), (CLIENT, std::process::id())] {
            memory.insert(name.to_owned(), resident(pid).unwrap_or(0));
        }
        Ok(memory)
    }
}

/// The processor time of the threads of a process that have this name.
fn threads(pid: u32, name: &str) -> Cpu {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = threads.filter_map(|thread| Cpu::read(thread.path().join("stat").to_str()?));
    of.filter(|(thread, _)| thread == name).fold(Cpu::default(), |sum, (_, cpu)| sum + cpu)
}

fn resident(pid: u32) -> Option<u64> {
    resident_in(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kilobytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_after_a_name_with_brackets() {
        let stat = "71 (a (b) c) S 1 71 71 0 -1 4194304 2600 0 0 0 250 75 9 9 20 0 5 0 100 1 2 3";
        assert_eq!(Cpu::parse(stat), Some(("a (b) c".to_owned(), Cpu { user: 2.5, system: 0.75 })));
        assert_eq!(Cpu::parse("71 (a) S 1"), None);
        assert_eq!(resident_in("Name:\tx\nVmRSS:\t   12 kB\n"), Some(12_288));
    }

    #[test]
    fn this_process_has_used_the_processor_and_memory() {
        let own = std::process::id();
        let mut sum = 0_u64;
        while Cpu::read(&format!("/proc/{own}/stat")).unwrap().1.total() < 0.02 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(resident(own).unwrap() > 100_000);
    }

    #[test]
    fn functions_are_what_has_no_other_name() {
        let cpu = |user| Cpu { user, system: 0.0 };
        let all = [("publish", 3.0), ("fan-out", 2.0), (REDIS, 10.0), (DYNAMODB, 20.0)];
        let after = Times(all.map(|(name, user)| (name.to_owned(), cpu(user))).into());
        let before = Times([("publish".to_owned(), cpu(1.0))].into());
        let spent = after.since(&before);
        assert_eq!((spent.of("publish"), spent.functions(), spent.of("nothing")), (cpu(2.0), cpu(4.0), cpu(0.0)));
    }
}
