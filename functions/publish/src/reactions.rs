//! `PUT` and `DELETE /v1/posts/{post}/like` and `…/favorite`.

use serde_json::json;
use tidemark::{
    App,
    domain::{Reaction, ReactionState, UserId},
    http::{Answer, Problem, Request},
    ports::{Reacted, Task},
};

/// Gives a reaction or takes it back.
pub(crate) async fn react(app: &App, request: &Request, reaction: Reaction, given: bool) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    let state = match app.reactions.react(caller, id, reaction, given).await? {
        Reacted::Stands(state) => state,
        Reacted::Unknown => return Err(Problem::not_found(format!("no post {id}"))),
    };
    sync_or_enqueue(app, caller, id.author, &state).await?;
    let body = match reaction {
        Reaction::Like => json!({ "liked": given }),
        Reaction::Favorite => json!({ "favorited": given }),
    };
    Ok(Answer::json(200, &body))
}

/// Shows the caller's own pages the reaction and lets the author's counters be counted again, also when nothing has changed: an earlier request may have been cut off
/// before this. If Redis is unavailable, a `sync` task updates both later.
async fn sync_or_enqueue(app: &App, user: UserId, author: UserId, state: &ReactionState) -> Result<(), Problem> {
    let shown = app.readers.reaction_views.change(user, author, state);
    // Both, whatever becomes of the other.
    let (shown, forgotten) = futures::join!(shown, app.relations.forget_counters(author, Some(user)));
    let Some(error) = shown.err().or(forgotten.err()) else { return Ok(()) };
    Ok(app.later.instead(&error, &[Task::sync(user, author)]).await?)
}
