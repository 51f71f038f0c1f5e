//! The notices of a platform, and the read state of a reader.
//!
//! A platform works like an author whom every user follows and whose posts are always pulled. Its head lists the live
//! notices, a reader's read state says which are read, and the unread count is the difference. Read state is stored by
//! *slot*, not by sequence number. A notice has a slot, and no slot is given twice. `renotify` gives the notice a new
//! slot, so it becomes unread for every reader without a write for any reader.

use std::{fmt, num::NonZeroU16, str::FromStr};

use integer_encoding::VarInt;
use serde::{Deserialize, Serialize};

use crate::ids::{MAX_SEQ, parse_decimal};
use crate::{ParseIdError, Seq, SeqSet, Timestamp};

/// The maximum number of live notices of a platform. It limits the size of the head and the cost of a count.
pub const MAX_LIVE: usize = 2_000;

/// A platform: any unsigned 16-bit number except zero. In JSON it is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform(NonZeroU16);

impl Platform {
    /// Returns the platform with this number; `None` for zero.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Platform {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let number = parse_decimal(text).and_then(|number| u16::try_from(number).ok());
        number.and_then(Self::new).ok_or(ParseIdError("must be a decimal number from 1 to 65535, without sign or leading zeros"))
    }
}

/// A notice: its platform and its sequence number, written `{platform}-{seq}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoticeId {
    pub platform: Platform,
    /// Its number within the platform: 1, 2, 3, … without gaps.
    pub seq: Seq,
}

impl fmt::Display for NoticeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.platform, self.seq)
    }
}

impl FromStr for NoticeId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let parts = text.split_once('-').and_then(|(platform, seq)| {
            let seq = parse_decimal(seq).filter(|seq| (1..=MAX_SEQ).contains(seq))?;
            Some(Self { platform: platform.parse().ok()?, seq })
        });
        parts.ok_or(ParseIdError(
            "must be {platform}-{seq}, two decimal numbers without sign or leading zeros, the first at most 65535",
        ))
    }
}

/// The place of a notice in the read bitmap: 1, 2, 3, … within a platform. A slot is given once.
pub type Slot = u64;

/// The content of a notice, as an administrator writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeContent {
    /// 1 to 200 characters.
    pub title: String,
    /// At most 64 KiB.
    pub body: Option<String>,
    /// From this time on the notice is in no list and no count.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    pub id: NoticeId,
    pub created_at: Timestamp,
    /// The version of the head that wrote this content.
    pub revision: u64,
    pub content: NoticeContent,
}

/// A notice in the head of its platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveNotice {
    pub seq: Seq,
    /// The place of the notice in the read bitmap of its platform.
    pub slot: Slot,
    /// The version of the head that wrote the content.
    pub revision: u64,
    /// From this time on the notice is in no list and no count.
    pub expires_at: Option<Timestamp>,
}

impl LiveNotice {
    fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A reader's counts on one platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoticeCounts {
    pub unread: u64,
    pub read: u64,
}

/// The head of a platform. It is changed only as a whole, on the condition of its version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlatformHead {
    /// Grows by one with every change; zero before the first.
    pub version: u64,
    pub latest_seq: Seq,
    pub latest_slot: Slot,
    /// The time at which the last notice was published. It never decreases.
    pub latest_at: Timestamp,
    /// Notices that are neither deleted nor pruned, ascending. Expired ones may be among them.
    pub live: Vec<LiveNotice>,
}

impl PlatformHead {
    /// Returns the notices that are live at `now`, newest first.
    pub fn live_at(&self, now: Timestamp) -> impl Iterator<Item = &LiveNotice> {
        self.live.iter().rev().filter(move |notice| !notice.is_expired(now))
    }

    /// Returns the notice if it is live at `now`.
    pub fn find(&self, seq: Seq, now: Timestamp) -> Option<&LiveNotice> {
        let index = self.live.binary_search_by_key(&seq, |notice| notice.seq).ok()?;
        Some(&self.live[index]).filter(|notice| !notice.is_expired(now))
    }

    /// Returns the head with the notices that had their slots when these were the latest number and slot.
    #[must_use]
    pub fn as_of(&self, latest_seq: Seq, latest_slot: Slot) -> Self {
        let live = self.live.iter().copied().filter(|notice| notice.slot <= latest_slot).collect();
        let (latest_seq, latest_slot) = (self.latest_seq.min(latest_seq), self.latest_slot.min(latest_slot));
        Self { latest_seq, latest_slot, live, ..self.clone() }
    }

