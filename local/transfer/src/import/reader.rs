//! Reads lines of bounded length, with their numbers and places.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
};

/// The longest line that is kept. A longer one is bad.
const MOST: usize = 2 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawLine {
    /// Begins with 1.
    pub(super) number: u64,
    /// Where it begins in the file, in bytes.
    pub(super) offset: u64,
    /// Without the end of the line. Of a line that is too long, one byte more than allowed.
    pub(super) text: Vec<u8>,
}

pub(super) struct Lines<R = BufReader<File>> {
    reader: R,
    number: u64,
    offset: u64,
}

impl Lines {
    pub(super) fn new(file: File) -> Self {
        Self::of(BufReader::with_capacity(1 << 20, file))
    }
}

impl<R: BufRead> Lines<R> {
    fn of(reader: R) -> Self {
        Self { reader, number: 0, offset: 0 }
    }

    /// The next line for which `is_wanted` is true, asked once for each line; `None` at the end.
    pub(super) fn next_if(&mut self, mut is_wanted: impl FnMut() -> io::Result<bool>) -> io::Result<Option<RawLine>> {
        loop {
            if self.reader.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let line = self.read(if is_wanted()? { MOST + 1 } else { 0 })?;
            if let Some(line) = line {
                return Ok(Some(line));
            }
        }
    }

    /// Reads a line. Keeps at most this many bytes; with 0 it skips the line.
    fn read(&mut self, most: usize) -> io::Result<Option<RawLine>> {
        self.number += 1;
        let (offset, mut text) = (self.offset, Vec::new());
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let part = &buffer[..end.unwrap_or(buffer.len())];
            text.extend_from_slice(&part[..part.len().min(most - text.len())]);
            let used = end.map_or(buffer.len(), |end| end + 1);
            let is_last = end.is_some() || used == 0;
            self.reader.consume(used);
            self.offset += used as u64;
            if is_last {
                if text.last() == Some(&b'\r') {
                    text.pop();
                }
                return Ok((most > 0).then_some(RawLine { number: self.number, offset, text }));
            }
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<RawLine>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_if(|| Ok(true)).transpose()
    }
}

/// The text of a line, or the reason why it has none.
pub(super) fn text(line: &[u8]) -> Result<&str, String> {
    if line.len() > MOST {
        return Err(format!("the line has more than {MOST} bytes"));
    }
    str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_and_places_and_a_long_one_is_cut() {
        let long = "x".repeat(MOST + 9);
        let file = format!("a\r\n\n{long}\nlast");
        let lines: Vec<RawLine> = Lines::of(file.as_bytes()).map(Result::unwrap).collect();
        let place = |line: &RawLine| (line.number, line.offset, line.text.len());
        assert_eq!(
            lines.iter().map(place).collect::<Vec<_>>(),
            [(1, 0, 1), (2, 3, 0), (3, 4, MOST + 1), (4, 4 + MOST as u64 + 10, 4)]
        );
        assert!(text(&lines[2].text).unwrap_err().contains("more than"));
        let mut number = 0;
        let mut wanted = Lines::of(file.as_bytes());
        let line = wanted.next_if(|| {
            number += 1;
            Ok(number == 4)
        });
        assert_eq!(line.unwrap().unwrap().text, b"last");
    }
}
