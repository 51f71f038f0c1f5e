//! DynamoDB and SQS that are not the stack's: an emulator at a URL, over the services' JSON protocols.
//!
//! The stack creates the tables and queues of the template there, and its pollers read streams and queues there. The
//! functions get the URL. Weather, planted faults and the measured delivery lag exist in the stack's own stores only.

mod queues;
mod tail;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

pub(crate) use tail::Tail;

use crate::{dynamodb::creation, template::Table};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) url: String,
    client: reqwest::Client,
}

impl Elsewhere {
    pub(crate) fn new(url: &str) -> Result<Self> {
        let client = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build()?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), client })
    }

    /// Performs an operation, such as `DynamoDB_20120810.CreateTable`. The request is not signed.
    ///
    /// # Errors
    /// Fails with the response's body if the service refuses.
    async fn call(&self, operation: &str, request: &Value) -> Result<Value> {
        let request = self.client.post(&self.url).header("x-amz-target", operation).body(request.to_string());
        let response = async {
            let response = request.header(CONTENT_TYPE, "application/x-amz-json-1.0").send().await?;
            let (status, body) = (response.status(), response.bytes().await?);
            ensure!(status.is_success(), "{status} {}", String::from_utf8_lossy(&body));
            // Some operations of SQS have no result.
            Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? })
        };
        response.await.with_context(|| format!("{operation} at {}", self.url))
    }

    /// Creates a table if it does not exist. Returns the ARN of its stream if it has one.
    pub(crate) async fn ensure_table(&self, table: &Table) -> Result<Option<String>> {
        let named = json!({ "TableName": table.name });
        match self.call("DynamoDB_20120810.CreateTable", &creation(table)).await {
            Err(error) if format!("{error:#}").contains("ResourceInUseException") => {}
            created => {
                created?;
                if let Some(attribute) = &table.ttl_attribute {
                    let mut request = named.clone();
                    request["TimeToLiveSpecification"] = json!({ "AttributeName": attribute, "Enabled": true });
                    self.call("DynamoDB_20120810.UpdateTimeToLive", &request).await?;
                }
            }
        }
        let description = self.call("DynamoDB_20120810.DescribeTable", &named).await?;
        let arn = description["Table"]["LatestStreamArn"].as_str().map(str::to_owned);
        ensure!(arn.is_some() == table.stream_view.is_some(), "`{}` must have a stream as in the template", table.logical_id);
        Ok(arn)
    }
}
