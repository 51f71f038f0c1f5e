//! `GET /v1/unread` and `GET /v1/unread/{author}`.

use tidemark::{
    App,
    http::{
        Problem, Request, Response,
        bodies::{UnreadCounts, UnreadOfAuthor},
    },
    reader::Origin,
};

/// Returns the total of all followed authors, or of those on a list, and the count of each author with unread posts.
pub(crate) async fn all(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let list = crate::list(app, request).await?;
    let snapshot = app.readers.snapshot(caller).await?;
    let state = snapshot.state.of_list(list);
    let authors = app.readers.unread_authors(&state).await?;
    let authors = authors.into_iter().map(|(author, unread)| UnreadOfAuthor { author, unread }).collect();
    let body = UnreadCounts { total: state.unread_total(), authors };
    Ok(Response::json(200, &body).tagged().degraded(snapshot.origin == Origin::Degraded))
}

pub(crate) async fn of_author(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let author = request.parameter("author")?;
    let snapshot = app.readers.snapshot(caller).await?;
    let body = UnreadOfAuthor { author, unread: snapshot.state.unread_of(author) };
    Ok(Response::json(200, &body).tagged().degraded(snapshot.origin == Origin::Degraded))
}
