//! Bitmaps as plain bytes. The least significant bit comes first, and missing bytes are zero.

/// A bitmap without trailing zero bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bitmap(Vec<u8>);

impl Bitmap {
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Self(bytes[..end].to_vec())
    }

    /// Returns a bitmap whose first `count` bits are set.
    pub fn ones(count: u64) -> Self {
        let mut bytes = vec![0xff; to_index(count / 8)];
        if !count.is_multiple_of(8) {
            bytes.push((1 << (count % 8)) - 1);
        }
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn set(&mut self, index: u64) {
        let byte = to_index(index / 8);
        if byte >= self.0.len() {
            self.0.resize(byte + 1, 0);
        }
        self.0[byte] |= 1 << (index % 8);
    }

    pub fn get(&self, index: u64) -> bool {
        self.byte(to_index(index / 8)) >> (index % 8) & 1 == 1
    }

    /// Returns one more than the index of the highest set bit; `None` if no bit is set.
    pub fn end(&self) -> Option<u64> {
        self.0.last().map(|&last| self.0.len() as u64 * 8 - u64::from(last.leading_zeros()))
    }

    /// Returns byte `index`; zero past the end.
    pub fn byte(&self, index: usize) -> u8 {
        self.0.get(index).copied().unwrap_or(0)
    }
}

/// A Redis value limits the number of bits to far below `usize::MAX` on every target of Lambda.
fn to_index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_sets_exactly_the_first_bits() {
        for count in [0, 1, 7, 8, 9, 64, 150] {
            let bitmap = Bitmap::ones(count);
            assert!((0..count).all(|i| bitmap.get(i)) && (count..count + 20).all(|i| !bitmap.get(i)), "{count}");
            assert_eq!(bitmap.as_bytes().len() as u64, count.div_ceil(8));
        }
    }

    #[test]
    fn trailing_zero_bytes_do_not_count() {
        assert_eq!(Bitmap::from_bytes(&[1, 0, 0]), Bitmap::from_bytes(&[1]));
        let mut bitmap = Bitmap::default();
        bitmap.set(17);
        assert_eq!(bitmap.as_bytes(), [0, 0, 2]);
    }
}
