//! The state of one followed author in a view: the posts that are delivered, read and deleted.
//!
//! This is the value of one field of the reader state hash. `shared/views/src/lua/codec.lua` shares the layout. All
//! numbers are little-endian:
//!
//! | bytes | name | meaning |
//! |---|---|---|
//! | 1 | flags | 1 live (else a tombstone), 2 opening (its facts are not merged yet), 4 bitmaps follow, 8 modes follow, 16 older posts follow, 32 muted, 64 lists follow, 128 a preference follows |
//! | 4 | rev | revision of the follow edge |
//! | 4 | version | version of the read state that `read` comes from |
//! | 4 | deletions | greatest known number of the author's deletions |
//! | 4 | floor | posts up to it are not shown |
//! | 4 | base / 8 | every post up to `base` is read or deleted, except the older posts; `read` and `deleted` begin after it |
//! | 4 | through | every post up to it is delivered, or needs no delivery |
//! | 6 | newest_at | time of the newest delivered post, ms |
//! | 4, 4, 4, 4 | modes | with flag 8: changes and pulled, see [`Modes`]; seq and deletions, see [`PullCursor`] |
//! | 4, 4 | older | with flag 16: the number of unread posts up to `horizon`, and `horizon`; the view does not know which posts these are |
//! | 1, 4 … | lists | with flag 64: how many, and the numbers of the reader's lists that have the author |
//! | 1 | preference | with flag 128: from -10 to 10, not 0 |
//! | 3, 3 | lengths | with flag 4: bytes of `tail` and of `read`; `deleted` takes the rest |
//! | … | bitmaps | with flag 4: delivered bits from the byte of `through + 1` on, read, deleted |
//!
//! A value has 31 bytes while posts are pushed, arrive in order and are read from the oldest on, independent of their
//! number. It then fits a listpack entry, which has 64 bytes at most. [`AuthorState::bounded`] limits `read` and
//! `deleted`, however old the oldest unread post is: older posts are only counted.

use std::{cmp::Ordering, collections::BTreeSet};

use crate::{AuthorHead, DeliveryMode, Edge, Modes, ReadState, Seq, Timestamp, bitmap::Bitmap};

const LIVE: u8 = 1;
const OPENING: u8 = 2;
const BITMAPS: u8 = 4;
const MODES: u8 = 8;
const OLDER: u8 = 16;
const MUTED: u8 = 32;
const LISTS: u8 = 64;
const PREFERENCE: u8 = 128;
const HEADER: usize = 31;

/// A state with more than `CUT_AT` bits is cut to the bits of `WINDOW` posts, more than a whole feed stores.
const WINDOW: u64 = 2_048;
const CUT_AT: u64 = 2 * WINDOW;

/// The number of posts by which a read state may exceed the head's latest post: it was read later than the head.
const LATER: u64 = 8_192;

/// The part of a pulled author's head that the view has merged, feed entries included. The other fields do not imply
/// it: pushed, read or retracted posts count as delivered, even if the view lacks pulled posts before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullCursor {
    /// The view has every pulled post up to this number.
    pub seq: Seq,
    /// The head's number of deletions. The view has all of them.
    pub deletions: u32,
}

/// The state of one followed author in one reader's view. The table above has the meanings of the fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthorState {
    pub live: bool,
    pub opening: bool,
    /// The reader mutes the author: feeds and counts leave the author out. Deliveries set bits and store no entries.
    pub muted: bool,
    pub lists: BTreeSet<u32>,
    pub preference: i8,
    pub rev: u32,
    pub version: u32,
    pub deletions: u32,
    pub floor: Seq,
    pub base: Seq,
    pub older: u32,
    pub horizon: Seq,
    pub newest_at: Timestamp,
    pub through: Seq,
    pub modes: Modes,
    /// Zero while posts were always pushed.
    pub pull_cursor: PullCursor,
    /// Delivered bits from the byte of `through + 1` on. The bits up to `through` have no meaning.
    pub tail: Bitmap,
    pub read: Bitmap,
    pub deleted: Bitmap,
}

impl AuthorState {
    /// Returns the state that the facts imply if every post up to the head is delivered.
    pub fn from_facts(edge: &Edge, head: &AuthorHead, reads: &ReadState) -> Self {
        let all = PullCursor { seq: head.latest_seq, deletions: head.deletions() };
        let state = Self {
            opening: false,
            through: head.latest_seq.max(edge.base),
            pull_cursor: if head.modes.is_push_alone() { PullCursor::default() } else { all },
            ..Self::undelivered(edge, head, reads)
        };
        debug_assert!(state.counts_unread(edge, head, reads), "{state:?} of {edge:?}, {head:?}, {reads:?}");
        state
    }

