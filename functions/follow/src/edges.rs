//! `PUT`, `DELETE` and `POST /v1/following…`.

use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{Edge, UserId},
    http::{Answer, Problem, Request},
    ports::{Followed, Task},
    reader::ReaderError,
};

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
    let tombstone = match app.edges.unfollow(caller, author, app.clock.now()).await? {
        Some(tombstone) => Some(tombstone),
        // An earlier request may have ended between its fact and the views.
        None => app.edges.edges(caller, &[author]).await?.remove(&author).filter(|edge| !edge.following),
    };
    sync_or_enqueue(app, caller, tombstone.as_slice()).await?;
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
    // Also the edges that were there: an earlier request may have ended between its fact and the views.
    let edges: Vec<Edge> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Followed::Created(edge) | Followed::Existing(edge) => Some(edge.clone()),
            Followed::LimitReached => None,
        })
        .collect();
    sync_or_enqueue(app, caller, &edges).await?;
    let outcome_of = |author: UserId| match distinct.iter().position(|known| *known == author).map(|index| &outcomes[index]) {
        None => Err(Problem::self_follow()),
        Some(Followed::LimitReached) => Err(Problem::following_limit(app.settings.following_limit)),
        Some(Followed::Created(edge)) => Ok(json!({ "following": true, "since": edge.since, "created": true })),
        Some(Followed::Existing(edge)) => Ok(json!({ "following": true, "since": edge.since, "created": false })),
    };
    Ok(authors.iter().map(|&author| (author, outcome_of(author))).collect())
}

/// Shows the edges to the caller's next read. If Redis is unavailable, a `sync` task updates the views later, and in any case the projector does.
async fn sync_or_enqueue(app: &App, caller: UserId, edges: &[Edge]) -> Result<(), Problem> {
    if edges.is_empty() {
        return Ok(());
    }
    // Both, whatever becomes of the other.
    let (feed, lists) = futures::join!(app.readers.sync_edges(caller, edges.to_vec()), app.relations.apply(edges));
    let Some(error) = feed.err().or(lists.err().map(ReaderError::View)) else { return Ok(()) };
    let tasks: Vec<Task> = edges.iter().map(|edge| Task::sync(caller, edge.author)).collect();
    Ok(app.later.instead(&error, &tasks).await?)
}
