//! `PUT`, `DELETE` and `POST /v1/following…`.

use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{Edge, UserId},
    http::{Answer, Problem, Request},
    ports::{Followed, Task},
    reader::ReaderError,
};
use tracing::warn;

/// Authors in one `POST /v1/following`.
const MAX_AUTHORS: usize = 50;

/// `PUT /v1/following/{author}`.
pub(crate) async fn follow(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    let outcome = follow_all(app, caller, &[author]).await?.pop();
    match outcome {
        Some((_, Ok(followed))) => Ok(Answer::json(200, &followed)),
        Some((_, Err(problem))) => Err(problem),
        None => Err(Problem::self_follow()),
    }
}

/// `DELETE /v1/following/{author}`.
pub(crate) async fn unfollow(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    if let Some(tombstone) = app.edges.unfollow(caller, author, app.clock.now()).await? {
        bring_in_line(app, caller, &[tombstone]).await;
    }
    Ok(Answer::json(200, &json!({ "following": false })))
}

/// `POST /v1/following`.
pub(crate) async fn follow_many(app: &App, request: &Request) -> Result<Answer, Problem> {
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
async fn follow_all(app: &App, caller: UserId, authors: &[UserId]) -> Result<Vec<(UserId, Result<Value, Problem>)>, Problem> {
    let mut distinct: Vec<UserId> = Vec::new();
    for &author in authors {
        if author != caller && !distinct.contains(&author) {
            distinct.push(author);
        }
    }
    let heads = app.posts.heads(&distinct).await?;
    let outcomes = app.edges.follow(caller, &distinct, &heads, app.clock.now()).await?;
    let created: Vec<Edge> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Followed::Created(edge) => Some(edge.clone()),
            Followed::Existing(_) | Followed::LimitReached => None,
        })
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
async fn bring_in_line(app: &App, caller: UserId, edges: &[Edge]) {
    let authors: Vec<UserId> = edges.iter().map(|edge| edge.author).collect();
    let feed = app.readers.sync_edges(caller, edges.to_vec());
    let lists = async { app.relations.apply(edges).await.map_err(ReaderError::View) };
    let Err(error) = futures::try_join!(feed, lists) else { return };
    warn!(user = %caller, error = &error as &dyn std::error::Error, "views not in line yet, leaving them to a worker");
    let tasks: Vec<Task> = authors.iter().map(|&author| Task::Sync { user: caller, author }).collect();
    if let Err(error) = app.queue.send(&tasks).await {
        warn!(user = %caller, error = &error as &dyn std::error::Error, "views left to the projector");
    }
}
