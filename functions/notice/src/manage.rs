//! Requests of administrators: publish, edit, delete.

use tidemark::{
    App,
    domain::{self, NoticeContent, NoticeId, notices::MAX_LIVE},
    facts::NoticesPublished,
    http::{
        Kind, Problem, Request, Response,
        bodies::{EditNoticeRequest, Notice, PublishNoticesRequest, PublishedNotices},
    },
    notices::NoticeEdited,
};

const MAX_DELETIONS: usize = 100;

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
    match app.notices.edit(caller, id, &content, renotify, key.as_ref()).await? {
        NoticeEdited::Stands(notice) => Ok(Response::json(200, &item(notice))),
        NoticeEdited::KeyReused => Err(Problem::key_reused()),
        NoticeEdited::Expired => Err(expired()),
        NoticeEdited::Unknown => Err(crate::unknown(id)),
    }
}

/// `DELETE /v1/notices/{notice}`. It succeeds also if the notice does not exist.
pub(crate) async fn delete(app: &App, request: &Request) -> Result<Response, Problem> {
    app.notices.remove(&[request.parameter("notice")?]).await?;
    Ok(Response::no_content())
}

/// `DELETE /v1/notices?id=…&id=…`.
pub(crate) async fn delete_many(app: &App, request: &Request) -> Result<Response, Problem> {
    let ids: Vec<NoticeId> = request.many("id", MAX_DELETIONS)?;
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
