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
    domain::{ReadState, UserId},
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
        let mut item = schema::reads(user, author);
        item.extend([
            ("version".to_owned(), number(state.version.into())),
            ("through".to_owned(), number(state.through)),
            ("read".to_owned(), AttributeValue::B(Blob::new(state.read.to_bytes()))),
        ]);
        let put = self.client.put_item().table_name(&self.tables.reads).set_item(Some(item));
        let put = match state.version.saturating_sub(1) {
            0 => put.condition_expression("attribute_not_exists(version)"),
            known => put.condition_expression("version = :known").expression_attribute_values(":known", number(known.into())),
        };
        sent("put_reads", put.send().await)
    }
}

fn read_reads(item: &Item) -> Result<(UserId, ReadState), FactsError> {
    let reader = Reader { table: "reads", item };
    let state = ReadState { version: reader.small("version")?, through: reader.number("through")?, read: reader.seqs("read")? };
    Ok((reader.user("author")?, state))
}