    /// Returns the counts at `now` of a reader who has read these slots.
    pub fn counts(&self, read: &SeqSet, now: Timestamp) -> NoticeCounts {
        self.live_at(now).fold(NoticeCounts::default(), |counts, notice| {
            let read = u64::from(read.contains(notice.slot));
            NoticeCounts { unread: counts.unread + 1 - read, read: counts.read + read }
        })
    }

    /// Removes expired notices. They do not come back. The version stays the same, because no reader saw them any more.
    pub fn prune(&mut self, now: Timestamp) {
        self.live.retain(|notice| !notice.is_expired(now));
    }

    /// Publishes one notice at `at`, which becomes `latest_at`. Returns `None` if the platform is full.
    pub fn publish(&mut self, at: Timestamp, expires_at: Option<Timestamp>) -> Option<LiveNotice> {
        if self.live.len() >= MAX_LIVE {
            return None;
        }
        self.version += 1;
        self.latest_seq += 1;
        self.latest_slot += 1;
        self.latest_at = at;
        let notice = LiveNotice { seq: self.latest_seq, slot: self.latest_slot, revision: self.version, expires_at };
        self.live.push(notice);
        Some(notice)
    }

    /// Replaces live notices, all of them or none. `renotify` makes them unread for every reader. Returns them in the
    /// order of `seqs`, which are distinct; the error is the first that is not live.
    pub fn edit(
        &mut self,
        seqs: &[Seq],
        expires_at: Option<Timestamp>,
        renotify: bool,
        now: Timestamp,
    ) -> Result<Vec<LiveNotice>, Seq> {
        let place = |&seq: &Seq| {
            self.find(seq, now).ok_or(seq)?;
            self.live.binary_search_by_key(&seq, |notice| notice.seq).map_err(|_| seq)
        };
        let places = seqs.iter().map(place).collect::<Result<Vec<usize>, Seq>>()?;
        self.version += 1;
        let edited = places.into_iter().map(|place| {
            self.latest_slot += u64::from(renotify);
            let before = self.live[place];
            let slot = if renotify { self.latest_slot } else { before.slot };
            self.live[place] = LiveNotice { slot, revision: self.version, expires_at, ..before };
            self.live[place]
        });
        Ok(edited.collect())
    }

    /// Removes notices. Returns whether any of them existed.
    pub fn remove(&mut self, seqs: &[Seq]) -> bool {
        let before = self.live.len();
        self.live.retain(|notice| !seqs.contains(&notice.seq));
        let changed = self.live.len() < before;
        self.version += u64::from(changed);
        changed
    }

    /// N1: returns whether the live notices have ascending numbers, and each has a slot of its own that was given.
    fn slots_are_given_once(&self) -> bool {
        let slots: SeqSet = self.live.iter().map(|notice| notice.slot).collect();
        self.live.is_sorted_by(|older, newer| older.seq < newer.seq)
            && self.live.last().is_none_or(|newest| newest.seq <= self.latest_seq)
            && slots.len() == self.live.len() as u64
            && slots.bounds().is_none_or(|(first, last)| first > 0 && last <= self.latest_slot)
    }

    /// Encodes the live notices as LEB128 numbers, four for each notice: the difference to the previous sequence
    /// number, the latest slot minus its slot, the version minus its revision, and its expiry in ms plus one, or zero.
    pub fn encode_live(&self) -> Vec<u8> {
        debug_assert!(self.slots_are_given_once(), "{self:?}");
        let (mut bytes, mut previous) = (Vec::with_capacity(self.live.len() * 5), 0);
        for notice in &self.live {
            let expiry = notice.expires_at.map_or(0, |at| 1 + at.ms());
            for number in [notice.seq - previous, self.latest_slot - notice.slot, self.version - notice.revision, expiry] {
                bytes.extend(number.encode_var_vec());
            }
            previous = notice.seq;
        }
        bytes
    }

