//! The system as a plain program in memory: what every answer must be once nothing is queued.

use std::collections::{BTreeMap, BTreeSet};

/// A post's author and sequence number.
pub type Post = (u64, u64);

/// A reaction to a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `…/like`.
    Like,
    /// `…/favorite`.
    Favorite,
}

/// How many posts from before a follow a feed shows.
const BACKLOG: usize = 100;

#[derive(Debug, Clone)]
struct Author {
    latest: u64,
    live: BTreeSet<u64>,
}

#[derive(Debug, Clone)]
struct Follow {
    base: u64,
    floor: u64,
}

/// Everybody's follows, posts and marks.
#[derive(Debug, Clone, Default)]
pub struct Model {
    authors: BTreeMap<u64, Author>,
    follows: BTreeMap<(u64, u64), Follow>,
    read: BTreeSet<(u64, Post)>,
    through: BTreeMap<(u64, u64), u64>,
    reactions: BTreeSet<(u64, Post, Kind)>,
    /// Every live post in the order of publication.
    order: Vec<Post>,
}

impl Model {
    /// `user` follows `author` from now on.
    pub fn follow(&mut self, user: u64, author: u64) {
        if user == author || self.follows.contains_key(&(user, author)) {
            return;
        }
        let posts = self.authors.get(&author);
        let base = posts.map_or(0, |posts| posts.latest);
        let shown: Vec<u64> = posts.map(|posts| posts.live.iter().rev().take(BACKLOG + 1).copied().collect()).unwrap_or_default();
        let floor = shown.get(BACKLOG).copied().unwrap_or(0);
        self.follows.insert((user, author), Follow { base, floor });
    }

    /// `user` does not follow `author` any more.
    pub fn unfollow(&mut self, user: u64, author: u64) {
        self.follows.remove(&(user, author));
    }

    /// `author` publishes; the sequence number.
    pub fn publish(&mut self, author: u64) -> u64 {
        let posts = self.authors.entry(author).or_insert(Author { latest: 0, live: BTreeSet::new() });
        posts.latest += 1;
        posts.live.insert(posts.latest);
        self.order.push((author, posts.latest));
        posts.latest
    }

    /// A post is deleted.
    pub fn delete(&mut self, post: Post) {
        if let Some(posts) = self.authors.get_mut(&post.0) {
            posts.live.remove(&post.1);
        }
        self.order.retain(|known| *known != post);
    }

    /// `user` marks a post read, or unread again.
    pub fn mark(&mut self, user: u64, post: Post, read: bool) {
        if self.is_live(post) {
            if read {
                self.read.insert((user, post))
            } else {
                self.read.remove(&(user, post))
            };
        }
    }

    /// `user` marks an author through a sequence number.
    pub fn through(&mut self, user: u64, author: u64, seq: u64) {
        let seq = seq.min(self.authors.get(&author).map_or(0, |posts| posts.latest));
        let mark = self.through.entry((user, author)).or_insert(0);
        if seq >= *mark {
            *mark = seq;
            self.read.extend((1..=seq).map(|seq| (user, (author, seq))));
        }
    }

    /// `user` marks everything there is read.
    pub fn all(&mut self, user: u64) {
        for author in self.following(user) {
            if self.unread_of(user, author) > 0 {
                self.through(user, author, u64::MAX);
            }
        }
    }

    /// `user` gives a reaction to a live post, or takes it back.
    pub fn react(&mut self, user: u64, post: Post, kind: Kind, given: bool) {
        if self.is_live(post) {
            self.react_before_deletion(user, post, kind, given);
        }
    }

    /// The same when the post may have been deleted right after it.
    pub fn react_before_deletion(&mut self, user: u64, post: Post, kind: Kind, given: bool) {
        if given {
            self.reactions.insert((user, post, kind))
        } else {
            self.reactions.remove(&(user, post, kind))
        };
    }

    /// Whether `user` has reacted to the post.
    pub fn has_reacted(&self, user: u64, post: Post, kind: Kind) -> bool {
        self.reactions.contains(&(user, post, kind))
    }

    /// How many have reacted to the post.
    pub fn reactions_to(&self, post: Post, kind: Kind) -> usize {
        self.reactions.iter().filter(|(_, of, known)| *of == post && *known == kind).count()
    }

    /// How many reactions `author` has received, those to posts deleted since included.
    pub fn received(&self, author: u64, kind: Kind) -> usize {
        self.reactions.iter().filter(|(_, of, known)| of.0 == author && *known == kind).count()
    }

    /// How many live posts `author` has.
    pub fn posts(&self, author: u64) -> usize {
        self.authors.get(&author).map_or(0, |posts| posts.live.len())
    }

    /// Whether the post exists.
    pub fn is_live(&self, post: Post) -> bool {
        self.authors.get(&post.0).is_some_and(|posts| posts.live.contains(&post.1))
    }

    /// The author's last sequence number.
    pub fn latest(&self, author: u64) -> u64 {
        self.authors.get(&author).map_or(0, |posts| posts.latest)
    }

    /// Whom `user` follows.
    pub fn following(&self, user: u64) -> Vec<u64> {
        self.follows.keys().filter(|(follower, _)| *follower == user).map(|(_, author)| *author).collect()
    }

    /// How many follow `author`.
    pub fn followers(&self, author: u64) -> usize {
        self.follows.keys().filter(|(_, followee)| *followee == author).count()
    }

    /// The feed of `user`, newest first: post and whether it is read.
    pub fn feed(&self, user: u64) -> Vec<(Post, bool)> {
        let shown = |post: &&Post| self.follows.get(&(user, post.0)).is_some_and(|follow| post.1 > follow.floor);
        self.order.iter().rev().filter(shown).map(|&post| (post, !self.is_unread(user, post))).collect()
    }

    /// The live posts of `author`, whom `user` follows, newest first: post and whether it is read.
    pub fn timeline(&self, user: u64, author: u64) -> Vec<(Post, bool)> {
        let live = self.authors.get(&author).into_iter().flat_map(|posts| posts.live.iter().rev());
        live.map(|&seq| ((author, seq), !self.is_unread(user, (author, seq)))).collect()
    }

    /// Whether the post counts as unread for `user`.
    pub fn is_unread(&self, user: u64, post: Post) -> bool {
        let follow = self.follows.get(&(user, post.0));
        self.is_live(post) && follow.is_some_and(|follow| post.1 > follow.base) && !self.read.contains(&(user, post))
    }

    /// The unread count of one author.
    pub fn unread_of(&self, user: u64, author: u64) -> u64 {
        (1..=self.latest(author)).filter(|&seq| self.is_unread(user, (author, seq))).count() as u64
    }

    /// The unread total.
    pub fn unread_total(&self, user: u64) -> u64 {
        self.following(user).into_iter().map(|author| self.unread_of(user, author)).sum()
    }
}
