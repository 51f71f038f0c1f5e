//! Follow and unfollow.
//!
//! The edge is the fact; the caller's own view is brought in line before the answer, so that the next read shows it. The same is done once more, and
//! for whatever was cut off, by the relation projector from the edges' stream.

use aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpResponse};
use lambda_runtime::{Error, LambdaEvent};
use serde_json::{Value, json};
use tidemark::{
    App,
    domain::UserId,
    http::{Answer, Problem, Request, serve},
    ports::{Followed, Task},
};
use tracing::warn;

/// The routes this function owns.
pub const ROUTES: &[&str] = &["PUT /v1/following/{author}", "DELETE /v1/following/{author}", "POST /v1/following"];

/// Authors in one `POST /v1/following`.
const MAX_AUTHORS: usize = 50;

/// Answers one request.
///
/// # Errors
/// Never: failures are answers.
pub async fn handle(app: &App, event: LambdaEvent<ApiGatewayV2httpRequest>) -> Result<ApiGatewayV2httpResponse, Error> {
    Ok(serve(app, event, async |request| match request.route() {
        "PUT /v1/following/{author}" => follow(app, &request).await,
        "DELETE /v1/following/{author}" => unfollow(app, &request).await,
        "POST /v1/following" => follow_many(app, &request).await,
        route => Err(Problem::not_found(format!("no route {route}"))),
    })
    .await)
}

async fn follow(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    let outcome = follow_all(app, caller, &[author]).await?.pop();
    match outcome {
        Some((_, Ok(followed))) => Ok(Answer::json(200, &followed)),
        Some((_, Err(problem))) => Err(problem),
        None => Err(Problem::self_follow()),
    }
}

async fn unfollow(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    if app.edges.unfollow(caller, author, app.clock.now()).await?.is_some() {
        bring_in_line(app, caller, &[author]).await;
    }
    Ok(Answer::json(200, &json!({ "following": false })))
}

async fn follow_many(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let authors: Vec<UserId> = request.body()?.ids("authors", MAX_AUTHORS)?;
    let results: Vec<Value> = follow_all(app, caller, &authors)
        .await?
        .into_iter()
        .map(|(author, outcome)| match outcome {
            Ok(mut followed) => {
                followed["author"] = json!(author);
                followed
            }
            Err(problem) => json!({ "author": author, "following": false, "error": problem.summary() }),
        })
        .collect();
    Ok(Answer::json(200, &json!({ "results": results })))
}

/// Follows authors, each as if alone: in the asked order, one outcome for each time an author was named.
async fn follow_all(
    app: &App,
    caller: UserId,
    authors: &[UserId],
) -> Result<Vec<(UserId, Result<Value, Problem>)>, Problem> {
    let mut distinct: Vec<UserId> = Vec::new();
    for &author in authors {
        if author != caller && !distinct.contains(&author) {
            distinct.push(author);
        }
    }
    let heads = app.posts.heads(&distinct).await?;
    let outcomes = app.edges.follow(caller, &distinct, &heads, app.clock.now()).await?;
    let created: Vec<UserId> = distinct
        .iter()
        .zip(&outcomes)
        .filter(|(_, outcome)| matches!(outcome, Followed::Created(_)))
        .map(|(author, _)| *author)
        .collect();
    if !created.is_empty() {
        bring_in_line(app, caller, &created).await;
    }
    let outcome_of = |author: UserId| match distinct.iter().position(|known| *known == author).map(|index| &outcomes[index]) {
        None => Err(Problem::self_follow()),
        Some(Followed::LimitReached) => Err(Problem::following_limit(app.settings.following_limit)),
        Some(Followed::Created(edge)) => Ok(json!({ "following": true, "since": edge.since, "created": true })),
        Some(Followed::Existing(edge)) => Ok(json!({ "following": true, "since": edge.since, "created": false })),
    };
    Ok(authors.iter().map(|&author| (author, outcome_of(author))).collect())
}

/// Shows the change to the caller's next read. The edge stands whatever happens here: what cannot be done now is left to a worker and, in any case, to
/// the projector.
async fn bring_in_line(app: &App, caller: UserId, authors: &[UserId]) {
    let Err(error) = app.readers.sync(caller, authors).await else { return };
    warn!(user = %caller, error = &error as &dyn std::error::Error, "view not in line yet, leaving it to a worker");
    let tasks: Vec<Task> = authors.iter().map(|&author| Task::Sync { user: caller, author }).collect();
    if let Err(error) = app.queue.send(&tasks).await {
        warn!(user = %caller, error = &error as &dyn std::error::Error, "view left to the projector");
    }
}
