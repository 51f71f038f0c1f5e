//! [`Notices`] on DynamoDB.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    primitives::Blob,
    types::{AttributeValue, Delete, Put, TransactWriteItem, Update},
};
use tidemark_app::ports::{IdempotencyKey, Notices, NoticesPublished, StoreError};
use tidemark_domain::{
    LiveNotice, Notice, NoticeContent, NoticeId, NoticeReads, Platform, PlatformHead, Seq, SeqSet, Slot, Timestamp, UserId,
};

use super::{
    ATTEMPTS, Cancelled, DynamoFacts, back_off, build, distinct,
    item::{Item, Reader},
    number, schema, string,
    windows::bits_of,
};

/// Items of reader counts in one transaction. The read state itself takes one more item, and a transaction takes at
/// most 100.
const BLOCKS_PER_TRANSACTION: usize = 90;

/// Notices that one transaction deletes. Their head takes one more item.
const DELETES_PER_TRANSACTION: usize = 99;

#[async_trait]
impl Notices for DynamoFacts {
    async fn head(&self, platform: Platform) -> Result<PlatformHead, StoreError> {
        let wanted = vec![(self.tables.notices.clone(), vec![schema::platform_head(platform)])];
        let found = self.batch_get("platform_head", wanted).await?;
        found.iter().flatten().next().map_or_else(|| Ok(PlatformHead::default()), read_head)
    }

    async fn state(&self, platform: Platform, user: UserId) -> Result<(PlatformHead, NoticeReads), StoreError> {
        let wanted = vec![
            (self.tables.notices.clone(), vec![schema::platform_head(platform)]),
            (self.tables.notice_reads.clone(), vec![schema::notice_reads(user, platform)]),
        ];
        let found = self.batch_get("notice_state", wanted).await?;
        let head = found[0].first().map(read_head).transpose()?.unwrap_or_default();
        let reads = found[1].first().map(read_reads).transpose()?.unwrap_or_default();
        Ok((head, reads))
    }

    async fn notices(&self, ids: &[NoticeId]) -> Result<HashMap<NoticeId, Notice>, StoreError> {
        let keys = distinct(ids).into_iter().map(schema::notice).collect();
        let found = self.batch_get("notices", vec![(self.tables.notices.clone(), keys)]).await?;
        found.iter().flatten().map(|item| read_notice(item).map(|notice| (notice.id, notice))).collect()
    }

