//! `PUT`, `DELETE` and `POST /v1/following…`.

use serde_json::{Value, json};
use tidemark::{
    App, Follow,
    domain::UserId,
    http::{Answer, Problem, Request},
};

/// The most authors in one `POST /v1/following`.
const MAX_AUTHORS: usize = 50;

/// `PUT /v1/following/{author}`.
pub(crate) async fn follow(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    let outcome = app.following.follow(caller, &[author]).await?.pop().map_or(Follow::Oneself, |(_, outcome)| outcome);
    Ok(Answer::json(200, &rendered(app, outcome)?))
}

/// `DELETE /v1/following/{author}`.
pub(crate) async fn unfollow(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    app.following.unfollow(caller, request.user_parameter("author")?).await?;
    Ok(Answer::json(200, &json!({ "following": false })))
}

/// `POST /v1/following`.
pub(crate) async fn follow_many(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let authors: Vec<UserId> = request.body()?.ids("authors", MAX_AUTHORS)?;
    let outcomes = app.following.follow(caller, &authors).await?.into_iter();
    let results: Vec<Value> = outcomes
        .map(|(author, outcome)| match rendered(app, outcome) {
            Ok(mut followed) => {
                followed["author"] = json!(author);
                followed
            }
            Err(problem) => json!({ "author": author, "following": false, "error": problem.summary() }),
        })
        .collect();
    Ok(Answer::json(200, &json!({ "results": results })))
}

fn rendered(app: &App, outcome: Follow) -> Result<Value, Problem> {
    match outcome {
        Follow::Following { since, created } => Ok(json!({ "following": true, "since": since, "created": created })),
        Follow::LimitReached => Err(Problem::following_limit(app.settings.following_limit)),
        Follow::Oneself => Err(Problem::self_follow()),
    }
}
