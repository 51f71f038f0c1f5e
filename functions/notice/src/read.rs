//! Requests of readers: lists, one notice, counts, marks.

use tidemark::{
    App,
    domain::{self, Cursor, NoticeId, ParseIdError, Platform},
    http::{
        Page, Problem, Request, Response,
        bodies::{
            MarkNoticesReadRequest, NoticeCounts, NoticeItem, NoticeMarked, NoticePage, NoticesMarked, PlatformCounts, ReadNotice,
        },
    },
    notices::NoticeRange,
    once::Once,
};

/// The maximum number of platforms whose notices one request counts.
const MAX_PLATFORMS: usize = 100;

/// `GET /v1/notices?platform=`.
pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let platform = platform(request)?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| if let Cursor::Notice(seq) = cursor { Some(seq) } else { None })?;
    let with_bodies = match request.query("include") {
        None => false,
        Some("body") => true,
        Some(_) => return Err(Problem::invalid("include", "must be body")),
    };
    let range = NoticeRange { status: request.status()?, before, limit: page.limit, with_bodies };
    let found = app.notices.page(platform, caller, &range).await?;
    let items = found.items.into_iter().map(|item| NoticeItem {
        id: item.id,
        title: item.title,
        created_at: item.created_at,
        read: item.read,
        platform: with_bodies.then_some(item.id.platform),
        seq: with_bodies.then_some(item.id.seq),
        body: item.body,
        expires_at: with_bodies.then_some(item.expires_at),
    });
    let (items, next) = (items.collect(), found.next.map(Cursor::Notice));
    Ok(Page::response(request, next, |next_cursor| NoticePage { items, next_cursor }).degraded(found.degraded))
}

/// `GET /v1/notices/{notice}`.
pub(crate) async fn one(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let id: NoticeId = request.parameter("notice")?;
    let administers = request.has_scope(crate::WRITE);
    if !administers {
        request.require_platform(id.platform)?;
    }
    let (notice, live, read) = app.notices.notice(caller, id).await?.ok_or_else(|| crate::unknown(id))?;
    let readers = match administers {
        true => Some(app.stores.facts.notice_readers(id.platform, live.slot).await?),
        false => None,
    };
    let body = ReadNotice {
        id,
        platform: id.platform,
        seq: id.seq,
        title: notice.content.title,
        body: notice.content.body,
        created_at: notice.created_at,
        expires_at: live.expires_at,
        read,
        readers,
    };
    Ok(Response::json(200, &body))
}

/// `GET /v1/notices/unread?platform=…&platform=…`.
pub(crate) async fn unread(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let platforms: Vec<Platform> = request.many("platform", MAX_PLATFORMS)?;
    platforms.iter().try_for_each(|&platform| request.require_platform(platform))?;
    let (counts, degraded) = app.notices.counts(&platforms, caller).await?;
    let platforms = platforms.into_iter().zip(&counts);
    let body = NoticeCounts {
        unread: counts.iter().map(|counts| counts.unread).sum(),
        read: counts.iter().map(|counts| counts.read).sum(),
        platforms: platforms.map(|(platform, &counts)| of_platform(platform, counts)).collect(),
    };
    Ok(Response::json(200, &body).tagged().degraded(degraded))
}

fn of_platform(platform: Platform, counts: domain::NoticeCounts) -> PlatformCounts {
    PlatformCounts { platform, unread: counts.unread, read: counts.read }
}

/// `PUT` and `DELETE /v1/notices/{notice}/read`.
pub(crate) async fn mark(app: &App, request: &Request) -> Result<Response, Problem> {
    let (caller, read) = (request.caller()?, request.is_put());
    let id: NoticeId = request.parameter("notice")?;
    request.require_platform(id.platform)?;
    let marked = app.notices.mark(caller, id, read).await?.ok_or_else(|| crate::unknown(id))?;
    let body = NoticeMarked { read, unread: marked.counts.unread };
    Ok(Response::json(200, &body).degraded(marked.degraded))
}

/// `POST /v1/notices/reads`.
pub(crate) async fn mark_through(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let (MarkNoticesReadRequest { platform, through }, key) = request.keyed_body()?;
    request.require_platform(platform)?;
    let marked = app.notices.mark_through(caller, platform, through, key.as_ref()).await?;
    let Once::Done(marked) = marked else { return Err(Problem::key_reused()) };
    let body = NoticesMarked { changed: marked.changed, unread: marked.counts.unread, read: marked.counts.read };
    Ok(Response::json(200, &body).degraded(marked.degraded))
}

/// `?platform=`, a platform whose notices the caller may see.
fn platform(request: &Request) -> Result<Platform, Problem> {
    let text = request.query("platform").ok_or_else(|| Problem::invalid("platform", "is required"))?;
    let platform = text.parse().map_err(|error: ParseIdError| Problem::invalid("platform", error.to_string()))?;
    request.require_platform(platform)?;
    Ok(platform)
}
