//! Connections to Redis 7 or Valkey: one node or a cluster, with or without TLS,
//! with a password or a login of IAM.
//!
//! Each node has a connection and a circuit breaker of its own, so a lost node affects only its own keys. A connection
//! learns the *epoch* of its server, the name of one life of its data. A caller that stores the epoch with a value
//! recognizes a value from an older dump or a promoted replica.

mod breaker;
mod bundle;
mod cluster;
mod connection;
mod epoch;
mod error;
mod iam;
mod node;
mod options;
mod pace;
mod topology;

pub use bundle::{Bundle, Consistency, Reply, read};
pub use connection::Link;
pub use epoch::{BYTES as EPOCH_BYTES, Epoch};
pub use error::LinkError;
pub use iam::IamLogin;
pub use options::RedisOptions;

type Result<T, E = LinkError> = std::result::Result<T, E>;
