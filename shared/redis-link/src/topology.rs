//! The map of a cluster: which node serves which slot.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use crc16::{State, XMODEM};
use redis::{Arg, Cmd, Value, from_redis_value};

use crate::node::Node;

/// The number of slots of every cluster.
const SLOTS: u16 = 16_384;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Parses `host:port` of a redirection. An empty host stands for `here`, the host of the node that responded.
    pub(crate) fn of_redirect(text: &str, here: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: if host.is_empty() { here } else { host }.to_owned(), port: port.parse().ok()? })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

pub(crate) struct Member {
    pub(crate) address: Address,
    pub(crate) node: Node,
    /// Whether the epoch of the connection has been compared with the node's current epoch since this map was read.
    pub(crate) checked: AtomicBool,
}

impl Member {
    pub(crate) fn new(address: Address, node: Node) -> Arc<Self> {
        Arc::new(Self { address, node, checked: AtomicBool::new(false) })
    }
}

/// Consecutive slots, and the nodes that serve them.
pub(crate) struct Range {
    first: u16,
    last: u16,
    pub(crate) primary: Arc<Member>,
    pub(crate) replicas: Vec<Arc<Member>>,
}

/// The slots of a cluster as one of its nodes returned them.
pub(crate) struct Topology {
    ranges: Vec<Range>,
    pub(crate) read_at: Instant,
}

impl Topology {
    /// Reads a response to `CLUSTER SLOTS`; `None` if it has another shape. `here` is the host that responded. `member`
    /// finds or makes the node of an address.
    pub(crate) fn read(response: Value, here: &str, mut member: impl FnMut(Address) -> Option<Arc<Member>>) -> Option<Self> {
        let mut ranges = Vec::new();
        for range in from_redis_value::<Vec<Vec<Value>>>(response).ok()? {
            let mut parts = range.into_iter();
            let mut slot = || from_redis_value::<u16>(parts.next()?).ok().filter(|slot| *slot < SLOTS);
            let (first, last) = (slot()?, slot()?);
            // A node with the unknown host "?" is left out. An empty or missing host is the one that responded.
            let mut members = parts.filter_map(|node| {
                // Host and port. More fields may follow.
                let mut fields = from_redis_value::<Vec<Value>>(node).ok()?.into_iter();
                let host: Option<String> = from_redis_value(fields.next()?).ok()?;
                let port = from_redis_value(fields.next()?).ok()?;
                let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| here.to_owned());
                if host == "?" { None } else { member(Address { host, port }) }
            });
            let Some(primary) = members.next() else { continue };
            ranges.push(Range { first, last, primary, replicas: members.collect() });
        }
        ranges.sort_unstable_by_key(|range| range.first);
        Some(Self { ranges, read_at: Instant::now() })
    }

    /// The range that contains a slot; `None` if no node serves it.
    pub(crate) fn range(&self, slot: u16) -> Option<&Range> {
        let range = self.ranges.get(self.ranges.partition_point(|range| range.last < slot))?;
        (range.first <= slot).then_some(range)
    }

    pub(crate) fn primaries(&self) -> Vec<Arc<Member>> {
        distinct(self.ranges.iter().map(|range| &range.primary))
    }

    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        distinct(self.ranges.iter().flat_map(|range| std::iter::once(&range.primary).chain(&range.replicas)))
    }
}

fn distinct<'a>(members: impl Iterator<Item = &'a Arc<Member>>) -> Vec<Arc<Member>> {
    let mut all: Vec<Arc<Member>> = members.cloned().collect();
    all.sort_unstable_by(|a, b| a.address.cmp(&b.address));
    all.dedup_by(|a, b| a.address == b.address);
    all
}

/// The slot of the first key in these commands. It is a command's first argument, and the third one of `FCALL`.
pub(crate) fn slot_of(commands: &[Cmd]) -> Option<u16> {
    commands.iter().find_map(|command| {
        let mut args = command.args_iter().map(|arg| if let Arg::Simple(bytes) = arg { bytes } else { &[] });
        let place = if args.next()? == b"FCALL" { 2 } else { 0 };
        args.nth(place).map(slot)
    })
}

pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')? + 1;
        let length = key[open..].iter().position(|&byte| byte == b'}').filter(|&length| length > 0)?;
        Some(&key[open..open + length])
    };
    State::<XMODEM>::calculate(tag().unwrap_or(key)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // From `CLUSTER KEYSLOT` of Redis 7.0.15.
        let known =
            [("foo", 12_182), ("{831}:r:1042", 6_832), ("{831}:f:9", 6_832), ("{}a", 10_875), ("{a}{b}", 15_495), ("x{", 3_596)];
        for (key, expected) in known {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn the_first_key_of_a_command_decides_its_slot() {
        let key = b"{831}:r:1042";
        let of = |command: &Cmd| slot_of(std::slice::from_ref(command));
        assert_eq!(of(redis::cmd("HGETALL").arg(key)), Some(slot(key)));
        assert_eq!(of(redis::cmd("FCALL").arg("deliver").arg(1).arg(key).arg("x")), Some(slot(key)));
        assert_eq!(of(&redis::cmd("PING")), None);
        let transaction = [redis::cmd("MULTI"), redis::cmd("GET").arg(key).clone(), redis::cmd("EXEC")];
        assert_eq!(slot_of(&transaction), Some(slot(key)));
    }
}
