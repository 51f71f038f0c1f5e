//! [`Reads`] on DynamoDB.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::{
    primitives::Blob,
    types::{AttributeValue, ReturnValue},
};

use super::{
    DynamoFacts, distinct,
    item::{Item, Reader},
    number, schema, sent, unavailable,
};
use crate::{
    domain::{ReadState, Seq, SeqSet, UserId},
    ports::{FactsError, Reads},
};

#[async_trait]
impl Reads for DynamoFacts {
    async fn reads(&self, user: UserId, authors: &[UserId]) -> Result<HashMap<UserId, ReadState>, FactsError> {
        let keys = distinct(authors).into_iter().map(|author| schema::reads(user, author)).collect();
        let found = self.batch_get("reads", vec![(self.tables.reads.clone(), keys)]).await?;
        found.iter().flatten().map(read_reads).collect()
    }

    async fn all_reads(&self, user: UserId) -> Result<HashMap<UserId, ReadState>, FactsError> {
        self.of_user("all_reads", &self.tables.reads, user).await?.iter().map(read_reads).collect()
    }

    async fn mark(&self, user: UserId, author: UserId, seqs: &[Seq], read: bool) -> Result<(ReadState, ReadState), FactsError> {
        const OPERATION: &str = "mark";
        let (into, out_of) = if read { ("marked", "unmarked") } else { ("unmarked", "marked") };
        let update = self
            .client
            .update_item()
            .table_name(&self.tables.reads)
            .set_key(Some(schema::reads(user, author)))
            .update_expression(format!("ADD version :one, {into} :seqs DELETE {out_of} :seqs"))
            .expression_attribute_values(":one", number(1))
            .expression_attribute_values(":seqs", AttributeValue::Ns(seqs.iter().map(Seq::to_string).collect()))
            .return_values(ReturnValue::AllOld);
        let old = update.send().await.map_err(|error| unavailable(OPERATION, error))?.attributes;
        let (before, pending) = match old.as_ref().filter(|item| item.contains_key("version")) {
            Some(item) => (read_reads(item)?.1, pending(item)),
            None => Default::default(),
        };
        let mut after = ReadState { version: before.version + 1, ..before.clone() };
        if read {
            after.mark(seqs.iter().copied());
        } else {
            for &seq in seqs {
                after.unmark(seq);
            }
        }
        if pending + seqs.len() > MOST_PENDING {
            let folded = ReadState { version: after.version + 1, ..after.clone() };
            // Whoever was faster folds them too.
            if self.put(user, author, &folded).await? {
                after = folded;
            }
        }
        Ok((before, after))
    }

    async fn put(&self, user: UserId, author: UserId, state: &ReadState) -> Result<bool, FactsError> {
        self.put_state(user, author, state, None).await
    }
}

impl DynamoFacts {
    /// Writes a state on the condition of its version; the marks that came by migration stay as they are unless given.
    pub(super) async fn put_state(
        &self,
        user: UserId,
        author: UserId,
        state: &ReadState,
        imported: Option<&SeqSet>,
    ) -> Result<bool, FactsError> {
        let set = |seqs: &SeqSet| AttributeValue::B(Blob::new(seqs.to_bytes()));
        let sets = "SET version = :version, through = :through, #read = :read REMOVE marked, unmarked";
        let mut update = self
            .client
            .update_item()
            .table_name(&self.tables.reads)
            .set_key(Some(schema::reads(user, author)))
            .update_expression(if imported.is_some() {
                sets.replace(" REMOVE", ", imported = :imported REMOVE")
            } else {
                sets.to_owned()
            })
            .expression_attribute_names("#read", "read")
            .expression_attribute_values(":version", number(state.version.into()))
            .expression_attribute_values(":through", number(state.through))
            .expression_attribute_values(":read", set(&state.read));
        if let Some(imported) = imported {
            update = update.expression_attribute_values(":imported", set(imported));
        }
        let update = match state.version.saturating_sub(1) {
            0 => update.condition_expression("attribute_not_exists(version)"),
            known => update.condition_expression("version = :known").expression_attribute_values(":known", number(known.into())),
        };
        sent("put_reads", update.send().await)
    }
}

pub(super) fn read_reads(item: &Item) -> Result<(UserId, ReadState), FactsError> {
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

/// Marks that are not part of the bitmap yet: read ones, and those made unread again. A number is in one of them at most.
const PENDING: [&str; 2] = ["marked", "unmarked"];

/// Marks beside the bitmap with which they are folded into it.
const MOST_PENDING: usize = 100;

fn pending(item: &Item) -> usize {
    PENDING.iter().filter_map(|name| item.get(*name)?.as_ns().ok()).map(Vec::len).sum()
}
