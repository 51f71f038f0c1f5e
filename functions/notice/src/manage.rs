//! Requests of administrators: publish, edit, delete.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidemark::{
    App,
    domain::{Notice, NoticeContent, NoticeId, Platform},
    http::{Answer, Body, Problem, Request},
    ports::NoticesPublished,
};

/// The most platforms in one request. All of its notices are one transaction, which has at most 100 items and 4 MB.
const MAX_PLATFORMS: usize = 32;

/// The most notices that one request deletes.
const MAX_DELETIONS: usize = 100;

/// `POST /v1/notices`. A platform that is named twice gets one notice.
pub(crate) async fn publish(app: &App, request: &Request) -> Result<Answer, Problem> {
    request.require_scope(crate::WRITE)?;
    let caller = request.caller()?;
    let body = request.body()?;
    let mut seen = BTreeSet::new();
    let mut platforms: Vec<Platform> = body.platforms("platforms", MAX_PLATFORMS)?;
    platforms.retain(|&platform| seen.insert(platform));
    let content = content(&body)?;
    let meaning = json!([platforms, content.title, content.body, content.expires_at]);
    let key = request.idempotency_key(&meaning)?;
    let notices = match app.notices.publish(caller, &platforms, &content, key.as_ref()).await? {
        NoticesPublished::Created(created) => created.into_iter().map(|(notice, _)| notice).collect(),
        NoticesPublished::Repeated(notices) => notices,
        NoticesPublished::KeyReused => return Err(Problem::key_reused()),
        NoticesPublished::Expired => return Err(expired()),
        NoticesPublished::Full(platform) => return Err(Problem::notice_limit(platform)),
    };
    let items: Vec<Value> = notices.iter().map(item).collect();
    Ok(Answer::json(201, &json!({ "items": items })))
}

/// `PUT /v1/notices/{notice}`.
pub(crate) async fn edit(app: &App, request: &Request) -> Result<Answer, Problem> {
    request.require_scope(crate::WRITE)?;
    let id = request.notice_parameter()?;
    let body = request.body()?;
    let content = content(&body)?;
    let renotify = body.flag("renotify")?;
    if content.expires_at.is_some_and(|at| at <= app.stores.clock.now()) {
        return Err(expired());
    }
    let notice = app.notices.edit(id, &content, renotify).await?.ok_or_else(|| crate::unknown(id))?;
    Ok(Answer::json(200, &item(&notice)))
}

/// `DELETE /v1/notices/{notice}`. It succeeds also if the notice does not exist.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Answer, Problem> {
    request.require_scope(crate::WRITE)?;
    app.notices.remove(&[request.notice_parameter()?]).await?;
    Ok(Answer::no_content())
}

/// `DELETE /v1/notices?id=…&id=…`.
pub(crate) async fn delete_many(app: &App, request: &Request) -> Result<Answer, Problem> {
    request.require_scope(crate::WRITE)?;
    let ids = request.query_pairs().iter().filter(|(name, _)| name == "id");
    let ids: Result<Vec<NoticeId>, _> = ids.map(|(_, id)| id.parse()).collect();
    let ids = ids.map_err(|error: tidemark::domain::ParseIdError| Problem::invalid("id", error.to_string()))?;
    if !(1..=MAX_DELETIONS).contains(&ids.len()) {
        return Err(Problem::invalid("id", format!("must be given 1 to {MAX_DELETIONS} times")));
    }
    app.notices.remove(&ids).await?;
    Ok(Answer::no_content())
}

fn content(body: &Body) -> Result<NoticeContent, Problem> {
    let (title, text) = body.title_and_text()?;
    Ok(NoticeContent { title, body: text, expires_at: body.optional_time("expires_at")? })
}

fn expired() -> Problem {
    Problem::invalid("expires_at", "must lie in the future")
}

/// Renders a notice for an administrator.
fn item(notice: &Notice) -> Value {
    json!({
        "id": notice.id,
        "platform": notice.id.platform,
        "seq": notice.id.seq,
        "title": notice.content.title,
        "body": notice.content.body,
        "created_at": notice.created_at,
        "expires_at": notice.content.expires_at,
    })
}
