//! What a page knows of the newest posts of a feed, so that a poll finds posts that become visible below them.
//!
//! `created_at` is set before a post is visible. So a post may enter a feed below posts that a client has. A cursor
//! therefore contains the newest posts of the feed, each as a time and a hash.

use std::collections::BTreeSet;

use crate::{FeedKey, PostId, Timestamp, UserId};

/// A trail reaches back this far from the newest post: the ten minutes that are promised, and a minute for clocks that
/// disagree.
const LENGTH_MS: u64 = 11 * 60 * 1000;

/// A trail has at most this many posts. Two trails in a URL then take about 6,200 bytes. API Gateway accepts 10,240
/// bytes of request line and headers.
const MOST: usize = 384;

/// Bytes of a post in a cursor: 20 bits of time after `from`, then 28 bits of hash.
const POST_BYTES: usize = 6;
const HASH_BITS: u32 = 28;

const OF_FACTS: u64 = 1 << 63;

/// The posts of a feed from a time on, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trail {
    /// The trail knows which posts from this time on the feed had. It knows nothing of earlier posts.
    from: Timestamp,
    posts: BTreeSet<(Timestamp, u32)>,
    /// Whether the posts come from the facts.
    of_facts: bool,
}

/// The state of a feed when a first page was made. A later poll returns what has entered the feed since then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// Every later post is new.
    pub newest: FeedKey,
    /// A post from [`Trail::from`] on is new if it is missing here.
    pub trail: Trail,
}

impl Trail {
    /// Returns the trail of a feed with these posts, newest first, of which the feed shows all above `low`.
    pub fn of(posts: impl IntoIterator<Item = FeedKey>, low: Option<FeedKey>) -> Self {
        let mut trail = Self::default();
        for key in posts {
            if !trail.extend(&key) {
                break;
            }
        }
        if let Some(low) = low {
            trail.begin_after(low.at);
        }
        trail
    }

    /// Returns whether a trail may have a post that comes after so many others, in a feed with this newest time.
    pub fn may_have(others: usize, key: &FeedKey, newest_at: Timestamp) -> bool {
        others < MOST && key.at.plus_ms(LENGTH_MS) >= newest_at
    }

    /// Adds the next older post. Returns false if the trail ends above it.
    pub fn extend(&mut self, key: &FeedKey) -> bool {
        if self.posts.is_empty() {
            self.from = Timestamp::from_ms(key.at.ms().saturating_sub(LENGTH_MS)).max(self.from);
        }
        if self.posts.len() == MOST {
            self.begin_after(key.at);
        }
        let reaches = key.at >= self.from;
        if reaches {
            self.posts.insert(fingerprint(key));
        }
        reaches
    }

    /// Notes that the posts come from the facts. A view may still lack some of them, so the rest of the walk comes from
    /// the facts too.
    #[must_use]
    pub fn of_facts(self) -> Self {
        Self { of_facts: true, ..self }
    }

    pub fn is_of_facts(&self) -> bool {
        self.of_facts
    }

    pub fn from(&self) -> Timestamp {
        self.from
    }

    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Returns whether the feed had this post, as far as the trail reaches.
    pub fn allows(&self, key: &FeedKey) -> bool {
        key.at < self.from || self.contains(key)
    }

    /// Removes the posts that another trail has, and those after `upto`.
    #[must_use]
    pub fn without(mut self, other: Option<&Self>, upto: Timestamp) -> Self {
        self.posts.retain(|post| post.0 <= upto && !other.is_some_and(|other| other.posts.contains(post)));
        self
    }

    fn contains(&self, key: &FeedKey) -> bool {
        self.posts.contains(&fingerprint(key))
    }

    fn begin_after(&mut self, at: Timestamp) {
        self.from = self.from.max(at.plus_ms(1));
        self.posts = self.posts.split_off(&(self.from, 0));
    }

    /// Encodes the trail: eight bytes of `from`, of which the highest bit is set if the posts come from the facts, then
    /// the posts in ascending order.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let from = self.from.ms() | if self.of_facts { OF_FACTS } else { 0 };
        let mut bytes = from.to_be_bytes().to_vec();
        for (at, hash) in &self.posts {
            let post = (at.ms() - self.from.ms()) << HASH_BITS | u64::from(*hash);
            bytes.extend_from_slice(&post.to_be_bytes()[8 - POST_BYTES..]);
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (from, posts) = bytes.split_first_chunk::<8>()?;
        let from = u64::from_be_bytes(*from);
        let (of_facts, from) = (from & OF_FACTS != 0, from & !OF_FACTS);
        let (posts, []) = posts.as_chunks::<POST_BYTES>() else { return None };
        if from > Timestamp::MAX.ms() || posts.len() > MOST || !posts.is_sorted_by(|a, b| a < b) {
            return None;
        }
        let post = |bytes: &[u8; POST_BYTES]| {
            let post = bytes.iter().fold(0, |post, &byte| post << 8 | u64::from(byte));
            (Timestamp::from_ms(from + (post >> HASH_BITS)), (post & ((1 << HASH_BITS) - 1)) as u32)
        };
        Some(Self { from: Timestamp::from_ms(from), posts: posts.iter().map(post).collect(), of_facts })
    }
}

