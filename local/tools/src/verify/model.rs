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

/// A post, as the stack returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub id: PostId,
    pub title: String,
    /// The time in the form of the API.
    pub created_at: String,
    /// The time in milliseconds since 1970.
    pub at: i64,
}

/// A post and the read flag of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub post: Arc<Post>,
    pub read: bool,
}

/// The state of one reader: the posts of the followed authors, each read or unread.
#[derive(Debug, Clone)]
pub struct Reader {
    pub user: u64,
    /// The posts, newest first.
    pub items: Vec<Item>,
    watermarks: BTreeMap<u64, u64>,
}

impl Reader {
    /// A reader for whom all these posts are unread.
    pub fn new(user: u64, posts: impl IntoIterator<Item = Arc<Post>>) -> Self {
        let mut items: Vec<Item> = posts.into_iter().map(|post| Item { post, read: false }).collect();
        items.sort_by_key(|item| std::cmp::Reverse((item.post.at, item.post.id.seq)));
        Self { user, items, watermarks: BTreeMap::new() }
    }

    /// The unread posts, newest first.
    pub(crate) fn unread(&self) -> impl Iterator<Item = PostId> {
        self.items.iter().filter(|item| !item.read).map(|item| item.post.id)
    }

    pub fn unread_total(&self) -> u64 {
        self.unread().count() as u64
    }

    pub fn unread_of(&self, author: u64) -> u64 {
        self.unread().filter(|id| id.author == author).count() as u64
    }

    /// Authors with unread posts, and their numbers.
    pub(crate) fn unread_by_author(&self) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for id in self.unread() {
            *counts.entry(id.author).or_default() += 1;
        }
        counts
    }

    /// The time of an author's newest post, of all or of the unread ones.
    pub(crate) fn newest_of(&self, author: u64, unread_only: bool) -> Option<i64> {
        let of_author = |item: &&Item| item.post.id.author == author && !(unread_only && item.read);
        self.items.iter().find(of_author).map(|item| item.post.at)
    }

    /// Marks a post read or unread. Returns the number of changed posts, as all marks do.
    pub fn mark(&mut self, id: PostId, read: bool) -> u64 {
        self.set(read, |post| post.id == id)
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
        for item in self.items.iter_mut().filter(|item| item.read != read && which(&item.post)) {
            item.read = read;
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
        let order: Vec<String> = reader.items.iter().map(|item| item.post.id.to_string()).collect();
        assert_eq!(order, ["10-3", "20-2", "10-2", "20-1", "10-1"]);
        assert_eq!(reader.unread_by_author(), BTreeMap::from([(10, 3), (20, 2)]));
        assert_eq!((reader.newest_of(20, false), reader.newest_of(30, false)), (Some(300), None));
    }

    #[test]
    fn reading_and_unreading_change_once() {
        let mut reader = reader();
        assert_eq!([id(10, 2), id(10, 2), id(99, 1)].map(|id| reader.mark(id, true)), [1, 0, 0]);
        assert_eq!((reader.unread_total(), reader.unread_of(10)), (4, 2));
        assert!(reader.items.iter().any(|item| item.post.id == id(10, 2) && item.read));
        assert_eq!([id(10, 2), id(10, 2)].map(|id| reader.mark(id, false)), [1, 0]);
        assert_eq!(reader.unread_total(), 5);
    }

    #[test]
    fn through_never_goes_back() {
        let mut reader = reader();
        assert_eq!(reader.through(10, 2), 2);
        assert_eq!(reader.mark(id(10, 1), false), 1);
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
