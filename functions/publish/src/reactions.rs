//! `PUT` and `DELETE /v1/posts/{post}/like` and `…/favorite`.

use serde_json::json;
use tidemark::{
    App,
    domain::{Reaction, ReactionState, UserId},
    http::{Answer, Problem, Request},
    ports::{Reacted, Task},
};
use tracing::warn;

/// Gives a reaction or takes it back.
pub(crate) async fn react(app: &App, request: &Request, reaction: Reaction, given: bool) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.post_parameter()?;
    let state = match app.reactions.react(caller, id, reaction, given).await? {
        Reacted::Stands(state) => state,
        Reacted::Unknown => return Err(Problem::not_found(format!("no post {id}"))),
    };
    bring_in_line(app, caller, id.author, &state).await;
    let body = match reaction {
        Reaction::Like => json!({ "liked": given }),
        Reaction::Favorite => json!({ "favorited": given }),
    };
    Ok(Answer::json(200, &body))
}

/// Shows the caller's own pages the reaction and lets the author's counters be counted again, also when nothing has changed: an earlier request may have been cut off
/// before this. The fact stands whatever happens here: what cannot be done now is left to a worker.
async fn bring_in_line(app: &App, user: UserId, author: UserId, state: &ReactionState) {
    let shown = app.readers.reaction_views.change(user, author, state);
    // Both, whatever becomes of the other.
    let (shown, forgotten) = futures::join!(shown, app.relations.forget_counters(author, Some(user)));
    let Some(error) = shown.err().or(forgotten.err()) else { return };
    warn!(%user, %author, error = &error as &dyn std::error::Error, "views not in line yet, leaving them to a worker");
    if let Err(error) = app.later.sync(&[Task::sync(user, author)]).await {
        warn!(%user, %author, error = &error as &dyn std::error::Error, "views are in line after their lifetimes only");
    }
}
