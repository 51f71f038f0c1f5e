//! The ports of the use cases: one trait for each capability of a store, the queue or the clock, with domain types.
//!
//! A *lease* is the right to fill one record of a view. Its *token* is a random number that names the holder. Methods
//! with `lease` in their names take leases of missing records before the facts are read. Those of heads, times, cards
//! and notices take no lease that another process has, and return those that they took. `fill_…` or `store_…` stores
//! facts if the caller still has the lease: a change or a loss of the record takes it away. `replace_…` replaces a
//! stored record with a later version, and takes the lease from a process that fills it. A missing record stays
//! missing. The next read fills it.

mod facts;
mod live;
mod metrics;
mod notices;
mod people;
mod tasks;
mod views;

pub use self::{facts::*, live::*, metrics::*, notices::*, people::*, tasks::*, views::*};
pub use crate::error::{Result, Source, Store, StoreError};

use tidemark_domain::Timestamp;

/// Returns the time. `clippy.toml` forbids `SystemTime::now` elsewhere.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}
