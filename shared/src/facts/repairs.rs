//! Repairs of facts that contradict each other: one write or transaction each, on the condition of what was seen.

use aws_sdk_dynamodb::{
    operation::update_item::builders::UpdateItemFluentBuilder,
    primitives::Blob,
    types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update},
};

use super::{
    DynamoFacts,
    audit::said,
    build,
    item::Item,
    number,
    posts::{read_head, unfinished_shard},
    reactions::count_name,
    schema, sent, string,
};
use crate::{
    domain::{
        PostId, ReadState, UserId,
        diff::{FactDifference, Off, facts::StoredRecord},
    },
    ports::{FactsError, Posts, Reads},
};

const OPERATION: &str = "repair";

/// What an edge must still be for its author's list to be changed.
enum Expected {
    Following { rev: u32 },
    Nothing,
}

impl DynamoFacts {
    /// Does what a difference needs; false when what was seen has changed.
    pub(super) async fn repair_fact(&self, difference: &FactDifference) -> Result<bool, FactsError> {
        match *difference {
            FactDifference::FollowerMissing { user, author, since, rev }
            | FactDifference::FollowerSince { user, author, since, rev } => {
                let mut item = schema::follower(author, user);
                item.insert("since".to_owned(), schema::follower_since(user, since));
                let put = Put::builder().table_name(&self.tables.followers).set_item(Some(item));
                let put = TransactWriteItem::builder().put(build(OPERATION, put.build())?).build();
                self.with_edge(user, author, Expected::Following { rev }, put).await
            }
            FactDifference::FollowerGhost { user, author, .. } => {
                let delete = Delete::builder().table_name(&self.tables.followers).set_key(Some(schema::follower(author, user)));
                let delete = TransactWriteItem::builder().delete(build(OPERATION, delete.build())?).build();
                self.with_edge(user, author, Expected::Nothing, delete).await
            }
            FactDifference::FollowingsCount { user, off } => {
                self.set(&self.tables.counters, schema::followings_counter(user), "count", off).await
            }
            FactDifference::FollowersCount { author, shard, off } => {
                self.set(&self.tables.counters, schema::followers_counter(author, shard), "count", off).await
            }
            FactDifference::HeadPosts { author, off } => self.set(&self.tables.posts, schema::head(author), "posts", off).await,
            FactDifference::HeadDeletion { post, deleted } => self.set_deleted(post, deleted).await,
            FactDifference::ReadsBeyond { user, author, .. } => self.cut_reads(user, author).await,
            FactDifference::PostReactions { post, shard, reaction, off } => {
                self.set(&self.tables.reactions, schema::post_reactions(post, shard), count_name(reaction), off).await
            }
            FactDifference::AuthorReactions { author, shard, reaction, off } => {
                self.set(&self.tables.reactions, schema::author_reactions(author, shard), count_name(reaction), off).await
            }
            FactDifference::UnfinishedLeft { post } => {
                let update = self.post_in_state(post, "done").update_expression("REMOVE unfinished");
                sent(OPERATION, update.send().await)
            }
            FactDifference::UnfinishedMissing { post } => {
                let update = self.post_in_state(post, "pending").update_expression("SET unfinished = :shard");
                let update = update.expression_attribute_values(":shard", unfinished_shard(post.author));
                sent(OPERATION, update.send().await)
            }
            FactDifference::BodyLeft { post } => {
                // A tombstone stays one: nothing can make the body wanted again.
                let delete = self.client.delete_item().table_name(&self.tables.posts).set_key(Some(schema::body(post)));
                sent(OPERATION, delete.send().await)
            }
            FactDifference::RecordExpired { ref record }
            | FactDifference::RecordDamaged { ref record }
            | FactDifference::RecordOfNothing { ref record } => self.delete_record(record).await,
            FactDifference::NoticeMissing { notice } => self.unlist(notice).await,
            FactDifference::NoticeLeft { notice } => self.delete_left(notice).await,
            FactDifference::SlotsBehind { platform, off } => self.raise_slots(platform, off.right).await,
            FactDifference::NoticeReadsBeyond { user, platform, .. } => self.cut_notice_reads(user, platform).await,
            FactDifference::TombstoneExpired { user, author, rev } => {
                let delete = self
                    .client
                    .delete_item()
                    .table_name(&self.tables.following)
                    .set_key(Some(schema::edge(user, author)))
                    .condition_expression("following = :false AND rev = :rev")
                    .expression_attribute_values(":false", AttributeValue::Bool(false))
                    .expression_attribute_values(":rev", number(rev.into()));
                sent(OPERATION, delete.send().await)
            }
        }
    }

    /// Sets a number that is still what was seen; one that is not there is zero.
    async fn set(&self, table: &str, key: Item, name: &str, off: Off) -> Result<bool, FactsError> {
        let condition = if off.seen == 0 { "attribute_not_exists(#number) OR #number = :seen" } else { "#number = :seen" };
        let update = self
            .client
            .update_item()
            .table_name(table)
            .set_key(Some(key))
            .update_expression("SET #number = :right")
            .condition_expression(condition)
            .expression_attribute_names("#number", name)
            .expression_attribute_values(":seen", number(off.seen))
            .expression_attribute_values(":right", number(off.right));
        sent(OPERATION, update.send().await)
    }

