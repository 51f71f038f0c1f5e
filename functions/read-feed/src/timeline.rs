//! `GET /v1/authors/{author}/posts`: one author's posts with the caller's flags.

use tidemark::{
    App,
    domain::Cursor,
    http::{Page, Problem, Request, Response, bodies::TimelinePage},
    reader::{AuthorQuery, Blocked},
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let author = request.parameter("author")?;
    let page = Page::of(request)?;
    let of_author = |cursor| if let Cursor::Author(seq) = cursor { Some(seq) } else { None };
    let (before, since) = (page.position(of_author)?, page.end(of_author)?);
    let (status, parts) = (crate::status(request)?, crate::parts(request)?);
    let query = AuthorQuery { author, status, before, limit: page.limit, since, parts };
    let found = app.readers.author_page(caller, query).await?.map_err(|Blocked| Problem::blocked())?;
    let first = before.is_none().then(|| found.items.first().map_or(since.unwrap_or(0), |item| item.post.id.seq));
    let shown = crate::shown(app, found.items, found.bodies, found.cards, parts).await?;
    let response = Page::response(request, found.next.map(Cursor::Author), |next_cursor| TimelinePage {
        items: shown.items,
        next_cursor,
        first_cursor: first.map(Cursor::Author).map(Page::first),
        profiles: shown.profiles,
        total: found.total,
    });
    Ok(response.degraded(found.degraded || shown.degraded))
}
