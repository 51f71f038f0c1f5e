//! Numbers and times for readers.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// A duration in a suitable unit: `850 µs`, `12.3 ms`, `4.56 s`.
pub fn short(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    if micros < 1e3 {
        format!("{micros:.0} µs")
    } else if micros < 1e6 {
        format!("{:.1} ms", micros / 1e3)
    } else {
        format!("{:.2} s", micros / 1e6)
    }
}

/// `count` for each second of `took`, rounded.
pub fn rate(count: u64, took: Duration) -> u64 {
    (count as f64 / took.as_secs_f64().max(1e-9)).round() as u64
}

/// A time in milliseconds as the API writes it.
pub fn time(ms: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{ms} ms"))
}

/// The accounts with the largest counts, equal counts by id.
pub(crate) fn largest(counts: &HashMap<u64, u64>, most: usize) -> Vec<(u64, u64)> {
    let mut accounts: Vec<(u64, u64)> = counts.iter().map(|(account, count)| (*account, *count)).collect();
    accounts.sort_by_key(|&(account, count)| (Reverse(count), account));
    accounts.truncate(most);
    accounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped_from_the_right() {
        assert_eq!([0, 999, 1_000, 12_345, 1_234_567].map(thousands), ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn durations_have_a_suitable_unit() {
        assert_eq!(short(Duration::from_micros(850)), "850 µs");
        assert_eq!(short(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(short(Duration::from_millis(4_560)), "4.56 s");
    }
}
