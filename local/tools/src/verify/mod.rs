//! Checks the main job on a real graph: compares the responses for every reader with a count made from the edge file.
//!
//! The model ([`graph`], [`model`]) knows only the edge file and the posts that this run published. The stack must have
//! loaded this file with `load` and the same limit.
//!
//! Earlier posts do not disturb the comparison. Before publishing, every reader with unread posts marks all read, and
//! the run notes the existing posts of each publishing author. From then on a feed must begin with exactly this run's
//! posts of the followed authors. After them it must have only earlier posts of followed authors, all read, and all the
//! noted ones. Unread totals count this run's posts alone.

pub mod compare;
pub mod disturb;
pub mod feed;
pub mod followers;
pub mod graph;
pub mod latency;
pub mod ledger;
pub mod marks;
pub mod model;
pub mod people;
pub mod publish;
pub mod run;
