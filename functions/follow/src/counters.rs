//! `GET /v1/users/{user}/counters`.

use tidemark::{
    App,
    http::{Answer, Problem, Request, bodies::Counters},
};

pub(crate) async fn get(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let user = request.user_parameter("user")?;
    let (counters, degraded) = app.relations.counters(caller, user).await?;
    Ok(Answer::json(200, &Counters::from(counters)).degraded(degraded))
}
