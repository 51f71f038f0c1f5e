//! The views in Redis: derived, versioned, thrown away and rebuilt at any moment.
//!
//! [`keys`] is the only place that formats a key; `lua/` holds one file per atomic operation, loaded as a function library by [`library`].

mod audit;
mod breaker;
mod cluster;
mod connection;
mod epoch;
mod heads;
pub mod keys;
mod library;
mod node;
mod notices;
mod posts;
mod progress;
mod reactions;
mod readers;
mod relations;
mod topology;

pub use connection::{Redis, RedisOptions};
