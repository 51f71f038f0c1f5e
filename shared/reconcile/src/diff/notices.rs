//! Compares platform heads with notices, read states with the slots that were given, and views of both with the facts.
//!
//! A slot above a platform's latest slot was never given, or the head was put back to an earlier state. The numbers of
//! readers show which, because they change in the transaction that marks a slot read. A slot that is counted was given:
//! the head is stale, and no such slot may be given again. A slot that is not counted is an error of the read state.

use std::collections::BTreeSet;

use tidemark_domain::{Notice, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet, Slot, Timestamp, UserId};
use tidemark_views::keys::View;

use super::{Correction, Difference, GRACE_SECONDS, Kind, Stored, Subject, views::of_record};

/// The most slots above a platform's latest slot that are looked up. More slots than a platform has live notices were
/// never given.
pub(crate) const MOST_ABOVE: usize = 4_096;

/// The fields of a notice that its head must agree with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredNotice {
    pub seq: Seq,
    /// From this time on the notice is in no list and no count.
    pub expires_at: Option<Timestamp>,
}

pub fn of_platform(platform: Platform, head: &PlatformHead, stored: &[StoredNotice], now: Timestamp) -> Vec<Difference> {
    let items: BTreeSet<Seq> = stored.iter().map(|notice| notice.seq).collect();
    let listed: BTreeSet<Seq> = head.live.iter().map(|notice| notice.seq).collect();
    let missing = head.live_at(now).filter(|notice| !items.contains(&notice.seq));
    let left = stored.iter().filter(|notice| {
        // The table's own expiry removes notices that have expired recently.
        let expiring = |at: Timestamp| at <= now && at.seconds() + GRACE_SECONDS >= now.seconds();
        !listed.contains(&notice.seq) && !notice.expires_at.is_some_and(expiring)
    });
    let differs = |kind, seq, correction: fn(NoticeId) -> Correction| {
        let notice = NoticeId { platform, seq };
        Difference::new(kind, Subject::Notice { notice }, correction(notice))
    };
    let missing = missing.map(|notice| differs(Kind::NoticeMissing, notice.seq, Correction::UnlistNotice));
    missing.chain(left.map(|notice| differs(Kind::NoticeLeft, notice.seq, Correction::DeleteNotice))).collect()
}

/// An edit of many notices that is still pending, which the projector was to write to its notices.
pub(crate) fn of_pending(platform: Platform, revision: u64) -> Difference {
    let subject = Subject::PendingEdit { platform, revision };
    Difference::new(Kind::EditPending, subject, Correction::ApplyPendingEdit { platform, revision })
}

/// The slots that a user has read and that the head has not given, at most [`MOST_ABOVE`].
pub fn above(head: &PlatformHead, reads: &NoticeReads) -> Vec<Slot> {
    reads.read.above(head.latest_slot).take(MOST_ABOVE).collect()
}

/// Compares a read state with the head. `counted` are the slots of [`above`] that the numbers of readers count.
pub(crate) fn of_reads(
    user: UserId,
    platform: Platform,
    head: &PlatformHead,
    reads: &NoticeReads,
    counted: &SeqSet,
) -> Vec<Difference> {
    let given = counted.bounds().map_or(head.latest_slot, |(_, last)| last.max(head.latest_slot));
    let behind = (given > head.latest_slot).then(|| {
        let subject = Subject::Slots { platform, seen: head.latest_slot, right: given };
        Difference::new(Kind::SlotsBehind, subject, Correction::RaiseSlot { platform, given })
    });
    let beyond = reads.is_beyond(head.latest_seq, given).then(|| {
        let subject = Subject::NoticeReadsBeyond { user, platform, latest: given };
        Difference::new(Kind::NoticeReadsBeyond, subject, Correction::CutNoticeReads { user, platform })
    });
    behind.into_iter().chain(beyond).collect()
}

/// A read state in a view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredSlots {
    /// The version of the fact.
    pub version: u64,
    pub read: SeqSet,
}

