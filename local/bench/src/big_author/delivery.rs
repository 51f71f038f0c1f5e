//! Publishing, and following a delivery to its end.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use tidemark::domain::{PostId, UserId};

use tidemark_tools::api::{Api, Call};

/// What `GET /v1/posts/{id}/delivery` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Delivery {
    /// `pending`, `running` or `done`.
    pub state: String,
    /// How it was planned.
    pub mode: String,
    /// Followers when it was planned.
    pub followers: u64,
    /// Followers handled.
    pub delivered: u64,
    /// Pages of followers.
    pub pages: u64,
    /// Pages done.
    pub pages_done: u64,
}

impl Delivery {
    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.state == "done"
    }
}

/// Publishes a post; what it is called, and how long the answer took.
pub async fn publish(api: &Api, author: UserId, title: &str) -> anyhow::Result<(PostId, Duration)> {
    let body = json!({"title": title, "body": "As long as a short message is."});
    let call = Call::post("/v1/posts").caller(author.get()).json(body);
    let answer = api.once(&call).await.with_context(|| call.to_string())?;
    let took = answer.took;
    let body = answer.expect_status(201).with_context(|| call.to_string())?;
    Ok((body["id"].as_str().unwrap_or_default().parse().context("POST /v1/posts answers without an id")?, took))
}

/// How far a delivery is.
pub async fn status(api: &Api, post: PostId) -> anyhow::Result<Delivery> {
    let call = Call::get(format!("/v1/posts/{post}/delivery")).caller(post.author.get());
    let body = api.fetch(call, 200).await?;
    serde_json::from_value(body).with_context(|| format!("delivery of {post} in an unexpected form"))
}

/// Asks again and again until `enough`, and tells `seen` each answer. Fails after `limit`.
pub async fn follow(
    api: &Api,
    post: PostId,
    every: Duration,
    limit: Duration,
    mut seen: impl FnMut(&Delivery),
    enough: impl Fn(&Delivery) -> bool,
) -> anyhow::Result<Delivery> {
    let started = Instant::now();
    loop {
        let delivery = status(api, post).await?;
        seen(&delivery);
        if enough(&delivery) {
            return Ok(delivery);
        }
        if started.elapsed() >= limit {
            bail!("the delivery of {post} stands after {} s: {delivery:?}", limit.as_secs());
        }
        tokio::time::sleep(every).await;
    }
}
