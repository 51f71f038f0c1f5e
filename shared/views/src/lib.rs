//! The views in Redis: derived, versioned, and rebuilt from the facts at any moment.
//!
//! [`keys`] formats every key; `lua/` holds one file for each atomic operation, loaded as a function library by [`library`].

mod connection;
pub mod heads;
pub mod keys;
mod library;
pub mod notices;
pub mod posts;
mod progress;
mod reactions;
mod readers;
pub mod relations;

pub use connection::Redis;
pub use redis_link::RedisOptions;
