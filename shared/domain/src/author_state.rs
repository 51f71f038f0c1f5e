//! What a live reader's view knows of one followed author: which posts were delivered, which are read, which are gone.
//!
//! This is the value of one field of the reader state hash. The layout is shared with `views/lua/codec.lua`; all numbers little-endian:
//!
//! | bytes | name | meaning |
//! |---|---|---|
//! | 1 | flags | 1 live (else a tombstone), 2 opening (its facts are to be merged), 4 bitmaps follow, 8 modes follow, 16 older posts follow |
//! | 4 | rev | revision of the follow edge |
//! | 4 | version | version of the read fact that `read` comes from |
//! | 4 | deletions | greatest number of deletions known of the author |
//! | 4 | floor | posts up to it are not shown |
//! | 4 | base / 8 | everything up to `base` is read or deleted, but for the older posts; `read` and `deleted` begin after it |
//! | 4 | through | every post up to it was delivered, or needs no delivery |
//! | 6 | newest_at | time of the newest post delivered, ms |
//! | 4, 4, 4, 4 | modes | with flag 8: changes and pulled, see [`Modes`]; seq and deletions that were asked for, see [`Asked`] |
//! | 4, 4 | older | with flag 16: how many posts up to `horizon` are unread, and `horizon`; which of them are, the view does not know |
//! | 3, 3 | lengths | with flag 4: bytes of `tail` and of `read`; `deleted` takes the rest |
//! | … | bitmaps | with flag 4: delivered bits from the byte of `through + 1` on, read, deleted |
//!
//! 31 bytes while posts are pushed, arrive in order and are read from the oldest, whatever their number: it stays within a listpack's 64. However old the oldest
//! unread post is, the bitmaps stay below [`CUT_AT`] bits each: older posts are counted instead.

use std::cmp::Ordering;

use super::{
    bitmap::Bitmap,
    ids::Seq,
    model::{AuthorHead, DeliveryMode, Edge, Modes, ReadState},
    time::Timestamp,
};

const LIVE: u8 = 1;
const OPENING: u8 = 2;
const BITMAPS: u8 = 4;
const MODES: u8 = 8;
const OLDER: u8 = 16;
const HEADER: usize = 31;
const MODES_BYTES: usize = 16;
const OLDER_BYTES: usize = 8;
const LENGTHS: usize = 6;

/// Posts whose bits are kept exactly when a state is cut, and the length at which it is. More than a feed stores of all authors together.
const WINDOW: u64 = 2_048;
const CUT_AT: u64 = 2 * WINDOW;

/// How far beyond the head's latest post a read state may reach that was read later than the head.
const LATER: u64 = 8_192;

/// How much of the head of an author whose readers pull a view has taken in, with feed entries and all. What is pushed, read or retracted besides says nothing of
/// that: it has to be a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Of the posts up to this one the view lacks none that was published for pull.
    pub seq: Seq,
    /// The head's number of deletions: the view knows them all.
    pub deletions: u32,
}

/// The state of one followed author in one reader's view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthorState {
    /// False for the tombstone that an unfollow leaves.
    pub live: bool,
    /// Admitted by a follow whose facts are not merged yet.
    pub opening: bool,
    /// Revision of the follow edge.
    pub rev: u32,
    /// Version of the read fact.
    pub version: u32,
    /// Greatest number of the author's deletions known here.
    pub deletions: u32,
    /// Posts up to it are not shown.
    pub floor: Seq,
    /// A multiple of 8; everything up to it is read or deleted, but for the `older` posts.
    pub base: Seq,
    /// How many posts up to `horizon` are unread. Zero unless bits were cut.
    pub older: u32,
    /// Up to it, the state does not know which posts are unread; without `older` ones it knows them all.
    pub horizon: Seq,
    /// Time of the newest post delivered.
    pub newest_at: Timestamp,
    /// Every post up to it was delivered, or needs no delivery: it is from before the follow, read or deleted.
    pub through: Seq,
    /// How the author's posts reach readers, as far as known here.
    pub modes: Modes,
    /// What was asked for; nothing while posts were always pushed.
    pub asked: Asked,
    /// Delivered bits from the byte of `through + 1` on; those up to `through` say nothing.
    pub tail: Bitmap,
    /// Read bits from `base + 1` on.
    pub read: Bitmap,
    /// Deleted bits from `base + 1` on.
    pub deleted: Bitmap,
}

