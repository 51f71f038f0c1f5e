//! Notices of a platform and what a reader has read of them.
//!
//! A platform is an author whom everybody follows and whose delivery is always pull: its head lists what is live, a reader's state says what
//! was read, and an unread count is what is in the one and not in the other. Read state is kept over *slots*, not sequence numbers: a notice has
//! a slot, no slot is given twice, and notifying again gives the notice a fresh one, so that everybody's read mark falls off without a reader
//! being touched.

use std::{fmt, num::NonZeroU16, str::FromStr};

use integer_encoding::VarInt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    ids::{MAX_SEQ, ParseIdError, Seq, parse_decimal},
    seq_set::SeqSet,
    time::Timestamp,
};

/// Live notices that one platform holds at most: it bounds the head, and with it what a count costs.
pub const MAX_LIVE: usize = 2_000;

/// A platform: an unsigned 16-bit number but zero. Travels as a JSON number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Platform(NonZeroU16);

impl Platform {
    /// The platform with this number; `None` for zero.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// The number.
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
    /// Where it is shown.
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

impl Serialize for NoticeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NoticeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// What read state is kept over: 1, 2, 3, … within a platform, given once and never again.
pub type Slot = u64;

/// What an administrator writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeContent {
    /// 1 to 200 characters.
    pub title: String,
    /// At most 64 KiB.
    pub body: Option<String>,
    /// From when on it is in no list and no count.
    pub expires_at: Option<Timestamp>,
}

/// A notice with all its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Platform and sequence number.
    pub id: NoticeId,
    /// When it was published.
    pub created_at: Timestamp,
    /// The head's version that wrote this content.
    pub revision: u64,
    /// The text.
    pub content: NoticeContent,
}

/// A notice as the head of its platform knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveNotice {
    /// Its sequence number.
    pub seq: Seq,
    /// Its slot now.
    pub slot: Slot,
    /// The head's version that wrote its content.
    pub revision: u64,
    /// From when on it is in no list and no count.
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
    /// Live notices not read.
    pub unread: u64,
    /// Live notices read.
    pub read: u64,
}

/// All that is live on a platform; changed only as a whole, on the condition of its version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlatformHead {
    /// Grows by one with every change; zero before the first.
    pub version: u64,
    /// The last sequence number given.
    pub latest_seq: Seq,
    /// The last slot given.
    pub latest_slot: Slot,
    /// When the last notice was published. Never before an earlier one.
    pub latest_at: Timestamp,
    /// Notices that are neither deleted nor pruned, ascending. Expired ones may be among them.
    pub live: Vec<LiveNotice>,
}

/// The bytes are not a head's.
#[derive(Debug, thiserror::Error)]
#[error("not an encoded list of live notices")]
pub struct DecodeHeadError;

impl PlatformHead {
    /// What is live at `now`, newest first.
    pub fn live_at(&self, now: Timestamp) -> impl Iterator<Item = &LiveNotice> {
        self.live.iter().rev().filter(move |notice| !notice.is_expired(now))
    }

    /// The notice, if it is live at `now`.
    pub fn find(&self, seq: Seq, now: Timestamp) -> Option<&LiveNotice> {
        let index = self.live.binary_search_by_key(&seq, |notice| notice.seq).ok()?;
        Some(&self.live[index]).filter(|notice| !notice.is_expired(now))
    }

    /// The counts at `now` of a reader who has read these slots.
    pub fn counts(&self, read: &SeqSet, now: Timestamp) -> NoticeCounts {
        self.live_at(now).fold(NoticeCounts::default(), |counts, notice| {
            let read = u64::from(read.contains(notice.slot));
            NoticeCounts { unread: counts.unread + 1 - read, read: counts.read + read }
        })
    }

    /// Leaves out what has expired. It does not come back, and no version tells of it: it was nowhere to be seen.
    pub fn prune(&mut self, now: Timestamp) {
        self.live.retain(|notice| !notice.is_expired(now));
    }

    /// Publishes one notice at `at`, which becomes `latest_at`; `None` when the platform is full.
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

