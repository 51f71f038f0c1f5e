//! `GET /v1/health`.

use serde_json::json;
use tidemark::{App, http::Answer};

/// Pings all three stores concurrently.
pub(crate) async fn check(app: &App) -> Answer {
    let (redis, dynamodb, sqs) = futures::join!(app.stores.progress.ping(), app.facts.ping(), app.stores.queue.ping());
    let word = |ok: bool| if ok { "ok" } else { "down" };
    let all = redis.is_ok() && dynamodb.is_ok() && sqs.is_ok();
    let body = json!({
        "status": if all { "ok" } else { "degraded" },
        "redis": word(redis.is_ok()),
        "dynamodb": word(dynamodb.is_ok()),
        "sqs": word(sqs.is_ok()),
    });
    Answer::json(200, &body)
}
