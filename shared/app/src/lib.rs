//! Use cases, and the ports through which they reach the stores.
//!
//! - [`ports`]: one trait for each capability of a store, the queue or the clock.
//! - [`Publishing`], [`Following`], [`Reading`], [`reader`], [`relations`], [`notices`], [`fan_out`]: use cases.
//! - [`ViewSync`]: updates views after a change of facts, or leaves the update to a worker.
//! - [`outage`]: changes that Redis does not accept, and stale views until workers have updated them.
//! - `retry`: repeats a write that conflicts with concurrent writes.

mod error;
pub mod fan_out;
mod following;
pub mod notices;
pub mod outage;
pub mod ports;
mod publishing;
pub mod reader;
mod reading;
pub mod relations;
mod retry;
mod stores;
mod view_sync;

pub use following::{Follow, Following};
pub use publishing::{PostDelivery, PostDetails, Publishing, Removal};
pub use reading::{MarkedPost, MarkedPosts, Reading};
pub use stores::Stores;
pub use view_sync::ViewSync;
