//! Generates the Redis data of the legacy systems from a seed, in every layout, with the expected result of the
//! migration.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use redis::{Cmd, cmd};
use tidemark_legacy::legacy::Layout;

use super::{command, zadd};

/// 2025-06-01, in milliseconds since the epoch.
pub(crate) const THEN: u64 = 1_748_736_000_000;

const DAY: u64 = 24 * 3600 * 1000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Blog {
    pub(crate) at: u64,
    pub(crate) id: u64,
}

/// The data that a test wrote to a legacy Redis.
#[derive(Debug, Default)]
pub(super) struct Legacy {
    pub(super) users: Vec<u64>,
    /// Blogs by author, in the order of their expected numbers.
    pub(super) blogs: BTreeMap<u64, Vec<Blog>>,
    /// The expected time of each edge, by follower and followee.
    pub(super) follows: BTreeMap<(u64, u64), u64>,
    pub(super) read: BTreeMap<u64, BTreeSet<u64>>,
    pub(super) unread: BTreeMap<(u64, u64), BTreeSet<u64>>,
    /// Readers by platform and notice.
    pub(super) notices: BTreeMap<(u16, u64), BTreeSet<u64>>,
    /// The commands that write the data.
    pub(super) commands: Vec<Cmd>,
}

/// The keys that contain a user's follows, and how many milliseconds later than the first key they have them.
const STYLES: [&[(Layout, u64)]; 6] = [
    &[(Layout::Following, 0)],
    &[(Layout::UFollow, 0)],
    &[(Layout::Fans, 0)],
    &[(Layout::UFans, 0)],
    // The follower's own list takes precedence.
    &[(Layout::UFollow, 0), (Layout::Fans, 5_000), (Layout::UFans, 7_000)],
    // The feed alone.
    &[],
];

impl Legacy {
    /// Generates `count` users. A tenth of them are authors, and half of all users follow one common author.
    pub(super) fn generate(seed: u64, count: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut legacy = Self::default();
        let mut ids = BTreeSet::new();
        while ids.len() < count {
            let range = if rng.random_bool(0.5) { 1_000..=999 + 4 * count as u64 } else { 1..=u64::MAX };
            ids.insert(rng.random_range(range));
        }
        legacy.users = ids.into_iter().collect();
        let users = legacy.users.clone();
        let authors: Vec<u64> = users[1..].iter().copied().filter(|_| rng.random_bool(0.1)).chain([users[0]]).collect();
        for &author in &authors {
            let blogs = if author == users[0] { 700 } else { rng.random_range(0..14) };
            legacy.write(&mut rng, author, blogs);
        }
        for &user in &users {
            legacy.user(&mut rng, user, &authors);
        }
        for platform in 1..=3 {
            for notice in [4, 57] {
                legacy.notice(&mut rng, platform, notice);
            }
        }
        legacy
    }

    fn write(&mut self, rng: &mut StdRng, author: u64, count: usize) {
        let mut blogs = BTreeSet::new();
        while blogs.len() < count {
            // Many blogs share a millisecond.
            let at = THEN + rng.random_range(0..60) * DAY / 2;
            blogs.insert(Blog { at, id: rng.random_range(1..=u64::MAX) });
        }
        for blog in &blogs {
            self.sadd(Layout::AuthorBlogs, author, blog.id);
            self.commands.push(info(author, blog));
        }
        self.blogs.insert(author, blogs.into_iter().collect());
    }

    /// A bitmap of the users whose ids fit into it.
    fn notice(&mut self, rng: &mut StdRng, platform: u16, notice: u64) {
        let dense = self.users.iter().copied().take_while(|user| *user < 1 << 20);
        let readers: BTreeSet<u64> = dense.filter(|_| rng.random_bool(0.3)).collect();
        for reader in &readers {
            self.commands.push(command(&format!("SETBIT notice:{platform}:{notice} {reader} 1")));
        }
        self.notices.insert((platform, notice), readers);
    }

