//! A client of the public API with keep-alive connections, a caller for each request, and bounded retries.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, RETRY_AFTER};
use serde_json::Value;

use super::address::Address;

/// The largest number of attempts for a request.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause that the client accepts from `Retry-After`.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);

/// A request. Start with a method, then add the caller, a body, an idempotency key.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    caller: Option<u64>,
    body: Option<Value>,
    key: Option<String>,
}

impl Call {
    fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), caller: None, body: None, key: None }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn put(path: impl Into<String>) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Sets the calling user.
    pub fn caller(mut self, user: u64) -> Self {
        self.caller = Some(user);
        self
    }

    pub fn json(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        match self.caller {
            Some(user) => write!(f, " by {user}"),
            None => Ok(()),
        }
    }
}

/// A response of any status.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// The JSON body. `Null` if there was none.
    pub body: Value,
    /// The number of repetitions before this response.
    pub retries: u32,
    /// The time from sending the last attempt to the end of its body.
    pub took: Duration,
    retry_after: Option<Duration>,
}

impl Response {
    /// The problem's slug (`following-limit`), or an empty text.
    pub fn slug(&self) -> &str {
        slug(self.body["type"].as_str().unwrap_or_default())
    }

    /// Returns the body if the status is the expected one. Otherwise returns an error that quotes the problem.
    pub fn expect_status(self, status: u16) -> anyhow::Result<Value> {
        if self.status != status {
            let detail = self.body["detail"].as_str().unwrap_or_default();
            bail!("returned {} {} {detail}", self.status, self.slug());
        }
        Ok(self.body)
    }
}

/// The last part of a problem's type: `/problems/self-follow` and `self-follow` both give `self-follow`.
pub fn slug(kind: &str) -> &str {
    kind.rsplit('/').next().unwrap_or(kind)
}

/// No attempt had a response. The text has no address or number that varies, so that equal failures count together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no response: {0}")]
pub struct Unanswered(String);

impl From<reqwest::Error> for Unanswered {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self("timed out".to_owned());
        }
        let mut innermost: &dyn std::error::Error = &error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        Self(innermost.to_string())
    }
}

/// The client. Share it by reference.
#[derive(Debug)]
pub struct Api {
    http: reqwest::Client,
    base: String,
    retried: AtomicU64,
}

impl Api {
    /// A client for the stack at `address`. It ignores the environment's proxies, because the stack is on this machine.
    pub fn new(address: &Address) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .tcp_nodelay(true)
            .build()
            .context("cannot make an HTTP client")?;
        Ok(Self { http, base: address.base_url(), retried: AtomicU64::new(0) })
    }

    /// The number of repeated requests so far.
    pub fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Sends a request once.
    pub async fn once(&self, call: &Call) -> Result<Response, Unanswered> {
        let mut request = self.http.request(call.method.clone(), format!("{}{}", self.base, call.path));
        if let Some(user) = call.caller {
            request = request.header(AUTHORIZATION, format!("Bearer {user}"));
        }
        if let Some(key) = &call.key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let started = Instant::now();
        let response = request.send().await?;
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let bytes = response.bytes().await?;
        let took = started.elapsed();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Response { status, body, retries: 0, took, retry_after })
    }

    /// Sends an idempotent request at most eight times, until it has a response other than 429 and 503. Returns the
    /// last response, whatever its status. Fails if the last attempt had none.
    pub async fn send(&self, call: Call) -> Result<Response, Unanswered> {
        let mut retries = 0;
        loop {
            let outcome = self.once(&call).await;
            let is_final = outcome.as_ref().is_ok_and(|response| !matches!(response.status, 429 | 503));
            if is_final || retries + 1 >= ATTEMPTS {
                return outcome.map(|response| Response { retries, ..response });
            }
            self.retried.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(pause(retries, outcome.ok().and_then(|response| response.retry_after))).await;
            retries += 1;
        }
    }

    /// Sends a request once and requires a status. Returns body and [`Response::took`]. The error names the request.
    pub async fn timed(&self, call: &Call, status: u16) -> anyhow::Result<(Value, Duration)> {
        let response = self.once(call).await.with_context(|| call.to_string())?;
        let took = response.took;
        Ok((response.expect_status(status).with_context(|| call.to_string())?, took))
    }

    /// Sends a request and requires a status. The error names the request.
    pub async fn fetch(&self, call: Call, status: u16) -> anyhow::Result<Value> {
        let name = call.to_string();
        let response = self.send(call).await.with_context(|| name.clone())?;
        response.expect_status(status).context(name)
    }

    /// Returns the body of a `GET` whose response is not JSON.
    pub async fn text(&self, path: &str) -> anyhow::Result<String> {
        let response = self.http.get(format!("{}{path}", self.base)).send().await.with_context(|| format!("GET {path}"))?;
        response.error_for_status()?.text().await.with_context(|| format!("GET {path}"))
    }

    /// Returns true if a stack responds. Does not retry.
    pub async fn health(&self) -> Result<Response, Unanswered> {
        self.once(&Call::get("/v1/health")).await
    }

    /// Fails with a one-line error if no stack responds.
    pub async fn require_stack(&self) -> anyhow::Result<()> {
        let at = &self.base;
        match self.health().await {
            Err(Unanswered(reason)) => bail!("no stack responds at {at} ({reason}); start one with `make run`"),
            Ok(response) if response.body["status"].is_string() => Ok(()),
            Ok(response) => bail!("the server at {at} is not a Tidemark stack (GET /v1/health: {})", response.status),
        }
    }
}

fn pause(retries: u32, asked: Option<Duration>) -> Duration {
    match asked {
        Some(asked) => asked.min(LONGEST_RETRY_AFTER),
        None => FIRST_PAUSE.saturating_mul(1 << retries.min(10)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let pauses: Vec<u128> = (0..7).map(|n| pause(n, None).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_bound() {
        assert_eq!(pause(5, Some(Duration::from_secs(1))), Duration::from_secs(1));
        assert_eq!(pause(0, Some(Duration::from_secs(3600))), LONGEST_RETRY_AFTER);
    }

    #[test]
    fn a_slug_is_the_last_part_of_the_type() {
        assert_eq!(slug("/problems/self-follow"), "self-follow");
        assert_eq!(slug("self-follow"), "self-follow");
        assert_eq!(slug(""), "");
    }
}