    /// Replaces a notice that is live at `now`; `renotify` makes it unread for everybody. `None` when it is not live.
    pub fn edit(&mut self, seq: Seq, expires_at: Option<Timestamp>, renotify: bool, now: Timestamp) -> Option<LiveNotice> {
        self.find(seq, now)?;
        let index = self.live.binary_search_by_key(&seq, |notice| notice.seq).ok()?;
        self.version += 1;
        self.latest_slot += u64::from(renotify);
        let notice = &mut self.live[index];
        notice.revision = self.version;
        notice.expires_at = expires_at;
        if renotify {
            notice.slot = self.latest_slot;
        }
        Some(*notice)
    }

    /// Takes notices out; whether any was there.
    pub fn remove(&mut self, seqs: &[Seq]) -> bool {
        let before = self.live.len();
        self.live.retain(|notice| !seqs.contains(&notice.seq));
        let changed = self.live.len() < before;
        self.version += u64::from(changed);
        changed
    }

    /// The live notices as bytes: LEB128 numbers, four a notice: how far its sequence number is above the one before, its slot
    /// below the latest, its revision below the version, and its expiry in ms plus one, or zero.
    pub fn encode_live(&self) -> Vec<u8> {
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

    /// The head with these numbers and the notices that [`encode_live`](Self::encode_live) wrote.
    ///
    /// # Errors
    /// The bytes do not fit.
    pub fn with_live(self, mut bytes: &[u8]) -> Result<Self, DecodeHeadError> {
        let (mut live, mut previous) = (Vec::new(), 0_u64);
        while !bytes.is_empty() {
            let mut next = || {
                let (number, length) = u64::decode_var(bytes)?;
                bytes = &bytes[length..];
                Some(number)
            };
            let notice = (|| {
                let seq = previous.checked_add(next()?.max(1))?;
                let slot = self.latest_slot.checked_sub(next()?)?;
                let revision = self.version.checked_sub(next()?)?;
                let expires_at = next()?.checked_sub(1).map(Timestamp::from_ms);
                Some(LiveNotice { seq, slot, revision, expires_at })
            })();
            let notice = notice.filter(|notice| notice.seq <= self.latest_seq).ok_or(DecodeHeadError)?;
            previous = notice.seq;
            live.push(notice);
        }
        Ok(Self { live, ..self })
    }
}

/// What one reader has read on one platform.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NoticeReads {
    /// Grows with every change; zero before the first.
    pub version: u64,
    /// How far the reader has marked the platform through. Never goes back.
    pub through: Seq,
    /// The platform's latest slot when that was marked.
    pub through_slot: Slot,
    /// Slots read. Slots that are nobody's any more may be missing or left.
    pub read: SeqSet,
}

