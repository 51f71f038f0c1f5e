//! [`Outages`] on DynamoDB.

use async_trait::async_trait;
use tidemark_app::ports::{Outages, StoreError};
use tidemark_domain::Timestamp;

use super::{DynamoFacts, item::Reader, number, schema, sent};

#[async_trait]
impl Outages for DynamoFacts {
    async fn outage_until(&self) -> Result<Timestamp, StoreError> {
        let found = self.batch_get("outage", vec![(self.tables.counters.clone(), vec![schema::outage()])]).await?;
        let until = found.iter().flatten().next().map(|item| Reader { table: "counters", item }.time("until"));
        Ok(until.transpose()?.unwrap_or_default())
    }

    async fn note_outage(&self, until: Timestamp) -> Result<(), StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.tables.counters)
            .set_key(Some(schema::outage()))
            .update_expression("SET #until = :until")
            .condition_expression("attribute_not_exists(#until) OR #until < :until")
            .expression_attribute_names("#until", "until")
            .expression_attribute_values(":until", number(until.ms()));
        // A failed condition means that a later end is noted already.
        sent("note_outage", update.send().await).map(drop)
    }
}
