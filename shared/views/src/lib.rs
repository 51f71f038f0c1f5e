//! The views in Redis. They are derived from the facts, carry versions, and can be rebuilt at any time.
//!
//! [`keys`] formats the keys. `lua/` has one file for each atomic operation. [`library`] loads them as a function
//! library.

mod connection;
pub mod heads;
pub mod keys;
mod library;
mod limits;
pub mod live;
pub mod notices;
pub mod people;
pub mod posts;
mod progress;
pub mod ranks;
mod reactions;
pub mod readers;
pub mod record;
pub mod relations;
mod sets;
mod users;

pub use connection::{Redis, transaction};
pub use redis_link::RedisOptions;
pub use users::USERS_PER_CALL;