impl NoticeReads {
    /// Marks every notice that is live at `now` up to `seq` read. An older `seq` than marked before leaves alone what was there at that time (a
    /// notice made unread since stays unread), and covers only what was notified again since.
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
            self.through_slot = head.latest_slot;
        }
    }

    /// Whether it says more than was published and given.
    pub fn is_beyond(&self, latest_seq: Seq, latest_slot: Slot) -> bool {
        self.through > latest_seq || self.through_slot > latest_slot || self.read.above(latest_slot).next().is_some()
    }

    /// Leaves out what [`is_beyond`](Self::is_beyond).
    pub fn cut(&mut self, latest_seq: Seq, latest_slot: Slot) {
        self.through = self.through.min(latest_seq);
        self.through_slot = self.through_slot.min(latest_slot);
        self.read.truncate(latest_slot);
    }

    /// Leaves out slots that the head knows to be nobody's. Those given after the head was read stay: what is known of them is newer than the head.
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
    fn notifying_again_makes_a_read_notice_unread_and_leaves_the_others() {
        let mut head = head(3);
        let mut reads = NoticeReads::default();
        reads.mark_through(&head, 3, at(0));
        assert_eq!(head.counts(&reads.read, at(0)), NoticeCounts { unread: 0, read: 3 });
        head.edit(2, None, true, at(0)).unwrap();
        assert_eq!(head.counts(&reads.read, at(0)), NoticeCounts { unread: 1, read: 2 });
        assert_eq!(head.live_at(at(0)).map(|notice| notice.seq).collect::<Vec<_>>(), [3, 2, 1], "its place stays");
    }

    #[test]
    fn through_never_goes_back_and_covers_what_was_notified_again() {
        let mut head = head(5);
        let mut reads = NoticeReads::default();
        reads.mark_through(&head, 4, at(0));
        reads.read.remove(head.find(1, at(0)).unwrap().slot);
        reads.mark_through(&head, 3, at(0));
        assert_eq!(head.counts(&reads.read, at(0)).unread, 2, "an older one does not touch what was made unread since");
        head.edit(2, None, true, at(0)).unwrap();
        reads.mark_through(&head, 3, at(0));
        assert_eq!(head.counts(&reads.read, at(0)).unread, 2, "but it covers what was notified again");
        reads.mark_through(&head, 99, at(0));
        assert_eq!((head.counts(&reads.read, at(0)).unread, reads.through), (0, 5), "at most what there is");
        assert!(head.publish(at(9_999), None).is_some());
        assert_eq!(head.counts(&reads.read, at(0)).unread, 1);
    }

    #[test]
    fn an_expired_notice_is_nowhere_and_does_not_come_back() {
        let mut head = head(1);
        head.publish(at(1_001), Some(at(2_000))).unwrap();
        assert_eq!(head.counts(&SeqSet::default(), at(1_999)).unread, 2);
        assert_eq!(head.counts(&SeqSet::default(), at(2_000)).unread, 1);
        assert_eq!(head.find(2, at(2_000)), None);
        assert_eq!(head.edit(2, None, true, at(2_000)), None, "it does not come back");
        head.prune(at(1_999));
        assert_eq!(head.live.len(), 2);
        head.prune(at(2_000));
        head.publish(at(2_000), None).unwrap();
        assert_eq!(head.live.iter().map(|notice| notice.seq).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_full_platform_takes_no_more_until_something_is_gone() {
        let mut full = head(MAX_LIVE as u64);
        let before = full.clone();
        assert_eq!((full.publish(at(9_999), None), &full), (None, &before));
        assert!(full.remove(&[7]) && !full.remove(&[7]));
        assert_eq!(full.publish(at(9_999), None).unwrap().seq, MAX_LIVE as u64 + 1);
        assert!(full.encode_live().len() <= MAX_LIVE * 7, "{}", full.encode_live().len());
    }

    #[test]
    fn dead_slots_are_forgotten_and_newer_ones_kept() {
        let mut head = head(4);
        let reads = NoticeReads { read: (1..=4).chain([9]).collect(), ..NoticeReads::default() };
        head.remove(&[2]);
        head.edit(3, None, true, at(0)).unwrap();
        assert_eq!(reads.without_dead(&head).read, [1, 4, 9].into_iter().collect());
    }

    proptest! {
        #[test]
        fn heads_come_back(steps in prop::collection::vec((0..6_u8, 1..40_u64, prop::option::of(0..4_000_000_000_000_u64)), 0..80)) {
            let mut head = PlatformHead::default();
            for (index, (kind, seq, expires)) in steps.into_iter().enumerate() {
                let now = at(index as u64);
                match kind {
                    0 => { head.remove(&[seq]); }
                    1 | 2 => { head.edit(seq, expires.map(at), kind == 1, now); }
                    _ => { head.publish(now, expires.map(at)); }
                }
                let bare = PlatformHead { live: Vec::new(), ..head.clone() };
                let bytes = head.encode_live();
                prop_assert_eq!(bare.clone().with_live(&bytes).unwrap(), head.clone());
                if !bytes.is_empty() {
                    prop_assert!(bare.with_live(&bytes[..bytes.len() - 1]).is_err());
                }
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = PlatformHead { version: 9, latest_seq: 9, latest_slot: 9, ..PlatformHead::default() }.with_live(&bytes);
        }
    }
}
