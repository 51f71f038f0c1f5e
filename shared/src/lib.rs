//! Tidemark: who follows whom, what they publish, what each reader has and has not read.
//!
//! - [`domain`]: pure types and rules.
//! - [`ports`]: what the use cases need of the outside, one trait per capability.
//! - [`reader`], [`relations`], [`notices`], [`fan_out`], [`reconcile`]: use cases that several functions share, on ports alone.
//! - [`outage`]: what happens while Redis is unavailable, and until the views have what they missed.
//! - [`retry`]: repeating a write that others keep overtaking.
//! - `facts` (DynamoDB), `views` (Redis), `queue` (SQS): the adapters, one schema each.
//! - `http`: the edge that all HTTP functions share.
//! - `App`, `Settings`: wiring.

pub mod domain;
pub mod fan_out;
pub mod notices;
pub mod outage;
pub mod ports;
pub mod reader;
pub mod reconcile;
pub mod relations;
pub mod retry;

#[cfg(feature = "adapters")]
mod app;
#[cfg(feature = "adapters")]
pub mod facts;
#[cfg(feature = "adapters")]
pub mod http;
#[cfg(feature = "adapters")]
pub mod queue;
#[cfg(feature = "adapters")]
mod settings;
#[cfg(feature = "adapters")]
pub mod telemetry;
#[cfg(feature = "adapters")]
pub mod views;

#[cfg(feature = "adapters")]
pub use app::{App, StartError, SystemClock};
#[cfg(feature = "adapters")]
pub use settings::{Settings, SettingsError};
