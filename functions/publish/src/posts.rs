//! One post: publish, read, delete, react, delivery status.

use serde_json::json;
use tidemark::{
    App, Removal,
    domain::{self, DeliveryState, NewPost, PostId, Reaction},
    http::{
        Answer, Problem, Request,
        bodies::{Delivery, Favorited, Liked, Post, PublishPostRequest, PublishedPost},
    },
    ports::Published,
};

/// `POST /v1/posts`.
pub(crate) async fn publish(app: &App, request: &Request) -> Result<Answer, Problem> {
    let author = request.caller()?;
    let PublishPostRequest { title, body } = request.body()?;
    let new = NewPost { author, title, body };
    let key = request.idempotency_key(&json!([new.title, new.body]))?;
    let post = match app.publishing.publish(&new, key.as_ref()).await? {
        Published::Created(post, _) | Published::Repeated(post) => post,
        Published::KeyReused => return Err(Problem::key_reused()),
        Published::Full => return Err(Problem::post_limit()),
    };
    let body = PublishedPost {
        id: post.id,
        author: post.id.author,
        seq: post.id.seq,
        delivery: planned(&post),
        title: post.title,
        body: new.body,
        created_at: post.created_at,
    };
    Ok(Answer::json(201, &body).header("location", &format!("/v1/posts/{}", post.id)))
}

/// `GET /v1/posts/{post}`.
pub(crate) async fn get(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    let details = app.publishing.post(caller, id).await?.ok_or_else(|| unknown(id))?;
    let body = Post {
        id,
        author: id.author,
        seq: id.seq,
        title: details.post.title,
        body: details.body,
        created_at: details.post.created_at,
        read: details.read,
        liked: details.liked,
        favorited: details.favorited,
        likes: details.counts.likes,
        favorites: details.counts.favorites,
    };
    Ok(Answer::json(200, &body))
}

/// `DELETE /v1/posts/{post}`.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    match app.publishing.delete(caller, id).await? {
        Removal::Deleted => Ok(Answer::no_content()),
        Removal::NotAuthor => Err(Problem::forbidden("only its author may delete a post")),
        Removal::Unknown => Err(unknown(id)),
    }
}

/// `PUT` and `DELETE /v1/posts/{post}/like` and `…/favorite`.
pub(crate) async fn react(app: &App, request: &Request, reaction: Reaction, given: bool) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    if !app.publishing.react(caller, id, reaction, given).await? {
        return Err(unknown(id));
    }
    Ok(match reaction {
        Reaction::Like => Answer::json(200, &Liked { liked: given }),
        Reaction::Favorite => Answer::json(200, &Favorited { favorited: given }),
    })
}

/// `GET /v1/posts/{post}/delivery`.
pub(crate) async fn delivery(app: &App, request: &Request) -> Result<Answer, Problem> {
    request.caller()?;
    let id = request.post_parameter()?;
    let found = app.publishing.delivery(id).await?.ok_or_else(|| unknown(id))?;
    let body = Delivery {
        state: found.status.state,
        delivered: found.status.delivered,
        pages_done: found.status.pages_done,
        attempts: found.post.delivery.attempts.into(),
        finished_at: found.post.delivery.finished_at,
        ..planned(&found.post)
    };
    Ok(Answer::json(200, &body).degraded(found.degraded))
}

/// The delivery in the response to a publish. It is always the planned delivery, so that a repeated request gets the
/// same response.
fn planned(post: &domain::Post) -> Delivery {
    Delivery {
        mode: post.delivery.mode,
        state: DeliveryState::Pending,
        followers: post.delivery.followers,
        delivered: 0,
        pages: post.delivery.pages.into(),
        pages_done: 0,
        attempts: 0,
        started_at: post.delivery.started_at,
        finished_at: None,
    }
}

fn unknown(id: PostId) -> Problem {
    Problem::not_found(format!("no post {id}"))
}
