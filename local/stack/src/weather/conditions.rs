//! The current weather and its source of randomness.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use crate::lock::lock;

/// The conditions in which the stores work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weather {
    /// No limits and no delays. A failed message returns after the stack's short retry delay.
    #[default]
    Calm,
    /// AWS on a good day: its latencies, limits of partitions and transaction conflicts, and the template's timeouts.
    Aws,
    /// AWS on a bad day: also lost responses, errors, duplicates, delays, and a Redis that drops connections and hangs.
    Storm,
}

impl fmt::Display for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Weather {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = [Self::Calm, Self::Aws, Self::Storm].into_iter().find(|weather| weather.to_string() == name);
        found.ok_or_else(|| format!("the weather must be calm, aws or storm, not `{name}`"))
    }
}

/// Picks a seed. It is short enough to copy by hand.
pub(crate) fn any_seed() -> u64 {
    rand::random::<u32>().into()
}

struct Randomness {
    seed: u64,
    generator: StdRng,
}

/// The requests that DynamoDB has served and refused since the weather changed last. Calm weather counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Consumption {
    /// Consumed units of each partition, by `table/key` and whether they are write units. Small ones may be missing.
    pub units: HashMap<(String, bool), f64>,
    /// Read units and write units of all tables and indexes.
    pub read: f64,
    pub written: f64,
    /// Requests that were refused because a partition was exhausted.
    pub throttled: u64,
}

/// Above this number of partitions, those with few units are dropped.
const FORGET_AT: usize = 50_000;
const FEW_UNITS: f64 = 50.0;

impl Consumption {
    /// Returns the read units of the partition of `table` whose key is this number.
    pub fn read_of(&self, table: &str, key: u64) -> f64 {
        let partition = format!("{table}/{}", serde_json::json!({ "N": key.to_string() }));
        self.units.get(&(partition, false)).copied().unwrap_or_default()
    }

    /// The units of all reads or all writes.
    pub(crate) fn all(&mut self, write: bool) -> &mut f64 {
        if write { &mut self.written } else { &mut self.read }
    }

    pub(crate) fn add(&mut self, partition: &str, write: bool, units: f64) {
        if self.units.len() > FORGET_AT {
            self.units.retain(|_, units| *units > FEW_UNITS);
        }
        *self.units.entry((partition.to_owned(), write)).or_default() += units;
    }
}

pub(crate) struct Conditions {
    weather: watch::Sender<Weather>,
    randomness: Mutex<Randomness>,
    faults: AtomicU64,
    consumption: Mutex<Consumption>,
    motion: Mutex<Motion>,
}

/// The time in which limits are counted. It runs slower than the clock by a factor.
#[derive(Clone, Copy, Debug)]
struct Motion {
    slowdown: u32,
    since: Instant,
    time: Instant,
}

impl Motion {
    fn now(&self) -> Instant {
        self.time + self.since.elapsed() / self.slowdown
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self::new(Weather::Calm, 0)
    }
}

impl Conditions {
    pub(crate) fn new(weather: Weather, seed: u64) -> Self {
        let randomness = Randomness { seed, generator: StdRng::seed_from_u64(seed) };
        let (weather, randomness) = (watch::Sender::new(weather), Mutex::new(randomness));
        let now = Instant::now();
        let motion = Mutex::new(Motion { slowdown: 1, since: now, time: now });
        Self { weather, randomness, faults: AtomicU64::new(0), consumption: Mutex::default(), motion }
    }

    /// The time in which limits are counted.
    pub(crate) fn now(&self) -> Instant {
        lock(&self.motion).now()
    }

    /// The latency of DynamoDB is this many times as long, and its limits are this many times as low.
    pub(crate) fn slow_down(&self, slowdown: u32) {
        let mut motion = lock(&self.motion);
        *motion = Motion { slowdown: slowdown.max(1), since: Instant::now(), time: motion.now() };
    }

    pub(crate) fn slowdown(&self) -> u32 {
        lock(&self.motion).slowdown
    }

    pub(crate) fn weather(&self) -> Weather {
        *self.weather.borrow()
    }

    pub(crate) fn is_storm(&self) -> bool {
        self.weather() == Weather::Storm
    }