    async fn publish(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<NoticesPublished, StoreError> {
        const OPERATION: &str = "publish_notices";
        for attempt in 0..ATTEMPTS {
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
            let mut actions = Vec::with_capacity(platforms.len() * 2 + 1);
            for &platform in platforms {
                let before = heads.remove(&platform).unwrap_or_default();
                let mut head = before.clone();
                head.prune(now);
                let Some(LiveNotice { seq, revision, .. }) = head.publish(at, content.expires_at) else {
                    return Ok(NoticesPublished::Full(platform));
                };
                let notice = Notice { id: NoticeId { platform, seq }, created_at: at, revision, content: content.clone() };
                actions.push(self.put_head(platform, &before, &head)?);
                actions.push(self.put_notice(&notice, "attribute_not_exists(title)")?);
                created.push((notice, head));
            }
            if let Some(record) = idempotency {
                let ids: Vec<NoticeId> = created.iter().map(|(notice, _)| notice.id).collect();
                actions.push(self.put_record(user, record, &ids, at, now)?);
            }
            match self.write(OPERATION, actions).await? {
                Ok(()) => return Ok(NoticesPublished::Created(created)),
                // Another change of one of the platforms, or another publish with the same key, has written first.
                Err(Cancelled::Conditions(_) | Cancelled::Conflict) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: OPERATION })
    }

    async fn edit(
        &self,
        id: NoticeId,
        content: &NoticeContent,
        renotify: bool,
        now: Timestamp,
    ) -> Result<Option<(Notice, PlatformHead)>, StoreError> {
        const OPERATION: &str = "edit_notice";
        for attempt in 0..ATTEMPTS {
            let (before, known) = futures::try_join!(self.head(id.platform), self.notices(std::slice::from_ref(&id)))?;
            let mut head = before.clone();
            let edited = head.edit(id.seq, content.expires_at, renotify, now);
            let (Some(edited), Some(known)) = (edited, known.get(&id)) else { return Ok(None) };
            let notice = Notice { id, created_at: known.created_at, revision: edited.revision, content: content.clone() };
            let actions = vec![self.put_head(id.platform, &before, &head)?, self.put_notice(&notice, "attribute_exists(title)")?];
            match self.write(OPERATION, actions).await? {
                Ok(()) => return Ok(Some((notice, head))),
                Err(_) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: OPERATION })
    }

    async fn remove(&self, platform: Platform, seqs: &[Seq]) -> Result<PlatformHead, StoreError> {
        let mut head = PlatformHead::default();
        for seqs in seqs.chunks(DELETES_PER_TRANSACTION) {
            head = self.remove_some(platform, seqs).await?;
        }
        Ok(head)
    }

    async fn readers(&self, platform: Platform, slot: Slot) -> Result<u64, StoreError> {
        let (block, offset) = schema::reader_block(slot);
        let keys = (0..schema::READER_SHARDS).map(|shard| schema::notice_readers(platform, shard, block)).collect();
        let found = self.batch_get("notice_readers", vec![(self.tables.counters.clone(), keys)]).await?;
        let name = schema::reader_count(offset);
        let counts = found.iter().flatten().map(|item| Reader { table: "counters", item }.optional_number(&name));
        counts.map(|count| count.map(Option::unwrap_or_default)).sum()
    }

    async fn put_reads(
        &self,
        user: UserId,
        platform: Platform,
        before: &NoticeReads,
        after: NoticeReads,
    ) -> Result<Option<NoticeReads>, StoreError> {
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
            if !self.move_reads(user, platform, &known, &next, part).await? {
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

/// The differences between two sets, by block.
fn changes(before: &SeqSet, after: &SeqSet) -> Vec<BlockChange> {
    let mut blocks: BTreeMap<u64, Vec<(Slot, bool)>> = BTreeMap::new();
    for (slots, is_read) in [(after.minus(before), true), (before.minus(after), false)] {
        for slot in slots.iter() {
            blocks.entry(schema::reader_block(slot).0).or_default().push((slot, is_read));
        }
    }
    blocks.into_iter().collect()
}

impl DynamoFacts {
    /// The platforms' heads, and the outcome that an earlier publish with the same key implies.
    async fn heads_and_record(
        &self,
        user: UserId,
        platforms: &[Platform],
        content: &NoticeContent,
        idempotency: Option<&IdempotencyKey>,
        now: Timestamp,
    ) -> Result<(HashMap<Platform, PlatformHead>, Option<NoticesPublished>), StoreError> {
        let records = idempotency.iter().map(|record| schema::notices_record(user, &record.key)).collect();
        let heads = platforms.iter().map(|&platform| schema::platform_head(platform)).collect();
        let wanted = vec![(self.tables.notices.clone(), heads), (self.tables.idempotency.clone(), records)];
        let found = self.batch_get("publish_notices", wanted).await?;
        let heads = found[0].iter().map(|item| {
            let platform = read_platform(&Reader { table: "notices", item })?;
            read_head(item).map(|head| (platform, head))
        });
        let heads = heads.collect::<Result<_, StoreError>>()?;
        let (Some(item), Some(asked)) = (found[1].first(), idempotency) else { return Ok((heads, None)) };
        let record = Reader { table: "idempotency", item };
        if record.number("expires_at")? <= now.seconds() {
            return Ok((heads, None));
        }
        if record.text("fingerprint")? != asked.fingerprint {
            return Ok((heads, Some(NoticesPublished::KeyReused)));
        }
        let created_at = record.time("at")?;
        let ids: Result<Vec<NoticeId>, _> = record.text("notices")?.split(' ').map(str::parse).collect();
        let ids = ids.map_err(|_| record.damaged("notices"))?;
        // The body is the same, so the repeated response needs only the record, even if the notices have changed.
        let earlier = ids.into_iter().map(|id| Notice { id, created_at, revision: 0, content: content.clone() }).collect();
        Ok((heads, Some(NoticesPublished::Repeated(earlier))))
    }

    async fn remove_some(&self, platform: Platform, seqs: &[Seq]) -> Result<PlatformHead, StoreError> {
        const OPERATION: &str = "remove_notices";
        for attempt in 0..ATTEMPTS {
            let before = self.head(platform).await?;
            let mut head = before.clone();
            if !head.remove(seqs) {
                return Ok(head);
            }
            let mut actions = vec![self.put_head(platform, &before, &head)?];
            for &seq in distinct(seqs).iter().filter(|&&seq| before.live.iter().any(|notice| notice.seq == seq)) {
                let key = schema::notice(NoticeId { platform, seq });
                let delete = Delete::builder().table_name(&self.tables.notices).set_key(Some(key));
                actions.push(TransactWriteItem::builder().delete(build(OPERATION, delete.build())?).build());
            }
            match self.write(OPERATION, actions).await? {
                Ok(()) => return Ok(head),
                Err(_) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: OPERATION })
    }

    /// Moves a user's read state to the next version and updates the reader counts of these slots. Returns false if
    /// another request has changed the state.
    async fn move_reads(
        &self,
        user: UserId,
        platform: Platform,
        before: &NoticeReads,
        after: &NoticeReads,
        changes: &[BlockChange],
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "put_notice_reads";
        for attempt in 0..ATTEMPTS {
            let item = reads_item(user, platform, after);
            let mut actions = vec![put_if_version(OPERATION, &self.tables.notice_reads, item, before.version)?];
            for (block, slots) in changes {
                let key = schema::notice_readers(platform, schema::reader_shard(user), *block);
                actions.push(count_readers(OPERATION, &self.tables.counters, key, slots)?);
            }
            match self.write(OPERATION, actions).await? {
                Ok(()) => return Ok(true),
                Err(Cancelled::Conditions(_)) => return Ok(false),
                // Another reader changes the same counter item. The condition still shows whether this write is done.
                Err(Cancelled::Conflict) => back_off(attempt).await,
            }
        }
        Err(StoreError::Contention { operation: OPERATION })
    }

    async fn write(&self, operation: &'static str, actions: Vec<TransactWriteItem>) -> Result<Result<(), Cancelled>, StoreError> {
        Self::transact(operation, self.client.transact_write_items().set_transact_items(Some(actions))).await
    }

    pub fn put_head(
        &self,
        platform: Platform,
        before: &PlatformHead,
        after: &PlatformHead,
    ) -> Result<TransactWriteItem, StoreError> {
        let mut item = schema::platform_head(platform);
        item.extend([
            ("version".to_owned(), number(after.version)),
            ("latest_seq".to_owned(), number(after.latest_seq)),
            ("latest_slot".to_owned(), number(after.latest_slot)),
            ("latest_at".to_owned(), number(after.latest_at.ms())),
            ("live".to_owned(), AttributeValue::B(Blob::new(after.encode_live()))),
        ]);
        put_if_version("put_platform_head", &self.tables.notices, item, before.version)
    }

    fn put_notice(&self, notice: &Notice, condition: &str) -> Result<TransactWriteItem, StoreError> {
        let mut item = schema::notice(notice.id);
        item.extend([
            ("title".to_owned(), string(&notice.content.title)),
            ("at".to_owned(), number(notice.created_at.ms())),
            ("revision".to_owned(), number(notice.revision)),
        ]);
        item.extend(notice.content.body.as_ref().map(|body| ("body".to_owned(), string(body))));
        if let Some(at) = notice.content.expires_at {
            item.insert("until".to_owned(), number(at.ms()));
            // DynamoDB removes the item some time after this moment, and never before it.
            item.insert("expires_at".to_owned(), number(at.seconds() + 1));
        }
        let put = Put::builder().table_name(&self.tables.notices).set_item(Some(item)).condition_expression(condition);
        Ok(TransactWriteItem::builder().put(build("put_notice", put.build())?).build())
    }

    fn put_record(
        &self,
        user: UserId,
        record: &IdempotencyKey,
        notices: &[NoticeId],
        at: Timestamp,
        now: Timestamp,
    ) -> Result<TransactWriteItem, StoreError> {
        let mut item = schema::notices_record(user, &record.key);
        let ids: Vec<String> = notices.iter().map(NoticeId::to_string).collect();
        item.extend([
            ("fingerprint".to_owned(), string(&record.fingerprint)),
            ("notices".to_owned(), string(ids.join(" "))),
            ("at".to_owned(), number(at.ms())),
        ]);
        Ok(TransactWriteItem::builder().put(self.record_put("publish_notices", item, now)?).build())
    }
}

/// A read state with all attributes.
pub fn reads_item(user: UserId, platform: Platform, reads: &NoticeReads) -> Item {
    let mut item = schema::notice_reads(user, platform);
    item.extend([
        ("version".to_owned(), number(reads.version)),
        ("through".to_owned(), number(reads.through)),
        ("through_slot".to_owned(), number(reads.through_slot)),
        ("read".to_owned(), bits_of(&reads.read)),
    ]);
    item
}

/// A write of an item on the condition of its stored version. Zero means that no item is stored.
pub fn put_if_version(operation: &'static str, table: &str, item: Item, version: u64) -> Result<TransactWriteItem, StoreError> {
    let put = Put::builder().table_name(table).set_item(Some(item));
    let put = match version {
        0 => put.condition_expression("attribute_not_exists(version)"),
        known => put.condition_expression("version = :known").expression_attribute_values(":known", number(known)),
    };
    Ok(TransactWriteItem::builder().put(build(operation, put.build())?).build())
}

/// Adds or removes one reader for each of these slots of one item.
fn count_readers(
    operation: &'static str,
    table: &str,
    key: Item,
    slots: &[(Slot, bool)],
) -> Result<TransactWriteItem, StoreError> {
    let amount = |is_read: bool| if is_read { ":more" } else { ":less" };
    let additions: Vec<String> = slots
        .iter()
        .map(|&(slot, is_read)| format!("{} {}", schema::reader_count(schema::reader_block(slot).1), amount(is_read)))
        .collect();
    let mut update =
        Update::builder().table_name(table).set_key(Some(key)).update_expression(format!("ADD {}", additions.join(", ")));
    for (is_read, value) in [(true, "1"), (false, "-1")] {
        if slots.iter().any(|(_, read)| *read == is_read) {
            update = update.expression_attribute_values(amount(is_read), AttributeValue::N(value.to_owned()));
        }
    }
    Ok(TransactWriteItem::builder().update(build(operation, update.build())?).build())
}

fn read_platform(reader: &Reader<'_>) -> Result<Platform, StoreError> {
    let number = u16::try_from(reader.number("platform")?).ok();
    number.and_then(Platform::new).ok_or_else(|| reader.damaged("platform"))
}

pub fn read_head(item: &Item) -> Result<PlatformHead, StoreError> {
    let reader = Reader { table: "notices", item };
    let head = PlatformHead {
        version: reader.number("version")?,
        latest_seq: reader.number("latest_seq")?,
        latest_slot: reader.number("latest_slot")?,
        latest_at: reader.time("latest_at")?,
        live: Vec::new(),
    };
    head.with_live(reader.bytes("live")?).map_err(|_| reader.damaged("live"))
}

fn read_reads(item: &Item) -> Result<NoticeReads, StoreError> {
    let reader = Reader { table: "notice_reads", item };
    Ok(NoticeReads {
        version: reader.number("version")?,
        through: reader.number("through")?,
        through_slot: reader.number("through_slot")?,
        read: reader.seqs("read")?,
    })
}

fn read_notice(item: &Item) -> Result<Notice, StoreError> {
    let reader = Reader { table: "notices", item };
    let seq = schema::notice_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))?;
    let body = item.contains_key("body").then(|| reader.text("body").map(str::to_owned)).transpose()?;
    Ok(Notice {
        id: NoticeId { platform: read_platform(&reader)?, seq },
        created_at: reader.time("at")?,
        revision: reader.number("revision")?,
        content: NoticeContent {
            title: reader.text("title")?.to_owned(),
            body,
            expires_at: reader.optional_number("until")?.map(Timestamp::from_ms),
        },
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
        let action = count_readers("test", "table", schema::notice_readers(platform, 3, 0), &slots).unwrap();
        let expression = action.update().unwrap().update_expression().to_owned();
        assert!(expression.len() < 4_096 && expression.matches("s31 :more").count() == 1, "{expression}");
    }
}
