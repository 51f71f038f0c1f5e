//! Notices, and the read states of users: the tables `notices` and `notice_reads`, and numbers of readers in
//! `counters`.

use std::collections::{BTreeMap, HashMap};

use tidemark_domain::{
    IdempotencyKey, LiveNotice, Notice, NoticeContent, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet, Slot,
    Timestamp, UserId,
};

use super::{
    Facts, Result, attempts, distinct,
    item::{Attribute, Bits, Item, encode},
    read,
    records::{new_record, valid_record},
    schema::{self, NoticeItem, NoticeReadsItem, PlatformHeadItem, RecordItem},
    write::{Condition, Write, absent, still_number},
};
use crate::Record;

/// Items of reader counts in one transaction, which takes at most 100. The read state takes one more.
const BLOCKS_PER_TRANSACTION: usize = 90;

/// The operation in the keys of idempotency records.
const PUBLISH: &str = "publish_notices";

/// Notices that one transaction deletes. Their head takes one more item.
const DELETES_PER_TRANSACTION: usize = 99;

#[derive(Debug, Clone, PartialEq)]
pub enum NoticesPublished {
    /// One new notice for each platform, with the platform's head after it.
    Created(Vec<(Notice, PlatformHead)>),
    /// An earlier request with the same key and body published these notices, which may have changed since.
    Repeated(Vec<Notice>),
    /// An earlier request with the same key published something else.
    KeyReused,
    /// The notice would expire before it is published. Nothing is published.
    Expired,
    /// This platform has the maximum number of live notices. Nothing is published on any platform.
    Full(Platform),
}

/// A platform whose head has changed, with the head after it.
pub type PlatformChange = (Platform, PlatformHead);

impl Facts {
    /// Returns the head of a platform; an empty one if nothing was ever published on it.
    pub async fn platform_head(&self, platform: Platform) -> Result<PlatformHead> {
        let head = self.get_one("platform_head", &self.tables.notices, schema::platform_head(platform)).await?;
        head.map_or_else(|| Ok(PlatformHead::default()), read_head)
    }

    pub async fn notice_reads(&self, platform: Platform, user: UserId) -> Result<NoticeReads> {
        let reads = self.get_one("notice_reads", &self.tables.notice_reads, schema::notice_reads(user, platform)).await?;
        reads.map_or_else(|| Ok(NoticeReads::default()), read_reads)
    }

    /// Returns the head and a user's read state. Both reads are consistent, but not necessarily of the same moment.
    pub async fn notice_state(&self, platform: Platform, user: UserId) -> Result<(PlatformHead, NoticeReads)> {
        let head = (self.tables.notices.as_str(), vec![schema::platform_head(platform)]);
        let reads = (self.tables.notice_reads.as_str(), vec![schema::notice_reads(user, platform)]);
        let [mut head, mut reads] = self.batch_get("notice_state", [head, reads]).await?;
        let head = head.pop().map(read_head).transpose()?.unwrap_or_default();
        Ok((head, reads.pop().map(read_reads).transpose()?.unwrap_or_default()))
    }

    /// Returns these notices. Deleted and unknown ones are left out. Expired ones may be among them.
    pub async fn notices(&self, ids: &[NoticeId]) -> Result<HashMap<NoticeId, Notice>> {
        let keys = distinct(ids).into_iter().map(schema::notice).collect();
        let items = self.get("notices", &self.tables.notices, keys).await?;
        items.into_iter().map(|item| read_notice(item).map(|notice| (notice.id, notice))).collect()
    }

