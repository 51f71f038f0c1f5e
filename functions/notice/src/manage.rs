//! Requests of administrators: publish, edit, delete.

use std::collections::BTreeSet;

use tidemark::{
    App,
    domain::{self, NoticeContent, NoticeId, Platform, notices::MAX_LIVE},
    facts::{KeyedEdit, NoticesPublished},
    http::{
        Kind, Problem, Request, Response,
        bodies::{EditNoticeRequest, EditedNotices, Notice, PublishNoticesRequest, PublishedNotices},
    },
    notices::NoticesEdited,
    reader::MOST_TEXT,
};

/// The maximum number of notices that one request edits or deletes.
const MAX_NOTICES: usize = 100;

/// The maximum number of platforms of an edit. Their heads are one transaction, which has at most 4 MB.
const MAX_PLATFORMS: usize = 32;

/// `POST /v1/notices`.
pub(crate) async fn publish(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (PublishNoticesRequest { platforms, title, body, expires_at }, key) = request.keyed_body()?;
    let content = NoticeContent { title, body, expires_at };
    let notices = match app.notices.publish(caller, &platforms, &content, key.as_ref()).await? {
        NoticesPublished::Created(created) => created.into_iter().map(|(notice, _)| notice).collect(),
        NoticesPublished::Repeated(notices) => notices,
        NoticesPublished::KeyReused => return Err(Problem::key_reused()),
        NoticesPublished::Expired => return Err(expired()),
        NoticesPublished::Full(platform) => {
            let detail = format!("platform {platform} has {MAX_LIVE} live notices, the maximum; nothing was published");
            return Err(Problem::new(Kind::NoticeLimit, detail));
        }
    };
    Ok(Response::json(201, &PublishedNotices { items: notices.into_iter().map(item).collect() }))
}

/// `PUT /v1/notices/{notice}`.
pub(crate) async fn edit(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let id: NoticeId = request.parameter("notice")?;
    let (EditNoticeRequest { title, body, expires_at, renotify }, key) = request.keyed_body()?;
    let content = NoticeContent { title, body, expires_at };
    let once = key.as_ref().map(|key| KeyedEdit { user: caller, operation: "notice-edit", key });
    let notices = standing(app.notices.edit(&[id], &content, renotify, once).await?)?;
    let notice = notices.into_iter().next().ok_or_else(|| crate::unknown(id))?;
    Ok(Response::json(200, &item(notice)))
}

/// `PUT /v1/notices?id=…&id=…`.
pub(crate) async fn edit_many(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (EditNoticeRequest { title, body, expires_at, renotify }, key) = request.keyed_body()?;
    let ids: Vec<NoticeId> = request.many("id", MAX_NOTICES)?;
    let platforms: BTreeSet<Platform> = ids.iter().map(|id| id.platform).collect();
    if platforms.len() > MAX_PLATFORMS {
        return Err(Problem::invalid("id", format!("must name at most {MAX_PLATFORMS} platforms")));
    }
    let most = MOST_TEXT / ids.len();
    if body.as_ref().is_some_and(|body| body.len() > most) {
        return Err(Problem::invalid("body", format!("must have at most {most} bytes for {} notices", ids.len())));
    }
    let content = NoticeContent { title, body, expires_at };
    let once = key.as_ref().map(|key| KeyedEdit { user: caller, operation: "notice-edits", key });
    let notices = standing(app.notices.edit(&ids, &content, renotify, once).await?)?;
    Ok(Response::json(200, &EditedNotices { items: notices.into_iter().map(item).collect() }))
}

/// The notices that stand after an edit.
fn standing(edited: NoticesEdited) -> Result<Vec<domain::Notice>, Problem> {
    match edited {
        NoticesEdited::Stand(notices) => Ok(notices),
        NoticesEdited::KeyReused => Err(Problem::key_reused()),
        NoticesEdited::Expired => Err(expired()),
        NoticesEdited::Unknown(id) => Err(crate::unknown(id)),
    }
}

/// `DELETE /v1/notices/{notice}`. It succeeds also if the notice does not exist.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Response, Problem> {
    app.notices.remove(&[request.parameter("notice")?]).await?;
    Ok(Response::no_content())
}

/// `DELETE /v1/notices?id=…&id=…`.
pub(crate) async fn delete_many(app: &App, request: &Request) -> Result<Response, Problem> {
    let ids: Vec<NoticeId> = request.many("id", MAX_NOTICES)?;
    app.notices.remove(&ids).await?;
    Ok(Response::no_content())
}

fn expired() -> Problem {
    Problem::invalid("expires_at", "must lie in the future")
}

/// Renders a notice for an administrator.
fn item(notice: domain::Notice) -> Notice {
    let (id, NoticeContent { title, body, expires_at }) = (notice.id, notice.content);
    Notice { id, platform: id.platform, seq: id.seq, title, body, created_at: notice.created_at, expires_at }
}
