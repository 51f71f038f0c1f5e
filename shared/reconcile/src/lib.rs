//! Finds and repairs differences of facts, views and fan-outs.
//!
//! Every minute [`Reconcile`] resumes interrupted fan-outs, counts the stream records that the projector gave up, looks
//! for abandoned rebuilds, and continues a walk in progress. Every day a walk over users begins, which compares facts
//! with facts and views with facts. [`diff`] lists every difference and its remedy. The function `reconcile` parses
//! events and calls this library.

pub mod diff;
mod facts;
mod job;
mod views;

pub use facts::{StoredFacts, Unfinished};
pub use job::{FlowPlan, Plan, Position, Reconcile, ReconcileError, Report, Segment};
pub use views::StoredViews;
