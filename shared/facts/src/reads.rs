//! [`Reads`] on DynamoDB.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, TransactWriteItem, Update, builders::UpdateBuilder};
use tidemark_app::ports::{Reads, StoreError};
use tidemark_domain::{ReadState, Seq, SeqSet, UserId, seq_set::WINDOW};

use super::{
    DynamoFacts, build, distinct,
    item::{Item, Reader},
    number, outside_transactions, schema, sent_after_conflicts, unavailable,
    windows::{Layout, MOST_WINDOWS},
};

#[async_trait]
impl Reads for DynamoFacts {
    async fn reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReadState>, StoreError> {
        let keys = distinct(authors).into_iter().map(|author| schema::reads(user, author)).collect();
        let found = self.batch_get("reads", vec![(self.tables.reads.clone(), keys)]).await?;
        found.iter().flatten().map(read_reads).collect()
    }

    async fn all_reads(&self, user: UserId) -> Result<HashMap<UserId, ReadState>, StoreError> {
        self.of_user("all_reads", &self.tables.reads, user).await?.iter().map(read_reads).collect()
    }

    async fn mark(&self, user: UserId, author: UserId, seqs: &[Seq], read: bool) -> Result<(ReadState, ReadState), StoreError> {
        const OPERATION: &str = "mark";
        let (into, out_of) = if read { ("marked", "unmarked") } else { ("unmarked", "marked") };
        let update = self
            .client
            .update_item()
            .table_name(&self.tables.reads)
            .set_key(Some(schema::reads(user, author)))
            .update_expression(format!("ADD version :one, {into} :seqs DELETE {out_of} :seqs"))
            .expression_attribute_values(":one", number(1))
            .expression_attribute_values(":seqs", numbers(seqs))
            .return_values(ReturnValue::AllOld);
        let old = outside_transactions(OPERATION, update).await?.map_err(|error| unavailable(OPERATION, error))?.attributes;
        let old = old.filter(|item| item.contains_key("version"));
        let version = |item: &Item| Reader { table: "reads", item }.small("version");
        let known = old.as_ref().map_or(Ok(0), version)?;
        let old = self.completed(OPERATION, &self.tables.reads, old.into_iter().collect()).await?.into_iter().next();
        let (before, pending) = match &old {
            Some(item) => (read_reads(item)?.1, pending(item, PENDING[0])?.len() + pending(item, PENDING[1])?.len()),
            None => Default::default(),
        };
        let marked = |state: &ReadState, read| {
            let mut state = state.clone();
            for &seq in seqs {
                state.read.set(seq, read);
            }
            state
        };
        let (before, mut after) = if before.version == known {
            let after = ReadState { version: known + 1, ..marked(&before, read) };
            (before, after)
        } else {
            // The windows were written in the meantime, so the previous state is lost. The current state contains the
            // marks. It is safe to assume that all of them are new.
            (marked(&before, !read), before)
        };
        if pending + seqs.len() > MOST_PENDING
            && let Some(folded) = self.fold(user, author).await?
        {
            after = folded;
        }
        Ok((before, after))
    }

    async fn put(&self, user: UserId, author: UserId, state: &ReadState) -> Result<bool, StoreError> {
        self.put_state(user, author, state, None).await
    }
}

impl DynamoFacts {
    /// Writes a state on the condition of its version. Without `imported`, the marks that came by migration stay
    /// unchanged.
    pub async fn put_state(
        &self,
        user: UserId,
        author: UserId,
        state: &ReadState,
        imported: Option<&SeqSet>,
    ) -> Result<bool, StoreError> {
        let key = schema::reads(user, author);
        let known = state.version.saturating_sub(1);
        let mut sets = vec![("read", &state.read)];
        sets.extend(imported.map(|imported| ("imported", imported)));
        let written = |layout: &Layout, condition: &str| {
            let update = next(&key, known).expression_attribute_values(":through", number(state.through));
            let update = layout.sets_in(update, &sets, "version = :version, through = :through", "REMOVE marked, unmarked");
            update.condition_expression(condition)
        };
        let whole = Layout::new(&key, None, &sets, false)?;
        if whole.is_small() {
            let condition = format!("{} AND attribute_not_exists(windows)", has_version(known));
            if self.put_reads(written(&whole, &condition), &whole).await? {
                return Ok(true);
            }
        }
        let stored = self.stored_reads_of(user, author).await?;
        let version = stored.as_ref().map_or(Ok(0), |item| Reader { table: "reads", item }.small("version"))?;
        if version != known {
            return Ok(false);
        }
        let layout = Layout::new(&key, stored.as_ref(), &sets, true)?;
        if layout.writes() > MOST_WINDOWS {
            // One transaction cannot write so many windows. The fold leaves fewer marks beside the bitmap, so the next
            // attempt writes fewer windows.
            self.fold(user, author).await?;
            return Ok(false);
        }
        self.put_reads(written(&layout, has_version(known)), &layout).await
    }

