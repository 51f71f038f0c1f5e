//! The main job proved on a real graph: what the stack shows every reader against a count made from the edge file.
//!
//! # What is compared
//! The model ([`graph`], [`model`]) knows the edge file and the posts that this run published, and nothing else. The stack
//! has to hold that file, loaded by `load` with the same limit: the loader sends one follower's requests one after another,
//! so of an account that wants more than 500 authors the first 500 of the file are kept.
//!
//! # On a used stack
//! Earlier posts do not disturb: before publishing, every reader who has something unread reads all, and each publishing
//! author's existing posts are noted. From then on a feed must begin with exactly this run's posts of the authors followed;
//! what comes after them must be earlier posts of followed authors, all read, and the noted ones complete. Unread totals
//! count this run's posts alone.

pub mod compare;
pub mod disturb;
pub mod feed;
pub mod followers;
pub mod graph;
pub mod latency;
pub mod ledger;
pub mod marks;
pub mod model;
pub mod publish;
pub mod run;
