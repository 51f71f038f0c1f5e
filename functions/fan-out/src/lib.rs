//! Delivers pages of followers to views, lists further pages, moves posts in ranked feeds, and erases users.

use std::convert::Infallible;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_runtime::LambdaEvent;
use tidemark::App;

/// Runs the tasks of one event. It reports each failed message.
pub async fn handle(app: &App, event: LambdaEvent<SqsEvent>) -> Result<SqsBatchResponse, Infallible> {
    Ok(tidemark::run_tasks(app, event).await)
}
