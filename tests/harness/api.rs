//! A client of the HTTP API.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Method, header::HeaderMap};
use serde_json::{Value, json};
use tidemark_local::OpenRequests;

/// The time that a patient caller repeats a request, and the pause between two attempts.
const PATIENCE: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub struct User {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    /// For a caller that repeats requests: open requests to the stores that a failed attempt may have left, and the
    /// number of attempts without a final response.
    patient: Option<(OpenRequests, Arc<AtomicUsize>)>,
}

/// A response of the API.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    /// The JSON body. Null if the response has no body.
    pub body: Value,
}

/// A text field of each item of a page or a list.
pub fn texts<'a>(items: impl IntoIterator<Item = &'a Value>, field: &str) -> Vec<String> {
    items.into_iter().map(|item| item[field].as_str().expect(field).to_owned()).collect()
}

/// The ids of the items of a page or a list.
pub fn ids<'a>(items: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    texts(items, "id")
}

/// The ids of the items of a page or a list, and true for each that is read.
pub fn ids_and_flags<'a>(items: impl IntoIterator<Item = &'a Value>) -> Vec<(String, bool)> {
    items.into_iter().map(|item| (item["id"].as_str().expect("an item has an id").to_owned(), item["read"] == true)).collect()
}

/// Returns true if a value has these fields, among others, in every object. Lists have no other items.
pub fn has(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Object(_), Value::Object(fields)) => fields.iter().all(|(name, expected)| has(&value[name], expected)),
        (Value::Array(items), Value::Array(expected)) => {
            items.len() == expected.len() && items.iter().zip(expected).all(|(item, expected)| has(item, expected))
        }
        _ => value == expected,
    }
}

impl Response {
    /// Returns the items of a page.
    pub fn items(self) -> Vec<Value> {
        self.ok()["items"].as_array_mut().map(std::mem::take).expect("a page has items")
    }

