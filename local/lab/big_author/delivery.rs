//! Publishes a post and follows its delivery to the end.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use tidemark::domain::{PostId, UserId};

use tidemark_tools::api::{Api, Call};

/// The response of `GET /v1/posts/{id}/delivery`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Delivery {
    /// `pending`, `running` or `done`.
    pub(crate) state: String,
    /// `push` or `pull`.
    pub(crate) mode: String,
    /// The number of followers at the time of the publish.
    pub(crate) followers: u64,
    pub(crate) delivered: u64,
    pub(crate) pages: u64,
    pub(crate) pages_done: u64,
}

impl Delivery {
    /// Returns true if the delivery is done.
    pub(crate) fn is_done(&self) -> bool {
        self.state == "done"
    }
}

/// Publishes a post. Returns its id and the response time.
pub(crate) async fn publish(api: &Api, author: UserId, title: &str) -> anyhow::Result<(PostId, Duration)> {
    let body = json!({"title": title, "body": "As long as a short message is."});
    let call = Call::post("/v1/posts").caller(author.get()).json(body);
    let (body, took) = api.timed(&call, 201).await?;
    Ok((body["id"].as_str().unwrap_or_default().parse().context("the response of POST /v1/posts has no id")?, took))
}

/// Returns the progress of a delivery.
pub(crate) async fn status(api: &Api, post: PostId) -> anyhow::Result<Delivery> {
    let call = Call::get(format!("/v1/posts/{post}/delivery")).caller(post.author.get());
    let body = api.fetch(call, 200).await?;
    serde_json::from_value(body).with_context(|| format!("delivery of {post} in an unexpected form"))
}

/// Repeats the request until `enough`, and passes each response to `seen`. Fails after `limit`.
pub(crate) async fn follow(
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
            bail!("the delivery of {post} is not far enough after {} s: {delivery:?}", limit.as_secs());
        }
        tokio::time::sleep(every).await;
    }
}