    /// Returns the head with the notices that [`encode_live`](Self::encode_live) encoded; `None` if they do not fit.
    pub fn with_live(self, mut bytes: &[u8]) -> Option<Self> {
        let (mut live, mut previous) = (Vec::new(), 0_u64);
        while !bytes.is_empty() {
            let mut next = || {
                let (number, length) = u64::decode_var(bytes)?;
                bytes = &bytes[length..];
                Some(number)
            };
            let seq = previous.checked_add(next()?.max(1)).filter(|seq| *seq <= self.latest_seq)?;
            let slot = self.latest_slot.checked_sub(next()?)?;
            let revision = self.version.checked_sub(next()?)?;
            let expires_at = next()?.checked_sub(1).map(Timestamp::from_ms);
            live.push(LiveNotice { seq, slot, revision, expires_at });
            previous = seq;
        }
        Some(Self { live, ..self })
    }
}

/// The read state of one reader on one platform.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NoticeReads {
    /// Grows with every change; zero before the first.
    pub version: u64,
    /// The watermark: the number up to which the reader has marked the platform read. No mark lowers it;
    /// only the repair of damage does ([`cut`](Self::cut)).
    pub through: Seq,
    /// The platform's latest slot when the watermark was set.
    pub through_slot: Slot,
    /// Slots that are read. Slots that no longer belong to a notice may be missing or present.
    pub read: SeqSet,
}

impl NoticeReads {
    /// Marks every notice up to `seq` read that is live at `now`. A `seq` below the watermark does not change the
    /// notices that had their slot when the watermark was set: a notice that became unread again stays unread. It
    /// covers only notices with a later slot.
    pub fn mark_through(&mut self, head: &PlatformHead, seq: Seq, now: Timestamp) {
        let seq = seq.min(head.latest_seq);
        let older = seq < self.through;
        for notice in head.live_at(now).filter(|notice| notice.seq <= seq) {
            if !older || notice.slot > self.through_slot {
                self.read.insert(notice.slot);
            }
        }
        if !older {
            self.through = seq;
            // A head from a view may be older than the one that the watermark was set with.
            self.through_slot = self.through_slot.max(head.latest_slot);
        }
    }

    /// Returns whether it contains numbers or slots that were not given.
    pub fn is_beyond(&self, latest_seq: Seq, latest_slot: Slot) -> bool {
        self.through > latest_seq || self.through_slot > latest_slot || self.read.above(latest_slot).next().is_some()
    }

    /// Removes what makes it [beyond](Self::is_beyond) these numbers.
    pub fn cut(&mut self, latest_seq: Seq, latest_slot: Slot) {
        self.through = self.through.min(latest_seq);
        self.through_slot = self.through_slot.min(latest_slot);
        self.read.truncate(latest_slot);
    }

