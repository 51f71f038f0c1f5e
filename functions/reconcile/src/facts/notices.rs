//! Notices as they are stored, and their repairs: one transaction each, on condition that the facts are as they were
//! read.

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, TransactWriteItem};
use tidemark_app::ports::{Notices, StoreError};
use tidemark_domain::{NoticeId, Platform, PlatformHead, SeqSet, Slot, Timestamp, UserId, ids::MAX_SEQ};
use tidemark_facts::{
    DynamoFacts, build,
    item::{Item, Reader},
    notices::{put_if_version, reads_item},
    number, schema, unavailable,
};

use super::StoredFacts;
use crate::{diff::notices::StoredNotice, facts::audit::listing, stored::Decoded};

const OPERATION: &str = "repair_notices";

impl StoredFacts {
    /// The notices of a platform, expired ones and those that its head does not list included.
    pub async fn stored_notices(&self, platform: Platform) -> Result<Decoded<Vec<StoredNotice>>, StoreError> {
        let mut pages = self
            .client
            .query()
            .table_name(&self.tables.notices)
            .consistent_read(true)
            .key_condition_expression("platform = :platform AND #item BETWEEN :first AND :last")
            // Without the texts, which may be long.
            .projection_expression("platform, #item, #until")
            .expression_attribute_names("#item", "item")
            .expression_attribute_names("#until", "until")
            .expression_attribute_values(":platform", number(platform.get().into()))
            .expression_attribute_values(":first", schema::notice_sort_key(0))
            .expression_attribute_values(":last", schema::notice_sort_key(MAX_SEQ))
            .into_paginator()
            .items()
            .send();
        let mut items = Vec::new();
        while let Some(item) = pages.next().await {
            items.push(item.map_err(|error| unavailable("stored_notices", error))?);
        }
        let read_seq = |item: &Item| {
            let reader = Reader { table: "notices", item };
            schema::notice_seq(reader.text("item")?).ok_or_else(|| reader.damaged("item"))
        };
        // The key alone shows that a notice exists.
        let until = |item: &Item| Reader { table: "notices", item }.optional_number("until");
        let expires_at = |item: &Item| until(item).ok().flatten().map(Timestamp::from_ms);
        let stored = |item: &Item| Ok(StoredNotice { seq: read_seq(item)?, expires_at: expires_at(item) });
        let Decoded { found, mut damaged } = listing(&items, stored)?;
        damaged.extend(listing(&items, until)?.damaged);
        Ok(Decoded { found, damaged })
    }

    /// The slots among these that at least one user in this user's shard of the numbers of readers has read.
    pub async fn counted_slots(&self, user: UserId, platform: Platform, slots: &[Slot]) -> Result<SeqSet, StoreError> {
        let mut blocks: Vec<u64> = slots.iter().map(|&slot| schema::reader_block(slot).0).collect();
        blocks.dedup();
        let keys = blocks.iter().map(|&block| schema::notice_readers(platform, schema::reader_shard(user), block)).collect();
        let found = self.batch_get("counted_slots", vec![(self.tables.counters.clone(), keys)]).await?;
        let mut counted = SeqSet::default();
        for &slot in slots {
            let (block, place) = schema::reader_block(slot);
            let key = schema::notice_readers(platform, schema::reader_shard(user), block);
            let Some(item) = found.iter().flatten().find(|item| item.get("counter") == key.get("counter")) else { continue };
            if (Reader { table: "counters", item }).count(&schema::reader_count(place)) > 0 {
                counted.insert(slot);
            }
        }
        Ok(counted)
    }

    /// Removes a notice that does not exist from its head.
    pub(super) async fn unlist(&self, notice: NoticeId) -> Result<bool, StoreError> {
        let before = self.head(notice.platform).await?;
        let mut head = before.clone();
        if !head.remove(&[notice.seq]) {
            return Ok(false);
        }
        let check = ConditionCheck::builder().table_name(&self.tables.notices).set_key(Some(schema::notice(notice)));
        let check = check.condition_expression("attribute_not_exists(title)");
        let check = TransactWriteItem::builder().condition_check(build(OPERATION, check.build())?).build();
        self.both(self.put_head(notice.platform, &before, &head)?, check).await
    }

    /// Deletes a notice that the head does not list.
    pub(super) async fn delete_left(&self, notice: NoticeId) -> Result<bool, StoreError> {
        let head = self.head(notice.platform).await?;
        if head.live.iter().any(|live| live.seq == notice.seq) {
            return Ok(false);
        }
        let delete = Delete::builder().table_name(&self.tables.notices).set_key(Some(schema::notice(notice)));
        let delete = TransactWriteItem::builder().delete(build(OPERATION, delete.build())?).build();
        self.both(self.head_is_still(notice.platform, &head)?, delete).await
    }

    /// Raises a head's latest slot to a slot that was given. Live notices keep their slots.
    pub(super) async fn raise_slots(&self, platform: Platform, given: Slot) -> Result<bool, StoreError> {
        let before = self.head(platform).await?;
        if before.latest_slot >= given {
            return Ok(false);
        }
        let head = PlatformHead { version: before.version + 1, latest_slot: given, ..before.clone() };
        let transaction = self.client.transact_write_items().transact_items(self.put_head(platform, &before, &head)?);
        Ok(DynamoFacts::transact(OPERATION, transaction).await?.is_ok())
    }

    /// Cuts a read state at its head, as the next version. What it cuts is not counted, so no number of readers
    /// changes.
    pub(super) async fn cut_notice_reads(&self, user: UserId, platform: Platform) -> Result<bool, StoreError> {
        let (head, before) = self.state(platform, user).await?;
        if !before.is_beyond(head.latest_seq, head.latest_slot) {
            return Ok(false);
        }
        let mut after = before.clone();
        after.cut(head.latest_seq, head.latest_slot);
        after.version += 1;
        let put = put_if_version(OPERATION, &self.tables.notice_reads, reads_item(user, platform, &after), before.version)?;
        self.both(self.head_is_still(platform, &head)?, put).await
    }

    /// A check that the head has not changed.
    fn head_is_still(&self, platform: Platform, head: &PlatformHead) -> Result<TransactWriteItem, StoreError> {
        let check = ConditionCheck::builder().table_name(&self.tables.notices).set_key(Some(schema::platform_head(platform)));
        let check = match head.version {
            0 => check.condition_expression("attribute_not_exists(version)"),
            known => check.condition_expression("version = :known").expression_attribute_values(":known", number(known)),
        };
        Ok(TransactWriteItem::builder().condition_check(build(OPERATION, check.build())?).build())
    }

    async fn both(&self, one: TransactWriteItem, other: TransactWriteItem) -> Result<bool, StoreError> {
        let transaction = self.client.transact_write_items().transact_items(one).transact_items(other);
        Ok(DynamoFacts::transact(OPERATION, transaction).await?.is_ok())
    }
}
