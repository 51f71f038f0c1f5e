//! [`Reads`] on DynamoDB.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};

use super::{
    DynamoFacts, distinct,
    item::{Item, Reader},
    number, schema, sent,
};
use crate::{
    domain::{ReadState, SeqSet, UserId},
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
        let sets = "SET version = :version, through = :through, #read = :read";
        let mut update = self
            .client
            .update_item()
            .table_name(&self.tables.reads)
            .set_key(Some(schema::reads(user, author)))
            .update_expression(if imported.is_some() { format!("{sets}, imported = :imported") } else { sets.to_owned() })
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
    let state = ReadState { version: reader.small("version")?, through: reader.number("through")?, read: reader.seqs("read")? };
    Ok((reader.user("author")?, state))
}