impl Since {
    /// Returns the state after a first page: what a client had `before` it, and what the feed has now. It never goes
    /// back, also if the newest post is deleted. It keeps posts that the feed lacks now, because they may come back.
    pub fn after(before: Option<&Self>, newest: Option<FeedKey>, mut trail: Trail) -> Self {
        let oldest = FeedKey { at: Timestamp::default(), post: PostId::new(UserId::MIN, 0) };
        let newest = newest.into_iter().chain(before.map(|before| before.newest)).max().unwrap_or(oldest);
        if let Some(Self { trail: known, .. }) = before {
            trail.from = trail.from.max(known.from);
            trail.posts.extend(&known.posts);
            trail.posts = trail.posts.split_off(&(trail.from, 0));
            if let Some(first_left_out) = trail.posts.iter().rev().nth(MOST).map(|post| post.0) {
                trail.begin_after(first_left_out);
            }
        }
        // A poll may begin with the view whatever the last one came from.
        trail.of_facts = false;
        Self { newest, trail }
    }

    /// Returns the state after a page of a walk from the oldest post on: a client had `before` it, and gets these posts
    /// with it, newest first. What is new then is what the walk has not returned. `newest_at` is the time of the feed's
    /// newest post: a post that becomes visible from now on is not much older. If the walk goes `on`, posts that are
    /// visible now, and newer than these, are still to be returned.
    pub fn walked(before: Option<&Self>, posts: &[FeedKey], newest_at: Timestamp, on: bool) -> Self {
        let mut from = Timestamp::from_ms(newest_at.ms().saturating_sub(LENGTH_MS));
        if let Some(newest) = posts.first().filter(|_| on) {
            from = from.min(newest.at);
        }
        let mut trail = Trail { from, ..Trail::default() };
        for key in posts {
            if !trail.extend(key) {
                break;
            }
        }
        Self::after(before, posts.first().copied(), trail)
    }

    /// Returns a time before which no post is new.
    pub fn begins_at(&self) -> Timestamp {
        self.newest.at.min(self.trail.from)
    }

    /// Returns whether a post has entered the feed since then.
    pub fn is_new(&self, key: &FeedKey) -> bool {
        *key > self.newest || (key.at >= self.trail.from && !self.trail.contains(key))
    }

    /// Returns whether no post at or below this place is new.
    pub fn ends_at(&self, key: &FeedKey) -> bool {
        *key <= self.newest && key.at < self.trail.from
    }
}

