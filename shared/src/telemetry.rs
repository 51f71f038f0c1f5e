//! Logs: one JSON object a line, as CloudWatch reads them. What is logged and what never is stands in docs/LOGGING.md.

use tracing_subscriber::{EnvFilter, fmt};

/// Starts logging at the level that `RUST_LOG` says, `info` without it.
pub fn init() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A second start is refused, and the first one serves.
    let _ = fmt().json().with_env_filter(filter).with_current_span(false).with_ansi(false).without_time().try_init();
}
