//! Use cases, and the ports through which they reach the stores.
//!
//! - [`ports`]: one trait for each capability of a store, the queue or the clock.
//! - [`reader`], [`relations`], [`notices`], [`fan_out`]: use cases that several functions share.
//! - [`outage`]: changes that Redis does not take, and stale views until a worker has brought them in line.
//! - [`retry`]: repeats a write that concurrent writes keep overtaking.

pub mod fan_out;
pub mod notices;
pub mod outage;
pub mod ports;
pub mod reader;
pub mod relations;
pub mod retry;