    /// V2: returns whether exactly those posts after the follow count as unread that are neither read nor deleted.
    pub(super) fn counts_unread(&self, edge: &Edge, head: &AuthorHead, reads: &ReadState) -> bool {
        let settled = reads.read.union(&head.deleted);
        self.unread_seqs().eq(settled.absent_between(edge.base, head.latest_seq))
    }

    /// Returns the state with which a follow opens the gate: no post after the follow is delivered or read.
    pub fn opening(edge: &Edge) -> Self {
        Self {
            live: true,
            opening: true,
            muted: edge.muted.is_some(),
            lists: edge.lists.clone(),
            preference: edge.preference,
            rev: edge.rev,
            floor: edge.floor,
            base: edge.base / 8 * 8,
            through: edge.base,
            read: Bitmap::ones(edge.base % 8),
            ..Self::default()
        }
    }

    /// Returns the state of a reader's own posts in the reader's feed: it shows all of them, and they are read.
    pub fn own(head: &AuthorHead) -> Self {
        Self {
            live: true,
            base: head.latest_seq / 8 * 8,
            through: head.latest_seq,
            newest_at: head.latest_at,
            read: Bitmap::ones(head.latest_seq % 8),
            ..Self::default()
        }
    }

    /// The same as [`AuthorState::from_facts`], but without a claim about deliveries (`opening` is set). A change of
    /// read state is merged into a view in this form, because the view has its own deliveries.
    pub fn undelivered(edge: &Edge, head: &AuthorHead, reads: &ReadState) -> Self {
        let latest = head.latest_seq.max(edge.base);
        let settled = reads.read.union(&head.deleted).contiguous_above(edge.base).min(latest);
        let base = settled / 8 * 8;
        // Reads are not cut at the head's latest post: the head may be older. A mark of a post that it does not know
        // yet must stay, because the state has the version of `reads`.
        let bits = |seqs: &mut dyn Iterator<Item = Seq>| {
            let mut bitmap = Bitmap::default();
            seqs.take_while(|&seq| seq <= latest + LATER).for_each(|seq| bitmap.set(seq - base - 1));
            bitmap
        };
        Self {
            version: reads.version,
            deletions: head.deletions(),
            base,
            newest_at: head.latest_at,
            modes: head.modes,
            through: base,
            read: bits(&mut (base + 1..=edge.base).chain(reads.read.above(base.max(edge.base)))),
            deleted: bits(&mut head.deleted.above(base)),
            ..Self::opening(edge)
        }
    }

    fn pulls(&self) -> bool {
        self.modes.current() == DeliveryMode::Pull
    }

    /// Returns the newest delivered post that is not deleted; `None` if the state does not know it, because that post
    /// is so old that it is only counted.
    pub fn newest_live(&self) -> Option<Seq> {
        let newest = self.newest_delivered();
        if self.deletions == 0 {
            return Some(newest);
        }
        (self.base + 1..=newest).rev().find(|&seq| self.is_delivered(seq) && !self.deleted.get(seq - self.base - 1))
    }

    /// Returns the state after the delivery of every post up to this one.
    #[must_use]
    pub fn delivered_upto(mut self, seq: Seq) -> Self {
        self.through = self.newest_delivered().max(seq);
        self.tail = Bitmap::default();
        self
    }

    /// Returns whether a read has to compare the author's head: the author is pulled, or pulled posts are missing.
    pub fn asks(&self) -> bool {
        self.pulls() || self.modes.pulled > self.pull_cursor.seq
    }

    /// Returns the greatest sequence number that counts as delivered.
    pub fn newest_delivered(&self) -> Seq {
        self.tail.end().map_or(self.through, |bits| self.through.max(self.through / 8 * 8 + bits))
    }

    /// Returns whether the state [asks](Self::asks), and the head has something that it lacks.
    pub fn is_behind(&self, head: &AuthorHead) -> bool {
        let Self { pull_cursor, modes, .. } = self;
        let news =
            head.latest_seq > pull_cursor.seq || head.deletions() > pull_cursor.deletions || head.modes.changes > modes.changes;
        modes.pulled > pull_cursor.seq || (self.pulls() && news)
    }

