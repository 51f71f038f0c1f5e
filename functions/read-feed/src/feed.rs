//! `GET /v1/feed`: one page of the caller's feed.

use tidemark::{
    App,
    domain::{Cursor, Trail},
    http::{Page, Problem, Request, Response, bodies::FeedPage},
    reader::{self, FeedQuery, Origin},
    views::PageParts,
};

pub(crate) async fn page(app: &App, request: &Request) -> Result<Response, Problem> {
    match request.query("order") {
        None | Some("time") => by_time(app, request).await,
        Some("ranked") => ranked(app, request).await,
        Some(_) => Err(Problem::invalid("order", "must be time or ranked")),
    }
}

async fn by_time(app: &App, request: &Request) -> Result<Response, Problem> {
    let of_time = |cursor| if let Cursor::Feed(key, trail) = cursor { Some((key, trail)) } else { None };
    let query = query(app, request, of_time).await?;
    let parts = query.parts;
    let feed = app.readers.feed_page(request.caller()?, query).await?;
    rendered(app, request, parts, feed, Cursor::Feed).await
}

async fn ranked(app: &App, request: &Request) -> Result<Response, Problem> {
    let of_ranks = |cursor| if let Cursor::Ranked(place, trail) = cursor { Some((place, trail)) } else { None };
    let query = query(app, request, of_ranks).await?;
    let parts = query.parts;
    let feed = app.readers.ranked_page(request.caller()?, query).await?;
    rendered(app, request, parts, feed, Cursor::Ranked).await
}

async fn query<Place>(
    app: &App,
    request: &Request,
    of_order: impl FnOnce(Cursor) -> Option<(Place, Trail)>,
) -> Result<FeedQuery<Place>, Problem> {
    let page = Page::of(request)?;
    let before = page.position(of_order)?;
    let since = page.end(|cursor| if let Cursor::Since(since) = cursor { Some(since) } else { None })?;
    let (status, parts) = (request.status()?, crate::parts(request)?);
    let list = crate::list(app, request).await?;
    Ok(FeedQuery { list, status, before, limit: page.limit, since, parts })
}

async fn rendered<Place>(
    app: &App,
    request: &Request,
    parts: PageParts,
    feed: reader::FeedPage<Place>,
    cursor: impl FnOnce(Place, Trail) -> Cursor,
) -> Result<Response, Problem> {
    let shown = crate::shown(app, feed.items, feed.bodies, feed.cards, parts).await?;
    let next = feed.next.map(|(place, trail)| cursor(place, trail));
    let response = Page::response(request, next, |next_cursor| FeedPage {
        items: shown.items,
        next_cursor,
        first_cursor: feed.first.map(|since| Page::first(&Cursor::Since(since))),
        profiles: shown.profiles,
        unread_total: feed.unread_total,
        rebuilding: feed.origin == Origin::Rebuilding,
    });
    let response = if request.query("cursor").is_none() { response.tagged() } else { response };
    Ok(response.degraded(feed.origin == Origin::Degraded || shown.degraded))
}
