//! Records that begin with a version. The scripts `store` and `replace` write them.

/// Bytes of the little-endian version at the start. The scripts read it too.
pub(crate) const VERSION: usize = 6;

/// The start of a record.
pub(crate) fn start(version: u64) -> Vec<u8> {
    version.to_le_bytes()[..VERSION].to_vec()
}

/// Splits a record into its version and the rest.
pub fn version(record: &[u8]) -> Option<(u64, &[u8])> {
    let (version, rest) = record.split_at_checked(VERSION)?;
    Some((version.iter().rev().fold(0, |version, &byte| version << 8 | u64::from(byte)), rest))
}
