//! Generates the Redis data of the legacy systems from a seed, in every layout, with the expected result of the
//! migration.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use redis::{Cmd, cmd};
use tidemark_migrate::legacy::Layout;

/// 2025-06-01, in milliseconds since the epoch.
pub(super) const THEN: u64 = 1_748_736_000_000;

const DAY: u64 = 24 * 3600 * 1000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Blog {
    pub(super) at: u64,
    pub(super) id: u64,
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

/// The keys that contain a user's follows.
#[derive(Debug, Clone, Copy)]
enum Style {
    Following,
    UFollow,
    Fans,
    UFans,
    /// `u_follow`, `uf:fans` and `u_fans` with different times. The follower's own list takes precedence.
    Several,
    FeedAlone,
}

impl Legacy {
    /// Generates `count` users. A tenth of them are authors, and half of all users follow one common author.
    pub(super) fn generate(seed: u64, count: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut legacy = Self::default();
        let mut ids = BTreeSet::new();
        while ids.len() < count {
            ids.insert(if rng.random_bool(0.5) {
                rng.random_range(1_000..1_000 + 4 * count as u64)
            } else {
                rng.random_range(1..=u64::MAX)
            });
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
            self.add(Layout::AuthorBlogs, author, "SADD", &[blog.id.to_string()]);
            self.commands.push(info(author, blog));
        }
        self.blogs.insert(author, blogs.into_iter().collect());
    }

    /// A bitmap of the users whose ids fit into it.
    fn notice(&mut self, rng: &mut StdRng, platform: u16, notice: u64) {
        let dense = self.users.iter().copied().take_while(|user| *user < 1 << 20);
        let readers: BTreeSet<u64> = dense.filter(|_| rng.random_bool(0.3)).collect();
        for reader in &readers {
            let key = format!("notice:{platform}:{notice}");
            self.commands.push(cmd("SETBIT").arg(key).arg(reader).arg(1).to_owned());
        }
        self.notices.insert((platform, notice), readers);
    }

    fn user(&mut self, rng: &mut StdRng, user: u64, authors: &[u64]) {
        let styles = [Style::Following, Style::UFollow, Style::Fans, Style::UFans, Style::Several, Style::FeedAlone];
        let style = *styles.choose(rng).unwrap();
        let mut followed: BTreeSet<u64> = (0..rng.random_range(0..6)).map(|_| *authors.choose(rng).unwrap()).collect();
        if rng.random_bool(0.5) {
            followed.insert(authors[authors.len() - 1]);
        }
        followed.remove(&user);
        for author in followed {
            let since = THEN + rng.random_range(0..40 * DAY);
            let seconds = since / 1000;
            let pair = |at: u64, member: u64| [at.to_string(), member.to_string()];
            let kept = match style {
                Style::Following => {
                    self.add(Layout::Following, user, "ZADD", &pair(since, author));
                    since
                }
                Style::UFollow => {
                    self.add(Layout::UFollow, user, "ZADD", &pair(seconds, author));
                    seconds * 1000
                }
                Style::Fans => {
                    self.add(Layout::Fans, author, "ZADD", &pair(since, user));
                    since
                }
                Style::UFans => {
                    self.add(Layout::UFans, author, "ZADD", &pair(seconds, user));
                    seconds * 1000
                }
                Style::Several => {
                    self.add(Layout::UFollow, user, "ZADD", &pair(seconds, author));
                    self.add(Layout::Fans, author, "ZADD", &pair(since + 5_000, user));
                    self.add(Layout::UFans, author, "ZADD", &pair(seconds + 7, user));
                    seconds * 1000
                }
                Style::FeedAlone => match self.feed(rng, user, author) {
                    Some(oldest) => oldest,
                    None => continue,
                },
            };
            self.follows.insert((user, author), kept);
            self.marks(rng, user, author);
        }
        // The user has read a post of an author whom the user does not follow.
        let author = *authors.choose(rng).unwrap();
        if let Some(blog) = self.blogs.get(&author).and_then(|blogs| blogs.first()).map(|blog| blog.id) {
            self.mark_read(rng, user, blog);
        }
        if rng.random_bool(0.1) {
            self.commands.push(cmd("ZADD").arg(Layout::Feed.key(user)).arg(1).arg("0").to_owned());
        }
    }

    /// Puts some of the author's posts into the user's feed. Returns the oldest time.
    fn feed(&mut self, rng: &mut StdRng, user: u64, author: u64) -> Option<u64> {
        let blogs: Vec<Blog> = self.blogs.get(&author)?.iter().filter(|_| rng.random_bool(0.4)).take(50).cloned().collect();
        for blog in &blogs {
            self.add(Layout::Feed, user, "ZADD", &[blog.at.to_string(), blog.id.to_string()]);
        }
        blogs.iter().map(|blog| blog.at).min()
    }

    /// Marks posts read, unread, both, or neither. A post with neither mark does not count as unread.
    fn marks(&mut self, rng: &mut StdRng, user: u64, author: u64) {
        let blogs: Vec<u64> = self.blogs.get(&author).map(|blogs| blogs.iter().map(|blog| blog.id).collect()).unwrap_or_default();
        // Some readers have marked all of 700 posts, most readers only a few.
        let share = if blogs.len() < 50 || rng.random_bool(0.02) { 1.0 } else { 0.02 };
        for blog in blogs.into_iter().filter(|_| rng.random_bool(share)).collect::<Vec<_>>() {
            if rng.random_bool(0.4) {
                self.mark_read(rng, user, blog);
            }
            if rng.random_bool(0.3) {
                self.unread.entry((user, author)).or_default().insert(blog);
                let key = format!("user:unread:{user}:{author}");
                self.commands.push(cmd("SADD").arg(key).arg(blog).to_owned());
            }
        }
    }

    fn mark_read(&mut self, rng: &mut StdRng, user: u64, blog: u64) {
        self.read.entry(user).or_default().insert(blog);
        let old = rng.random_bool(0.3);
        if old {
            self.add(Layout::BlogRead, user, "ZADD", &["1.5".to_owned(), blog.to_string()]);
        }
        if !old || rng.random_bool(0.2) {
            self.add(Layout::UserRead, user, "SADD", &[blog.to_string()]);
        }
    }

    fn add(&mut self, layout: Layout, id: u64, command: &str, arguments: &[String]) {
        self.commands.push(cmd(command).arg(layout.key(id)).arg(arguments).to_owned());
    }

    pub(super) fn seqs(&self, author: u64) -> BTreeMap<u64, u64> {
        let blogs = self.blogs.get(&author).map(Vec::as_slice).unwrap_or_default();
        blogs.iter().zip(1..).map(|(blog, seq)| (blog.id, seq)).collect()
    }

    /// The expected number of unread posts of an author for a user.
    pub(super) fn unread_of(&self, user: u64, author: u64) -> BTreeSet<u64> {
        let seqs = self.seqs(author);
        let read = self.read.get(&user).cloned().unwrap_or_default();
        let unread = self.unread.get(&(user, author)).cloned().unwrap_or_default();
        unread.difference(&read).map(|blog| seqs[blog]).collect()
    }
}

/// `blog:info` of a blog.
pub(super) fn info(author: u64, blog: &Blog) -> Cmd {
    let mut info = cmd("HSET");
    info.arg(Layout::BlogInfo.key(blog.id)).arg("id").arg(blog.id).arg("userId").arg(author);
    info.arg("title").arg(title(blog.id)).arg("createTime").arg(blog.at).to_owned()
}

pub(super) fn title(blog: u64) -> String {
    format!("Blog {blog}")
}
