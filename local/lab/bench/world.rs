//! The loaded data: readers who follow the same authors and have read nothing since.

use std::collections::BTreeSet;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;
use tidemark::domain::{
    AuthorHead, AuthorState, Edge, FeedKey, PostId, ReadState, Seq, Timestamp, UserId,
    feed::{BACKFILL, FEED_CAP},
};

/// The time of the first post, in ms.
const START_MS: u64 = 1_720_000_000_000;
const DAY_MS: u64 = 86_400_000;
/// Posts of all authors together in a day.
const POSTS_A_DAY: usize = 100;
const STEP_MS: u64 = DAY_MS / POSTS_A_DAY as u64;
/// The largest number of an author's posts before the follow.
const MOST_EARLIER: u64 = 5_000;
/// One reader out of this number has a small id.
const SMALL_EVERY: usize = 4;

/// The number of authors that a reader follows, and of unread posts of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Shape {
    pub(super) authors: usize,
    pub(super) posts: u64,
}

/// The kind of the authors' ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Ids {
    /// Ids of at most eight digits.
    #[serde(rename = "up_to_10^8")]
    UpTo100Million,
    /// Ids above 2^53, which are the longest.
    #[serde(rename = "above_2^53")]
    Above2To53,
}

/// The time of the follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Followed {
    /// Before the authors' first post.
    FromTheFirstPost,
    /// After up to 5,000 posts. The newest 100 of them are shown as read.
    Later,
}

#[derive(Debug, Clone, Copy)]
struct Author {
    id: UserId,
    /// The number of posts before the follow.
    base: Seq,
}

/// Readers, authors and posts. They depend only on the seed.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) readers: Vec<UserId>,
    authors: Vec<Author>,
    /// Posts of each author since the follow.
    pub(super) posts_of_each: u64,
}

/// A reader's facts at one moment.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) edges: Vec<Edge>,
    pub(super) authors: Vec<(UserId, AuthorState)>,
    /// The newest entries of the feed up to the cap, oldest first.
    pub(super) entries: Vec<FeedKey>,
    /// The lowest of the entries, if the feed has more.
    pub(super) low: Option<FeedKey>,
}

impl World {
    pub(super) fn new(shape: Shape, ids: Ids, followed: Followed, readers: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let range = match ids {
            Ids::UpTo100Million => 1..=100_000_000,
            Ids::Above2To53 => (1 << 53) + 1..=u64::MAX,
        };
        let authors = distinct(shape.authors, || random.random_range(range.clone()));
        let authors = authors.into_iter().map(|id| Author {
            id,
            base: match followed {
                Followed::FromTheFirstPost => 0,
                Followed::Later => random.random_range(1..=MOST_EARLIER),
            },
        });
        let authors = authors.collect();
        let mut drawn = 0;
        let readers = distinct(readers, || {
            drawn += 1;
            if drawn % SMALL_EVERY == 0 { random.random_range(1..=1_000_000) } else { random.random() }
        });
        Self { readers, authors, posts_of_each: shape.posts }
    }

    /// The posts since the follow, in the order of time.
    pub(super) fn posts(&self) -> Vec<FeedKey> {
        self.turns(1..=self.posts_of_each as i64)
    }

    /// The time of the reads: after the last post.
    pub(super) fn now(&self) -> Timestamp {
        self.at(self.posts_of_each as i64 + 1, 0)
    }

    /// The longest possible feed: the newest posts, oldest first.
    pub(super) fn newest(&self) -> Vec<FeedKey> {
        let posts = self.posts();
        posts[posts.len().saturating_sub(FEED_CAP)..].to_vec()
    }

    /// The facts of this reader when each author has published this number of posts since the follow.
    pub(super) fn facts(&self, user: UserId, posts: u64) -> Facts {
        let edges: Vec<Edge> = self.authors.iter().map(|author| self.edge(user, author)).collect();
        let state = |(author, edge): (&Author, &Edge)| {
            let latest_seq = author.base + posts;
            let latest_at = if latest_seq == 0 { Timestamp::default() } else { self.at(posts as i64, 0) };
            let head = AuthorHead { latest_seq, latest_at, posts: latest_seq, ..AuthorHead::default() };
            (author.id, AuthorState::from_facts(edge, &head, &ReadState::default()))
        };
        let authors = self.authors.iter().zip(&edges).map(state).collect();
        let mut entries = self.turns(1 - BACKFILL as i64..=posts as i64);
        let older = entries.len().saturating_sub(FEED_CAP);
        entries.drain(..older);
        let low = entries.first().filter(|_| older > 0).copied();
        Facts { edges, authors, entries, low }
    }

