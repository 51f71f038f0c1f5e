//! Repairs of facts that contradict each other: one write or transaction each, on condition that the facts are as the
//! look found them.

use aws_sdk_dynamodb::{
    operation::update_item::builders::UpdateItemFluentBuilder,
    types::{AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update},
};
use tidemark_app::ports::{Posts, Reads, StoreError};
use tidemark_domain::{PostId, ReadState, Seq, UserId, invariants};
use tidemark_facts::{
    DynamoFacts, build,
    item::Item,
    number,
    posts::{read_head, unfinished_shard},
    reactions::count_name,
    schema, sent, sent_after_conflicts, string,
    windows::{self, Layout},
};

use super::StoredFacts;
use crate::{
    diff::{Correction, Counter, Recount, facts::StoredRecord},
    facts::audit::said,
};

const OPERATION: &str = "repair";

/// The condition on an edge under which its author's list is changed.
enum Expected {
    Following { rev: u32 },
    Nothing,
}

impl StoredFacts {
    /// Writes a correction; false if the facts have changed since the look.
    pub async fn correct(&self, correction: &Correction) -> Result<bool, StoreError> {
        match *correction {
            Correction::MirrorEdge { user, author, edge: Some((since, rev)) } => {
                let mut item = schema::follower(author, user);
                item.insert("since".to_owned(), schema::follower_since(user, since));
                let put = Put::builder().table_name(&self.tables.followers).set_item(Some(item));
                let put = TransactWriteItem::builder().put(build(OPERATION, put.build())?).build();
                self.with_edge(user, author, Expected::Following { rev }, put).await
            }
            Correction::MirrorEdge { user, author, edge: None } => {
                let delete = Delete::builder().table_name(&self.tables.followers).set_key(Some(schema::follower(author, user)));
                let delete = TransactWriteItem::builder().delete(build(OPERATION, delete.build())?).build();
                self.with_edge(user, author, Expected::Nothing, delete).await
            }
            Correction::SetCount(count @ Recount { of: Counter::Followings { user }, .. }) => {
                self.recount(&self.tables.counters, schema::followings_counter(user), "count", count).await
            }
            Correction::SetCount(count @ Recount { of: Counter::Followers { author, shard }, .. }) => {
                self.recount(&self.tables.counters, schema::followers_counter(author, shard), "count", count).await
            }
            Correction::SetPosts { author, right, latest, deletions } => {
                self.recount_posts(author, right, latest, deletions).await
            }
            Correction::SetDeleted { post, deleted } => self.set_deleted(post, deleted).await,
            Correction::CutReads { user, author } => self.cut_reads(user, author).await,
            Correction::SetCount(count @ Recount { of: Counter::PostReactions { post, shard, reaction }, .. }) => {
                let key = schema::post_reactions(post, shard);
                self.recount(&self.tables.reactions, key, count_name(reaction), count).await
            }
            Correction::SetCount(count @ Recount { of: Counter::AuthorReactions { author, shard, reaction }, .. }) => {
                let key = schema::author_reactions(author, shard);
                self.recount(&self.tables.reactions, key, count_name(reaction), count).await
            }
            Correction::SetUnfinished { post, unfinished: false } => {
                let update = self.post_in_state(post, "done").update_expression("REMOVE unfinished");
                sent_after_conflicts(OPERATION, update).await
            }
            Correction::SetUnfinished { post, unfinished: true } => {
                let update = self.post_in_state(post, "pending");
                let update = update.update_expression("SET unfinished = if_not_exists(unfinished, :shard)");
                let update = update.expression_attribute_values(":shard", unfinished_shard(post.author));
                sent_after_conflicts(OPERATION, update).await
            }
            Correction::DeleteBody { post } => {
                // A tombstone never becomes a live post again, so the body is never needed again.
                let delete = self.client.delete_item().table_name(&self.tables.posts).set_key(Some(schema::body(post)));
                sent(OPERATION, delete.send().await)
            }
            Correction::DeleteRecord(ref record) => self.delete_record(record).await,
            Correction::UnlistNotice(notice) => self.unlist(notice).await,
            Correction::DeleteNotice(notice) => self.delete_left(notice).await,
            Correction::RaiseSlot { platform, given } => self.raise_slots(platform, given).await,
            Correction::CutNoticeReads { user, platform } => self.cut_notice_reads(user, platform).await,
            Correction::DeleteTombstone { user, author, rev } => {
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

    /// Sets a count if its change number is the one that was read before its items were listed: then the items are
    /// still the same. If the change number is not a number, it begins again at 1. No writer can change it in the
    /// meantime, because its addition to it would fail.
    async fn recount(&self, table: &str, key: Item, name: &str, count: Recount) -> Result<bool, StoreError> {
        let Recount { seen, right, changes, .. } = count;
        let update = self.client.update_item().table_name(table).set_key(Some(key));
        let update = update.expression_attribute_names("#count", name).expression_attribute_names("#changes", "changes");
        let update = update.expression_attribute_values(":right", number(right));
        let (sets, condition) = match changes {
            Some(0) => ("SET #count = :right", "(attribute_not_exists(#changes) OR #changes = :changes)"),
            Some(_) => ("SET #count = :right", "#changes = :changes"),
            None => ("SET #count = :right, #changes = :changes", "NOT attribute_type(#changes, :number)"),
        };
        let mut condition = condition.to_owned();
        let update = update.expression_attribute_values(":changes", number(changes.unwrap_or(1)));
        let update = if changes.is_none() { update.expression_attribute_values(":number", string("N")) } else { update };
        let update = match seen {
            // A version of this program that does not number its changes may run at the same time.
            Some(0) => {
                condition.push_str(" AND (attribute_not_exists(#count) OR #count = :seen)");
                update.expression_attribute_values(":seen", number(0))
            }
            Some(seen) => {
                condition.push_str(" AND #count = :seen");
                update.expression_attribute_values(":seen", number(seen))
            }
            None => update,
        };
        sent_after_conflicts(OPERATION, update.update_expression(sets).condition_expression(condition)).await
    }

    /// Sets the number of an author's live posts if the head has the same posts and deletions.
    async fn recount_posts(&self, author: UserId, right: u64, latest: Seq, deletions: Option<u64>) -> Result<bool, StoreError> {
        let update = self.client.update_item().table_name(&self.tables.posts).set_key(Some(schema::head(author)));
        let update = update.update_expression("SET posts = :right").expression_attribute_values(":right", number(right));
        let mut conditions = vec![if latest == 0 { "attribute_not_exists(latest_seq)" } else { "latest_seq = :latest" }];
        let mut update = if latest == 0 { update } else { update.expression_attribute_values(":latest", number(latest)) };
        match deletions {
            None => conditions.push("attribute_not_exists(deletions)"),
            Some(deletions) => {
                conditions.push("deletions = :deletions");
                update = update.expression_attribute_values(":deletions", number(deletions));
            }
        }
        sent_after_conflicts(OPERATION, update.condition_expression(conditions.join(" AND "))).await
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

    /// Writes if the edge is as expected.
    async fn with_edge(
        &self,
        user: UserId,
        author: UserId,
        expected: Expected,
        write: TransactWriteItem,
    ) -> Result<bool, StoreError> {
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
        Ok(DynamoFacts::transact(OPERATION, transaction).await?.is_ok())
    }

    /// Adds a post to the deleted posts of its author's head, or removes it. The write fails if the head has changed
    /// since it was read here, or if the post is not as the look found it.
    async fn set_deleted(&self, post: PostId, deleted: bool) -> Result<bool, StoreError> {
        let found = self.batch_get(OPERATION, vec![(self.tables.posts.clone(), vec![schema::head(post.author)])]).await?;
        let Some(item) = found.into_iter().flatten().next() else { return Ok(false) };
        let mut head = read_head(&item)?;
        if deleted {
            head.deleted.insert(post.seq)
        } else {
            head.deleted.remove(post.seq)
        };
        let key = schema::head(post.author);
        let sets = [("deleted", &head.deleted)];
        let layout = Layout::new(&key, Some(&item), &sets, true)?;
        let update = Update::builder()
            .table_name(&self.tables.posts)
            .set_key(Some(key))
            .expression_attribute_values(":deletions", number(head.deleted.len()));
        let update = layout.sets_in(update, &sets, "deletions = :deletions", "");
        // A set with windows is unchanged if the windows and the number of deletions are unchanged.
        let seen: &[&str] = if item.contains_key("windows") { &["windows", "deletions"] } else { &["deleted"] };
        let mut conditions = Vec::new();
        let update = seen.iter().fold(update, |update, name| windows::unchanged(update, Some(&item), name, &mut conditions));
        let update = update.condition_expression(conditions.join(" AND "));
        let condition = if deleted {
            "attribute_exists(tombstone) OR attribute_exists(archived)"
        } else {
            "attribute_exists(#item) AND attribute_not_exists(tombstone) AND attribute_not_exists(archived)"
        };
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
        let windows = layout.puts(OPERATION, &self.tables.posts)?;
        let transaction = windows.into_iter().fold(transaction, |all, window| all.transact_items(window));
        Ok(DynamoFacts::transact(OPERATION, transaction).await?.is_ok())
    }

    /// Cuts a read state at the author's latest post, as the next version.
    async fn cut_reads(&self, user: UserId, author: UserId) -> Result<bool, StoreError> {
        let authors = [author];
        // The head is read last, so it includes every post that the read state covers.
        let Some(mut state) = self.reads(user, &authors).await?.remove(&author) else { return Ok(false) };
        let head = self.heads(&authors).await?.remove(&author).unwrap_or_default();
        if invariants::reads_only_what_exists(&head, &state) {
            return Ok(false);
        }
        state.read.truncate(head.latest_seq);
        let state = ReadState { version: state.version + 1, through: state.through.min(head.latest_seq), ..state };
        Reads::put(&**self, user, author, &state).await
    }

    /// Deletes a record if its content is what the look found.
    async fn delete_record(&self, seen: &StoredRecord) -> Result<bool, StoreError> {
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
