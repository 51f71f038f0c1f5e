//! DynamoDB and SQS that are not the stack's: an emulator at a URL, over the services' JSON protocols.
//!
//! The stack creates the tables and queues of the template there, and its pollers read streams and queues there. The
//! functions get the URL. Weather, planted faults and the measured delivery lag exist in the stack's own stores only.
//!
//! Requests and stream records are JSON here, not types of the SDK: a table's definition goes from the template to
//! `CreateTable` as it is, and a record goes from `GetRecords` to a function as it came.

mod queues;
mod tail;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use axum::body::{Body, to_bytes};
use http::{Request, header};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::time::Instant;

pub(crate) use queues::Queues;
pub(crate) use tail::Tail;

use crate::{
    dynamodb::creation,
    template::{REGION, Table},
};

/// Larger than any response: a receive of ten messages of 1 MiB each, escaped.
const RESPONSE_LIMIT: usize = 32 << 20;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const ACTIVE_WITHIN: Duration = Duration::from_secs(30);

/// One service at a URL.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    url: String,
    /// The name of the service in signatures. The signature itself is not valid: no emulator checks it.
    scope: &'static str,
    client: Client<HttpConnector, Body>,
}

impl Service {
    fn new(url: &str, scope: &'static str) -> Result<Self> {
        ensure!(url.starts_with("http://"), "write the address of {scope} as http://host:port, not {url}");
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { url: url.trim_end_matches('/').to_owned(), scope, client })
    }

    pub(crate) fn dynamodb(url: &str) -> Result<Self> {
        Self::new(url, "dynamodb")
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Performs an operation, such as `DynamoDB_20120810.CreateTable`.
    ///
    /// # Errors
    /// Fails with the response's body if the service refuses, and if it does not respond in time.
    async fn call(&self, operation: &str, request: &Value) -> Result<Value> {
        let credential = format!("local/20260101/{REGION}/{}/aws4_request", self.scope);
        let authorization = format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature=none");
        let request = Request::post(format!("{}/", self.url))
            .header("x-amz-target", operation)
            .header("x-amz-date", "20260101T000000Z")
            .header(header::CONTENT_TYPE, "application/x-amz-json-1.0")
            .header(header::AUTHORIZATION, authorization)
            .body(Body::from(request.to_string()))?;
        let response = async {
            let response = self.client.request(request).await?;
            let status = response.status();
            anyhow::Ok((status, to_bytes(Body::new(response.into_body()), RESPONSE_LIMIT).await?))
        };
        let (status, body) = tokio::time::timeout(REQUEST_TIMEOUT, response)
            .await
            .map_err(|_| anyhow!("no response within {REQUEST_TIMEOUT:?}"))
            .and_then(|response| response)
            .with_context(|| format!("{operation} at {}", self.url))?;
        ensure!(status.is_success(), "{operation} at {}: {status} {}", self.url, String::from_utf8_lossy(&body));
        // Some operations of SQS have no result, and some emulators send an empty body for it.
        if body.is_empty() { Ok(json!({})) } else { serde_json::from_slice(&body).with_context(|| operation.to_owned()) }
    }

    /// Creates the tables that do not exist. Returns the ARNs of their streams by logical id.
    pub(crate) async fn ensure_all(&self, tables: impl IntoIterator<Item = &Table>) -> Result<BTreeMap<String, String>> {
        let mut streams = BTreeMap::new();
        for table in tables {
            let arn = self.ensure(table).await.with_context(|| format!("table `{}`", table.logical_id))?;
            streams.extend(arn.map(|arn| (table.logical_id.clone(), arn)));
        }
        Ok(streams)
    }

    /// Creates a table if it does not exist, and waits until it is active. Returns the ARN of its stream if the template
    /// declares one.
    async fn ensure(&self, table: &Table) -> Result<Option<String>> {
        let named = json!({ "TableName": table.name });
        unless_so(self.call("DynamoDB_20120810.CreateTable", &creation(table)).await, "ResourceInUseException")?;
        let deadline = Instant::now() + ACTIVE_WITHIN;
        let description = loop {
            let description = self.call("DynamoDB_20120810.DescribeTable", &named).await?;
            if description["Table"]["TableStatus"] == "ACTIVE" {
                break description;
            }
            ensure!(Instant::now() < deadline, "it is not active after {ACTIVE_WITHIN:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        if let Some(attribute) = &table.ttl_attribute {
            let mut request = named;
            request["TimeToLiveSpecification"] = json!({ "AttributeName": attribute, "Enabled": true });
            unless_so(self.call("DynamoDB_20120810.UpdateTimeToLive", &request).await, "TimeToLive is already enabled")?;
        }
        let arn = description["Table"]["LatestStreamArn"].as_str().map(str::to_owned);
        match table.stream_view.is_some() && arn.is_none() {
            true => bail!("it has no stream at {}", self.url),
            false => Ok(arn),
        }
    }
}

/// Accepts the refusal that says that the wanted state exists already.
fn unless_so(result: Result<Value>, refusal: &str) -> Result<()> {
    match result {
        Err(error) if !error.to_string().contains(refusal) => Err(error),
        _ => Ok(()),
    }
}