    fn edge(&self, user: UserId, author: &Author) -> Edge {
        let since = self.at(1, 0);
        let head = AuthorHead { latest_seq: author.base, ..AuthorHead::default() };
        let rev = u32::try_from(since.seconds()).unwrap_or(u32::MAX);
        Edge { following: true, since, rev, base: author.base, floor: head.backfill_floor(), ..Edge::never(user, author.id) }
    }

    /// Authors publish in turns. Turn 1 is the first after the follow.
    fn turns(&self, turns: std::ops::RangeInclusive<i64>) -> Vec<FeedKey> {
        let post = |turn: i64, place: usize| {
            let Author { id, base } = self.authors[place];
            let seq = base.checked_add_signed(turn).filter(|seq| *seq > 0)?;
            Some(FeedKey { at: self.at(turn, place), post: PostId::new(id, seq) })
        };
        turns.flat_map(|turn| (0..self.authors.len()).filter_map(move |place| post(turn, place))).collect()
    }

    fn at(&self, turn: i64, place: usize) -> Timestamp {
        let turns = BACKFILL.saturating_add_signed(turn);
        Timestamp::from_ms(START_MS + (turns * self.authors.len() as u64 + place as u64) * STEP_MS)
    }
}

fn distinct(count: usize, mut draw: impl FnMut() -> u64) -> Vec<UserId> {
    let (mut seen, mut users) = (BTreeSet::new(), Vec::with_capacity(count));
    while users.len() < count {
        if let Some(user) = UserId::new(draw())
            && seen.insert(user)
        {
            users.push(user);
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Shape = Shape { authors: 3, posts: 5 };

    fn world(ids: Ids, followed: Followed) -> World {
        World::new(SMALL, ids, followed, 40, 7)
    }

    #[test]
    fn ids_are_distinct_of_their_kind_and_the_same_for_a_seed() {
        let (ordinary, large) = (world(Ids::UpTo100Million, Followed::Later), world(Ids::Above2To53, Followed::Later));
        assert!(ordinary.authors.iter().all(|author| author.id.get() <= 100_000_000));
        assert!(large.authors.iter().all(|author| author.id.get() > 1 << 53));
        let small = ordinary.readers.iter().filter(|reader| reader.get() <= 1_000_000).count();
        assert!((5..=15).contains(&small), "{small} of 40 readers have small ids");
        assert_eq!(ordinary.readers.iter().collect::<BTreeSet<_>>().len(), 40);
        assert_eq!(ordinary.readers, world(Ids::UpTo100Million, Followed::Later).readers);
        assert_ne!(ordinary.readers, World::new(SMALL, Ids::UpTo100Million, Followed::Later, 40, 8).readers);
    }

    #[test]
    fn all_posts_since_the_follow_are_unread_and_no_others() {
        for followed in [Followed::FromTheFirstPost, Followed::Later] {
            let world = world(Ids::UpTo100Million, followed);
            let unread = |facts: &Facts| facts.authors.iter().map(|(_, state)| state.unread()).collect::<Vec<_>>();
            assert_eq!(unread(&world.facts(world.readers[0], 0)), [0; 3]);
            let now = world.facts(world.readers[0], 5);
            assert_eq!(unread(&now), [5; 3]);
            let posts = world.posts();
            assert!(posts.is_sorted() && posts.len() == 15);
            assert!(now.entries.is_sorted() && now.entries.ends_with(&posts));
            let earlier = now.entries.len() - 15;
            assert_eq!(earlier > 0, followed == Followed::Later);
        }
    }

    #[test]
    fn a_cut_feed_has_its_lowest_entry() {
        let shape = Shape { authors: 10, posts: 150 };
        let world = World::new(shape, Ids::UpTo100Million, Followed::FromTheFirstPost, 1, 7);
        let facts = world.facts(world.readers[0], 150);
        assert_eq!((facts.entries.len(), facts.low), (FEED_CAP, Some(facts.entries[0])));
        assert_eq!(facts.entries, world.newest());
        let span = facts.entries[999].at.ms() - facts.entries[0].at.ms();
        assert_eq!((span + STEP_MS) / DAY_MS, 10, "ten days");
    }
}
