//! Streams edge files in the format of SNAP's graphs: `follower followee` on each line, `#` comments, plain or gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;

/// Two ids take 41 bytes. A line longer than this limit is malformed and is never held in memory.
const LONGEST_LINE: u64 = 1024;
/// The number of malformed lines that are kept with their line numbers.
const SHOWN: usize = 5;

/// `follower` follows `author`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub follower: u64,
    pub author: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Edge(Edge),
    Skipped,
    Malformed,
}

impl Line {
    /// Ids are decimal numbers from 1 to 2^64-1 without leading zeros, as in the API.
    fn parse(bytes: &[u8]) -> Self {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self::Malformed;
        };
        let mut fields = text.split_ascii_whitespace();
        let Some(first) = fields.next() else {
            return Self::Skipped;
        };
        if first.starts_with('#') {
            return Self::Skipped;
        }
        match (user_id(first), fields.next().and_then(user_id), fields.next()) {
            (Some(follower), Some(author), None) => Self::Edge(Edge { follower, author }),
            _ => Self::Malformed,
        }
    }
}

fn user_id(text: &str) -> Option<u64> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if canonical { text.parse().ok() } else { None }
}

/// Counts of the lines read so far.
#[derive(Debug, Clone, Default)]
pub struct LineCounts {
    pub lines: u64,
    pub edges: u64,
    pub skipped: u64,
    /// Lines that are not two ids, and lines that are too long.
    pub malformed: u64,
    /// The line numbers and first characters of the first malformed lines.
    pub first_malformed: Vec<(u64, String)>,
}

/// A stream of the edges of a file.
pub(crate) struct EdgeReader {
    input: Box<dyn BufRead + Send>,
    /// Counts the bytes that were read from the file.
    consumed: ProgressBar,
    size: u64,
    limit: u64,
    pub(crate) counts: LineCounts,
    ended: bool,
}

impl EdgeReader {
    /// Opens a file. Detects gzip by the first bytes, not by the name. `limit` is a number of lines.
    pub(crate) fn open(path: &Path, limit: Option<u64>) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let size = file.metadata().map(|meta| meta.len()).unwrap_or(0);
        Self::over(file, size, limit).with_context(|| format!("cannot read {}", path.display()))
    }

    fn over(source: impl Read + Send + 'static, size: u64, limit: Option<u64>) -> io::Result<Self> {
        let consumed = ProgressBar::hidden();
        let mut raw = BufReader::with_capacity(1 << 16, consumed.wrap_read(source));
        let gzip = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let input: Box<dyn BufRead + Send> =
            if gzip { Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(raw))) } else { Box::new(raw) };
        let limit = limit.unwrap_or(u64::MAX);
        Ok(Self { input, consumed, size, limit, counts: LineCounts::default(), ended: false })
    }

    /// Returns the next edge, or `None` at the end of the file or at the limit.
    pub(crate) fn next_edge(&mut self) -> anyhow::Result<Option<Edge>> {
        let mut line = Vec::with_capacity(64);
        while self.counts.lines < self.limit && !self.ended {
            let number = self.counts.lines + 1;
            line.clear();
            let whole = read_line(&mut self.input, &mut line).with_context(|| format!("cannot read line {number}"))?;
            if line.is_empty() {
                break;
            }
            self.counts.lines = number;
            match if whole { Line::parse(&line) } else { Line::Malformed } {
                Line::Edge(edge) => {
                    self.counts.edges += 1;
                    return Ok(Some(edge));
                }
                Line::Skipped => self.counts.skipped += 1,
                Line::Malformed => {
                    self.counts.malformed += 1;
                    if self.counts.first_malformed.len() < SHOWN {
                        let text: String = String::from_utf8_lossy(&line).trim().chars().take(40).collect();
                        self.counts.first_malformed.push((number, text));
                    }
                }
            }
        }
        self.ended = true;
        Ok(None)
    }

    /// The total number of lines: exact at the end, until then estimated from the bytes read.
    pub(crate) fn expected_lines(&self) -> u64 {
        let read = self.counts.lines;
        if self.ended {
            return read;
        }
        let guess = (u128::from(read) * u128::from(self.size) / u128::from(self.consumed.position().max(1))) as u64;
        guess.max(read).min(self.limit)
    }
}

/// Reads a line with its end. If the line exceeds the limit, skips it to its end and returns false.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let read = input.by_ref().take(LONGEST_LINE).read_until(b'\n', line)?;
    let whole = line.ends_with(b"\n") || (read as u64) < LONGEST_LINE;
    if !whole {
        input.skip_until(b'\n')?;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;

    fn read(bytes: &[u8], limit: Option<u64>) -> (Vec<(u64, u64)>, LineCounts) {
        let mut reader = EdgeReader::over(Cursor::new(bytes.to_vec()), bytes.len() as u64, limit).unwrap();
        let mut edges = Vec::new();
        while let Some(edge) = reader.next_edge().unwrap() {
            edges.push((edge.follower, edge.author));
        }
        assert_eq!(reader.expected_lines(), reader.counts.lines);
        (edges, reader.counts.clone())
    }

    #[test]
    fn comments_blank_lines_tabs_crlf_and_the_largest_id_are_accepted() {
        let text = b"# FromNodeId ToNodeId\n\n1 2\n3\t4\r\n  5   6  \n18446744073709551615 1\n7 8";
        let (edges, counts) = read(text, None);
        assert_eq!(edges, [(1, 2), (3, 4), (5, 6), (u64::MAX, 1), (7, 8)]);
        assert_eq!((counts.lines, counts.edges, counts.skipped, counts.malformed), (7, 5, 2, 0));
    }

    #[test]
    fn malformed_lines_are_counted_with_their_numbers() {
        let (edges, counts) = read(b"1 2\n1\n1 2 3\n0 1\n01 2\n+1 2\n1 18446744073709551616\nx y\n\xff 1\n3 4\n", None);
        assert_eq!(edges, [(1, 2), (3, 4)]);
        assert_eq!(counts.malformed, 8);
        let numbers: Vec<u64> = counts.first_malformed.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_line_without_an_end_does_not_exhaust_memory() {
        let mut bytes = vec![b'7'; 100_000];
        bytes.extend_from_slice(b"\n1 2\n");
        let (edges, counts) = read(&bytes, None);
        assert_eq!((edges, counts.malformed, counts.lines), (vec![(1, 2)], 1, 2));
    }

    #[test]
    fn the_limit_counts_lines() {
        let (edges, counts) = read(b"# c\n1 2\n1 3\n1 4\n", Some(3));
        assert_eq!((edges, counts.lines), (vec![(1, 2), (1, 3)], 3));
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_detected_by_its_first_bytes_also_with_several_members() {
        let bytes = [gzip("1 2\n"), gzip("3 4\n")].concat();
        assert_eq!(read(&bytes, None).0, [(1, 2), (3, 4)]);
    }

    #[test]
    fn a_truncated_gzip_file_is_an_error() {
        let mut bytes = gzip("1 2\n3 4\n");
        bytes.truncate(bytes.len() - 6);
        let mut reader = EdgeReader::over(Cursor::new(bytes), 10, None).unwrap();
        assert!(std::iter::from_fn(|| reader.next_edge().transpose()).any(|edge| edge.is_err()));
    }
}