    /// Returns the read state without slots of no notice. Slots that are newer than the head stay.
    #[must_use]
    pub fn without_dead(&self, head: &PlatformHead) -> Self {
        let live = head.live.iter().map(|notice| notice.slot).filter(|&slot| self.read.contains(slot));
        let read = live.chain(self.read.above(head.latest_slot)).collect();
        Self { read, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn head(notices: u64) -> PlatformHead {
        let mut head = PlatformHead::default();
        for index in 0..notices {
            head.publish(at(1_000 + index), None).unwrap();
        }
        head
    }

    #[test]
    fn notice_ids_are_platform_and_seq() {
        let id: NoticeId = "65535-7".parse().unwrap();
        assert_eq!((id.platform.get(), id.seq, id.to_string()), (65_535, 7, "65535-7".to_owned()));
        for bad in ["0-1", "65536-1", "1-0", "01-1", "1-01", "1", "1-", "-1", "1-1-1", "+1-1"] {
            assert!(bad.parse::<NoticeId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn renotify_makes_a_read_notice_unread_and_does_not_change_the_others() {
        let mut head = head(3);
        let mut reads = NoticeReads::default();
        reads.mark_through(&head, 3, at(0));
        assert_eq!(head.counts(&reads.read, at(0)), NoticeCounts { unread: 0, read: 3 });
        head.edit(&[2], None, true, at(0)).unwrap();
        assert_eq!(head.counts(&reads.read, at(0)), NoticeCounts { unread: 1, read: 2 });
        assert_eq!(head.live_at(at(0)).map(|notice| notice.seq).collect::<Vec<_>>(), [3, 2, 1], "its place does not change");
    }

    #[test]
    fn several_notices_are_edited_together_or_not_at_all() {
        let mut head = head(4);
        let before = head.clone();
        assert_eq!((head.edit(&[4, 5, 1], None, true, at(0)), &head), (Err(5), &before));
        let edited = head.edit(&[4, 1], Some(at(9)), true, at(0)).unwrap();
        let live = |seq, slot| LiveNotice { seq, slot, revision: 5, expires_at: Some(at(9)) };
        assert_eq!((edited, head.version, head.latest_slot), (vec![live(4, 5), live(1, 6)], 5, 6));
        assert_eq!([head.live[0], head.live[3]], [live(1, 6), live(4, 5)]);
        assert_eq!(head.live[1..3], before.live[1..3]);
        assert_eq!(head.edit(&[1, 2], None, false, at(9)), Err(1), "one has expired");
    }

    #[test]
    fn the_watermark_never_goes_back_and_covers_notices_with_a_new_slot() {
        let mut head = head(5);
        let mut reads = NoticeReads::default();
        reads.mark_through(&head, 4, at(0));
        reads.read.remove(head.find(1, at(0)).unwrap().slot);
        reads.mark_through(&head, 3, at(0));
        assert_eq!(head.counts(&reads.read, at(0)).unread, 2, "an older watermark does not change what became unread again");
        head.edit(&[2], None, true, at(0)).unwrap();
        reads.mark_through(&head, 3, at(0));
        assert_eq!(head.counts(&reads.read, at(0)).unread, 2, "but it covers a notice with a new slot");
        reads.mark_through(&head, 99, at(0));
        assert_eq!((head.counts(&reads.read, at(0)).unread, reads.through), (0, 5), "at most up to the latest notice");
        assert!(head.publish(at(9_999), None).is_some());
        assert_eq!(head.counts(&reads.read, at(0)).unread, 1);
    }

    #[test]
    fn an_expired_notice_is_in_no_list_and_does_not_come_back() {
        let mut head = head(1);
        head.publish(at(1_001), Some(at(2_000))).unwrap();
        assert_eq!(head.counts(&SeqSet::default(), at(1_999)).unread, 2);
        assert_eq!(head.counts(&SeqSet::default(), at(2_000)).unread, 1);
        assert_eq!(head.find(2, at(2_000)), None);
        assert_eq!(head.edit(&[2], None, true, at(2_000)), Err(2), "it does not come back");
        head.prune(at(1_999));
        assert_eq!(head.live.len(), 2);
        head.prune(at(2_000));
        head.publish(at(2_000), None).unwrap();
        assert_eq!(head.live.iter().map(|notice| notice.seq).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_full_platform_accepts_a_notice_only_after_one_is_removed() {
        let mut full = head(MAX_LIVE as u64);
        let before = full.clone();
        assert_eq!((full.publish(at(9_999), None), &full), (None, &before));
        assert!(full.remove(&[7]) && !full.remove(&[7]));
        assert_eq!(full.publish(at(9_999), None).unwrap().seq, MAX_LIVE as u64 + 1);
        assert!(full.encode_live().len() <= MAX_LIVE * 7, "{}", full.encode_live().len());
    }

    #[test]
    fn dead_slots_are_removed_and_newer_slots_stay() {
        let mut head = head(4);
        let reads = NoticeReads { read: (1..=4).chain([9]).collect(), ..NoticeReads::default() };
        head.remove(&[2]);
        head.edit(&[3], None, true, at(0)).unwrap();
        assert_eq!(reads.without_dead(&head).read, [1, 4, 9].into_iter().collect());
    }

    proptest! {
        #[test]
        fn encoded_heads_decode_to_themselves(
            steps in prop::collection::vec((0..6_u8, 1..40_u64, prop::option::of(0..4_000_000_000_000_u64)), 0..80),
        ) {
            let mut head = PlatformHead::default();
            for (index, (kind, seq, expires)) in steps.into_iter().enumerate() {
                let now = at(index as u64);
                match kind {
                    0 => { head.remove(&[seq]); }
                    1 | 2 => { _ = head.edit(&[seq, seq + 1], expires.map(at), kind == 1, now); }
                    _ => { head.publish(now, expires.map(at)); }
                }
                prop_assert!(head.slots_are_given_once());
                let bare = PlatformHead { live: Vec::new(), ..head.clone() };
                let bytes = head.encode_live();
                prop_assert_eq!(bare.clone().with_live(&bytes).unwrap(), head.clone());
                if !bytes.is_empty() {
                    prop_assert!(bare.with_live(&bytes[..bytes.len() - 1]).is_none());
                }
            }
        }

        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = PlatformHead { version: 9, latest_seq: 9, latest_slot: 9, ..PlatformHead::default() }.with_live(&bytes);
        }
    }
}
