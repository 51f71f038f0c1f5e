//! `PUT` and `DELETE /v1/posts/{post}/read`.

use serde_json::json;
use tidemark::{
    App,
    http::{Answer, Problem, Request},
    reader::{Flags, Origin},
};

use crate::change;

/// Marks one post read, or unread again.
pub(crate) async fn mark(app: &App, request: &Request, read: bool) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    let live = app.posts.posts(&[id]).await?.get(&id).is_some_and(|post| !post.deleted);
    if !live {
        return Err(Problem::not_found(format!("no post {id}")));
    }
    let changed = change::mark(app, caller, id.author, &[id.seq], read).await?;
    let snapshot = change::show(app, caller, std::slice::from_ref(&changed)).await?;
    let body = json!({
        "read": Flags::new(caller, id.author, changed.pair).is_read(id.seq),
        "unread": { "author": snapshot.state.unread_of(id.author), "total": snapshot.state.unread_total() },
    });
    Ok(Answer::json(200, &body).degraded(snapshot.origin == Origin::Degraded))
}