    /// Returns whether this state knows something that the head does not. The head is then outdated.
    pub fn is_ahead_of(&self, head: &AuthorHead) -> bool {
        let (modes, latest) = (head.modes, head.latest_seq);
        self.modes.changes > modes.changes
            || self.modes.pulled > modes.pulled
            || self.pull_cursor.seq > latest
            || self.deletions > head.deletions()
    }

    pub fn is_delivered(&self, seq: Seq) -> bool {
        seq <= self.through || self.tail.get(seq - 1 - self.through / 8 * 8)
    }

    /// Returns whether the post counts as unread: delivered, not read, not deleted.
    pub fn is_unread(&self, seq: Seq) -> bool {
        self.index(seq).is_some_and(|i| !self.read.get(i) && !self.deleted.get(i)) && self.is_delivered(seq)
    }

    /// Returns whether the post will not count as unread: it is read, deleted, or from before the follow.
    pub fn is_settled(&self, seq: Seq) -> bool {
        self.index(seq).is_none_or(|i| self.read.get(i) || self.deleted.get(i))
    }

    /// Returns whether the feed shows the post: delivered, above the floor, not deleted.
    pub fn shows(&self, seq: Seq) -> bool {
        seq > self.floor && self.is_delivered(seq) && !self.index(seq).is_some_and(|i| self.deleted.get(i))
    }

    /// Returns whether the state knows if the post is unread. It does not for posts that it only counts.
    pub fn knows(&self, seq: Seq) -> bool {
        self.older == 0 || seq > self.horizon
    }

    /// Returns how many posts count as unread.
    pub fn unread(&self) -> u64 {
        let (first, edge) = (self.base / 8, self.through / 8);
        // Whole bytes up to `through` are delivered, so only their settled bits have to be counted.
        let settled = |byte: u64| u64::from(self.settled_byte((byte - first) as usize).count_ones());
        let looked = edge.min(first + self.read.as_bytes().len().max(self.deleted.as_bytes().len()) as u64);
        let whole = 8 * edge.saturating_sub(first) - (first..looked).map(settled).sum::<u64>();
        let rest: u64 = self.bytes().filter(|&i| i >= edge).map(|i| u64::from(self.unread_byte(i).count_ones())).sum();
        u64::from(self.older) + whole + rest
    }

