//! placeholder
use aws_lambda_events::{dynamodb::Event, streams::DynamoDbEventResponse};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::App;

/// placeholder
pub async fn handle(_app: &App, _event: LambdaEvent<Event>) -> Result<DynamoDbEventResponse, Error> { todo!() }