/// The bytes are not an author state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("damaged author state of {0} bytes")]
pub struct DecodeAuthorStateError(usize);

impl AuthorState {
    /// The state that the facts imply when every post up to the head has been delivered.
    pub fn from_facts(edge: &Edge, head: &AuthorHead, reads: &ReadState) -> Self {
        let all = Asked { seq: head.latest_seq, deletions: head.deletions() };
        Self {
            opening: false,
            through: head.latest_seq.max(edge.base),
            asked: if head.modes.is_push_alone() { Asked::default() } else { all },
            ..Self::undelivered(edge, head, reads)
        }
    }

    /// The state with which a follow opens the gate, before its facts are merged: nothing after the follow delivered or read yet.
    pub fn opening(edge: &Edge) -> Self {
        Self {
            live: true,
            opening: true,
            rev: edge.rev,
            floor: edge.floor,
            base: edge.base / 8 * 8,
            through: edge.base,
            read: Bitmap::ones(edge.base % 8),
            ..Self::default()
        }
    }

    /// The same as [`AuthorState::from_facts`] without any claim about deliveries (`opening`): what a change of read state tells a view
    /// that has its own.
    pub fn undelivered(edge: &Edge, head: &AuthorHead, reads: &ReadState) -> Self {
        let latest = head.latest_seq.max(edge.base);
        let settled = reads.read.union(&head.deleted).contiguous_above(edge.base).min(latest);
        let base = settled / 8 * 8;
        // Reads are not cut at the head's latest post: the two are read at different moments, and a mark of a post that this head does not know yet must not
        // be missing under the version of reads that has it.
        let bits = |seqs: &mut dyn Iterator<Item = Seq>| {
            let mut bitmap = Bitmap::default();
            seqs.take_while(|&seq| seq <= latest + LATER).for_each(|seq| bitmap.set(seq - base - 1));
            bitmap
        };
        Self {
            live: true,
            opening: true,
            rev: edge.rev,
            version: reads.version,
            deletions: head.deletions(),
            floor: edge.floor,
            base,
            older: 0,
            horizon: 0,
            newest_at: head.latest_at,
            modes: head.modes,
            asked: Asked::default(),
            through: base,
            tail: Bitmap::default(),
            read: bits(&mut (base + 1..=edge.base).chain(reads.read.above(base.max(edge.base)))),
            deleted: bits(&mut head.deleted.above(base)),
        }
    }

    /// Whether the author's posts are not pushed.
    fn pulls(&self) -> bool {
        self.modes.current() == DeliveryMode::Pull
    }

    /// Whether the author's head has to be asked for news: posts are not pushed, or some from a time that is over are missing.
    pub fn asks(&self) -> bool {
        self.pulls() || self.modes.pulled > self.asked.seq
    }

    /// The greatest sequence number that counts as delivered.
    pub fn newest_delivered(&self) -> Seq {
        self.tail.end().map_or(self.through, |bits| self.through.max(self.through / 8 * 8 + bits))
    }

    /// Whether it asks, and the head has news.
    pub fn is_behind(&self, head: &AuthorHead) -> bool {
        let Self { asked, modes, .. } = self;
        let news = head.latest_seq > asked.seq || head.deletions() > asked.deletions || head.modes.changes > modes.changes;
        modes.pulled > asked.seq || (self.pulls() && news)
    }

    /// Whether this knows of something that the head does not: the head is an old one.
    pub fn is_ahead_of(&self, head: &AuthorHead) -> bool {
        let (modes, latest) = (head.modes, head.latest_seq);
        self.modes.changes > modes.changes
            || self.modes.pulled > modes.pulled
            || self.asked.seq > latest
            || self.deletions > head.deletions()
    }

    /// Whether the post was delivered.
    pub fn is_delivered(&self, seq: Seq) -> bool {
        seq <= self.through || self.tail.get(seq - 1 - self.through / 8 * 8)
    }