    /// Moves marks into the bitmap, for at most [`MOST_WINDOWS`] windows. Returns the new state if this call wrote it.
    async fn fold(&self, user: UserId, author: UserId) -> Result<Option<ReadState>, StoreError> {
        let Some(item) = self.stored_reads_of(user, author).await? else { return Ok(None) };
        let state = read_reads(&item)?.1;
        let mut by_window: BTreeMap<u64, [Vec<Seq>; 2]> = BTreeMap::new();
        for (place, name) in PENDING.into_iter().enumerate() {
            for seq in pending(&item, name)? {
                by_window.entry(seq / WINDOW).or_default()[place].push(seq);
            }
        }
        let mut by_window: Vec<[Vec<Seq>; 2]> = by_window.into_values().collect();
        by_window.sort_by_key(|[marked, unmarked]| Reverse(marked.len() + unmarked.len()));
        by_window.truncate(MOST_WINDOWS);
        let mut read = Reader { table: "reads", item: &item }.seqs("read")?;
        let mut folded = [Vec::new(), Vec::new()];
        for (place, seqs) in by_window.into_iter().flat_map(|window| window.into_iter().enumerate()) {
            for &seq in &seqs {
                read.set(seq, place == 0);
            }
            folded[place].extend(seqs);
        }
        if folded.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let key = schema::reads(user, author);
        let sets = [("read", &read)];
        let layout = Layout::new(&key, Some(&item), &sets, true)?;
        let some = PENDING.into_iter().zip(&folded).filter(|(_, seqs)| !seqs.is_empty());
        let less: Vec<String> = some.clone().map(|(name, _)| format!("{name} :{name}")).collect();
        let less = format!("DELETE {}", less.join(", "));
        let update = layout.sets_in(next(&key, state.version), &sets, "version = :version", &less);
        let update =
            some.fold(update, |update, (name, seqs)| update.expression_attribute_values(format!(":{name}"), numbers(seqs)));
        let written = self.put_reads(update.condition_expression(has_version(state.version)), &layout).await?;
        // If the state has changed in the meantime, a later call folds its marks.
        Ok(written.then(|| ReadState { version: state.version + 1, ..state }))
    }

    async fn stored_reads_of(&self, user: UserId, author: UserId) -> Result<Option<Item>, StoreError> {
        let wanted = vec![(self.tables.reads.clone(), vec![schema::reads(user, author)])];
        Ok(self.batch_get("put_reads", wanted).await?.into_iter().flatten().next())
    }

    /// Writes a read state together with its changed windows. Returns false if the condition does not hold.
    async fn put_reads(&self, update: UpdateBuilder, layout: &Layout) -> Result<bool, StoreError> {
        const OPERATION: &str = "put_reads";
        let update = build(OPERATION, update.table_name(&self.tables.reads).build())?;
        if layout.writes() > 0 {
            let update = TransactWriteItem::builder().update(update).build();
            let windows = layout.puts(OPERATION, &self.tables.reads)?;
            let transaction = self.client.transact_write_items().set_transact_items(Some([vec![update], windows].concat()));
            return Ok(Self::transact(OPERATION, transaction).await?.is_ok());
        }
        let request = self
            .client
            .update_item()
            .table_name(update.table_name)
            .set_key(Some(update.key))
            .update_expression(update.update_expression)
            .set_condition_expression(update.condition_expression)
            .set_expression_attribute_names(update.expression_attribute_names)
            .set_expression_attribute_values(update.expression_attribute_values);
        sent_after_conflicts(OPERATION, request).await
    }
}

/// An update from version `known` to the next version, without an expression.
fn next(key: &Item, known: u32) -> UpdateBuilder {
    let update =
        Update::builder().set_key(Some(key.clone())).expression_attribute_values(":version", number(u64::from(known) + 1));
    if known == 0 { update } else { update.expression_attribute_values(":known", number(known.into())) }
}

fn has_version(known: u32) -> &'static str {
    if known == 0 { "attribute_not_exists(version)" } else { "version = :known" }
}

pub fn read_reads(item: &Item) -> Result<(UserId, ReadState), StoreError> {
    let reader = Reader { table: "reads", item };
    let mut read = reader.seqs("read")?;
    for (name, is_read) in PENDING.into_iter().zip([true, false]) {
        for seq in reader.numbers(name)? {
            read.set(seq, is_read);
        }
    }
    let through = reader.optional_number("through")?.unwrap_or(0);
    Ok((reader.user("author")?, ReadState { version: reader.small("version")?, through, read }))
}

/// Attributes for marks that are not part of the bitmap yet: posts marked read, and posts marked unread. A number is in
/// at most one of them.
const PENDING: [&str; 2] = ["marked", "unmarked"];

/// With more marks beside the bitmap than this, a mark folds them into it.
const MOST_PENDING: usize = 100;

fn pending(item: &Item, name: &str) -> Result<Vec<Seq>, StoreError> {
    Reader { table: "reads", item }.numbers(name)
}

fn numbers(seqs: &[Seq]) -> AttributeValue {
    AttributeValue::Ns(seqs.iter().map(Seq::to_string).collect())
}
