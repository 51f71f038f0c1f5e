//! An author with a million followers, measured on a stack of its own.
//!
//! The followers are written straight into the facts, some of them are made live, and then the author publishes: what that
//! costs the author, how long the fan-out takes, what it does to small authors meanwhile, and whether every reader has the
//! post exactly once, also when the stack is disturbed in the middle of it.

pub mod beside;
pub mod cast;
pub mod check;
pub mod delivery;
pub mod disturb;
pub mod edge_writer;
pub mod followers;
pub mod latency;
pub mod report;
pub mod run;
pub mod stack;
