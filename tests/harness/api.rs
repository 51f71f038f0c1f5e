//! A client of the HTTP contract.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use tidemark_local::OpenRequests;

/// How long a patient caller repeats a request, and the pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(10);

/// A caller.
#[derive(Clone)]
pub struct User {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    patient: Option<Patient>,
}

/// What a caller goes by who repeats requests until they are answered.
#[derive(Clone)]
struct Patient {
    /// What unanswered requests may still do.
    open: OpenRequests,
    /// Counts the requests that were not answered.
    unanswered: Arc<AtomicUsize>,
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null if the answer has no body.
    pub body: Value,
}

impl Answer {
    /// The body of a 2xx answer.
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.body
    }

    /// Whether the request was answered: a caller repeats any other one.
    pub fn is_final(&self) -> bool {
        !matches!(self.status, 409 | 429 | 500..)
    }

    /// Status and problem type.
    pub fn problem(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        assert!(self.body["request_id"].is_string() && self.body["title"].is_string() && self.body["detail"].is_string());
        assert_eq!(self.body["status"], self.status);
        (self.status, self.body["type"].as_str().expect("a problem has a type"))
    }

    /// The field that a 400 names.
    pub fn field(&self) -> &str {
        assert_eq!(self.problem(), (400, "/problems/invalid-request"), "{}", self.body);
        self.body["errors"][0]["field"].as_str().expect("a 400 names a field")
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl User {
    /// A caller at `base` with this bearer token.
    pub fn new(http: reqwest::Client, base: String, token: Option<String>) -> Self {
        Self { http, base, token, patient: None }
    }

    /// A caller who repeats a request until it is answered, as clients are told to do: after 429, 5xx and 409 for a key in flight. Before
    /// each repetition everything that the last attempt has sent to a store is done, so that no late write comes after a later request. `unanswered` counts the
    /// attempts that were not answered.
    #[must_use]
    pub fn patiently(self, open: OpenRequests, unanswered: Arc<AtomicUsize>) -> Self {
        Self { patient: Some(Patient { open, unanswered }), ..self }
    }

    /// Any request.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Answer {
        let Some(Patient { open, unanswered }) = &self.patient else { return self.send_once(method, path, headers, body).await };
        let started = Instant::now();
        loop {
            let answer = self.send_once(method.clone(), path, headers, body.clone()).await;
            if answer.is_final() {
                return answer;
            }
            unanswered.fetch_add(1, Ordering::Relaxed);
            assert!(started.elapsed() < PATIENCE, "{method} {path} is never answered: {} {}", answer.status, answer.body);
            open.end().await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// One attempt at a request.
    pub async fn send_once(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.expect("the gateway answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("a body");
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("a JSON body") };
        Answer { status, headers, body }
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    /// PUT without a body.
    pub async fn put(&self, path: &str) -> Answer {
        self.send(Method::PUT, path, &[], None).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], None).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[], Some(body.to_string())).await
    }

    /// Publishes; the post's id.
    pub async fn publish(&self, title: &str) -> String {
        let post = self.post("/v1/posts", &json!({ "title": title })).await.ok();
        post["id"].as_str().expect("a post has an id").to_owned()
    }

    /// All items of a list, page by page.
    pub async fn walk(&self, path: &str, limit: usize) -> Vec<Value> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        let join = if path.contains('?') { '&' } else { '?' };
        for _ in 0..10_000 {
            let page = self.get(&format!("{path}{join}limit={limit}{cursor}")).await.ok();
            let found = page["items"].as_array().expect("a page has items");
            assert!(found.len() <= limit);
            items.extend(found.iter().cloned());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
        panic!("{path} does not end");
    }

    /// The ids and read flags of the whole feed.
    pub async fn feed(&self, status: &str) -> Vec<(String, bool)> {
        let items = self.walk(&format!("/v1/feed?status={status}"), 7).await;
        items.iter().map(|item| (item["id"].as_str().expect("an id").to_owned(), item["read"] == true)).collect()
    }

    /// The ids of the whole feed.
    pub async fn feed_ids(&self) -> Vec<String> {
        self.feed("all").await.into_iter().map(|(id, _)| id).collect()
    }

    /// The total of unread posts, which three places must agree on.
    pub async fn unread_total(&self) -> u64 {
        let unread = self.get("/v1/unread").await.ok();
        let total = unread["total"].as_u64().expect("a total");
        let authors = unread["authors"].as_array().expect("authors");
        let sum: u64 = authors.iter().map(|author| author["unread"].as_u64().expect("a count")).sum();
        let feed = self.get("/v1/feed?limit=1").await.ok();
        assert_eq!((total, total), (sum, feed["unread_total"].as_u64().expect("a total")));
        total
    }
}

impl User {
    /// The total as one place says it, which may be in the middle of a change.
    pub async fn unread_total_once(&self) -> u64 {
        self.get("/v1/unread").await.ok()["total"].as_u64().expect("a total")
    }
}
