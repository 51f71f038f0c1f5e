//! `GET /v1/users/{user}/counters`.

use tidemark::{
    App,
    http::{Problem, Request, Response, bodies::Counters},
};

pub(crate) async fn get(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let user = request.parameter("user")?;
    let (counters, degraded) = app.relations.counters(caller, user).await?;
    Ok(Response::json(200, &Counters::from(counters)).degraded(degraded))
}
