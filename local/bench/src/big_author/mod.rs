//! Measures an author with a million followers on a stack of its own.
//!
//! The followers are written as facts, some of them are made live, and then the author publishes. The measurement
//! shows the cost of the publish, the duration of the fan-out, and its effect on small authors. It checks that every
//! reader has the post exactly once, also after disturbances.

pub mod beside;
pub mod cast;
pub mod check;
pub mod delivery;
pub mod disturb;
pub mod edge_writer;
pub mod followers;
pub mod report;
pub mod run;
pub mod stack;
