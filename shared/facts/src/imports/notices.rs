//! Notices of a platform, with their numbers, slots and revisions.

use std::collections::HashMap;

use tidemark_domain::{
    LiveNotice, Notice, NoticeContent, NoticeId, Platform, PlatformHead, Seq, Slot, Timestamp, notices::MAX_LIVE,
};

use crate::{Facts, Result, attempts, schema::NoticeItem, write::absent};

/// Notices in one transaction. Their head takes one more item.
const PER_TRANSACTION: usize = 40;

/// A notice of another system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedNotice {
    pub seq: Seq,
    pub created_at: Timestamp,
    pub content: NoticeContent,
    pub revision: u64,
    /// `None` gives it the next slot.
    pub slot: Option<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeImport {
    Written,
    /// The notice is here, or it has expired.
    Existing,
    /// Another notice was published here with this number.
    OtherNotice,
    /// Another notice has the slot.
    SlotTaken,
    /// The platform has the maximum number of live notices.
    Full,
}

impl Facts {
    /// Stores notices of one platform. Returns the outcome of each, in order.
    pub async fn import_notices(
        &self,
        platform: Platform,
        notices: &[ImportedNotice],
        now: Timestamp,
    ) -> Result<Vec<NoticeImport>> {
        let mut outcomes = Vec::with_capacity(notices.len());
        for notices in notices.chunks(PER_TRANSACTION) {
            outcomes.extend(self.import_some_notices(platform, notices, now).await?);
        }
        Ok(outcomes)
    }

    async fn import_some_notices(
        &self,
        platform: Platform,
        notices: &[ImportedNotice],
        now: Timestamp,
    ) -> Result<Vec<NoticeImport>> {
        let ids: Vec<NoticeId> = notices.iter().map(|notice| NoticeId { platform, seq: notice.seq }).collect();
        let mut attempts = attempts("import_notices");
        loop {
            attempts.next().await?;
            let before = self.platform_head(platform).await?;
            let mut head = before.clone();
            // Stored notices that have expired are no longer live.
            let mut known: HashMap<Seq, Timestamp> =
                self.notices(&ids).await?.into_values().map(|notice| (notice.id.seq, notice.created_at)).collect();
            let outcomes: Vec<NoticeImport> = notices.iter().map(|notice| add(&mut head, &mut known, notice, now)).collect();
            let new = notices.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == NoticeImport::Written);
            let mut writes: Vec<_> = new
                .map(|(ImportedNotice { seq, created_at, content, revision, .. }, _)| {
                    let id = NoticeId { platform, seq: *seq };
                    let notice = Notice { id, created_at: *created_at, revision: *revision, content: content.clone() };
                    self.put_notice(&notice, absent(NoticeItem::title))
                })
                .collect();
            if writes.is_empty() {
                return Ok(outcomes);
            }
            writes.push(self.put_head(platform, &before, &head));
            if self.send_all("import_notices", writes).await? {
                return Ok(outcomes);
            }
        }
    }

    /// Raises the last number, slot and time of a platform, so that those of deleted notices are not given again.
    /// Returns whether it wrote anything.
    pub async fn import_platform(&self, platform: Platform, seq: Seq, slot: Slot, at: Timestamp) -> Result<bool> {
        let mut attempts = attempts("import_platform");
        loop {
            attempts.next().await?;
            let before = self.platform_head(platform).await?;
            let mut head = before.clone();
            head.latest_seq = head.latest_seq.max(seq);
            head.latest_slot = head.latest_slot.max(slot);
            head.latest_at = head.latest_at.max(at);
            if head == before {
                return Ok(false);
            }
            head.version += 1;
            if self.send_all("import_platform", vec![self.put_head(platform, &before, &head)]).await? {
                return Ok(true);
            }
        }
    }
}

/// `known` has the notices that are stored, with their times.
fn add(head: &mut PlatformHead, known: &mut HashMap<Seq, Timestamp>, notice: &ImportedNotice, now: Timestamp) -> NoticeImport {
    match known.get(&notice.seq) {
        Some(at) if *at == notice.created_at => return NoticeImport::Existing,
        Some(_) => return NoticeImport::OtherNotice,
        None if notice.content.expires_at.is_some_and(|at| at <= now) => return NoticeImport::Existing,
        None => {}
    }
    let Err(place) = head.live.binary_search_by_key(&notice.seq, |live| live.seq) else { return NoticeImport::Existing };
    let slot = notice.slot.unwrap_or(head.latest_slot + 1);
    if head.live.iter().any(|live| live.slot == slot) {
        return NoticeImport::SlotTaken;
    }
    if head.live.len() >= MAX_LIVE {
        return NoticeImport::Full;
    }
    let &ImportedNotice { seq, created_at, revision, .. } = notice;
    known.insert(seq, created_at);
    head.live.insert(place, LiveNotice { seq, slot, revision, expires_at: notice.content.expires_at });
    head.version = (head.version + 1).max(revision);
    head.latest_seq = head.latest_seq.max(seq);
    head.latest_slot = head.latest_slot.max(slot);
    head.latest_at = head.latest_at.max(created_at);
    NoticeImport::Written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(seq: Seq, at: u64, expires_at: Option<u64>) -> ImportedNotice {
        let content = NoticeContent { title: "a".to_owned(), body: None, expires_at: expires_at.map(Timestamp::from_ms) };
        ImportedNotice { seq, created_at: Timestamp::from_ms(at), content, revision: 1, slot: None }
    }

    #[test]
    fn a_notice_that_is_stored_or_has_expired_is_not_written() {
        let (mut head, now) = (PlatformHead::default(), Timestamp::from_ms(100));
        // Number 3 is stored and no longer live.
        let mut known = HashMap::from([(3, Timestamp::from_ms(30))]);
        let mut add = |seq, at, expires_at| add(&mut head, &mut known, &notice(seq, at, expires_at), now);
        assert_eq!(add(1, 10, Some(101)), NoticeImport::Written);
        assert_eq!(add(1, 10, Some(101)), NoticeImport::Existing);
        assert_eq!(add(1, 11, Some(101)), NoticeImport::OtherNotice);
        assert_eq!(add(2, 20, Some(100)), NoticeImport::Existing);
        assert_eq!(add(3, 30, None), NoticeImport::Existing);
        assert_eq!(add(3, 31, None), NoticeImport::OtherNotice);
        assert_eq!(head.live.iter().map(|live| live.seq).collect::<Vec<_>>(), [1]);
    }
}
