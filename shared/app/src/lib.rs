//! Use cases, and the ports through which they reach the stores.
//!
//! - [`ports`]: one trait for each capability of a store, the queue or the clock.
//! - [`Publishing`], [`Following`], [`Reading`], [`reader`], [`relations`], [`notices`], [`fan_out`]: use cases.
//! - [`ViewSync`]: brings views in line with a change, or leaves that to a worker.
//! - [`outage`]: changes that Redis does not take, and stale views until a worker has brought them in line.
//! - [`retry`]: repeats a write that concurrent writes keep overtaking.

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
pub mod retry;
mod stores;
mod view_sync;

pub use following::{Follow, Following};
pub use publishing::{PostDelivery, PostDetails, Publishing, Removal};
pub use reading::{MarkedPost, MarkedPosts, Reading};
pub use stores::Stores;
pub use view_sync::ViewSync;
