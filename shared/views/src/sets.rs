//! Sets of numbers in records: the slots of read notices, and the posts that a reader has marked.

use integer_encoding::VarInt;
use tidemark_domain::{SeqSet, Slot, bitmap::Bitmap};

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
