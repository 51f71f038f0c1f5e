//! Marks notices read and unread.

use tidemark::{
    App,
    domain::NoticeId,
    http::{
        Problem, Request, Response,
        bodies::{MarkNoticesReadRequest, NoticeMarked, NoticesMarked},
    },
};

/// `PUT` and `DELETE /v1/notices/{notice}/read`.
pub(crate) async fn one(app: &App, request: &Request, read: bool) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let id: NoticeId = request.parameter("notice")?;
    request.require_platform(id.platform)?;
    let marked = app.notices.mark(caller, id, read).await?.ok_or_else(|| crate::unknown(id))?;
    let body = NoticeMarked { read, unread: marked.board.counts().unread };
    Ok(Response::json(200, &body).degraded(marked.board.degraded))
}

/// `POST /v1/notices/reads`.
pub(crate) async fn through(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let MarkNoticesReadRequest { platform, through } = request.body()?;
    request.require_platform(platform)?;
    let marked = app.notices.mark_through(caller, platform, through).await?;
    let counts = marked.board.counts();
    let body = NoticesMarked { changed: marked.changed, unread: counts.unread, read: counts.read };
    Ok(Response::json(200, &body).degraded(marked.board.degraded))
}
