//! `GET /v1/me/likes` and `GET /v1/me/favorites`.

use tidemark::{
    App,
    domain::{Cursor, Reaction},
    http::{Page, Problem, Request, Response, bodies::ReactedPage},
};

/// Returns one page of the posts that the caller likes, or has as favorites, newest reaction first.
pub(crate) async fn page(app: &App, request: &Request, reaction: Reaction) -> Result<Response, Problem> {
    let caller = request.caller()?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| if let Cursor::Reacted(key) = cursor { Some(key) } else { None })?;
    let parts = crate::parts(request)?;
    let found = app.readers.reacted_page(caller, reaction, before, page.limit, parts).await?;
    let shown = crate::shown(app, found.items, found.bodies, found.cards, parts).await?;
    let next = found.next.map(Cursor::Reacted);
    let response =
        Page::response(request, next, |next_cursor| ReactedPage { items: shown.items, next_cursor, profiles: shown.profiles });
    Ok(response.degraded(found.degraded || shown.degraded))
}