/// Compares the view of a read state with the fact. Slots without a live notice make no difference, because each write
/// may leave them out.
pub(crate) fn of_slots(
    user: UserId,
    platform: Platform,
    stored: &Stored<StoredSlots>,
    head: &PlatformHead,
    right: &NoticeReads,
) -> Option<Difference> {
    let known = |stored: &StoredSlots| NoticeReads { read: stored.read.clone(), ..right.clone() }.without_dead(head).read;
    let found = of_record(View::NoticeReads(user, platform), stored, |stored| {
        let is_right = stored.version == right.version && known(stored) == right.without_dead(head).read;
        (!is_right).then_some(Kind::ViewDiffers)
    });
    found.map(|found| found.in_version(right.version))
}

/// The title of a notice, and when it was published.
pub(crate) type StoredTitle = (String, Timestamp);

/// The text of a notice; `None` if it has none.
pub(crate) type StoredBody = Option<String>;

/// Compares the title or the text of a notice in one revision with `content` of the notice. One of an earlier revision,
/// or of a deleted notice, is never read and makes no difference. One of a revision that does not exist yet would be
/// used as the notice's own.
pub(crate) fn of_content<T: PartialEq>(
    view: View,
    (notice, revision): (NoticeId, u64),
    stored: &Stored<T>,
    head: &PlatformHead,
    right: Option<&Notice>,
    content: fn(&Notice) -> T,
) -> Option<Difference> {
    of_record(view, stored, |stored| {
        if notice.seq > head.latest_seq || revision > head.version {
            return Some(Kind::ViewOrphan);
        }
        let right = right.filter(|right| right.revision == revision)?;
        (*stored != content(right)).then_some(Kind::ViewDiffers)
    })
}

pub(crate) fn title_of(notice: &Notice) -> StoredTitle {
    (notice.content.title.clone(), notice.created_at)
}

