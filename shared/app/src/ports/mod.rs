//! The ports of the use cases: one trait for each capability of a store, the queue or the clock, with domain types.

mod facts;
mod live;
mod metrics;
mod notices;
mod people;
mod tasks;
mod views;

pub use self::{facts::*, live::*, metrics::*, notices::*, people::*, tasks::*, views::*};
pub use crate::error::{Source, Store, StoreError};

use tidemark_domain::Timestamp;

/// Returns the time. `clippy.toml` forbids `SystemTime::now` elsewhere.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}