/// A post in a trail: its time, and 28 bits of a hash (FNV-1a) of its author and number. Two posts of one millisecond
/// are confused once in 268 million pairs.
fn fingerprint(key: &FeedKey) -> (Timestamp, u32) {
    let bytes = [key.post.author.get(), key.post.seq].map(u64::to_be_bytes);
    let hash = bytes.iter().flatten().fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (key.at, (hash ^ hash >> HASH_BITS) & ((1 << HASH_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    const START: u64 = 1_000_000_000;

    fn key(at: u64, author: u64) -> FeedKey {
        FeedKey { at: Timestamp::from_ms(START + at), post: PostId::new(UserId::new(author).unwrap(), 1) }
    }

    fn feed(posts: &BTreeSet<(u64, u64)>) -> impl Iterator<Item = FeedKey> {
        posts.iter().rev().map(|&(at, author)| key(at, author))
    }

    fn first_page(before: Option<&Since>, posts: &BTreeSet<(u64, u64)>) -> Since {
        Since::after(before, feed(posts).next(), Trail::of(feed(posts), None))
    }

    proptest! {
        /// Posts come and go within ten minutes below the newest one.
        #[test]
        fn chained_polls_list_each_post_once(
            rounds in proptest::collection::vec((btree_set((0..600_000_u64, 1..4_u64), 0..40), btree_set((0..600_000_u64, 1..4_u64), 0..40)), 1..8),
        ) {
            let mut posts = BTreeSet::from([(600_000, 1)]);
            let mut since = first_page(None, &posts);
            let mut listed: BTreeSet<FeedKey> = feed(&posts).collect();
            for (arriving, leaving) in rounds {
                posts.extend(arriving);
                posts.retain(|post| !leaving.contains(post));
                let new: Vec<FeedKey> = feed(&posts).filter(|key| since.is_new(key)).collect();
                for key in &new {
                    prop_assert!(listed.insert(*key), "twice: {:?}", key);
                }
                prop_assert!(feed(&posts).all(|key| listed.contains(&key)));
                let next = first_page(Some(&since), &posts);
                prop_assert!(next.newest >= since.newest && next.trail.from >= since.trail.from);
                prop_assert!(!new.is_empty() || next == since);
                prop_assert_eq!(Trail::from_bytes(&next.trail.to_bytes()), Some(next.trail.clone()));
                since = next;
            }
        }
    }

    proptest! {
        /// Posts arrive up to ten minutes below the newest one while a client walks from the oldest post on, and goes
        /// on with a poll.
        #[test]
        fn a_walk_from_the_oldest_post_lists_each_post_once(
            old in btree_set((0..5_000_000_u64, 1..4_u64), 0..40),
            rounds in proptest::collection::vec((btree_set((0..600_000_u64, 1..4_u64), 0..9), 0..600_000_u64), 1..12),
            limit in 1..6_usize,
        ) {
            let (mut posts, mut now) = (old, 5_000_000);
            let (mut since, mut listed): (Option<Since>, BTreeSet<FeedKey>) = Default::default();
            for (arriving, pause) in rounds {
                let left: Vec<FeedKey> =
                    feed(&posts).filter(|key| since.as_ref().is_none_or(|since| since.is_new(key))).collect();
                let page = &left[left.len().saturating_sub(limit)..];
                for key in page {
                    prop_assert!(since.as_ref().is_none_or(|since| key.at >= since.begins_at()));
                    prop_assert!(listed.insert(*key), "twice: {:?}", key);
                }
                let newest_at = feed(&posts).next().map_or(Timestamp::default(), |key| key.at);
                let next = Since::walked(since.as_ref(), page, newest_at, left.len() > limit);
                prop_assert!(feed(&posts).all(|key| next.is_new(&key) != listed.contains(&key)));
                since = Some(next);
                now += pause;
                posts.extend(arriving.into_iter().map(|(age, author)| (now - age, author)));
            }
        }
    }

    #[test]
    fn a_walk_from_the_oldest_post_keeps_late_posts_for_its_next_pages() {
        let (first, late) = (key(1_000_000, 1), [950_000, 960_000, 970_000].map(|at| key(at, 2)));
        let since = Since::walked(None, &[first], first.at, true);
        assert!(late.iter().all(|key| since.is_new(key)));
        // So much later that none of them would be new, if the walk had returned all.
        let newest = key(1_000_000 + LENGTH_MS, 3);
        let since = Since::walked(Some(&since), &late[..1], newest.at, true);
        assert_eq!([late[0], late[1], late[2], newest].map(|key| since.is_new(&key)), [false, true, true, true]);
        let since = Since::walked(Some(&since), &late[1..2], newest.at, true);
        assert_eq!([late[1], late[2], newest].map(|key| since.is_new(&key)), [false, true, true]);
    }

    #[test]
    fn a_trail_is_bounded_and_then_begins_later() {
        let posts: BTreeSet<(u64, u64)> = (0..1_000).map(|at| (at * 10, 1)).collect();
        let since = first_page(None, &posts);
        assert_eq!((since.trail.posts.len(), since.trail.from), (MOST, key(10 * (999 - MOST as u64) + 1, 1).at));
        assert!(feed(&posts).all(|key| !since.is_new(&key) && since.trail.allows(&key)));
        assert!(since.is_new(&key(9_995, 2)) && !since.is_new(&key(15, 2)), "it knows nothing of earlier posts");
        assert!(since.ends_at(&key(15, 2)) && !since.ends_at(&key(9_995, 2)));
        let more: BTreeSet<(u64, u64)> = (1_000..1_200).map(|at| (at * 10, 1)).collect();
        let next = first_page(Some(&since), &more);
        assert_eq!(next.trail.posts.len(), MOST);
        assert!(next.trail.to_bytes().len() * 4 / 3 < 3_100);
        // Many posts of one millisecond are all in the trail, or none is.
        let burst: BTreeSet<(u64, u64)> = (1..=500).map(|author| (0, author)).collect();
        assert!(first_page(None, &burst).trail.is_empty());
    }

    #[test]
    fn a_trail_of_an_empty_feed_and_a_feed_with_older_posts() {
        let empty = first_page(None, &BTreeSet::new());
        assert!(empty.is_new(&key(0, 1)));
        let trail = Trail::of([key(20, 1), key(10, 1)], Some(key(10, 1)));
        assert!(trail.allows(&key(10, 2)) && trail.allows(&key(20, 1)) && !trail.allows(&key(11, 2)));
        let rest = trail.without(None, key(19, 1).at);
        assert!(!rest.allows(&key(20, 1)) && rest.allows(&key(10, 1)));
    }

    #[test]
    fn damaged_bytes_are_rejected() {
        let bytes = Trail::of([key(20, 1), key(10, 1)], None).to_bytes();
        assert!(Trail::from_bytes(&bytes).is_some());
        let mut swapped = bytes.clone();
        swapped[8..].rotate_left(POST_BYTES);
        let too_many = [&bytes[..8], &[0; POST_BYTES * (MOST + 1)]].concat();
        for damaged in [&bytes[1..], &bytes[..7], &swapped, &too_many, &[0xff; 8]] {
            assert_eq!(Trail::from_bytes(damaged), None, "{damaged:?}");
        }
    }
}
