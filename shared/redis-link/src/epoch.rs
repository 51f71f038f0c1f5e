//! The epoch: the life of a Redis server in which a view was written. `lua/epoch.lua` names it.
//!
//! A server that restarts from an older dump, or a replica that becomes master without the last writes, holds views
//! that lack acknowledged changes. So a connection learns the epoch of its server, or of a replica's master, and every
//! view carries the epoch in which it was written. A view of another epoch counts as missing.

use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, aio::MultiplexedConnection};

use crate::error::unknown_function;

pub const BYTES: usize = 4;

const LIBRARY: &str = include_str!("lua/epoch.lua");
const FUNCTION: &str = "redis_link_epoch_1";

/// The name of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch([u8; BYTES]);

impl Epoch {
    /// The epoch of a replica. No view carries it.
    pub const NONE: Self = Self([0; BYTES]);

    /// The command that returns the epoch of a server.
    pub(crate) fn command() -> Cmd {
        redis::cmd("FCALL").arg(FUNCTION).arg(0).clone()
    }

    /// Reads the epoch of the server at the other end of a new connection. Without one, its views could be stale, so a
    /// server that returns none is not used.
    pub(crate) async fn learn(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let mut told: Result<Option<String>, RedisError> = Self::command().query_async(connection).await;
        if told.as_ref().is_err_and(unknown_function) {
            let load: Result<String, _> = redis::cmd("FUNCTION").arg("LOAD").arg(LIBRARY).query_async(connection).await;
            // Any other error: another connection has loaded it, or this is a replica and gets it from its master.
            if let Some(error) = load.err().filter(RedisError::is_io_error) {
                return Err(error);
            }
            told = Self::command().query_async(connection).await;
            if told.as_ref().is_err_and(unknown_function) {
                told = Ok(None);
            }
        }
        match told {
            Ok(told) => Self::read(told),
            Err(error) if error.is_io_error() => Err(error),
            // Any other error: a server without an epoch counts as unavailable.
            Err(error) => Err((ErrorKind::Client, "the epoch of this Redis is unknown", error.to_string()).into()),
        }
    }

    /// Decodes the response of the function, 32 bits in hexadecimal digits. `None` comes from a replica.
    pub fn read(told: Option<String>) -> Result<Self, RedisError> {
        let Some(digits) = told else { return Ok(Self::NONE) };
        let number =
            u32::from_str_radix(&digits, 16).map_err(|_| RedisError::from((ErrorKind::Client, "not an epoch", digits)))?;
        // Zero stands for a replica.
        Ok(Self(number.max(1).to_be_bytes()))
    }

    /// Decodes an epoch among other responses; `None` if the value is not one.
    pub(crate) fn of_value(value: redis::Value) -> Option<Self> {
        Self::read(Option::<String>::from_redis_value(value).ok()?).ok()
    }

    /// The bytes that views carry.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A record without the epoch at its end; `None` if it was written in another epoch.
    pub fn current<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.strip_suffix(self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_the_start_of_a_replication_id() {
        let epoch = Epoch::read(Some("8a31f0c2".to_owned())).unwrap();
        assert_eq!(epoch.as_bytes(), [0x8a, 0x31, 0xf0, 0xc2]);
        assert_eq!(epoch.current(b"record\x8a\x31\xf0\xc2"), Some(&b"record"[..]));
        assert_eq!(epoch.current(b"record\x8a\x31\xf0\xc3"), None);
        assert_eq!(epoch.current(b"rec"), None);
        assert_eq!(Epoch::read(None).unwrap(), Epoch::NONE);
        assert_ne!(Epoch::read(Some("00000000".to_owned())).unwrap(), Epoch::NONE);
        assert!(Epoch::read(Some("none".to_owned())).is_err());
    }
}
