//! [`LinkError`], and the errors of the `redis` crate from which it is made.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The server is unreachable, did not respond in time, or cannot take commands now.
    #[error("Redis is unavailable ({operation})")]
    Unavailable {
        operation: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A key has another type than the command needs. It does not change by itself.
    #[error("a key of another type in Redis: {detail}")]
    WrongType { detail: String },
    /// The server refused the command, or its response has another shape. A repetition fails in the same way.
    #[error("unexpected response from Redis: {detail}")]
    Unexpected {
        /// The operation, and the error or the shape of the response.
        detail: String,
    },
}

pub(crate) fn server_error(response: &Value) -> Option<ServerErrorKind> {
    match response {
        Value::ServerError(error) => error.kind(),
        _ => None,
    }
}

const UNKNOWN_FUNCTION: &str = "Function not found";

/// Whether a response says that the node does not know a function.
pub(crate) fn is_unknown_function(response: &Value) -> bool {
    matches!(response, Value::ServerError(error) if error.details().is_some_and(|details| details.contains(UNKNOWN_FUNCTION)))
}

pub(crate) fn unknown_function(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains(UNKNOWN_FUNCTION))
}

pub(crate) fn link_error(operation: &'static str, error: RedisError) -> LinkError {
    match error.kind() {
        _ if error.code() == Some("WRONGTYPE") => LinkError::WrongType { detail: format!("{operation}: {error}") },
        // A script error, an unknown function, or a response of another shape: a repetition fails in the same way.
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::UnexpectedReturnType | ErrorKind::Parse => {
            LinkError::Unexpected { detail: format!("{operation}: {error}") }
        }
        _ => LinkError::Unavailable { operation, source: error.into() },
    }
}
