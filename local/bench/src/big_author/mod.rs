//! Measures an author with a million followers on a stack of its own: the cost of a publish, the duration of the
//! fan-out, and its effect on small authors. Checks that every reader has the post exactly once, also after
//! disturbances.

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