    /// An update of a live post whose fan-out is in this state.
    fn post_in_state(&self, post: PostId, state: &str) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::post(post)))
            .condition_expression("#state = :state AND attribute_not_exists(tombstone)")
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":state", string(state))
    }

    /// Writes while the edge is what was seen.
    async fn with_edge(
        &self,
        user: UserId,
        author: UserId,
        expected: Expected,
        write: TransactWriteItem,
    ) -> Result<bool, FactsError> {
        let check = ConditionCheck::builder().table_name(&self.tables.following).set_key(Some(schema::edge(user, author)));
        let check = match expected {
            Expected::Following { rev } => check
                .condition_expression("following = :following AND rev = :rev")
                .expression_attribute_values(":following", AttributeValue::Bool(true))
                .expression_attribute_values(":rev", number(rev.into())),
            Expected::Nothing => check
                .condition_expression("attribute_not_exists(rev) OR following = :following")
                .expression_attribute_values(":following", AttributeValue::Bool(false)),
        };
        let check = TransactWriteItem::builder().condition_check(build(OPERATION, check.build())?).build();
        let transaction = self.client.transact_write_items().transact_items(check).transact_items(write);
        Ok(Self::transact(OPERATION, transaction).await?.is_ok())
    }

    /// Puts a post into, or out of, its author's deleted ones, while both are what was seen.
    async fn set_deleted(&self, post: PostId, deleted: bool) -> Result<bool, FactsError> {
        let found = self.batch_get(OPERATION, vec![(self.tables.posts.clone(), vec![schema::head(post.author)])]).await?;
        let Some(item) = found.into_iter().flatten().next() else { return Ok(false) };
        let mut head = read_head(&item)?;
        if deleted {
            head.deleted.insert(post.seq)
        } else {
            head.deleted.remove(post.seq)
        };
        let update = Update::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::head(post.author)))
            .update_expression("SET deleted = :deleted, deletions = :deletions")
            .expression_attribute_values(":deleted", AttributeValue::B(Blob::new(head.deleted.to_bytes())))
            .expression_attribute_values(":deletions", number(head.deleted.len()));
        let update = match item.get("deleted") {
            Some(seen) => update.condition_expression("deleted = :seen").expression_attribute_values(":seen", seen.clone()),
            None => update.condition_expression("attribute_not_exists(deleted)"),
        };
        let condition =
            if deleted { "attribute_exists(tombstone)" } else { "attribute_exists(#item) AND attribute_not_exists(tombstone)" };
        let check = ConditionCheck::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(schema::post(post)))
            .condition_expression(condition);
        let check = if deleted { check } else { check.expression_attribute_names("#item", "item") };
        let transaction = self
            .client
            .transact_write_items()
            .transact_items(TransactWriteItem::builder().update(build(OPERATION, update.build())?).build())
            .transact_items(TransactWriteItem::builder().condition_check(build(OPERATION, check.build())?).build());
        Ok(Self::transact(OPERATION, transaction).await?.is_ok())
    }

    /// Takes from a read state what lies beyond the author's posts, as its next version.
    async fn cut_reads(&self, user: UserId, author: UserId) -> Result<bool, FactsError> {
        let authors = [author];
        let (mut reads, mut heads) = futures::try_join!(self.reads(user, &authors), self.heads(&authors))?;
        let Some(mut state) = reads.remove(&author) else { return Ok(false) };
        let latest = heads.remove(&author).unwrap_or_default().latest_seq;
        let beyond: Vec<u64> = state.read.above(latest).collect();
        for seq in beyond {
            state.read.remove(seq);
        }
        let state = ReadState { version: state.version + 1, through: state.through.min(latest), ..state };
        Reads::put(self, user, author, &state).await
    }

    /// Deletes a record that still says what was seen.
    async fn delete_record(&self, seen: &StoredRecord) -> Result<bool, FactsError> {
        let key = schema::record(&seen.key);
        let found = self.batch_get(OPERATION, vec![(self.tables.idempotency.clone(), vec![key.clone()])]).await?;
        let Some(item) = found.into_iter().flatten().next() else { return Ok(false) };
        if said(&item) != seen.says.as_ref().map(|says| (says.answered.clone(), says.expires_at)) {
            return Ok(false);
        }
        let mut delete = self.client.delete_item().table_name(&self.tables.idempotency).set_key(Some(key));
        let mut conditions = vec!["attribute_exists(#key)".to_owned()];
        delete = delete.expression_attribute_names("#key", "key");
        for (index, (name, value)) in item.into_iter().filter(|(name, _)| name != "key").enumerate() {
            conditions.push(format!("#n{index} = :v{index}"));
            delete = delete
                .expression_attribute_names(format!("#n{index}"), name)
                .expression_attribute_values(format!(":v{index}"), value);
        }
        sent(OPERATION, delete.condition_expression(conditions.join(" AND ")).send().await)
    }
}
