//! Where the posts of a file are, in temporary files by hash of the author. So each author's posts can be imported in
//! the order of their numbers, whatever the order of the lines.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use tidemark_domain::{PostId, Seq, UserId};

const FILES: usize = 256;

/// Five numbers of eight bytes.
const BYTES: usize = 40;

/// The length of a line that is bad.
pub(super) const BAD: usize = 0;

/// A post in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) author: u64,
    pub(super) seq: Seq,
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

pub(super) struct Places {
    paths: Vec<PathBuf>,
    files: Vec<BufWriter<File>>,
}

impl Places {
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let paths: Vec<PathBuf> = (0..FILES).map(|file| folder.join(format!("posts-{file}"))).collect();
        let files = paths.iter().map(|path| Ok(BufWriter::with_capacity(4 << 10, File::create(path)?)));
        Ok(Self { files: files.collect::<io::Result<_>>()?, paths })
    }

    pub(super) fn add(&mut self, id: PostId, offset: u64, number: u64, length: usize) -> io::Result<()> {
        let file = &mut self.files[usize::from(id.author.bucket()) % FILES];
        for part in [id.author.get(), id.seq, number, offset, length as u64] {
            file.write_all(&part.to_le_bytes())?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<Self> {
        self.files.iter_mut().try_for_each(Write::flush)?;
        self.files.clear();
        Ok(self)
    }

    /// The posts in each temporary file, by author, in the order of their numbers.
    pub(super) fn by_author(&self) -> impl Iterator<Item = io::Result<Vec<(UserId, Vec<Place>)>>> {
        self.paths.iter().map(|path| {
            let mut bytes = Vec::new();
            File::open(path)?.read_to_end(&mut bytes)?;
            let mut places: Vec<Place> = bytes.as_chunks::<BYTES>().0.iter().map(place).collect();
            places.sort_unstable();
            let authors = places.chunk_by(|one, other| one.author == other.author);
            Ok(authors.filter_map(|posts| Some((UserId::new(posts[0].author)?, posts.to_vec()))).collect())
        })
    }
}

/// Divides an author's places, which are in the order of their numbers, into posts to import, and later posts than one
/// whose lines are all bad. That one counts as deleted for ever if a later post is imported. Bad lines up to `latest`,
/// the author's latest post here, do not matter.
pub(super) fn before_bad(places: Vec<Place>, latest: Seq) -> (Vec<Place>, Vec<Place>) {
    let good: HashSet<Seq> = places.iter().filter(|place| place.length > BAD as u64).map(|place| place.seq).collect();
    let bad = places.iter().map(|place| place.seq).find(|seq| *seq > latest && !good.contains(seq)).unwrap_or(Seq::MAX);
    places.into_iter().filter(|place| place.length > BAD as u64).partition(|place| place.seq < bad)
}

fn place(bytes: &[u8; BYTES]) -> Place {
    let numbers = bytes.as_chunks::<8>().0;
    let [author, seq, number, offset, length] = [0, 1, 2, 3, 4].map(|index| u64::from_le_bytes(numbers[index]));
    Place { author, seq, number, offset, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_posts_than_a_bad_one_wait_for_it() {
        let place = |(seq, length)| Place { author: 1, seq, number: seq, offset: 0, length };
        let divided = |places: &[(Seq, u64)], latest| {
            let (before, after) = before_bad(places.iter().copied().map(place).collect(), latest);
            [before, after].map(|places| places.iter().map(|place| place.seq).collect::<Vec<_>>())
        };
        assert_eq!(divided(&[(1, 9), (2, 9)], 0), [vec![1, 2], vec![]]);
        assert_eq!(divided(&[(1, 9), (2, 0), (3, 9), (4, 9)], 0), [vec![1], vec![3, 4]]);
        // Number 2 has a good line too, or is decided here.
        assert_eq!(divided(&[(1, 9), (2, 0), (2, 9), (3, 9)], 0), [vec![1, 2, 3], vec![]]);
        assert_eq!(divided(&[(1, 9), (2, 0), (3, 9)], 2), [vec![1, 3], vec![]]);
    }
}
