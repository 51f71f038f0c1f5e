//! Handing a post to the fan-out, and telling how far it is.

use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{DeliveryState, Post},
    fan_out::DeliveryStatus,
    http::{Answer, Problem, Request},
    ports::FanOut,
};
use tracing::warn;

/// Starts the fan-out of a post that is a fact already. When the queue is away it stays pending, and reconcile starts it.
pub(crate) async fn start(app: &App, fan_out: FanOut) {
    if let Err(error) = app.fan_outs.start(fan_out).await {
        warn!(post = %fan_out.post, error = &error as &dyn std::error::Error, "fan-out is left to reconcile");
    }
}

/// What a publish answers of its delivery: always as it was planned, so that a repeated request has the same answer.
pub(crate) fn planned(post: &Post) -> Value {
    json!({
        "mode": post.delivery.mode,
        "state": DeliveryState::Pending,
        "followers": post.delivery.followers,
        "delivered": 0,
        "pages": post.delivery.pages,
        "pages_done": 0,
        "attempts": 0,
        "started_at": post.delivery.started_at,
        "finished_at": null,
    })
}

/// `GET /v1/posts/{post}/delivery`.
pub(crate) async fn status(app: &App, request: &Request) -> Result<Answer, Problem> {
    request.caller()?;
    let id = request.post_parameter()?;
    let post = app.posts.posts(&[id]).await?.remove(&id).ok_or_else(|| Problem::not_found(format!("no post {id}")))?;
    let (status, degraded) = match app.fan_outs.status(&post).await {
        Ok(status) => (status, false),
        // The fact alone: pending, nothing counted.
        Err(error) => {
            warn!(post = %id, error = &error as &dyn std::error::Error, "progress unavailable");
            let delivered = post.delivery.delivered;
            (DeliveryStatus { state: post.delivery.state, delivered, pages_done: 0 }, true)
        }
    };
    let body = json!({
        "mode": post.delivery.mode,
        "state": status.state,
        "followers": post.delivery.followers,
        "delivered": status.delivered,
        "pages": post.delivery.pages,
        "pages_done": status.pages_done,
        "attempts": post.delivery.attempts,
        "started_at": post.delivery.started_at,
        "finished_at": post.delivery.finished_at,
    });
    Ok(Answer::json(200, &body).degraded(degraded))
}
