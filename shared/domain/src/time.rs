//! Points in time, in milliseconds.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

const FORMAT: &[time::format_description::BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// The last millisecond of the year 9999: the greatest time with a four-digit year. It is far below 2^48 and 2^53.
const MAX_MS: u64 = 253_402_300_799_999;

/// Milliseconds since 1970-01-01T00:00:00Z, never before it. In JSON it is an RFC 3339 time in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const MAX: Self = Self(MAX_MS);

    /// Returns the time this many milliseconds after 1970-01-01T00:00:00Z, at most [`Timestamp::MAX`].
    pub fn from_ms(ms: u64) -> Self {
        Self(ms.min(MAX_MS))
    }

    pub fn ms(self) -> u64 {
        self.0
    }

    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    pub fn plus_ms(self, ms: u64) -> Self {
        Self::from_ms(self.0.saturating_add(ms))
    }

    /// Parses an RFC 3339 time of any offset, cut to the millisecond; `None` for others, or outside 1970…9999.
    pub fn parse(text: &str) -> Option<Self> {
        let ms = u64::try_from(parse_ms(text)?).ok()?;
        (ms <= MAX_MS).then_some(Self(ms))
    }

    /// The same, but a time outside 1970…9999 becomes the nearest time inside.
    pub fn parse_nearest(text: &str) -> Option<Self> {
        Some(Self(u64::try_from(parse_ms(text)?.max(0)).map_or(MAX_MS, |ms| ms.min(MAX_MS))))
    }
}

fn parse_ms(text: &str) -> Option<i128> {
    Some(OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos().div_euclid(1_000_000))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000).map_err(|_| fmt::Error)?;
        f.write_str(&time.format(FORMAT).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("must be an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_with_milliseconds() {
        let time = Timestamp::from_ms(1_795_161_600_123);
        assert_eq!(time.to_string(), "2026-11-20T08:00:00.123Z");
        assert_eq!(Timestamp::parse("2026-11-20T08:00:00.123Z"), Some(time));
        assert_eq!(Timestamp::parse("2026-11-20T09:00:00.1239+01:00"), Some(time));
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::parse(&Timestamp::MAX.to_string()), Some(Timestamp::MAX));
        for bad in ["", "2026-11-20", "2026-11-20T08:00:00", "1969-12-31T23:59:59Z", "yesterday"] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
        assert_eq!(Timestamp::parse_nearest("0001-01-01T00:00:00Z"), Some(Timestamp::default()));
        assert_eq!(Timestamp::parse_nearest("9999-12-31T23:59:59-12:00"), Some(Timestamp::MAX));
        assert_eq!(Timestamp::parse_nearest("2026-11-20T08:00:00.123Z"), Some(time));
        assert_eq!(Timestamp::parse_nearest("yesterday"), None);
    }
}
