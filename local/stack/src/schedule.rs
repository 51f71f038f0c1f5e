//! `rate(…)` and `cron(…)`, as EventBridge reads them. Times are UTC.

use std::{str::FromStr, time::Duration};

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use time::{OffsetDateTime, Weekday};

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A fixed period, counted from the start of the stack.
    Rate(Duration),
    /// The minutes that match a cron pattern.
    Cron(Box<Cron>),
}

/// The six fields of an EventBridge cron pattern. `L`, `W` and `#` are not supported locally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: Vec<u32>,
    hours: Vec<u32>,
    days_of_month: Option<Vec<u32>>,
    months: Vec<u32>,
    days_of_week: Option<Vec<u32>>,
    years: Vec<u32>,
}

impl Expression {
    /// Returns the time from `now` (seconds since the epoch) to the next firing. `None` means that the schedule does
    /// not fire again.
    #[must_use]
    pub fn next_after(&self, now: i64) -> Option<Duration> {
        match self {
            Self::Rate(every) => Some(*every),
            Self::Cron(cron) => cron.next_after(now),
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
        let cron = inside("cron(").ok_or_else(|| anyhow!("`{text}` is neither rate(…) nor cron(…)"))?;
        Ok(Self::Cron(Box::new(cron.parse().with_context(|| format!("`{text}`"))?)))
    }
}

impl FromStr for Cron {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday, year] = fields[..] else { bail!("a cron pattern has six fields") };
        ensure!((day == "?") != (weekday == "?"), "exactly one of day-of-month and day-of-week must be `?`");
        let either = |field: &str, low, high, names: &[&str]| {
            if field == "?" { Ok(None) } else { values(field, low, high, names).map(Some) }
        };
        Ok(Self {
            minutes: values(minute, 0, 59, &[])?,
            hours: values(hour, 0, 23, &[])?,
            days_of_month: either(day, 1, 31, &[])?,
            months: values(month, 1, 12, &MONTHS)?,
            days_of_week: either(weekday, 1, 7, &DAYS)?,
            years: values(year, 1970, 2199, &[])?,
        })
    }
}

impl Cron {
    fn next_after(&self, now: i64) -> Option<Duration> {
        let mut at = now - now.rem_euclid(60) + 60;
        let limit = at + 366 * 5 * 86_400;
        while at < limit {
            let time = OffsetDateTime::from_unix_timestamp(at).ok()?;
            if !self.day_matches(time) {
                at += 86_400 - at.rem_euclid(86_400);
            } else if !self.hours.contains(&u32::from(time.hour())) {
                at += 3_600 - at.rem_euclid(3_600);
            } else if !self.minutes.contains(&u32::from(time.minute())) {
                at += 60;
            } else {
                return u64::try_from(at - now).ok().map(Duration::from_secs);
            }
        }
        None
    }

    fn day_matches(&self, time: OffsetDateTime) -> bool {
        let weekday = match time.weekday() {
            Weekday::Sunday => 1,
            other => u32::from(other.number_from_monday()) + 1,
        };
        u32::try_from(time.year()).is_ok_and(|year| self.years.contains(&year))
            && self.months.contains(&u32::from(u8::from(time.month())))
            && self.days_of_month.as_ref().is_none_or(|days| days.contains(&u32::from(time.day())))
            && self.days_of_week.as_ref().is_none_or(|days| days.contains(&weekday))
    }
}

fn values(field: &str, low: u32, high: u32, names: &[&str]) -> Result<Vec<u32>> {
    let number = |text: &str| -> Result<u32> {
        if let Some(index) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(low + u32::try_from(index)?);
        }
        let value: u32 = text.parse().map_err(|_| anyhow!("`{field}` is not supported by the local stack"))?;
        ensure!((low..=high).contains(&value), "`{text}` is not between {low} and {high}");
        Ok(value)
    };
    let mut out = Vec::new();
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<usize>().map_err(|_| anyhow!("`{part}` has no step"))?),
            None => (part, 1),
        };
        ensure!(step > 0, "`{part}` has a step of 0");
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (number(from)?, number(to)?),
            None if range == "*" => (low, high),
            None if part.contains('/') => (number(range)?, high),
            None => (number(range)?, number(range)?),
        };
        out.extend((from..=to).step_by(step));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:30Z, a Thursday.
    const NEW_YEAR: i64 = 1_767_225_630;

    fn seconds(text: &str) -> Option<u64> {
        text.parse::<Expression>().unwrap().next_after(NEW_YEAR).map(|d| d.as_secs())
    }

    #[test]
    fn a_rate_fires_after_each_period() {
        assert_eq!(seconds("rate(1 minute)"), Some(60));
        assert_eq!(seconds("rate(2 hours)"), Some(7_200));
        assert_eq!(seconds("rate(1 day)"), Some(86_400));
    }

    #[test]
    fn cron_finds_the_next_minute_that_matches() {
        assert_eq!(seconds("cron(* * * * ? *)"), Some(30));
        assert_eq!(seconds("cron(0/15 * * * ? *)"), Some(15 * 60 - 30));
        assert_eq!(seconds("cron(30 3 * * ? *)"), Some(3 * 3_600 + 30 * 60 - 30));
        assert_eq!(seconds("cron(0 0 ? * SAT *)"), Some(2 * 86_400 - 30));
        assert_eq!(seconds("cron(0 0 1 FEB ? *)"), Some(31 * 86_400 - 30));
        assert_eq!(seconds("cron(0 0 1 1 ? 2025)"), None);
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
        ] {
            assert!(wrong.parse::<Expression>().is_err(), "{wrong}");
        }
    }
}