    /// Returns the body of a 2xx response. Panics on any other status.
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.body);
        self.body
    }

    /// Asserts that the body of a 2xx response has these fields, among others. Null stands for a missing field too.
    #[track_caller]
    pub fn has(self, expected: Value) -> Value {
        let body = self.ok();
        assert!(has(&body, &expected), "{body}\nhas not {expected}");
        body
    }

    /// Returns true if the response is final. A caller repeats all other requests.
    pub fn is_final(&self) -> bool {
        !matches!(self.status, 429 | 500..)
    }

    /// The status and the problem type.
    pub fn problem(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        assert!(self.body["request_id"].is_string() && self.body["title"].is_string() && self.body["detail"].is_string());
        assert_eq!(self.body["status"], self.status);
        (self.status, self.body["type"].as_str().expect("a problem has a type"))
    }

    /// Returns the status and the message of a response that API Gateway makes itself.
    pub fn refusal(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.body);
        assert_eq!(self.body.as_object().map(serde_json::Map::len), Some(1), "{}", self.body);
        (self.status, self.body["message"].as_str().expect("a message"))
    }

    /// The field that a 400 names.
    pub fn field(&self) -> &str {
        assert_eq!(self.problem(), (400, "/problems/invalid-request"), "{}", self.body);
        self.body["errors"][0]["field"].as_str().expect("a 400 names a field")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl User {
    /// A caller at `base` with this bearer token.
    pub fn new(http: reqwest::Client, base: String, token: Option<String>) -> Self {
        Self { http, base, token, patient: None }
    }

    /// A caller that repeats a request until it has a final response, as clients should. Before each repetition it
    /// waits until all store requests of the last attempt have ended, so that no late write follows a later request.
    #[must_use]
    pub fn patiently(self, open: OpenRequests, unanswered: Arc<AtomicUsize>) -> Self {
        Self { patient: Some((open, unanswered)), ..self }
    }

    /// Sends a request. A patient caller repeats it.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Response {
        let Some((open, unanswered)) = &self.patient else { return self.send_once(method, path, headers, body).await };
        let started = Instant::now();
        loop {
            let response = self.send_once(method.clone(), path, headers, body.clone()).await;
            if response.is_final() {
                return response;
            }
            unanswered.fetch_add(1, Ordering::Relaxed);
            assert!(started.elapsed() < PATIENCE, "{method} {path} has no final response in time: {response:?}");
            open.end().await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Sends a request once.
    pub async fn send_once(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Response {
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
        let response = request.send().await.expect("the gateway responds");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("a body");
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("a JSON body") };
        Response { status, headers, body }
    }

    /// Sends a request that is written as `METHOD path`, or as `METHOD path body`.
    pub async fn request(&self, request: &str) -> Response {
        self.request_with(&[], request).await
    }

    /// Does the same with these headers.
    pub async fn request_with(&self, headers: &[(&str, &str)], request: &str) -> Response {
        let mut parts = request.splitn(3, ' ');
        let (method, path) = (parts.next().unwrap_or_default(), parts.next().expect("a path"));
        self.send(method.parse().expect("a method"), path, headers, parts.next().map(str::to_owned)).await
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send(Method::GET, path, &[], None).await
    }

    /// PUT without a body.
    pub async fn put(&self, path: &str) -> Response {
        self.send(Method::PUT, path, &[], None).await
    }

    pub async fn delete(&self, path: &str) -> Response {
        self.send(Method::DELETE, path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.send(Method::POST, path, &[], Some(body.to_string())).await
    }

    /// POST with an idempotency key.
    pub async fn post_with_key(&self, path: &str, key: &str, body: &Value) -> Response {
        self.send(Method::POST, path, &[("idempotency-key", key)], Some(body.to_string())).await
    }

    /// PUT with a body.
    pub async fn put_body(&self, path: &str, body: &Value) -> Response {
        self.send(Method::PUT, path, &[], Some(body.to_string())).await
    }

    /// Follows each of these authors.
    pub async fn follow(&self, authors: impl IntoIterator<Item: Display>) {
        for author in authors {
            self.put(&format!("/v1/following/{author}")).await.ok();
        }
    }

    /// Publishes a post with each of these titles. Returns the ids.
    pub async fn publish_all(&self, titles: impl IntoIterator<Item: ToString>) -> Vec<String> {
        let mut ids = Vec::new();
        for title in titles {
            ids.push(self.publish(&title.to_string()).await);
        }
        ids
    }

    /// Publishes a post. Returns its id.
    pub async fn publish(&self, title: &str) -> String {
        let post = self.post("/v1/posts", &json!({ "title": title })).await.ok();
        post["id"].as_str().expect("a post has an id").to_owned()
    }

    /// Returns all items of a list, fetched page by page.
    pub async fn walk(&self, path: &str, limit: usize) -> Vec<Value> {
        let pages = self.pages(path, limit).await;
        pages.into_iter().flat_map(|mut page| page["items"].as_array_mut().map(std::mem::take)).flatten().collect()
    }

    /// Returns all pages of a list.
    pub async fn pages(&self, path: &str, limit: usize) -> Vec<Value> {
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        let join = if path.contains('?') { '&' } else { '?' };
        while pages.len() < 10_000 {
            let page = self.get(&format!("{path}{join}limit={limit}{cursor}")).await.ok();
            assert!(page["items"].as_array().expect("a page has items").len() <= limit);
            let next = page["next_cursor"].as_str().map(|next| format!("&cursor={next}"));
            pages.push(page);
            match next {
                Some(next) => cursor = next,
                None => return pages,
            }
        }
        panic!("the list {path} does not end");
    }

    /// Returns the `next_cursor` or `first_cursor` of a page.
    pub async fn cursor(&self, name: &str, path: &str) -> String {
        self.get(path).await.ok()[name].as_str().expect(name).to_owned()
    }

    /// Returns the ids and read flags of the whole feed.
    pub async fn feed(&self, status: &str) -> Vec<(String, bool)> {
        ids_and_flags(&self.walk(&format!("/v1/feed?status={status}"), 7).await)
    }

    /// Returns the ids of the whole feed.
    pub async fn feed_ids(&self) -> Vec<String> {
        self.feed("all").await.into_iter().map(|(id, _)| id).collect()
    }

    /// The unread and the read notices on a platform.
    pub async fn notice_counts(&self, platform: u16) -> (u64, u64) {
        let counts = self.get(&format!("/v1/notices/unread?platform={platform}")).await.ok();
        (counts["unread"].as_u64().expect("a count"), counts["read"].as_u64().expect("a count"))
    }

    /// Returns the total of unread posts. Three places must agree on it.
    pub async fn unread_total(&self) -> u64 {
        let unread = self.get("/v1/unread").await.ok();
        let total = unread["total"].as_u64().expect("a total");
        let authors = unread["authors"].as_array().expect("authors");
        let sum: u64 = authors.iter().map(|author| author["unread"].as_u64().expect("a count")).sum();
        assert_eq!(total, sum);
        self.get("/v1/feed?limit=1").await.has(json!({ "unread_total": total }));
        total
    }

    /// Returns the total of unread posts from one place. During a change it may differ from the others.
    pub async fn unread_total_once(&self) -> u64 {
        self.get("/v1/unread").await.ok()["total"].as_u64().expect("a total")
    }
}
