//! One post: publish, read, delete.

use serde_json::json;
use tidemark::{
    App,
    domain::{DeliveryState, NewPost},
    http::{Answer, Problem, Request},
    ports::{Deleted, FanOut, Published},
};

use crate::deliver;

/// `POST /v1/posts`.
pub(crate) async fn publish(app: &App, request: &Request) -> Result<Answer, Problem> {
    let author = request.caller()?;
    let body = request.body()?;
    let (title, text) = body.title_and_text()?;
    let new = NewPost { author, title, body: text };
    let key = request.idempotency_key(&json!([new.title, new.body]))?;

    let counts = app.edges.follower_counts(author).await?;
    let post = match app.posts.publish(&new, counts.iter().sum(), key.as_ref(), app.clock.now()).await? {
        Published::Created(post, head) => {
            deliver::start(app, FanOut::of(&post, &head)).await;
            post
        }
        Published::Repeated(post) => {
            // The first request may have ended before it started the fan-out. What is done of one is not sent again.
            if !post.deleted && post.delivery.state == DeliveryState::Pending {
                let head = app.posts.heads(&[author]).await?.remove(&author).unwrap_or_default();
                deliver::start(app, FanOut::of(&post, &head)).await;
            }
            post
        }
        Published::KeyReused => return Err(Problem::key_reused()),
        Published::Full => return Err(Problem::post_limit()),
    };
    let answer = json!({
        "id": post.id,
        "author": post.id.author,
        "seq": post.id.seq,
        "title": post.title,
        "body": new.body,
        "created_at": post.created_at,
        "delivery": deliver::planned(&post),
    });
    Ok(Answer::json(201, &answer).header("location", &format!("/v1/posts/{}", post.id)))
}

/// `GET /v1/posts/{post}`.
pub(crate) async fn get(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    let wanted = [id];
    let (mut posts, body) = futures::try_join!(app.posts.posts(&wanted), app.posts.body(id))?;
    let post = posts.remove(&id).filter(|post| !post.deleted).ok_or_else(|| Problem::not_found(format!("no post {id}")))?;
    let counts = async { Ok(app.reactions.counts(id).await?) };
    let (flags, reactions, counts) =
        futures::try_join!(app.readers.flags(caller, id.author), app.readers.reactions_to(caller, id.author), counts)?;
    let answer = json!({
        "id": post.id,
        "author": post.id.author,
        "seq": post.id.seq,
        "title": post.title,
        "body": body,
        "created_at": post.created_at,
        "read": flags.is_read(id.seq),
        "liked": reactions.liked.contains(id.seq),
        "favorited": reactions.favorited.contains(id.seq),
        "likes": counts.likes,
        "favorites": counts.favorites,
    });
    Ok(Answer::json(200, &answer))
}

/// `DELETE /v1/posts/{post}`.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    if id.author != caller {
        // Somebody else's post is refused, one that never was is not there, whoever asks.
        let known = app.posts.posts(&[id]).await?.contains_key(&id);
        return Err(if known {
            Problem::forbidden("only its author deletes a post")
        } else {
            Problem::not_found(format!("no post {id}"))
        });
    }
    let counts = app.edges.follower_counts(caller).await?;
    let followers = counts.iter().sum();
    match app.posts.delete(id, followers).await? {
        Deleted::Deleted(post, head) => deliver::start(app, FanOut::of(&post, &head)).await,
        Deleted::Already(_) => {}
        Deleted::Unknown => return Err(Problem::not_found(format!("no post {id}"))),
    }
    Ok(Answer::no_content())
}
