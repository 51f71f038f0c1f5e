//! `GET /v1/authors/{author}/posts`: one author's posts with the caller's flags, from the facts.

use tidemark::{
    App,
    domain::Cursor,
    http::{Answer, Page, Problem, Request, bodies::TimelinePage},
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Answer, Problem> {
    let caller = request.caller()?;
    let author = request.user_parameter("author")?;
    let status = crate::status(request)?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| match cursor {
        Cursor::Author(seq) => Some(seq),
        Cursor::Feed(_) | Cursor::Relation(_) | Cursor::Notice(_) => None,
    })?;
    let found = app.readers.author_page(caller, author, status, before, page.limit).await?;
    let items = found.items.into_iter().map(crate::item).collect();
    let next = found.next.map(Cursor::Author);
    Ok(Page::answer(request, next, |next_cursor| TimelinePage { items, next_cursor, total: found.total }))
}