    /// Whether the post counts as unread: delivered, not read, not deleted.
    pub fn is_unread(&self, seq: Seq) -> bool {
        self.index(seq).is_some_and(|i| !self.read.get(i) && !self.deleted.get(i)) && self.is_delivered(seq)
    }

    /// Whether the feed shows the post: delivered, above the floor, not deleted.
    pub fn shows(&self, seq: Seq) -> bool {
        seq > self.floor && self.is_delivered(seq) && !self.index(seq).is_some_and(|i| self.deleted.get(i))
    }

    /// Whether the state knows of the post whether it is unread: it does of all but those that it only counts.
    pub fn knows(&self, seq: Seq) -> bool {
        self.older == 0 || seq > self.horizon
    }

    /// How many posts count as unread.
    pub fn unread(&self) -> u64 {
        let (first, edge) = (self.base / 8, self.through / 8);
        // Whole bytes up to `through` are delivered: only what is settled among them has to be looked at.
        let settled = |byte: u64| u64::from(self.settled_byte((byte - first) as usize).count_ones());
        let looked = edge.min(first + self.read.as_bytes().len().max(self.deleted.as_bytes().len()) as u64);
        let whole = 8 * edge.saturating_sub(first) - (first..looked).map(settled).sum::<u64>();
        let rest: u64 = self.bytes().filter(|&i| i >= edge).map(|i| u64::from(self.unread_byte(i).count_ones())).sum();
        u64::from(self.older) + whole + rest
    }

    /// The state without exact bits for posts that lie far below its end: of those only the number that is unread is kept, so that a view stays small and a
    /// delivery takes the same time, however old the oldest unread post is. `bounded` in `views/lua/codec.lua` does the same.
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

    /// The posts that count as unread, newest first.
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
        let mut bytes = Vec::with_capacity(HEADER);
        let modes = !self.modes.is_push_alone();
        let flags = [(self.live, LIVE), (self.opening, OPENING), (some, BITMAPS), (modes, MODES), (self.older > 0, OLDER)];
        bytes.push(flags.iter().map(|(set, flag)| u8::from(*set) * flag).sum());
        for number in [self.rev, self.version, self.deletions, clamp(self.floor), clamp(self.base / 8), clamp(self.through)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.newest_at.ms().to_le_bytes()[..6]);
        if modes {
            for number in [self.modes.changes, clamp(self.modes.pulled), clamp(self.asked.seq), self.asked.deletions] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        if self.older > 0 {
            bytes.extend_from_slice(&self.older.to_le_bytes());
            bytes.extend_from_slice(&clamp(self.horizon).to_le_bytes());
        }
        if some {
            for bitmap in &bitmaps[..2] {
                bytes.extend_from_slice(&clamp(bitmap.len() as u64).to_le_bytes()[..3]);
            }
            bytes.extend_from_slice(&bitmaps.concat());
        }
        bytes
    }

