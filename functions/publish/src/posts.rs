//! One post: publish, read, delete.

use serde_json::json;
use sha2::{Digest, Sha256};
use tidemark::{
    App,
    domain::NewPost,
    http::{Answer, Problem, Request},
    ports::{Deleted, FanOut, IdempotencyKey, Published},
};

use crate::deliver;

const MAX_TITLE: usize = 200;
const MAX_BODY: usize = 64 * 1024;
const MAX_KEY: usize = 128;

/// `POST /v1/posts`.
pub(crate) async fn publish(app: &App, request: &Request) -> Result<Answer, Problem> {
    let author = request.caller()?;
    let body = request.body()?;
    let title = body.text("title", 1, MAX_TITLE)?.to_owned();
    let text = body.optional_text("body", 0, MAX_BODY)?.map(str::to_owned);
    if text.as_ref().is_some_and(|text| text.len() > MAX_BODY) {
        return Err(Problem::invalid("body", format!("must have at most {MAX_BODY} bytes")));
    }
    let new = NewPost { author, title, body: text };
    let key = idempotency_key(request, &new)?;

    let counts = app.edges.follower_counts(author).await?;
    let post = match app.posts.publish(&new, counts.iter().sum(), key.as_ref(), app.clock.now()).await? {
        Published::Created(post, head) => {
            deliver::start(app, FanOut::of(&post, &head)).await;
            post
        }
        Published::Repeated(post) => post,
        Published::KeyReused => return Err(Problem::key_reused()),
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

/// The `Idempotency-Key` header and what the request hashes to.
fn idempotency_key(request: &Request, post: &NewPost) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(key) = request.printable_header("Idempotency-Key", MAX_KEY)? else { return Ok(None) };
    let body = json!([post.title, post.body]).to_string();
    let fingerprint = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(IdempotencyKey { key: key.to_owned(), fingerprint }))
}
