//! The read state of one reader, computed without the stack.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// `author-seq`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostId {
    pub author: u64,
    /// The sequence number, from 1.
    pub seq: u64,
}

impl fmt::Display for PostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.author, self.seq)
    }
}

impl fmt::Debug for PostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PostId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed =
            text.split_once('-').and_then(|(author, seq)| Some(Self { author: author.parse().ok()?, seq: seq.parse().ok()? }));
        parsed.filter(|id| id.to_string() == text).ok_or_else(|| format!("{text:?} is not a post id"))
    }
}

/// A post that this run published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub id: PostId,
    pub title: String,
    /// The time as the stack wrote it.
    pub created_at: String,
    /// The time in milliseconds since 1970.
    pub at: i64,
}

#[derive(Debug, Clone)]
struct Entry {
    post: Arc<Post>,
    read: bool,
}

/// The state of one reader: the posts of the followed authors, each read or unread.
#[derive(Debug, Clone)]
pub struct Reader {
    user: u64,
    entries: Vec<Entry>,
    watermarks: BTreeMap<u64, u64>,
}

impl Reader {
    /// A reader for whom all these posts are unread.
    pub fn new(user: u64, posts: impl IntoIterator<Item = Arc<Post>>) -> Self {
        let mut entries: Vec<Entry> = posts.into_iter().map(|post| Entry { post, read: false }).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse((entry.post.at, entry.post.id.seq)));
        Self { user, entries, watermarks: BTreeMap::new() }
    }

    pub fn user(&self) -> u64 {
        self.user
    }

    /// The posts, newest first, each with true if it is read.
    pub fn posts(&self) -> impl ExactSizeIterator<Item = (&Post, bool)> {
        self.entries.iter().map(|entry| (&*entry.post, entry.read))
    }

    pub fn unread_total(&self) -> u64 {
        self.entries.iter().filter(|entry| !entry.read).count() as u64
    }

    pub fn unread_of(&self, author: u64) -> u64 {
        self.entries.iter().filter(|entry| !entry.read && entry.post.id.author == author).count() as u64
    }

    /// Authors with unread posts, and their numbers.
    pub(crate) fn unread_by_author(&self) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| !entry.read) {
            *counts.entry(entry.post.id.author).or_default() += 1;
        }
        counts
    }

    /// The time of an author's newest post, of all or of the unread ones.
    pub(crate) fn newest_of(&self, author: u64, unread_only: bool) -> Option<i64> {
        let of_author = |entry: &&Entry| entry.post.id.author == author && !(unread_only && entry.read);
        self.entries.iter().find(of_author).map(|entry| entry.post.at)
    }

    /// Marks a post read. Returns the number of changed posts.
    pub fn read(&mut self, id: PostId) -> u64 {
        self.set(true, |post| post.id == id)
    }

    /// Marks a post unread. Returns the number of changed posts.
    pub fn unread(&mut self, id: PostId) -> u64 {
        self.set(false, |post| post.id == id)
    }

    /// Marks an author's posts read up to `seq`. A number below an earlier one changes nothing.
    pub fn through(&mut self, author: u64, seq: u64) -> u64 {
        let watermark = self.watermarks.entry(author).or_default();
        if seq <= *watermark {
            return 0;
        }
        *watermark = seq;
        self.set(true, |post| post.id.author == author && post.id.seq <= seq)
    }

    /// Marks everything read, or everything up to a time in milliseconds.
    pub fn all(&mut self, before: Option<i64>) -> u64 {
        self.set(true, |post| before.is_none_or(|before| post.at <= before))
    }

    fn set(&mut self, read: bool, which: impl Fn(&Post) -> bool) -> u64 {
        let mut changed = 0;
        for entry in self.entries.iter_mut().filter(|entry| entry.read != read && which(&entry.post)) {
            entry.read = read;
            changed += 1;
        }
        changed
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::verify) fn post(author: u64, seq: u64, at: i64) -> Arc<Post> {
        let id = PostId { author, seq };
        Arc::new(Post { id, title: format!("title {id}"), created_at: format!("T{at}"), at })
    }

    fn reader() -> Reader {
        Reader::new(1, [post(10, 1, 100), post(10, 2, 200), post(10, 3, 300), post(20, 1, 150), post(20, 2, 300)])
    }

    fn id(author: u64, seq: u64) -> PostId {
        PostId { author, seq }
    }

    #[test]
    fn posts_are_newest_first() {
        let reader = reader();
        let order: Vec<String> = reader.posts().map(|(post, _)| post.id.to_string()).collect();
        assert_eq!(order, ["10-3", "20-2", "10-2", "20-1", "10-1"]);
        assert_eq!(reader.unread_by_author(), BTreeMap::from([(10, 3), (20, 2)]));
        assert_eq!((reader.newest_of(20, false), reader.newest_of(30, false)), (Some(300), None));
    }

    #[test]
    fn reading_and_unreading_change_once() {
        let mut reader = reader();
        assert_eq!([reader.read(id(10, 2)), reader.read(id(10, 2)), reader.read(id(99, 1))], [1, 0, 0]);
        assert_eq!((reader.unread_total(), reader.unread_of(10)), (4, 2));
        assert!(reader.posts().any(|(post, read)| post.id == id(10, 2) && read));
        assert_eq!([reader.unread(id(10, 2)), reader.unread(id(10, 2))], [1, 0]);
        assert_eq!(reader.unread_total(), 5);
    }

    #[test]
    fn through_never_goes_back() {
        let mut reader = reader();
        assert_eq!(reader.through(10, 2), 2);
        assert_eq!(reader.unread(id(10, 1)), 1);
        assert_eq!([reader.through(10, 1), reader.through(10, 2)], [0, 0]);
        assert_eq!(reader.unread_of(10), 2);
        assert_eq!(reader.newest_of(10, true), Some(300));
        assert_eq!(reader.through(10, 9), 2);
    }

    #[test]
    fn all_covers_the_posts_that_existed_at_its_time() {
        let mut reader = reader();
        assert_eq!(reader.all(Some(200)), 3);
        assert_eq!(reader.unread_total(), 2);
        assert_eq!(reader.all(None), 2);
        assert_eq!(reader.unread_total(), 0);
    }

    #[test]
    fn post_ids_are_parsed_strictly() {
        assert_eq!("10-3".parse(), Ok(id(10, 3)));
        for bad in ["", "10", "10-", "010-3", "10-03", "+1-2", "1-2-3"] {
            assert!(bad.parse::<PostId>().is_err(), "{bad}");
        }
    }
}