pub(crate) fn body_of(notice: &Notice) -> StoredBody {
    notice.content.body.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_domain::NoticeContent;

    const USER: UserId = UserId::MIN;

    fn now() -> Timestamp {
        Timestamp::from_ms(1_000_000_000_000)
    }

    fn platform() -> Platform {
        Platform::new(7).unwrap()
    }

    fn id(seq: Seq) -> NoticeId {
        NoticeId { platform: platform(), seq }
    }

    fn head(notices: u64) -> PlatformHead {
        let mut head = PlatformHead::default();
        for _ in 0..notices {
            head.publish(now(), None).unwrap();
        }
        head
    }

    fn set(slots: &[Slot]) -> SeqSet {
        slots.iter().copied().collect()
    }

    #[test]
    fn the_head_decides_which_notices_are_live_and_expired_items_have_a_grace_period() {
        let mut head = head(3);
        head.remove(&[2]);
        head.publish(now(), Some(now())).unwrap();
        let item = |seq, expires_at| StoredNotice { seq, expires_at };
        let past = |seconds: u64| Some(Timestamp::from_ms(now().ms() - seconds * 1_000));
        assert_eq!(of_platform(platform(), &head, &[item(1, None), item(3, None)], now()), [], "an expired notice needs no item");
        let stored =
            [item(1, None), item(2, None), item(5, past(60)), item(6, past(GRACE_SECONDS + 1)), item(9, Some(now().plus_ms(1)))];
        let notice = |seq| Subject::Notice { notice: id(seq) };
        let left = [2, 6, 9].map(|seq| Difference::new(Kind::NoticeLeft, notice(seq), Correction::DeleteNotice(id(seq))));
        let missing = Difference::new(Kind::NoticeMissing, notice(3), Correction::UnlistNotice(id(3)));
        assert_eq!(of_platform(platform(), &head, &stored, now()), [vec![missing], left.to_vec()].concat());
    }

    #[test]
    fn a_counted_slot_above_the_head_shows_that_the_head_is_stale() {
        let head = head(3);
        let found = |reads: &NoticeReads, counted: &[Slot]| of_reads(USER, platform(), &head, reads, &set(counted));
        let reads = |slots: &[Slot]| NoticeReads { version: 1, read: set(slots), ..NoticeReads::default() };
        let (user, platform) = (USER, platform());
        let beyond = |latest| {
            let subject = Subject::NoticeReadsBeyond { user, platform, latest };
            Difference::new(Kind::NoticeReadsBeyond, subject, Correction::CutNoticeReads { user, platform })
        };
        let behind = || {
            let subject = Subject::Slots { platform, seen: 3, right: 5 };
            Difference::new(Kind::SlotsBehind, subject, Correction::RaiseSlot { platform, given: 5 })
        };
        assert_eq!(found(&reads(&[1, 3]), &[]), []);
        assert_eq!(found(&reads(&[1, 5]), &[]), [beyond(3)]);
        assert_eq!(found(&reads(&[1, 5]), &[5]), [behind()]);
        assert_eq!(found(&reads(&[5, 8]), &[5]), [behind(), beyond(5)]);
        assert_eq!(found(&NoticeReads { through: 4, ..reads(&[]) }, &[]), [beyond(3)]);
        assert_eq!(found(&NoticeReads { through_slot: 4, ..reads(&[]) }, &[]), [beyond(3)]);
        let mut cut = NoticeReads { through: 4, through_slot: 9, ..reads(&[2, 8]) };
        cut.cut(3, 3);
        assert_eq!(cut, NoticeReads { through: 3, through_slot: 3, ..reads(&[2]) });
    }

    #[test]
    fn a_view_may_keep_or_lack_slots_without_a_live_notice() {
        let mut head = head(4);
        head.remove(&[2]);
        let right = NoticeReads { version: 3, read: set(&[1, 2]), ..NoticeReads::default() };
        let found = |version, slots: &[Slot]| {
            let stored = Stored::Present(StoredSlots { version, read: set(slots) });
            of_slots(USER, platform(), &stored, &head, &right)
        };
        let kinds = |version, slots: &[Slot]| found(version, slots).map(|found| found.kind);
        let differs = Some(Kind::ViewDiffers);
        assert_eq!([kinds(3, &[1]), kinds(3, &[1, 2])], [None, None]);
        assert_eq!([kinds(3, &[1, 4]), kinds(3, &[]), kinds(4, &[1, 2]), kinds(2, &[1, 2])], [differs; 4]);
        assert_eq!(found(2, &[1, 2]), found(4, &[1, 2]), "the version of the fact is part of the difference");
    }

    #[test]
    fn a_title_is_compared_with_its_own_revision_only() {
        let head = head(2);
        let content = NoticeContent { title: "right".to_owned(), body: None, expires_at: None };
        let right = Notice { id: id(1), created_at: now(), revision: 2, content };
        let found = |seq, revision, title: &str| {
            let stored = Stored::Present((title.to_owned(), now()));
            let (view, right) = (View::Title(id(seq), revision), (seq == 1).then_some(&right));
            of_content(view, (id(seq), revision), &stored, &head, right, title_of).map(|found| found.kind)
        };
        assert_eq!([found(1, 2, "right"), found(1, 1, "was right"), found(2, 2, "of one that is gone")], [None; 3]);
        assert_eq!(found(1, 2, "wrong"), Some(Kind::ViewDiffers));
        assert_eq!([found(1, 3, "right"), found(3, 2, "right")], [Some(Kind::ViewOrphan); 2]);
        let found = |revision, body: Option<&str>| {
            let stored = Stored::Present(body.map(str::to_owned));
            let view = View::NoticeBody(id(1), revision);
            of_content(view, (id(1), revision), &stored, &head, Some(&right), body_of).map(|found| found.kind)
        };
        assert_eq!([found(2, None), found(1, Some("was right"))], [None; 2]);
        assert_eq!([found(2, Some("")), found(3, None)], [Some(Kind::ViewDiffers), Some(Kind::ViewOrphan)]);
    }
}