    fn user(&mut self, rng: &mut StdRng, user: u64, authors: &[u64]) {
        let style = *STYLES.choose(rng).unwrap();
        let mut followed: BTreeSet<u64> = (0..rng.random_range(0..6)).map(|_| *authors.choose(rng).unwrap()).collect();
        if rng.random_bool(0.5) {
            followed.insert(authors[authors.len() - 1]);
        }
        followed.remove(&user);
        for author in followed {
            let since = THEN + rng.random_range(0..40 * DAY);
            let mut first = None;
            for &(layout, later) in style {
                let unit = if matches!(layout, Layout::UFollow | Layout::UFans) { 1_000 } else { 1 };
                let of_author = matches!(layout, Layout::Fans | Layout::UFans);
                let (owner, member) = if of_author { (author, user) } else { (user, author) };
                let at = (since + later) / unit;
                self.commands.push(zadd(layout, owner, at, member));
                first.get_or_insert(at * unit);
            }
            let Some(kept) = first.or_else(|| self.feed(rng, user, author)) else { continue };
            self.follows.insert((user, author), kept);
            self.marks(rng, user, author);
        }
        // The user has read a post of an author whom the user does not follow.
        let author = *authors.choose(rng).unwrap();
        if let Some(blog) = self.blogs.get(&author).and_then(|blogs| blogs.first()).map(|blog| blog.id) {
            self.mark_read(rng, user, blog);
        }
        if rng.random_bool(0.1) {
            self.commands.push(zadd(Layout::Feed, user, 1, 0));
        }
    }

    /// Puts some of the author's posts into the user's feed. Returns the oldest time.
    fn feed(&mut self, rng: &mut StdRng, user: u64, author: u64) -> Option<u64> {
        let blogs: Vec<Blog> = self.blogs.get(&author)?.iter().filter(|_| rng.random_bool(0.4)).take(50).cloned().collect();
        for blog in &blogs {
            self.commands.push(zadd(Layout::Feed, user, blog.at, blog.id));
        }
        // The follow began just before.
        blogs.iter().map(|blog| blog.at - 1).min()
    }

    /// Marks posts read, unread, both, or neither. A post with neither mark does not count as unread.
    fn marks(&mut self, rng: &mut StdRng, user: u64, author: u64) {
        let blogs: Vec<u64> = self.blogs.get(&author).into_iter().flatten().map(|blog| blog.id).collect();
        // Some readers have marked all of 700 posts, most readers only a few.
        let share = if blogs.len() < 50 || rng.random_bool(0.02) { 1.0 } else { 0.02 };
        for blog in blogs.into_iter().filter(|_| rng.random_bool(share)).collect::<Vec<_>>() {
            if rng.random_bool(0.4) {
                self.mark_read(rng, user, blog);
            }
            if rng.random_bool(0.3) {
                self.unread.entry((user, author)).or_default().insert(blog);
                self.commands.push(command(&format!("SADD user:unread:{user}:{author} {blog}")));
            }
        }
    }

    fn mark_read(&mut self, rng: &mut StdRng, user: u64, blog: u64) {
        self.read.entry(user).or_default().insert(blog);
        let old = rng.random_bool(0.3);
        if old {
            self.commands.push(command(&format!("ZADD {} 1.5 {blog}", Layout::BlogRead.key(user))));
        }
        if !old || rng.random_bool(0.2) {
            self.sadd(Layout::UserRead, user, blog);
        }
    }

    fn sadd(&mut self, layout: Layout, owner: u64, member: u64) {
        self.commands.push(command(&format!("SADD {} {member}", layout.key(owner))));
    }

    pub(super) fn seqs(&self, author: u64) -> BTreeMap<u64, u64> {
        self.blogs.get(&author).into_iter().flatten().zip(1..).map(|(blog, seq)| (blog.id, seq)).collect()
    }

    /// The expected number of unread posts of an author for a user.
    pub(super) fn unread_of(&self, user: u64, author: u64) -> BTreeSet<u64> {
        let (seqs, since) = (self.seqs(author), self.follows.get(&(user, author)).copied().unwrap_or(u64::MAX));
        let older = self.blogs.get(&author).into_iter().flatten().filter(|blog| blog.at <= since).map(|blog| blog.id);
        let older: BTreeSet<u64> = older.collect();
        let is_read = |blog: &u64| self.read.get(&user).is_some_and(|read| read.contains(blog));
        let unread = self.unread.get(&(user, author)).into_iter().flatten();
        unread.filter(|blog| !is_read(blog) && !older.contains(blog)).map(|blog| seqs[blog]).collect()
    }
}

pub(super) fn info(author: u64, blog: &Blog) -> Cmd {
    let mut info = cmd("HSET");
    info.arg(Layout::BlogInfo.key(blog.id)).arg("id").arg(blog.id).arg("userId").arg(author);
    info.arg("title").arg(title(blog.id)).arg("createTime").arg(blog.at).to_owned()
}

pub(super) fn title(blog: u64) -> String {
    format!("Blog {blog}")
}