    pub(crate) fn seed(&self) -> u64 {
        lock(&self.randomness).seed
    }

    /// Changes the weather and starts its randomness from this seed.
    pub(crate) fn set(&self, weather: Weather, seed: u64) {
        *lock(&self.randomness) = Randomness { seed, generator: StdRng::seed_from_u64(seed) };
        *self.consumption() = Consumption::default();
        self.weather.send_replace(weather);
    }

    pub(crate) fn consumption(&self) -> MutexGuard<'_, Consumption> {
        lock(&self.consumption)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Weather> {
        self.weather.subscribe()
    }

    pub(crate) fn chance(&self, probability: f64) -> bool {
        lock(&self.randomness).generator.random_bool(probability)
    }

    /// Returns true with this probability in a storm. Returns false in other weather.
    pub(crate) fn storm(&self, probability: f64) -> bool {
        let happens = self.is_storm() && self.chance(probability);
        if happens {
            self.count_fault();
        }
        happens
    }

    pub(crate) fn count_fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Picks a number below `end`. `end` must not be 0.
    pub(crate) fn below(&self, end: usize) -> usize {
        lock(&self.randomness).generator.random_range(0..end.max(1))
    }

    /// Picks a time between the two, with equal probability.
    pub(crate) fn between(&self, least: Duration, most: Duration) -> Duration {
        least + most.saturating_sub(least).mul_f64(lock(&self.randomness).generator.random::<f64>())
    }

    /// Picks a time, log-normal with this median and 99th percentile. The longest is five times the 99th percentile.
    pub(crate) fn log_normal(&self, median: Duration, p99: Duration) -> Duration {
        /// The 99th percentile of the standard normal distribution.
        const Z99: f64 = 2.326_347_9;
        let (uniform, angle): (f64, f64) = {
            let mut randomness = lock(&self.randomness);
            (randomness.generator.random(), randomness.generator.random())
        };
        // Box-Muller transform: two uniform numbers to one normal number.
        let normal = (-2.0 * (1.0 - uniform).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let sigma = (p99.as_secs_f64() / median.as_secs_f64()).ln() / Z99;
        median.mul_f64((sigma * normal).exp()).min(p99 * 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_weather() {
        let draw = |seed| {
            let conditions = Conditions::new(Weather::Storm, seed);
            (0..50).map(|_| (conditions.storm(0.5), conditions.below(1_000))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let conditions = Conditions::new(Weather::Calm, 1);
        assert!((0..100).all(|_| !conditions.storm(1.0)), "calm weather has no storm faults");
        let first: Vec<usize> = (0..9).map(|_| conditions.below(1_000)).collect();
        conditions.set(Weather::Aws, 1);
        assert_eq!((0..9).map(|_| conditions.below(1_000)).collect::<Vec<_>>(), first, "a seed restarts the sequence");
    }

    #[test]
    fn limits_are_counted_in_slow_motion() {
        let (conditions, real) = (Conditions::default(), Instant::now());
        let before = conditions.now();
        conditions.slow_down(1_000);
        std::thread::sleep(Duration::from_millis(20));
        let (slow, elapsed) = (conditions.now() - before, real.elapsed());
        assert!(slow < elapsed / 10, "{slow:?} of {elapsed:?}");
        conditions.slow_down(1);
        std::thread::sleep(Duration::from_millis(20));
        assert!((conditions.now() - before - slow) >= Duration::from_millis(20));
        assert_eq!(conditions.slowdown(), 1);
    }

    #[test]
    fn latencies_have_the_requested_median_and_99th_percentile() {
        let conditions = Conditions::new(Weather::Aws, 3);
        let (median, p99) = (Duration::from_millis(3), Duration::from_millis(20));
        let mut times: Vec<Duration> = (0..20_000).map(|_| conditions.log_normal(median, p99)).collect();
        times.sort_unstable();
        let near = |time: Duration, wanted: Duration| (0.9..1.1).contains(&(time.as_secs_f64() / wanted.as_secs_f64()));
        assert!(near(times[10_000], median), "{:?}", times[10_000]);
        assert!(near(times[19_800], p99), "{:?}", times[19_800]);
        assert!(times[19_999] <= p99 * 5);
    }
}
