//! `GET` and `HEAD /v1/health`.

use tidemark::{
    App,
    http::{
        Problem, Response,
        bodies::{Health, HealthStatus, StoreStatus},
    },
};

/// `HEAD`: the function responds. Probes of load balancers and of uptime services send it.
pub(crate) async fn probe() -> Result<Response, Problem> {
    Ok(Response::empty(200))
}

/// Pings all three stores concurrently.
pub(crate) async fn check(app: &App) -> Result<Response, Problem> {
    let (redis, dynamodb, sqs) = futures::join!(app.stores.views.ping(), app.stores.facts.ping(), app.stores.queues.tasks.ping());
    let [redis, dynamodb, sqs] = [redis.is_ok(), dynamodb.is_ok(), sqs.is_ok()];
    let status = if redis && dynamodb && sqs { HealthStatus::Ok } else { HealthStatus::Degraded };
    let store = |ok: bool| if ok { StoreStatus::Ok } else { StoreStatus::Down };
    Ok(Response::json(200, &Health { status, redis: store(redis), dynamodb: store(dynamodb), sqs: store(sqs) }))
}
