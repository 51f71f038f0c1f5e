//! Where the numbers and the pictures go.

use std::{fmt, fs, path::Path};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::{
    chart::Chart,
    traffic::Traffic,
    world::{GraphOptions, World},
};

const LOAD_TEST: &str = "load-test.json";

#[derive(Debug, Clone, Serialize)]
struct Machine {
    cores: usize,
    redis: String,
    /// The folder of the binaries, which is named as their build profile.
    profile: String,
}

impl Machine {
    async fn of(world: &mut World) -> anyhow::Result<Self> {
        let profile = world.options.bin_dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { cores, redis: world.meter.info().await?.server()?, profile: profile.unwrap_or_default() })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {}, profile {}", self.cores, self.redis, self.profile)
    }
}

/// What was measured: every report begins with it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Subject {
    machine: Machine,
    pub(crate) graph: GraphOptions,
    pub(crate) readers: u32,
    /// Processes of each function.
    processes: u16,
}

impl Subject {
    pub(crate) async fn of(world: &mut World, traffic: &Traffic) -> anyhow::Result<Self> {
        let machine = Machine::of(world).await?;
        let (graph, readers) = (world.options.graph, traffic.readers.len() as u32);
        Ok(Self { machine, graph, readers, processes: world.options.processes })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.fmt(f)
    }
}

/// Prints the tables of a report, and writes all its numbers to `{name}.json`.
pub(crate) fn publish<T: Serialize + fmt::Display>(report: &T, folder: &Path, name: &str) -> anyhow::Result<()> {
    println!("\n{report}");
    write(folder, &format!("{name}.json"), &(serde_json::to_string_pretty(report)? + "\n"))
}

/// Writes a picture to `{name}.svg`.
pub(crate) fn picture(folder: &Path, name: &str, chart: &Chart) -> anyhow::Result<()> {
    write(folder, &format!("{name}.svg"), &chart.svg())
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let file = folder.join(name);
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

/// The highest rate of the last load test.
pub(crate) fn highest_rate(folder: &Path) -> anyhow::Result<f64> {
    let file = folder.join(LOAD_TEST);
    let text =
        fs::read_to_string(&file).with_context(|| format!("{} is missing; run a load test, or name --rate", file.display()))?;
    let report: Value = serde_json::from_str(&text)?;
    report["highest_rate"].as_f64().with_context(|| format!("{} has no highest rate", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_is_that_of_the_last_load_test() {
        let folder = tempfile::tempdir().unwrap();
        assert!(highest_rate(folder.path()).unwrap_err().to_string().contains("--rate"));
        write(folder.path(), LOAD_TEST, r#"{"highest_rate": 250.0}"#).unwrap();
        assert_eq!(highest_rate(folder.path()).unwrap(), 250.0);
    }
}
