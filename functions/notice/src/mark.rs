//! Marks notices read and unread.

use serde_json::json;
use tidemark::{
    App,
    http::{Answer, Problem, Request},
};

/// `PUT` and `DELETE /v1/notices/{notice}/read`.
pub(crate) async fn one(app: &App, request: &Request, read: bool) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.notice_parameter()?;
    let marked = app.notices.mark(caller, id, read).await?.ok_or_else(|| crate::unknown(id))?;
    let body = json!({ "read": read, "unread": marked.board.counts().unread });
    Ok(Answer::json(200, &body).degraded(marked.board.degraded))
}

/// `POST /v1/notices/reads`.
pub(crate) async fn through(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let body = request.body()?;
    let (platform, seq) = (body.platform("platform")?, body.seq("through")?);
    let marked = app.notices.mark_through(caller, platform, seq).await?;
    let counts = marked.board.counts();
    let body = json!({ "changed": marked.changed, "unread": counts.unread, "read": counts.read });
    Ok(Answer::json(200, &body).degraded(marked.board.degraded))
}
