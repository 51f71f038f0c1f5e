//! Which life of a Redis server a view was written in.
//!
//! A server that restarts from an older dump, or a replica that was promoted before it had everything, holds views that lack acknowledged changes. Such views
//! must not be believed. `lua/epoch.lua` names the life of a server; a connection learns that name, its epoch, when it is made. Every view carries the epoch it was
//! written in, and a view of another epoch counts as none. Answers of a replica are compared with the epoch of its master.

use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, aio::MultiplexedConnection};

use crate::node::unknown_function;

/// Bytes of an epoch.
pub const BYTES: usize = 4;

/// The library that tells it, and the function that FCALL knows.
const LIBRARY: &str = include_str!("lua/epoch.lua");
const FUNCTION: &str = "tidemark_epoch_1";

/// The name of a server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch([u8; BYTES]);

impl Epoch {
    /// That of a replica: no view carries it.
    pub const NONE: Self = Self([0; BYTES]);

    /// The command that asks a server for it.
    pub(crate) fn command() -> Cmd {
        redis::cmd("FCALL").arg(FUNCTION).arg(0).clone()
    }

    /// Asks the server at the other end of a new connection.
    ///
    /// # Errors
    /// It does not answer, or does not tell: its views could not be believed, and it is not used.
    pub(crate) async fn learn(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let told: Result<Option<String>, RedisError> = Self::command().query_async(connection).await;
        let told = match told {
            Err(error) if unknown_function(&error) => {
                let load: Result<String, RedisError> =
                    redis::cmd("FUNCTION").arg("LOAD").arg(LIBRARY).query_async(connection).await;
                match load {
                    // Another connection has loaded it meanwhile, or this is a replica, which gets it from its master.
                    Err(error) if error.is_io_error() => return Err(error),
                    Err(_) | Ok(_) => {}
                }
                match Self::command().query_async(connection).await {
                    Err(error) if unknown_function(&error) => Ok(None),
                    told => told,
                }
            }
            told => told,
        };
        match told {
            Ok(told) => Self::read(told),
            Err(error) if error.is_io_error() => Err(error),
            // Whatever else it says: without an epoch it counts as unavailable.
            Err(error) => Err((ErrorKind::Client, "the epoch of this Redis cannot be told", error.to_string()).into()),
        }
    }

    /// What the function has told.
    ///
    /// # Errors
    /// It is no epoch.
    pub fn read(told: Option<String>) -> Result<Self, RedisError> {
        let Some(digits) = told else { return Ok(Self::NONE) };
        let number =
            u32::from_str_radix(&digits, 16).map_err(|_| RedisError::from((ErrorKind::Client, "not an epoch", digits)))?;
        // Zero is a replica's.
        Ok(Self(number.max(1).to_be_bytes()))
    }

    /// What a server has told among other answers; `None` if it has not.
    pub(crate) fn of_value(value: redis::Value) -> Option<Self> {
        Self::read(Option::<String>::from_redis_value(value).ok()?).ok()
    }

    /// Its bytes, as views carry them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A record without the epoch that it ends with; `None` if it was written in another one.
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
