//! `GET /v1/authors/{author}/posts`, `GET /v1/me/likes` and `GET /v1/me/favorites`, with the caller's flags.

use tidemark::{
    App,
    domain::{Cursor, Reaction},
    http::{
        Page, Problem, Request, Response,
        bodies::{ReactedPage, TimelinePage},
    },
    reader::AuthorQuery,
};

/// Returns one page of an author's posts, newest first.
pub(crate) async fn of_author(app: &App, request: &Request) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let author = request.parameter("author")?;
    let page = Page::of(request)?;
    let of_author = |cursor| if let Cursor::Author(seq) = cursor { Some(seq) } else { None };
    let (before, since) = (page.position(of_author)?, page.end(of_author)?);
    let (status, parts) = (request.status()?, crate::parts(request)?);
    let query = AuthorQuery { author, status, before, limit: page.limit, since, parts };
    let found = app.readers.author_page(viewer, query).await?;
    let found = found.map_err(|withheld| Problem::withheld(withheld, format_args!("of {author}")))?;
    let first = before.is_none().then(|| found.items.first().map_or(since.unwrap_or(0), |item| item.post.id.seq));
    let shown = crate::shown(app, viewer, found.items, found.bodies, found.cards, parts).await?;
    let response = Page::response(request, found.next.map(Cursor::Author), |next_cursor| TimelinePage {
        items: shown.items,
        next_cursor,
        first_cursor: first.map(|seq| Page::first(&Cursor::Author(seq))),
        profiles: shown.profiles,
        total: found.total,
    });
    Ok(response.degraded(found.degraded || shown.degraded))
}

/// Returns one page of the posts that the caller likes, or has as favorites, newest reaction first.
pub(crate) async fn of_reaction(app: &App, request: &Request, reaction: Reaction) -> Result<Response, Problem> {
    let viewer = request.viewer()?;
    let page = Page::of(request)?;
    let before = page.position(|cursor| if let Cursor::Reacted(key) = cursor { Some(key) } else { None })?;
    let parts = crate::parts(request)?;
    let found = app.readers.reacted_page(viewer, reaction, before, page.limit, parts).await?;
    let shown = crate::shown(app, viewer, found.items, found.bodies, found.cards, parts).await?;
    let next = found.next.map(Cursor::Reacted);
    let response =
        Page::response(request, next, |next_cursor| ReactedPage { items: shown.items, next_cursor, profiles: shown.profiles });
    Ok(response.degraded(found.degraded || shown.degraded))
}
