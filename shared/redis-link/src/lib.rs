//! Connections to Redis 7 or Valkey: one node or a cluster, with or without TLS.
//!
//! Each node has a connection and a circuit breaker of its own, so a lost node affects only its own keys. A connection
//! learns the *epoch* of its server, the name of one life of its data. A caller that stores the epoch with a value
//! recognizes a value from an older dump or a promoted replica.

mod breaker;
mod cluster;
mod connection;
mod epoch;
mod node;
mod pace;
mod topology;

pub use connection::{Age, Bundle, Link, RedisOptions};
pub use epoch::{BYTES as EPOCH_BYTES, Epoch};

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server is unreachable, did not respond in time, or cannot take commands now.
    #[error("Redis is unavailable ({operation})")]
    Unavailable {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server refused the command, or its response has another shape. A repetition fails in the same way.
    #[error("unexpected response from Redis: {detail}")]
    Unexpected {
        /// The operation, and the error or the shape of the response.
        detail: String,
    },
}
