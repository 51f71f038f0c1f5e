//! [`CountUnits`]: read units, as DynamoDB reports them.

use crate::work;
use aws_sdk_dynamodb::{
    config::{ConfigBag, Intercept, RuntimeComponents, interceptors::AfterDeserializationInterceptorContextRef},
    error::BoxError,
    operation::{batch_get_item::BatchGetItemOutput, query::QueryOutput},
    types::ConsumedCapacity,
};

/// Adds the read units of each response to those of the request that is served.
#[derive(Debug)]
pub struct CountUnits;

impl Intercept for CountUnits {
    fn name(&self) -> &'static str {
        "CountUnits"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Ok(output) = context.output_or_error() {
            let of_query = output.downcast_ref::<QueryOutput>().and_then(QueryOutput::consumed_capacity);
            let of_batch = output.downcast_ref::<BatchGetItemOutput>().map_or(&[][..], BatchGetItemOutput::consumed_capacity);
            work::add(of_query.into_iter().chain(of_batch).filter_map(ConsumedCapacity::capacity_units).sum());
        }
        Ok(())
    }
}
