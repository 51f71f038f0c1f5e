//! Records (most begin with a version), the sets of numbers in some of them, and the leases for storing records.

use std::time::Duration;

use integer_encoding::VarInt;
use redis::{Cmd, Value};
use redis_link::Epoch;
use tidemark_domain::{SeqSet, Slot, bitmap::Bitmap};

use crate::{
    Function, Result,
    connection::{Views, fcall, ms, token_arg},
    keys,
};

/// Bytes of the little-endian version at the start. The scripts read it too.
pub(crate) const VERSION: usize = 6;

pub(crate) fn start(version: u64) -> Vec<u8> {
    version.to_le_bytes()[..VERSION].to_vec()
}

pub fn version(record: &[u8]) -> Option<(u64, &[u8])> {
    let (version, rest) = record.split_at_checked(VERSION)?;
    Some((version.iter().rev().fold(0, |version, &byte| version << 8 | u64::from(byte)), rest))
}

/// The first byte: an offset in bytes (of eight numbers each) and a bitmap, or a roaring bitmap if it is shorter.
const BITS: u8 = 0;
const ROARING: u8 = 1;

pub(crate) fn encode_set(read: &SeqSet) -> Vec<u8> {
    let (first, last) = read.bounds().unwrap_or_default();
    let (base, roaring) = (first / 8, read.to_bytes());
    if last / 8 - base >= roaring.len() as u64 {
        return [&[ROARING], roaring.as_slice()].concat();
    }
    let mut bits = Bitmap::default();
    for slot in read.iter() {
        bits.set(slot - base * 8);
    }
    [&[BITS], base.encode_var_vec().as_slice(), bits.as_bytes()].concat()
}

pub(crate) fn decode_set(bytes: &[u8]) -> Option<SeqSet> {
    let (&kind, rest) = bytes.split_first()?;
    match kind {
        ROARING => SeqSet::from_bytes(rest).ok(),
        BITS => {
            let (base, length) = u64::decode_var(rest)?;
            let base: Slot = base.checked_mul(8)?;
            let bits = Bitmap::from_bytes(&rest[length..]);
            let end = bits.end().unwrap_or(0);
            base.checked_add(end)?;
            Some((0..end).filter(|&bit| bits.get(bit)).map(|bit| base + bit).collect())
        }
        _ => None,
    }
}

/// Takes a variable-length integer from the start.
pub(crate) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, length) = u64::decode_var(bytes)?;
    *bytes = &bytes[length..];
    Some(number)
}

pub(crate) fn string_of((response, epoch): (Value, Epoch)) -> Option<(Vec<u8>, Epoch)> {
    Some((redis::from_redis_value::<Option<Vec<u8>>>(response).ok()??, epoch))
}

/// Decodes a record. One that cannot be read, or of another epoch, counts as unknown. The facts replace it.
pub(crate) fn current<T>(value: Option<(Vec<u8>, Epoch)>, decode: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let (value, epoch) = value?;
    decode(epoch.current(&value)?)
}

/// The call that takes the lease for storing a record, also from another caller.
pub(crate) fn take_lease(lease: &str, lifetime: Duration, token: u64) -> Cmd {
    fcall(Function::Lease, &[lease.to_owned()], (token_arg(token), ms(lifetime), 0))
}

/// The call that stores a record from the facts, unless its lease is lost.
pub(crate) fn store(keys: [String; 2], token: u64, record: Vec<u8>, lifetime: Duration) -> Cmd {
    fcall(Function::Store, &keys, (token_arg(token), record, ms(lifetime)))
}

impl Views {
    pub(crate) async fn take_lease(&self, lease: &str, lifetime: Duration, token: u64) -> Result<()> {
        self.query("lease", take_lease(lease, lifetime, token)).await.map(drop::<u8>)
    }

    pub(crate) async fn store(&self, keys: [String; 2], token: u64, record: Vec<u8>, lifetime: Duration) -> Result<()> {
        self.query("store", store(keys, token, record, lifetime)).await.map(drop::<u8>)
    }

    pub(crate) async fn replace(&self, keys: [String; 2], version: u64, record: Vec<u8>, lifetime: Duration) -> Result<()> {
        self.call(Function::Replace, &keys, (version, record, ms(lifetime))).await.map(drop::<u8>)
    }

    /// Takes the free leases for storing these records, and returns the records. `keys_of` returns key and lease.
    pub(crate) async fn free_leases<T: Copy>(
        &self,
        operation: &'static str,
        records: &[T],
        keys_of: impl Fn(T) -> [String; 2],
        token: u64,
    ) -> Result<Vec<T>> {
        let lease = |&record: &T| {
            let [_, lease] = keys_of(record);
            fcall(Function::Lease, &[lease], (token_arg(token), ms(keys::SHORT_LEASE_LIFETIME), 1))
        };
        let taken: Vec<bool> = self.each(operation, records.iter().map(lease).collect()).await?;
        Ok(records.iter().zip(taken).filter_map(|(&record, taken)| taken.then_some(record)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_round_trip_in_the_shorter_form() {
        let sets: [(SeqSet, u8, usize); 5] = [
            (SeqSet::default(), BITS, 2),
            ((1..=300).collect(), ROARING, 28),
            ((1..=300).filter(|slot| slot % 7 != 0).collect(), BITS, 40),
            ((100_000..=100_300).step_by(2).collect(), BITS, 42),
            ([5, 8_000_000].into_iter().collect(), ROARING, 60),
        ];
        for (set, kind, most) in sets {
            let bytes = encode_set(&set);
            assert!(bytes[0] == kind && bytes.len() <= most, "{} bytes: {set:?}", bytes.len());
            assert_eq!(decode_set(&bytes), Some(set));
        }
        for damaged in [&b""[..], b"\x02", b"\x01x", b"\0\xff"] {
            assert_eq!(decode_set(damaged), None);
        }
    }
}
