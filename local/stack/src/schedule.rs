//! `rate(…)` and `cron(…)`, as EventBridge reads them. Times are UTC.

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use chrono::DateTime;
use cron::Schedule;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A fixed period, counted from the start of the stack.
    Rate(Duration),
    /// The minutes that match a cron pattern. `L`, `W`, `#` and years after 2100 are not supported locally.
    Cron(Box<Schedule>),
}

impl Expression {
    /// The time from `now` (seconds since the epoch) to the next firing. `None` if the schedule does not fire again.
    pub(crate) fn next_after(&self, now: i64) -> Option<Duration> {
        match self {
            Self::Rate(every) => Some(*every),
            Self::Cron(schedule) => {
                let now = DateTime::from_timestamp(now, 0)?;
                (schedule.after(&now).next()? - now).to_std().ok()
            }
        }
    }
}

impl FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let inside = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
        if let Some(rate) = inside("rate(") {
            let (count, unit) = rate.split_once(' ').ok_or_else(|| anyhow!("`{text}` has no unit"))?;
            let count: u64 = count.parse().with_context(|| format!("`{text}` has no number"))?;
            ensure!(count > 0, "`{text}` must be at least 1");
            let seconds = match unit.trim_end_matches('s') {
                "minute" => 60,
                "hour" => 3_600,
                "day" => 86_400,
                _ => bail!("`{text}` must be in minutes, hours or days"),
            };
            ensure!((count == 1) != unit.ends_with('s'), "`{text}`: the unit is singular for 1 and plural otherwise");
            return Ok(Self::Rate(Duration::from_secs(count * seconds)));
        }
        let pattern = inside("cron(").ok_or_else(|| anyhow!("`{text}` is neither rate(…) nor cron(…)"))?;
        Ok(Self::Cron(Box::new(schedule(pattern).with_context(|| format!("`{text}` is not supported by the local stack"))?)))
    }
}

fn schedule(pattern: &str) -> Result<Schedule> {
    let fields: Vec<&str> = pattern.split_whitespace().collect();
    let [_, _, day, _, weekday, _] = fields[..] else { bail!("a cron pattern has six fields") };
    ensure!((day == "?") != (weekday == "?"), "exactly one of day-of-month and day-of-week must be `?`");
    // EventBridge has minutes. The library's patterns start with the second.
    Ok(format!("0 {pattern}").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:30Z, a Thursday, in Unix seconds.
    const NEW_YEAR: i64 = 1_767_225_630;

    #[test]
    fn a_rate_fires_after_each_period_and_cron_at_the_next_minute_that_matches() {
        for (text, seconds) in [
            ("rate(1 minute)", Some(60)),
            ("rate(2 hours)", Some(7_200)),
            ("rate(1 day)", Some(86_400)),
            ("cron(* * * * ? *)", Some(30)),
            ("cron(0/15 * * * ? *)", Some(15 * 60 - 30)),
            ("cron(30 3 * * ? *)", Some(3 * 3_600 + 30 * 60 - 30)),
            ("cron(0 0 ? * SAT *)", Some(2 * 86_400 - 30)),
            ("cron(0 0 ? * 7 *)", Some(2 * 86_400 - 30)),
            ("cron(0 12 ? * MON-FRI *)", Some(12 * 3_600 - 30)),
            ("cron(0 0 1 FEB ? *)", Some(31 * 86_400 - 30)),
            ("cron(0 0 1 1 ? 2025)", None),
        ] {
            let wait = text.parse::<Expression>().unwrap().next_after(NEW_YEAR);
            assert_eq!(wait, seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn expressions_that_eventbridge_refuses_are_errors() {
        for wrong in [
            "rate(0 minutes)",
            "rate(1 minutes)",
            "rate(5 minute)",
            "every minute",
            "cron(* * * * * *)",
            "cron(0 0 L * ? *)",
            "cron(61 * * * ? *)",
            "cron(0 0 ? * 0 *)",
            "cron(0 0 ? MON * *)",
            "cron(0 0 * * ?)",
            "cron(@daily)",
        ] {
            assert!(wrong.parse::<Expression>().is_err(), "{wrong}");
        }
    }
}
