//! placeholder
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_runtime::{Error, LambdaEvent};
use tidemark::App;

/// placeholder
pub async fn handle(_app: &App, _event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Error> { todo!() }
