//! `PUT` and `DELETE /v1/posts/{post}/read`, `POST /v1/reads`.

use tidemark::{
    App, MarkForm,
    http::{
        Problem, Request, Response,
        bodies::{MarkReadRequest, PostMarked, PostsMarked},
    },
    once::Once,
    reader::Origin,
};

/// Marks one post read, or unread again.
pub(crate) async fn one(app: &App, request: &Request) -> Result<Response, Problem> {
    let (viewer, read) = (request.viewer()?, request.is_put());
    let id = request.parameter("post")?;
    let marked = app.marking.mark_post(viewer, id, read).await?.map_err(|withheld| Problem::withheld(withheld, id))?;
    let state = &marked.snapshot.state;
    let (author, unread, total) = (id.author, state.unread_of(id.author), state.unread_total());
    let body = PostMarked { read: marked.read, author, unread, total };
    Ok(Response::json(200, &body).degraded(marked.snapshot.origin == Origin::Degraded))
}

/// Marks a list of posts, an author's posts up to a number, or all posts before a time.
pub(crate) async fn many(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let (body, key) = request.keyed_body()?;
    let form = match body {
        MarkReadRequest::Posts(form) => MarkForm::Posts(form.posts),
        MarkReadRequest::Through(form) => MarkForm::Through(form.author, form.through),
        MarkReadRequest::All(form) => MarkForm::Before(form.before),
    };
    let Once::Done(marked) = app.marking.mark_many(viewer, form, key.as_ref()).await? else {
        return Err(Problem::key_reused());
    };
    let body = PostsMarked { changed: marked.changed, total: marked.total };
    Ok(Response::json(200, &body).degraded(marked.degraded))
}