    /// Reads the layout above.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeAuthorStateError> {
        let damaged = || DecodeAuthorStateError(bytes.len());
        let (header, rest) = bytes.split_at_checked(HEADER).ok_or_else(damaged)?;
        let small = |range| u32::try_from(number(&header[range])).unwrap_or(u32::MAX);
        if header[0] & !(LIVE | OPENING | BITMAPS | MODES | OLDER) != 0 {
            return Err(damaged());
        }
        let modes_bytes = if header[0] & MODES == 0 { 0 } else { MODES_BYTES };
        let (modes, rest) = rest.split_at_checked(modes_bytes).ok_or_else(damaged)?;
        let mut modes = modes.chunks_exact(4).map(number);
        let mut next = || modes.next().unwrap_or_default();
        let (changes, pulled, asked, asked_deletions) = (next(), next(), next(), next());
        let older_bytes = if header[0] & OLDER == 0 { 0 } else { OLDER_BYTES };
        let (older, rest) = rest.split_at_checked(older_bytes).ok_or_else(damaged)?;
        let mut older = older.chunks_exact(4).map(number);
        let (older, horizon) = (older.next().unwrap_or_default(), older.next().unwrap_or_default());
        if header[0] & BITMAPS == 0 && !rest.is_empty() {
            return Err(damaged());
        }
        let [tail, read, deleted] = if rest.is_empty() {
            [rest; 3]
        } else {
            let (lengths, rest) = rest.split_at_checked(LENGTHS).ok_or_else(damaged)?;
            let (tail, rest) = rest.split_at_checked(number(&lengths[..3]) as usize).ok_or_else(damaged)?;
            let (read, deleted) = rest.split_at_checked(number(&lengths[3..]) as usize).ok_or_else(damaged)?;
            [tail, read, deleted]
        };
        Ok(Self {
            live: header[0] & LIVE != 0,
            opening: header[0] & OPENING != 0,
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
            asked: Asked { seq: asked, deletions: clamp(asked_deletions) },
            tail: Bitmap::from_bytes(tail),
            read: Bitmap::from_bytes(read),
            deleted: Bitmap::from_bytes(deleted),
        })
    }

    fn index(&self, seq: Seq) -> Option<u64> {
        (seq > self.base).then(|| seq - self.base - 1)
    }

    /// The bytes, counted from sequence number 1, in which something may be unread.
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

    /// Read or deleted bits, counted from `base`.
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
        Edge { user: user(1), author: user(2), following: true, since: Timestamp::default(), rev: 7, base, floor }
    }

    proptest! {
        #[test]
        fn facts_imply_exactly_the_live_posts_after_the_follow_that_are_not_read(
            base in 0..60u64, new in 0..80u64, changes in 0..3u32,
            read in btree_set(1..140u64, 0..60), deleted in btree_set(1..140u64, 0..40),
        ) {
            let latest = base + new;
            let deleted: BTreeSet<u64> = deleted.into_iter().filter(|&s| s <= latest).collect();
            let head = AuthorHead {
                latest_seq: latest, latest_at: Timestamp::from_ms(5), posts: 0, deleted: deleted.iter().copied().collect(),
                modes: Modes { changes, pulled: latest / 2 * u64::from(changes.min(1)) },
                ..Default::default()
            };
            let reads = ReadState { version: 3, through: 0, read: read.iter().copied().filter(|&s| s <= latest).collect::<SeqSet>() };
            let state = AuthorState::from_facts(&edge(base, 0), &head, &reads);
            let expected: Vec<u64> = (base + 1..=latest).rev().filter(|s| !read.contains(s) && !deleted.contains(s)).collect();
            prop_assert_eq!(state.unread_seqs().collect::<Vec<_>>(), expected.clone());
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
    fn a_mark_of_a_post_that_the_head_does_not_know_yet_is_kept() {
        // The head was read before the post was published, the reads after it was marked.
        let head = AuthorHead { latest_seq: 4, ..Default::default() };
        let reads = ReadState { version: 2, through: 0, read: [5].into_iter().collect() };
        let mut state = AuthorState::from_facts(&edge(0, 0), &head, &reads);
        state.through = 5;
        assert!(!state.is_unread(5), "the version says that it is read");
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
            let mut reads = ReadState { version: 1, through: 0, read: read.into_iter().filter(|&seq| seq <= new).collect() };
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
            // Delivered again from nothing: what was cut counts as delivered, and nothing twice.
            let mut behind = AuthorState::undelivered(&edge(0, 0), &head, &reads).bounded();
            prop_assert!(behind.through >= behind.base);
            behind.through = behind.through.max(through.min(new));
            prop_assert!(behind.unread() <= exact.unread());
        }
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let head = AuthorHead { latest_seq: 20, deleted: [12].into_iter().collect(), ..Default::default() };
        let bytes = AuthorState::from_facts(&edge(3, 0), &head, &ReadState::default()).encode();
        assert!(AuthorState::decode(&bytes[..20]).is_err());
        assert!(AuthorState::decode(&bytes[..33]).is_err());
        let mut long = bytes.clone();
        long[34] = 200;
        assert!(AuthorState::decode(&long).is_err());
        let mut modes = bytes.clone();
        modes[0] |= MODES;
        assert!(AuthorState::decode(&modes).is_err(), "the lengths are read from where the modes end");
        let mut flags = bytes;
        flags[0] = 0x80;
        assert!(AuthorState::decode(&flags).is_err());
    }
}
