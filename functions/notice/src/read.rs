//! Lists, one notice, counts.

use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{Cursor, ParseIdError, Platform},
    http::{Answer, Page, Problem, Request},
    notices::NoticeItem,
};

/// `GET /v1/notices?platform=`.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let platform = platform(request)?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| match cursor {
        Cursor::Notice(seq) => Some(seq),
        Cursor::Feed(_) | Cursor::Author(_) | Cursor::Relation(_) => None,
    })?;
    let found = app.notices.page(platform, caller, before, page.limit).await?;
    let items: Vec<Value> = found.items.iter().map(item).collect();
    Ok(Page::answer(request, items, found.next.map(Cursor::Notice), json!({})).degraded(found.degraded))
}

/// `GET /v1/notices/{notice}`.
pub(crate) async fn one(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let id = request.notice_parameter()?;
    let (notice, live, read) = app.notices.notice(caller, id).await?.ok_or_else(|| crate::unknown(id))?;
    let mut answer = json!({
        "id": id,
        "platform": id.platform,
        "seq": id.seq,
        "title": notice.content.title,
        "body": notice.content.body,
        "created_at": notice.created_at,
        "expires_at": live.expires_at,
        "read": read,
    });
    if request.has_scope(crate::WRITE) {
        answer["readers"] = json!(app.notices.readers(id.platform, &live).await?);
    }
    Ok(Answer::json(200, &answer))
}

/// `GET /v1/notices/unread?platform=`.
pub(crate) async fn unread(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let board = app.notices.board(platform(request)?, caller).await?;
    let counts = board.counts();
    let body = json!({ "unread": counts.unread, "read": counts.read });
    Ok(Answer::json(200, &body).tagged().degraded(board.degraded))
}

/// `?platform=`.
fn platform(request: &Request) -> Result<Platform, Problem> {
    let text = request.query("platform").ok_or_else(|| Problem::invalid("platform", "is required"))?;
    text.parse().map_err(|error: ParseIdError| Problem::invalid("platform", error.to_string()))
}

fn item(item: &NoticeItem) -> Value {
    json!({ "id": item.id, "title": item.title, "created_at": item.created_at, "read": item.read })
}
