//! Which life of a Redis server a view was written in.
//!
//! A server that restarts from an older dump, or a replica that was promoted before it had everything, holds views that lack acknowledged changes. Such views
//! must not be believed. A server gets another replication id (`master_replid`) with every start and every promotion, so the first bytes of that id name the
//! server's current life: its epoch. A connection learns the epoch when it is made, every view carries the epoch it was written in, and a view of another epoch
//! counts as none. Redis gives a replica its master's id, so a replica's answers are compared with the same epoch as its master's.

use redis::{RedisError, ServerErrorKind};

/// Bytes of an epoch.
pub(super) const BYTES: usize = 4;

/// The first bytes of a server's replication id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch([u8; BYTES]);

impl Epoch {
    /// Reads the epoch in the text that `INFO replication` returns.
    ///
    /// # Errors
    /// The server does not tell its replication id. Its views cannot be believed, and it is not used.
    pub(super) fn of_info(info: &str) -> Result<Self, RedisError> {
        let id = info.lines().find_map(|line| line.strip_prefix("master_replid:"));
        let number = id.and_then(|id| u32::from_str_radix(id.get(..2 * BYTES)?, 16).ok());
        let missing = || {
            let kind = redis::ErrorKind::Server(ServerErrorKind::ResponseError);
            RedisError::from((
                kind,
                "INFO has no master_replid: whether its data is current cannot be told, so this Redis is not used",
            ))
        };
        number.map(|number| Self(number.to_be_bytes())).ok_or_else(missing)
    }

    /// Its bytes, as views carry them.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A record without the epoch that it ends with; `None` if it was written in another one.
    pub(super) fn current<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.strip_suffix(self.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_the_start_of_the_replication_id() {
        let info =
            "# Replication\r\nrole:master\r\nmaster_replid:8a31f0c2d9e0aa11bb22cc33dd44ee55ff667788\r\nmaster_replid2:0000\r\n";
        let epoch = Epoch::of_info(info).unwrap();
        assert_eq!(epoch.as_bytes(), [0x8a, 0x31, 0xf0, 0xc2]);
        assert_eq!(epoch.current(b"record\x8a\x31\xf0\xc2"), Some(&b"record"[..]));
        assert_eq!(epoch.current(b"record\x8a\x31\xf0\xc3"), None);
        assert_eq!(epoch.current(b"rec"), None);
    }

    #[test]
    fn a_server_without_an_id_is_refused() {
        for info in ["", "role:master\r\n", "master_replid:\r\n", "master_replid:none\r\n"] {
            assert!(Epoch::of_info(info).is_err(), "{info}");
        }
    }
}