    /// Returns the state without exact bits for posts far below its end. It keeps only the number of unread posts among
    /// them. So a view stays small, and a delivery takes the same time, however old the oldest unread post is.
    /// `bounded` in `shared/views/src/lua/codec.lua` does the same.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let length = self.read.as_bytes().len().max(self.deleted.as_bytes().len());
        if length as u64 * 8 <= CUT_AT {
            return self;
        }
        let mut cut = length - (WINDOW / 8) as usize;
        let unread: u32 = (0..cut).map(|i| self.settled_byte(i).count_zeros()).sum();
        self.older = self.older.saturating_add(unread);
        self.horizon = self.base + cut as u64 * 8;
        while cut < length && self.settled_byte(cut) == 0xff {
            cut += 1;
        }
        self.base += cut as u64 * 8;
        self.read = Bitmap::from_bytes(self.read.as_bytes().get(cut..).unwrap_or_default());
        self.deleted = Bitmap::from_bytes(self.deleted.as_bytes().get(cut..).unwrap_or_default());
        if self.through < self.base {
            let skipped = (self.base / 8 - self.through / 8) as usize;
            self.tail = Bitmap::from_bytes(self.tail.as_bytes().get(skipped..).unwrap_or_default());
            self.through = self.base;
        }
        self
    }

    /// Returns the posts that count as unread, newest first.
    pub fn unread_seqs(&self) -> impl Iterator<Item = Seq> + '_ {
        self.bytes().rev().flat_map(move |i| {
            let byte = self.unread_byte(i);
            (0..8).rev().filter(move |bit| byte >> bit & 1 == 1).map(move |bit| i * 8 + bit + 1)
        })
    }

    /// Writes the layout above.
    pub fn encode(&self) -> Vec<u8> {
        let bitmaps = [&self.tail, &self.read, &self.deleted].map(Bitmap::as_bytes);
        let some = bitmaps.iter().any(|bitmap| !bitmap.is_empty());
        let modes = !self.modes.is_push_alone();
        let flags = [
            (self.live, LIVE),
            (self.opening, OPENING),
            (some, BITMAPS),
            (modes, MODES),
            (self.older > 0, OLDER),
            (self.muted, MUTED),
            (!self.lists.is_empty(), LISTS),
            (self.preference != 0, PREFERENCE),
        ];
        let mut bytes = vec![flags.iter().map(|(set, flag)| u8::from(*set) * flag).sum()];
        let numbers = [self.rev, self.version, self.deletions, clamp(self.floor), clamp(self.base / 8), clamp(self.through)];
        bytes.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        bytes.extend_from_slice(&self.newest_at.ms().to_le_bytes()[..6]);
        if modes {
            let PullCursor { seq, deletions } = self.pull_cursor;
            let numbers = [self.modes.changes, clamp(self.modes.pulled), clamp(seq), deletions];
            bytes.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        }
        if self.older > 0 {
            bytes.extend([self.older, clamp(self.horizon)].into_iter().flat_map(u32::to_le_bytes));
        }
        if !self.lists.is_empty() {
            // A user has fewer lists.
            bytes.push(u8::try_from(self.lists.len()).unwrap_or(u8::MAX));
            bytes.extend(self.lists.iter().take(u8::MAX.into()).flat_map(|list| list.to_le_bytes()));
        }
        if self.preference != 0 {
            bytes.extend_from_slice(&self.preference.to_le_bytes());
        }
        if some {
            for bitmap in &bitmaps[..2] {
                bytes.extend_from_slice(&clamp(bitmap.len() as u64).to_le_bytes()[..3]);
            }
            bytes.extend_from_slice(&bitmaps.concat());
        }
        bytes
    }

    /// Reads the layout above; `None` if the bytes do not have it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let small = |range| u32::try_from(number(&header[range])).unwrap_or(u32::MAX);
        let (modes, rest) = rest.split_at_checked(if header[0] & MODES == 0 { 0 } else { 4 * 4 })?;
        let mut modes = modes.chunks_exact(4).map(number);
        let mut next = || modes.next().unwrap_or_default();
        let (changes, pulled, asked, asked_deletions) = (next(), next(), next(), next());
        let (older, rest) = rest.split_at_checked(if header[0] & OLDER == 0 { 0 } else { 2 * 4 })?;
        let mut older = older.chunks_exact(4).map(number);
        let (older, horizon) = (older.next().unwrap_or_default(), older.next().unwrap_or_default());
        let (lists, rest) = match rest.split_first() {
            Some((&count, rest)) if header[0] & LISTS != 0 => rest.split_at_checked(usize::from(count) * 4)?,
            _ => rest.split_at(0),
        };
        let (preference, rest) = rest.split_at_checked(usize::from(header[0] & PREFERENCE != 0))?;
        if header[0] & BITMAPS == 0 && !rest.is_empty() {
            return None;
        }
        let [tail, read, deleted] = if rest.is_empty() {
            [rest; 3]
        } else {
            let (lengths, rest) = rest.split_at_checked(2 * 3)?;
            let (tail, rest) = rest.split_at_checked(number(&lengths[..3]) as usize)?;
            let (read, deleted) = rest.split_at_checked(number(&lengths[3..]) as usize)?;
            [tail, read, deleted]
        };
        Some(Self {
            live: header[0] & LIVE != 0,
            opening: header[0] & OPENING != 0,
            muted: header[0] & MUTED != 0,
            lists: lists.chunks_exact(4).map(|list| clamp(number(list))).collect(),
            preference: preference.first().map_or(0, |byte| i8::from_le_bytes([*byte])),
            rev: small(1..5),
            version: small(5..9),
            deletions: small(9..13),
            floor: number(&header[13..17]),
            base: number(&header[17..21]) * 8,
            older: clamp(older),
            horizon,
            through: number(&header[21..25]),
            newest_at: Timestamp::from_ms(number(&header[25..31])),
            modes: Modes { changes: clamp(changes), pulled },
            pull_cursor: PullCursor { seq: asked, deletions: clamp(asked_deletions) },
            tail: Bitmap::from_bytes(tail),
            read: Bitmap::from_bytes(read),
            deleted: Bitmap::from_bytes(deleted),
        })
    }

    fn index(&self, seq: Seq) -> Option<u64> {
        (seq > self.base).then(|| seq - self.base - 1)
    }

    /// Returns the bytes in which a post may be unread, counted from sequence number 1.
    fn bytes(&self) -> std::ops::Range<u64> {
        let first = self.base / 8;
        first..self.through.div_ceil(8).max(self.through / 8 + self.tail.as_bytes().len() as u64).max(first)
    }

    fn unread_byte(&self, byte: u64) -> u8 {
        let edge = self.through / 8;
        let delivered = match byte.cmp(&edge) {
            Ordering::Less => 0xff,
            Ordering::Equal => ((1 << (self.through % 8)) - 1) | self.tail.byte(0),
            Ordering::Greater => self.tail.byte((byte - edge) as usize),
        };
        delivered & !self.settled_byte((byte - self.base / 8) as usize)
    }

    /// Returns read or deleted bits. `index` counts bytes from `base`.
    fn settled_byte(&self, index: usize) -> u8 {
        self.read.byte(index) | self.deleted.byte(index)
    }
}

