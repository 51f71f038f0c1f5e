//! The wall clock. The rest of the crate reads the time through this module.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

#[expect(clippy::disallowed_methods, reason = "the local stack plays the cloud, whose clock is the wall clock")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(now().as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn now_seconds() -> i64 {
    i64::try_from(now().as_secs()).unwrap_or(i64::MAX)
}

/// Formats `seconds` since the epoch as RFC 3339.
pub(crate) fn rfc3339(seconds: impl TryInto<i64>) -> String {
    let seconds = seconds.try_into().unwrap_or_default();
    OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|t| t.format(&Rfc3339).ok()).unwrap_or_default()
}
