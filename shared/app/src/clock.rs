//! The clock of a process.

use tidemark_domain::Timestamp;

/// Returns the time. `clippy.toml` forbids `SystemTime::now` elsewhere.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}