    /// Publishes one notice on each of at most 32 distinct platforms, in one transaction.
    pub async fn publish_notices(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<NoticesPublished> {
        let mut attempts = attempts("publish_notices");
        loop {
            attempts.next().await?;
            let (mut heads, earlier) = self.heads_and_record(user, platforms, content, idempotency, now).await?;
            if let Some(earlier) = earlier {
                return Ok(earlier);
            }
            if content.expires_at.is_some_and(|at| at <= now) {
                return Ok(NoticesPublished::Expired);
            }
            // All notices get the same time, and none is earlier than the latest notice of its platform.
            let at = heads.values().fold(now, |at, head| at.max(head.latest_at));
            let mut created = Vec::with_capacity(platforms.len());
            let mut writes = Vec::with_capacity(platforms.len() * 2 + 1);
            for &platform in platforms {
                let before = heads.remove(&platform).unwrap_or_default();
                let mut head = before.clone();
                head.prune(now);
                let Some(LiveNotice { seq, revision, .. }) = head.publish(at, content.expires_at) else {
                    return Ok(NoticesPublished::Full(platform));
                };
                let notice = Notice { id: NoticeId { platform, seq }, created_at: at, revision, content: content.clone() };
                writes.push(self.put_head(platform, &before, &head));
                writes.push(self.put_notice(&notice, absent(NoticeItem::title)));
                created.push((notice, head));
            }
            if let Some(record) = idempotency {
                let ids: Vec<String> = created.iter().map(|(notice, _)| notice.id.to_string()).collect();
                let record = new_record(schema::request_record(user, PUBLISH, &record.key), &record.fingerprint, now);
                let record = RecordItem { notices: Some(ids.join(" ")), at: Some(at.ms()), ..record };
                writes.push(self.record_item_write(&record, now));
            }
            // Otherwise another change of a platform, or another publish with the same key, has written first.
            if self.send_all("publish_notices", writes).await? {
                return Ok(NoticesPublished::Created(created));
            }
        }
    }

    /// Removes notices, up to 99 in one transaction, and returns the head after it. May be repeated.
    pub async fn remove_notices(&self, platform: Platform, seqs: &[Seq]) -> Result<PlatformHead> {
        let mut head = PlatformHead::default();
        for seqs in seqs.chunks(DELETES_PER_TRANSACTION) {
            head = self.remove_some(platform, seqs).await?;
        }
        Ok(head)
    }

    /// Returns how many users have read this slot. The number is exact, and repeated requests do not change it.
    pub async fn notice_readers(&self, platform: Platform, slot: Slot) -> Result<u64> {
        let (block, count) = schema::reader_block(slot);
        let keys = (0..schema::READER_SHARDS).map(|shard| schema::notice_readers(platform, shard, block)).collect();
        let items = self.get("notice_readers", &self.tables.counters, keys).await?;
        items.iter().map(|item| Ok(count.optional::<u64>(item)?.unwrap_or(0))).sum()
    }

    /// Replaces a user's read state, and changes the number of readers of every slot that differs. Returns the state as
    /// it was written, with its version; `None` if `before` is not the stored state. A change of very many slots takes
    /// several transactions, each of which is exact. If it ends with `None` or an error, some of them may be done. The
    /// last one writes the record, on its own condition. With `unless_erased` it also returns `None` if the user has
    /// asked to leave.
    pub async fn replace_notice_reads(
        &self,
        user: UserId,
        platform: Platform,
        before: &NoticeReads,
        after: NoticeReads,
        record: Option<&Record>,
        unless_erased: bool,
    ) -> Result<Option<NoticeReads>> {
        let changes = changes(&before.read, &after.read);
        let mut known = before.clone();
        let mut parts = changes.chunks(BLOCKS_PER_TRANSACTION).peekable();
        loop {
            let part = parts.next().unwrap_or_default();
            let next = if parts.peek().is_none() {
                NoticeReads { version: known.version + 1, ..after.clone() }
            } else {
                // An intermediate step: some blocks have their final bits, all others are unchanged.
                let mut read = known.read.clone();
                for (slot, is_read) in part.iter().flat_map(|(_, slots)| slots).copied() {
                    read.set(slot, is_read);
                }
                NoticeReads { version: known.version + 1, read, ..known.clone() }
            };
            let record = record.filter(|_| parts.peek().is_none());
            if !self.move_reads(user, platform, (&known, &next), part, (record, unless_erased)).await? {
                return Ok(None);
            }
            if parts.peek().is_none() {
                return Ok(Some(next));
            }
            known = next;
        }
    }
}

/// A block of slots, and its slots that become read (true) or unread (false).
type BlockChange = (u64, Vec<(Slot, bool)>);

fn changes(before: &SeqSet, after: &SeqSet) -> Vec<BlockChange> {
    let mut blocks: BTreeMap<u64, Vec<(Slot, bool)>> = BTreeMap::new();
    for (slots, is_read) in [(after.minus(before), true), (before.minus(after), false)] {
        for slot in slots.iter() {
            blocks.entry(schema::reader_block(slot).0).or_default().push((slot, is_read));
        }
    }
    blocks.into_iter().collect()
}

impl Facts {
    /// The platforms' heads, and the outcome that an earlier publish with the same key implies.
    async fn heads_and_record(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<(HashMap<Platform, PlatformHead>, Option<NoticesPublished>)> {
        let key = |record: &IdempotencyKey| schema::record(&schema::request_record(user, PUBLISH, &record.key));
        let records = (self.tables.idempotency.as_str(), idempotency.map(key).into_iter().collect());
        let heads = platforms.iter().map(|&platform| schema::platform_head(platform)).collect();
        let [heads, records] = self.batch_get("publish_notices", [(&self.tables.notices, heads), records]).await?;
        let heads = heads.into_iter().map(|item| Ok((PlatformHeadItem::platform.read(&item)?, read_head(item)?)));
        let heads = heads.collect::<Result<_>>()?;
        let (Some(record), Some(request)) = (valid_record(records, now)?, idempotency) else { return Ok((heads, None)) };
        if record.fingerprint != request.fingerprint {
            return Ok((heads, Some(NoticesPublished::KeyReused)));
        }
        let damaged = |attribute: Attribute| attribute.damaged_at(record.key.clone());
        let created_at = record.at.map(Timestamp::from_ms).ok_or_else(|| damaged(RecordItem::at))?;
        let ids = record.notices.as_deref().and_then(noticed).ok_or_else(|| damaged(RecordItem::notices))?;
        // The body is the same, so the repeated response needs only the record, even if the notices have changed.
        let earlier = ids.into_iter().map(|id| Notice { id, created_at, revision: 0, content: content.clone() }).collect();
        Ok((heads, Some(NoticesPublished::Repeated(earlier))))
    }

    async fn remove_some(&self, platform: Platform, seqs: &[Seq]) -> Result<PlatformHead> {
        let mut attempts = attempts("remove_notices");
        loop {
            attempts.next().await?;
            let before = self.platform_head(platform).await?;
            let mut head = before.clone();
            if !head.remove(seqs) {
                return Ok(head);
            }
            let mut writes = vec![self.put_head(platform, &before, &head)];
            for &seq in distinct(seqs).iter().filter(|&&seq| before.live.iter().any(|notice| notice.seq == seq)) {
                writes.push(Write::delete(&self.tables.notices, schema::notice(NoticeId { platform, seq })));
            }
            if self.send_all("remove_notices", writes).await? {
                return Ok(head);
            }
        }
    }

    /// Moves a read state to the next version, with the reader counts of these slots. False if it has changed.
    async fn move_reads(
        &self,
        user: UserId,
        platform: Platform,
        (before, after): (&NoticeReads, &NoticeReads),
        changes: &[BlockChange],
        (record, unless_erased): (Option<&Record>, bool),
    ) -> Result<bool> {
        let mut writes = vec![self.put_notice_reads(user, platform, after, before.version)];
        writes.extend(record.map(|record| self.record_write(record)));
        for (block, slots) in changes {
            let key = schema::notice_readers(platform, schema::reader_shard(user), *block);
            writes.push(count_readers(Write::update(&self.tables.counters, key), slots));
        }
        writes.extend(unless_erased.then(|| self.still_here(user, user.shard())));
        // Another reader may change the same counter item. The condition still shows whether this write is done.
        self.transact_when_free("put_notice_reads", writes).await
    }

    /// Puts a head on the condition that the stored one is still `before`.
    pub fn put_head(&self, platform: Platform, before: &PlatformHead, after: &PlatformHead) -> Write {
        let item = PlatformHeadItem {
            platform,
            item: schema::HEAD.to_owned(),
            version: after.version,
            latest_seq: after.latest_seq,
            latest_slot: after.latest_slot,
            latest_at: after.latest_at.ms(),
            live: after.encode_live().into(),
        };
        let put = Write::put(&self.tables.notices, encode(&item));
        put.when(still_number(PlatformHeadItem::version, before.version))
    }

    pub(crate) fn put_notice(&self, notice: &Notice, condition: Condition) -> Write {
        let until = notice.content.expires_at;
        let item = NoticeItem {
            platform: notice.id.platform,
            item: schema::notice_sort_key(notice.id.seq),
            title: notice.content.title.clone(),
            at: notice.created_at.ms(),
            revision: notice.revision,
            body: notice.content.body.clone(),
            until: until.map(Timestamp::ms),
            expires_at: until.map(schema::notice_expires_at),
        };
        Write::put(&self.tables.notices, encode(&item)).when(condition)
    }

    /// Puts a read state on the condition of the stored version.
    pub fn put_notice_reads(&self, user: UserId, platform: Platform, reads: &NoticeReads, known: u64) -> Write {
        let &NoticeReads { version, through, through_slot, .. } = reads;
        let read = Some(Bits(reads.read.clone()));
        let item = NoticeReadsItem { user: user.into(), platform, version, through, through_slot, read };
        Write::put(&self.tables.notice_reads, encode(&item)).when(still_number(NoticeReadsItem::version, known))
    }
}

/// Adds or removes one reader for each of these slots of one item.
fn count_readers(update: Write, slots: &[(Slot, bool)]) -> Write {
    let count =
        |update: Write, &(slot, is_read): &(Slot, bool)| update.add(schema::reader_block(slot).1, if is_read { 1 } else { -1 });
    slots.iter().fold(update, count)
}

/// The notices that an idempotency record names; `None` if it is damaged.
pub fn noticed(ids: &str) -> Option<Vec<NoticeId>> {
    ids.split(' ').map(|id| id.parse().ok()).collect()
}

pub(crate) fn read_head(item: Item) -> Result<PlatformHead> {
    read(item, |item: PlatformHeadItem| {
        let head = PlatformHead {
            version: item.version,
            latest_seq: item.latest_seq,
            latest_slot: item.latest_slot,
            latest_at: Timestamp::from_ms(item.latest_at),
            live: Vec::new(),
        };
        head.with_live(&item.live).ok_or(PlatformHeadItem::live)
    })
}

pub(crate) fn read_reads(item: Item) -> Result<NoticeReads> {
    read(item, |NoticeReadsItem { version, through, through_slot, read, .. }| {
        Ok(NoticeReads { version, through, through_slot, read: read.unwrap_or_default().0 })
    })
}

fn read_notice(item: Item) -> Result<Notice> {
    read(item, |item: NoticeItem| {
        let seq = schema::notice_seq(&item.item).ok_or(NoticeItem::item)?;
        let content = NoticeContent { title: item.title, body: item.body, expires_at: item.until.map(Timestamp::from_ms) };
        let (id, created_at) = (NoticeId { platform: item.platform, seq }, Timestamp::from_ms(item.at));
        Ok(Notice { id, created_at, revision: item.revision, content })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_grouped_by_counter_item() {
        let set = |slots: &[Slot]| slots.iter().copied().collect::<SeqSet>();
        assert_eq!(
            changes(&set(&[1, 2, 40]), &set(&[2, 3, 41])),
            [(0, vec![(3, true), (1, false)]), (1, vec![(41, true), (40, false)])]
        );
        assert_eq!(changes(&set(&[7]), &set(&[7])), []);
    }

    #[test]
    fn the_largest_update_of_one_item_stays_below_the_expression_limit_of_dynamodb() {
        let slots: Vec<(Slot, bool)> = (0..32).map(|offset| (offset, true)).collect();
        let platform = Platform::new(7).unwrap();
        let write = count_readers(Write::update("table", schema::notice_readers(platform, 3, 0)), &slots);
        let expression = write.update_expression();
        assert!(expression.len() < 4_096 && expression.matches("#s31 :v31").count() == 1, "{expression}");
    }
}
