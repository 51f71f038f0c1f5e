//! placeholder
use lambda_runtime::{Error, LambdaEvent};
use serde_json::Value;
use tidemark::App;

/// placeholder
pub async fn handle(_app: &App, _event: LambdaEvent<Value>) -> Result<Value, Error> { todo!() }
