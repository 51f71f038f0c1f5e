//! `PUT` and `DELETE /v1/posts/{post}/read`, `POST /v1/reads`.

use tidemark::{
    App,
    http::{
        Problem, Request, Response,
        bodies::{MarkReadRequest, PostMarked, PostsMarked, UnreadAfterMark, UnreadTotal},
    },
    reader::Origin,
};

/// Marks one post read, or unread if `read` is false.
pub(crate) async fn one(app: &App, request: &Request, read: bool) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let id = request.parameter("post")?;
    let marked = Problem::unless_found(id, app.marking.mark_post(caller, id, read).await?)?;
    let state = &marked.snapshot.state;
    let unread = UnreadAfterMark { author: state.unread_of(id.author), total: state.unread_total() };
    let body = PostMarked { read: marked.read, unread };
    Ok(Response::json(200, &body).degraded(marked.snapshot.origin == Origin::Degraded))
}

/// Marks a list of posts, an author's posts up to a number, or all posts before a time.
pub(crate) async fn many(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let marked = match request.body()? {
        MarkReadRequest::Posts(form) => app.marking.mark_posts(caller, &form.posts).await?,
        MarkReadRequest::Through(form) => app.marking.mark_through(caller, form.author, form.through).await?,
        MarkReadRequest::All(form) => app.marking.mark_before(caller, form.before).await?,
    };
    let total = marked.snapshot.state.unread_total();
    let body = PostsMarked { changed: marked.changed, unread: UnreadTotal { total } };
    Ok(Response::json(200, &body).degraded(marked.snapshot.origin == Origin::Degraded))
}
