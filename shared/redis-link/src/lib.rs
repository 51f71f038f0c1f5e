//! Connections to Redis 7 or Valkey: one node or a cluster, with or without TLS.
//!
//! Each node has a connection and a circuit breaker of its own, so that a lost node fails only the keys it holds. A connection learns the *epoch* of its server, the name of
//! one life of its dataset: a caller that stores the epoch with a value can tell a value that an older dump or a promoted replica has brought back.

mod breaker;
mod cluster;
mod connection;
mod epoch;
mod node;
mod topology;

pub use connection::{Age, Bundle, Link, RedisOptions};
pub use epoch::{BYTES as EPOCH_BYTES, Epoch};

/// A command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server is unreachable, did not respond in time, or cannot take commands now.
    #[error("Redis is unavailable ({operation})")]
    Unavailable {
        /// The operation that failed.
        operation: &'static str,
        /// The client's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server refused the command, or its answer has another shape. Repeating does not help.
    #[error("unexpected answer of Redis: {detail}")]
    Unexpected {
        /// The operation, and what the server said.
        detail: String,
    },
}