/// A little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::btree_set, prelude::*};

    use super::*;
    use crate::{SeqSet, UserId};

    fn edge(base: Seq, floor: Seq) -> Edge {
        let user = |id| UserId::new(id).unwrap();
        Edge { following: true, rev: 7, base, floor, ..Edge::never(user(1), user(2)) }
    }

    #[test]
    fn own_posts_are_shown_and_read() {
        for latest_seq in [0, 1, 8, 21] {
            let own = AuthorState::own(&AuthorHead { latest_seq, ..AuthorHead::default() });
            assert!((1..=latest_seq).all(|seq| own.shows(seq) && own.knows(seq) && !own.is_unread(seq)), "{own:?}");
            assert_eq!((own.unread(), own.shows(latest_seq + 1)), (0, false), "{own:?}");
        }
    }

    proptest! {
        #[test]
        fn facts_imply_exactly_the_live_posts_after_the_follow_that_are_not_read(
            base in 0..60u64, new in 0..80u64, changes in 0..3u32, preference in -10..=10i8,
            read in btree_set(1..140u64, 0..60), deleted in btree_set(1..140u64, 0..40),
        ) {
            let latest = base + new;
            let deleted: BTreeSet<u64> = deleted.into_iter().filter(|&s| s <= latest).collect();
            let head = AuthorHead {
                latest_seq: latest, latest_at: Timestamp::from_ms(5), posts: 0, deleted: deleted.iter().copied().collect(),
                modes: Modes { changes, pulled: latest / 2 * u64::from(changes.min(1)) },
                ..Default::default()
            };
            let reads = ReadState { version: 3, read: read.iter().copied().filter(|&s| s <= latest).collect::<SeqSet>(), ..ReadState::default() };
            let state = AuthorState::from_facts(&Edge { preference, ..edge(base, 0) }, &head, &reads);
            let expected: Vec<u64> = (base + 1..=latest).rev().filter(|s| !read.contains(s) && !deleted.contains(s)).collect();
            prop_assert_eq!(state.unread_seqs().collect::<Vec<_>>(), expected.clone());
            prop_assert!(state.counts_unread(&edge(base, 0), &head, &reads));
            prop_assert_eq!(state.unread(), expected.len() as u64);
            for seq in 1..=latest + 20 {
                prop_assert_eq!(state.is_unread(seq), expected.contains(&seq));
                if seq > state.base { prop_assert_eq!(state.shows(seq), seq <= latest && !deleted.contains(&seq)); }
            }
            prop_assert_eq!(AuthorState::decode(&state.encode()).unwrap(), state);
        }
    }

    #[test]
    fn a_hundred_and_fifty_unread_posts_fit_a_listpack_entry() {
        let head = AuthorHead { latest_seq: 150, ..Default::default() };
        let state = AuthorState::from_facts(&edge(0, 0), &head, &ReadState::default());
        assert_eq!(state.unread(), 150);
        assert_eq!(state.encode().len(), 31);
    }

    #[test]
    fn the_newest_live_post_is_known_unless_it_is_only_counted() {
        let head =
            |deleted: std::ops::Range<u64>| AuthorHead { latest_seq: 20, deleted: deleted.collect(), ..Default::default() };
        let state = |deleted, reads: &ReadState| AuthorState::from_facts(&edge(0, 0), &head(deleted), reads);
        let nothing = ReadState::default();
        assert_eq!(state(1..1, &nothing).newest_live(), Some(20));
        assert_eq!(state(15..21, &nothing).newest_live(), Some(14));
        let mut partly = AuthorState { through: 10, tail: Bitmap::default(), ..state(9..11, &nothing) };
        partly.tail.set(5);
        assert_eq!((partly.newest_delivered(), partly.newest_live()), (14, Some(14)));
        partly.deleted.set(13);
        assert_eq!((partly.newest_live(), partly.unread()), (Some(8), 8));
        let all = partly.delivered_upto(20);
        assert_eq!((all.newest_live(), all.unread()), (Some(20), 17));
        let mut reads = ReadState { version: 1, ..Default::default() };
        reads.read.insert_range(2, 9_000);
        let head = AuthorHead { latest_seq: 9_001, deleted: [9_001].into_iter().collect(), ..Default::default() };
        let counted = AuthorState::from_facts(&edge(0, 0), &head, &reads).bounded();
        assert_eq!((counted.unread(), counted.newest_live()), (1, None));
    }

    #[test]
    fn a_mark_of_a_post_that_the_head_does_not_know_yet_is_kept() {
        // The head was read before the post was published. The reads were read after the post was marked.
        let head = AuthorHead { latest_seq: 4, ..Default::default() };
        let reads = ReadState { version: 2, read: [5].into_iter().collect(), ..ReadState::default() };
        let mut state = AuthorState::from_facts(&edge(0, 0), &head, &reads);
        state.through = 5;
        assert!(!state.is_unread(5), "the version includes this mark");
    }

    #[test]
    fn a_million_posts_after_an_unread_one_take_a_few_bytes() {
        let head = AuthorHead { latest_seq: 1_000_000, ..Default::default() };
        let mut reads = ReadState { version: 1, ..Default::default() };
        reads.read.insert_range(2, 1_000_000);
        let state = AuthorState::from_facts(&edge(0, 0), &head, &reads).bounded();
        assert_eq!((state.unread(), state.encode().len()), (1, 39));
        assert!(state.knows(1_000_000) && state.knows(1_000_000 - WINDOW / 2) && !state.knows(1));
        assert_eq!(AuthorState::decode(&state.encode()).unwrap(), state);
    }

    proptest! {
        #[test]
        fn a_bounded_state_counts_the_same_and_knows_the_newest_posts(
            new in 4_000..12_000u64, through in 0..12_000u64, read in btree_set(1..12_000u64, 0..5_000), all in 0..12_000u64,
        ) {
            let head = AuthorHead { latest_seq: new, ..Default::default() };
            let mut reads = ReadState { version: 1, read: read.into_iter().filter(|&seq| seq <= new).collect(), ..ReadState::default() };
            reads.mark_through(all.min(new));
            reads.unmark(all / 2 + 1);
            let exact = AuthorState::from_facts(&edge(0, 0), &head, &reads);
            let bounded = exact.clone().bounded();
            prop_assert_eq!(exact.unread(), exact.unread_seqs().count() as u64);
            prop_assert_eq!(bounded.unread(), exact.unread());
            prop_assert_eq!(bounded.clone().bounded(), bounded.clone());
            prop_assert!(bounded.encode().len() < 31 + 14 + CUT_AT as usize / 4);
            for seq in new.saturating_sub(1_000)..=new {
                prop_assert!(bounded.knows(seq));
                prop_assert_eq!(bounded.is_unread(seq), exact.is_unread(seq));
            }
            // The posts are delivered again from the start: cut posts count as delivered, and no post counts twice.
            let mut behind = AuthorState::undelivered(&edge(0, 0), &head, &reads).bounded();
            prop_assert!(behind.through >= behind.base);
            behind.through = behind.through.max(through.min(new));
            prop_assert!(behind.unread() <= exact.unread());
        }
    }

    #[test]
    fn damaged_bytes_are_rejected() {
        let head = AuthorHead { latest_seq: 20, deleted: [12].into_iter().collect(), ..Default::default() };
        let bytes = AuthorState::from_facts(&edge(3, 0), &head, &ReadState::default()).encode();
        for cut in [20, 33] {
            assert!(AuthorState::decode(&bytes[..cut]).is_none(), "{cut}");
        }
        // A length that is too great, modes where the lengths are, and lists without bitmaps.
        for (index, byte) in [(34, 200), (0, bytes[0] | MODES), (0, 0x40)] {
            let mut damaged = bytes.clone();
            damaged[index] = byte;
            assert!(AuthorState::decode(&damaged).is_none(), "{index}: {byte}");
        }
    }
}
