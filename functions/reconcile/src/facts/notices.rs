//! Notices as they are stored, and their repairs: one transaction each, on condition that the facts are as they were
//! read.

use tidemark_app::ports::{Notices, StoreError};
use tidemark_domain::{NoticeId, Platform, PlatformHead, SeqSet, Slot, Timestamp, UserId, ids::MAX_SEQ};
use tidemark_facts::{
    item::{Count, Item, number, string},
    schema::{self, CounterItem, NoticeItem, PlatformHeadItem},
    write::{Write, absent, between, is, only, queried, still_number},
};

use super::{Decoded, StoredFacts, audit::listing};
use crate::diff::notices::StoredNotice;

const OPERATION: &str = "repair_notices";

impl StoredFacts {
    /// The notices of a platform: also those that its head does not list, and expired ones.
    pub(crate) async fn stored_notices(&self, platform: Platform) -> Result<Decoded<Vec<StoredNotice>>, StoreError> {
        let [first, last] = [0, MAX_SEQ].map(|seq| string(schema::notice_sort_key(seq)));
        let notices = [is(NoticeItem::platform, number(platform.get())), between(NoticeItem::item, first, last)];
        let query = self.query(&self.tables.notices, notices).consistent_read(true);
        // Without the texts, which may be long.
        let query = only(query, &[NoticeItem::platform, NoticeItem::item, NoticeItem::until]);
        let items = queried("stored_notices", query, usize::MAX).await?;
        let key = NoticeItem::item;
        let read_seq = |item: &Item| schema::notice_seq(&key.read::<String>(item)?).ok_or_else(|| key.damaged(item));
        // The key alone shows that a notice exists.
        let until = |item: &Item| NoticeItem::until.optional::<u64>(item);
        let expires_at = |item: &Item| until(item).ok().flatten().map(Timestamp::from_ms);
        let stored = |item: Item| Ok(StoredNotice { seq: read_seq(&item)?, expires_at: expires_at(&item) });
        let Decoded { found, mut damaged } = listing(items.clone(), stored)?;
        damaged.extend(listing(items, |item| until(&item))?.damaged);
        Ok(Decoded { found, damaged })
    }

    /// The slots among these that at least one user in this user's shard of the numbers of readers has read.
    pub(crate) async fn counted_slots(&self, user: UserId, platform: Platform, slots: &[Slot]) -> Result<SeqSet, StoreError> {
        let mut blocks: Vec<u64> = slots.iter().map(|&slot| schema::reader_block(slot).0).collect();
        blocks.dedup();
        let counter = |block| schema::notice_readers(platform, schema::reader_shard(user), block);
        let keys = blocks.into_iter().map(counter).collect();
        let items = self.get("counted_slots", &self.tables.counters, keys).await?;
        let mut counted = SeqSet::default();
        for &slot in slots {
            let (block, attribute) = schema::reader_block(slot);
            let key = counter(block);
            let Some(item) = items.iter().find(|item| CounterItem::counter.of(item) == CounterItem::counter.of(&key)) else {
                continue;
            };
            let count = attribute.optional::<Count>(item)?;
            if Count::or_zero(count, attribute, schema::key_text("counters", item)) > 0 {
                counted.insert(slot);
            }
        }
        Ok(counted)
    }

    pub(super) async fn unlist(&self, notice: NoticeId) -> Result<bool, StoreError> {
        let before = self.head(notice.platform).await?;
        let mut head = before.clone();
        if !head.remove(&[notice.seq]) {
            return Ok(false);
        }
        let check = Write::check(&self.tables.notices, schema::notice(notice)).when(absent(NoticeItem::title));
        self.send_all(OPERATION, vec![self.put_head(notice.platform, &before, &head), check]).await
    }

    pub(super) async fn delete_left(&self, notice: NoticeId) -> Result<bool, StoreError> {
        let head = self.head(notice.platform).await?;
        if head.live.iter().any(|live| live.seq == notice.seq) {
            return Ok(false);
        }
        let delete = Write::delete(&self.tables.notices, schema::notice(notice));
        self.send_all(OPERATION, vec![self.head_is_still(notice.platform, &head), delete]).await
    }

    /// Raises a head's latest slot to a slot that was given. Live notices keep their slots.
    pub(super) async fn raise_slots(&self, platform: Platform, given: Slot) -> Result<bool, StoreError> {
        let before = self.head(platform).await?;
        if before.latest_slot >= given {
            return Ok(false);
        }
        let head = PlatformHead { version: before.version + 1, latest_slot: given, ..before.clone() };
        self.send(OPERATION, self.put_head(platform, &before, &head)).await
    }

    /// Cuts a read state at its head, as the next version. The removed slots are not counted, so no number of readers
    /// changes.
    pub(super) async fn cut_notice_reads(&self, user: UserId, platform: Platform) -> Result<bool, StoreError> {
        let (head, before) = self.state(platform, user).await?;
        if !before.is_beyond(head.latest_seq, head.latest_slot) {
            return Ok(false);
        }
        let mut after = before.clone();
        after.cut(head.latest_seq, head.latest_slot);
        after.version += 1;
        let put = self.put_notice_reads(user, platform, &after, before.version);
        self.send_all(OPERATION, vec![self.head_is_still(platform, &head), put]).await
    }

    fn head_is_still(&self, platform: Platform, head: &PlatformHead) -> Write {
        let check = Write::check(&self.tables.notices, schema::platform_head(platform));
        check.when(still_number(PlatformHeadItem::version, head.version))
    }
}
